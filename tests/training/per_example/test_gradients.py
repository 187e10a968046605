"""Clipped sums of single examples' gradients: as autograd gives them one by one, whatever the passes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ringfence as rf
from ringfence.noise import Noise
from ringfence.training.kernels.clipped_sums import Together
from ringfence.training.per_example.gradients import ExampleGradients
from tests.training.engine.runs import INPUTS, LABELS, clipped_sum, network
from tests.training.per_example.alone import agree, bounded, drawn, gradients_alone, seeded, words

CPU = torch.device("cpu")


def cotangents(outputs: torch.Tensor) -> torch.Tensor:
    outputs = outputs.clone().requires_grad_()
    nn.functional.cross_entropy(outputs, LABELS, reduction="sum").backward()
    return outputs.grad


@pytest.mark.parametrize("clip", [rf.Clamp(0.05), rf.Scale(0.05), rf.Clamp(1e9), rf.Norm(0.2)])
@pytest.mark.parametrize("budget", [1, 100_000, 1 << 30])
def test_the_sum_is_that_of_autograd(clip: rf.Clip, budget: int) -> None:
    model = network()
    gradients = ExampleGradients(model, budget)
    outputs = gradients.forward(((INPUTS,), {}))
    assert torch.allclose(outputs, model(INPUTS), atol=1e-6)
    ours = gradients.clipped_sum(((INPUTS,), {}), cotangents(outputs), clip)
    assert torch.allclose(ours, clipped_sum(model, INPUTS, LABELS, clip), atol=1e-5)


def test_a_budget_of_nothing_takes_examples_one_by_one() -> None:
    gradients, inputs = ExampleGradients(network(), 1), ((INPUTS[:3],), {})
    gradients.forward(inputs)
    assert [one.count for one in gradients._passes(inputs)] == [1, 1, 1]


def test_the_budget_counts_activations_and_gradients_that_are_formed() -> None:
    inputs = ((INPUTS,), {})
    small, large = (ExampleGradients(network(*extra), 1 << 16) for extra in ((), (nn.Linear(18, 18),)))
    counts = []
    for gradients in (small, large):
        slopes = torch.ones_like(gradients.forward(inputs))
        counts.append([len(rows) for _, rows in gradients.each(inputs, slopes)])
        assert max(counts[-1]) * 3 * 4 * gradients.size <= (1 << 16) / 4
    assert small._at_once(inputs) > large._at_once(inputs)
    assert max(counts[0]) > max(counts[1])
    assert sum(counts[0]) == sum(counts[1]) == len(INPUTS)


def test_nothing_is_left_on_the_model() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = ExampleGradients(model)
    gradients.clipped_sum(((INPUTS,), {}), torch.ones(60, 2), rf.Clamp(1.0))
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    for layer in model.modules():
        assert not layer._forward_hooks
        assert not layer._backward_hooks
        assert not layer._forward_pre_hooks
        assert set(vars(layer)) == set(vars(type(layer)(*_arguments(layer))))


def _arguments(layer: nn.Module) -> tuple[object, ...]:
    if isinstance(layer, nn.Conv2d):
        return (1, 2, 2)
    return (18, 2) if isinstance(layer, nn.Linear) else ()


def test_dropout_draws_the_same_masks_forward_and_backward() -> None:
    """The gradient belongs to the output that the loss was taken of: zero where it was dropped."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 1, bias=False))
    inputs = ((torch.ones(50, 16),), {})
    gradients = ExampleGradients(model, 4_000)  # several chunks
    with Noise(5).global_draws("forward", device=CPU):
        outputs = gradients.forward(inputs)
    with Noise(5).global_draws("forward", device=CPU):
        total = gradients.clipped_sum(inputs, torch.ones(50, 1), rf.Clamp(1e9))
    # for a linear model the outputs are the sum of weights times what was let through
    assert torch.allclose(outputs.sum(), (total * model[1].weight.detach()).sum(), atol=1e-4)
    assert len(set(outputs.reshape(-1).tolist())) > 25  # different masks for different examples


def test_frozen_parameters_are_left_out() -> None:
    model = network()
    model[0].requires_grad_(False)
    gradients = ExampleGradients(model)
    assert list(gradients.parameters) == ["3.weight", "3.bias"]
    assert gradients.clipped_sum(((INPUTS,), {}), torch.ones(60, 2), rf.Clamp(1.0)).shape == (38,)


def test_empty_batches_sum_to_nothing() -> None:
    class Flat(nn.Module):
        """Cannot take a batch without rows, like the attention of transformers."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(*x.shape[:1], -1).view(x.shape)

    with pytest.raises(RuntimeError, match="ambiguous"):
        Flat()(INPUTS[:0])
    gradients = ExampleGradients(nn.Sequential(Flat(), network()))
    outputs = gradients.forward(((INPUTS[:0],), {}))
    assert outputs.shape == (0, 2)
    total = gradients.clipped_sum(((INPUTS[:0],), {}), outputs, rf.Clamp(1.0))
    assert torch.equal(total, torch.zeros(gradients.size))


def test_named_inputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, a: torch.Tensor, *, b: torch.Tensor) -> torch.Tensor:
            return self.layer(a + b)

    a, b = torch.randn(5, 3), torch.randn(5, 3)
    model = Two()
    gradients = ExampleGradients(model)
    assert torch.allclose(gradients.forward(((a,), {"b": b})), model(a, b=b), atol=1e-6)


class Pair(nn.Module):
    """Returns a dictionary, of which one entry is no tensor if ``odd``."""

    def __init__(self, odd: bool = False) -> None:
        super().__init__()
        self.layer, self.odd = nn.Linear(3, 2), odd

    def forward(self, a: torch.Tensor) -> object:
        return {"twice": 2 * self.layer(a), "sum": "odd" if self.odd else self.layer(a).sum(dim=1)}


def test_a_model_may_return_several_tensors() -> None:
    a, model = torch.randn(5, 3), Pair()
    gradients = ExampleGradients(model, 100)  # several chunks
    outputs = gradients.forward(((a,), {}))
    assert torch.allclose(outputs["sum"], model(a)["sum"], atol=1e-6)
    slopes = {name: torch.randn_like(output) for name, output in outputs.items()}
    total = gradients.clipped_sum(((a,), {}), slopes, rf.Clamp(1e9))
    each = 2 * slopes["twice"] + slopes["sum"].unsqueeze(1)
    assert torch.allclose(total, torch.cat([(each.T @ a).reshape(-1), each.sum(dim=0)]), atol=1e-4)
    with pytest.raises(TypeError, match="must return tensors with one row for each example, got str"):
        ExampleGradients(Pair(odd=True)).forward(((a,), {}))


class Branching(nn.Module):
    """Takes another way for each example, and a recurrent layer on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 4), nn.LSTM(1, 4, batch_first=True)
        self.register_buffer("seen", torch.zeros(()))
        self.counts = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.counts:
            self.seen += x.sum()
        return self.first(x[:, 0]) if float(x[0, 0]) > 0 else self.second(x)[1][0][0]


def test_where_torch_func_stops_examples_go_one_after_the_other() -> None:
    torch.manual_seed(0)
    model, inputs = Branching(), torch.randn(6, 5, 1)
    gradients = ExampleGradients(model)
    with pytest.warns(UserWarning, match="one by one"):
        outputs = gradients.forward(((inputs,), {}))
    assert torch.allclose(outputs, torch.cat([model(x[None]) for x in inputs]))
    assert "vmap" in gradients.fallback_reason
    labels = torch.arange(6) % 2
    leaf = outputs.clone().requires_grad_()
    nn.functional.cross_entropy(leaf, labels, reduction="sum").backward()
    clip = rf.Norm(0.1)
    ours = gradients.clipped_sum(((inputs,), {}), leaf.grad, clip)
    total = 0
    for x, y in zip(inputs, labels, strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
        total = total + clip(torch.cat([each.reshape(-1) for each in found])[None])[0]
    assert torch.allclose(ours, total, atol=1e-6)


def test_what_a_model_keeps_of_its_inputs_is_refused_one_after_the_other() -> None:
    """torch.func refuses it too, by a message of its own."""
    model = Branching()
    model.counts = True
    with pytest.raises(ValueError, match="'seen' is changed by a forward pass"):
        ExampleGradients(model).forward(((torch.randn(6, 5, 1),), {}))


class Around(nn.Module):
    """The first result of a layer, with its input added; over channels instead of positions if ``turned``."""

    def __init__(self, layer: nn.Module, turned: bool = False) -> None:
        super().__init__()
        self.layer, self.turned = layer, turned

    def forward(self, x: Tensor) -> Tensor:
        given = (x.mT if self.turned else x,) * (3 if isinstance(self.layer, nn.MultiheadAttention) else 1)
        found: Any = self.layer(*given)
        found = found if isinstance(found, Tensor) else found[0]
        return x + (found.mT if self.turned else found)


BLOCKS: tuple[Callable[[], nn.Module], ...] = (
    lambda: nn.Linear(4, 4),
    lambda: nn.LayerNorm(4),
    lambda: nn.RMSNorm(4),
    lambda: nn.ReLU(inplace=True),
    lambda: nn.PReLU(3),
    lambda: Around(nn.MultiheadAttention(4, 2, batch_first=True)),
    lambda: Around(nn.GRU(4, 4, batch_first=True)),
    lambda: Around(nn.LSTM(4, 2, bidirectional=True, batch_first=True)),
    lambda: Around(nn.Conv1d(4, 4, 3, padding=1, groups=2), turned=True),
    lambda: Around(nn.GroupNorm(2, 4), turned=True),
    lambda: Around(nn.InstanceNorm1d(4, affine=True), turned=True),
    lambda: Around(nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4, bias=False))),
    lambda: nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
)


@settings(max_examples=8)
@given(
    blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4),
    frozen=st.sets(st.integers(0, 12), max_size=3),
    count=st.integers(1, 5),
)
def test_random_models(blocks: list[Callable[[], nn.Module]], frozen: set[int], count: int) -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Embedding(5, 4), *(block() for block in blocks), nn.Linear(4, 2))
        for i, parameter in enumerate(model.parameters()):
            parameter.requires_grad_(i not in frozen)
        return model

    agree(make, words(count, 3))


def model() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(5, 4),
        nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
        nn.Linear(4, 2),
    )


@pytest.mark.parametrize("clip", [rf.Clamp(0.1), rf.Norm(0.5)])
def test_half_precision_under_autocast(clip: rf.Clip) -> None:
    """Gradients have the precision of bfloat16; what an example adds is bounded to the last bit."""
    network, inputs = (
        seeded(lambda: Around(nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.LayerNorm(4)))),
        drawn(6, 3, 4),
    )
    gradients = ExampleGradients(network)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = gradients.forward(((inputs,), {}))
        assert gradients.fallback_reason is None
    slopes = drawn(*outputs.shape)
    total = gradients.clipped_sum(((inputs,), {}), slopes, clip)
    with torch.autocast("cpu", torch.bfloat16):
        halves = gradients_alone(network, ((inputs,), {}), [slopes])
    exact, half = (
        clip(gradients_alone(network, ((inputs,), {}), [slopes])).sum(dim=0),
        clip(halves).sum(dim=0),
    )
    assert total.dtype == torch.float32
    assert float((total - half).norm() / half.norm()) < 0.02
    assert not torch.allclose(total, exact, rtol=1e-5)  # it was half precision
    with torch.autocast("cpu", torch.bfloat16):
        bounded(network, inputs)


@pytest.mark.parametrize("budget", [1, 200_000, 1 << 30])
@pytest.mark.parametrize("rows", [None, 4, 20])
def test_passes_of_one_size(budget: int, rows: int | None) -> None:
    """Copies that fill a pass up count nothing, and what does not fit takes another pass."""
    network, inputs = seeded(model), ((words(10, 3),), {})
    gradients, plain = ExampleGradients(network, budget, rows), ExampleGradients(network)
    outputs, theirs = gradients.forward(inputs), plain.forward(inputs)
    assert torch.allclose(outputs, theirs, atol=1e-5)
    for clip in (rf.Clamp(0.05), rf.Norm(0.3)):
        sums = [each.clipped_sum(inputs, drawn(*outputs.shape), clip) for each in (gradients, plain)]
        assert torch.allclose(*sums, atol=1e-5)


def test_no_examples_and_other_clips() -> None:
    gradients = ExampleGradients(seeded(model))
    empty = ((words(0, 3),), {})
    outputs = gradients.forward(empty)
    assert not gradients.clipped_sum(empty, outputs, rf.Clamp(1.0)).any()
    inputs = ((words(2, 3),), {})
    slopes = torch.ones_like(gradients.forward(inputs))
    single = gradients.clipped_sum(inputs, slopes, rf.Clamp(0.1))
    double = gradients.clipped_sum(inputs, slopes, rf.Clamp(0.1), torch.float64)
    assert double.dtype == torch.float64
    assert torch.allclose(single.double(), double, atol=1e-6)


def test_a_model_that_returns_something_else_is_refused() -> None:
    class Counting(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            return super().forward(input), len(input)

    gradients = ExampleGradients(nn.Sequential(nn.Linear(3, 3), Counting(3, 2)))
    with pytest.raises(TypeError, match="must return tensors with one row for each example, got int"):
        gradients.forward(((drawn(4, 3),), {}))


class Writing(nn.Module):
    """Words in and words out, by one table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle, self.last = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 5, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.table(x).cumsum(dim=1)))


class Repeated(nn.Module):
    """One layer several times, at more and more positions."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layer, self.last = make(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for stop in (1, 2, 3):
            x = torch.cat([torch.tanh(self.layer(x[:, :stop])), x[:, stop:]], dim=1)
        return self.last(x)


def test_words_in_and_out() -> None:
    assert not agree(Writing, words(5, 3)).slower_layers


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(4, 4),
    "normalisation": lambda: nn.LayerNorm(4),
    "unknown": lambda: nn.PReLU(init=0.3),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_layers_that_are_called_several_times(make: Callable[[], nn.Module]) -> None:
    agree(lambda: Repeated(make), drawn(5, 3, 4))


def test_uses_that_cancel_count_nothing_and_uses_that_add_up_count_once() -> None:
    """Clipped by themselves, two uses would add up to twice the clip."""
    layer = nn.Linear(1, 1, bias=False)

    class Twice(nn.Module):
        def __init__(self, sign: float) -> None:
            super().__init__()
            self.layer, self.sign = layer, sign

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.sign * self.layer(2 * x)

    inputs = ((torch.ones(1, 1),), {})
    for sign, expected in ((1.0, 1.0), (-0.5, 0.0)):
        gradients = ExampleGradients(Twice(sign))
        gradients.forward(inputs)
        total = gradients.clipped_sum(inputs, torch.full((1, 1), 9.0), rf.Clamp(1.0))
        assert float(total) == pytest.approx(expected, abs=1e-6)


def test_lengths_and_weights_of_sums() -> None:
    model, inputs = Writing(), ((words(4, 3),), {})
    gradients = ExampleGradients(model)
    gradients.forward(inputs)
    parts = []
    one = gradients._pass(inputs, 4)
    one.backward([drawn(4, 3, 5)], parts.extend)
    table = [contribution for name, _, contribution in parts if name == "table.weight"]
    both = Together(tuple(table), 4, torch.Size([5, 4]))
    formed = sum(part.rows().view(4, 5, 4) for part in table)
    assert torch.allclose(both.squares().float(), formed.flatten(1).square().sum(dim=1), rtol=1e-4)
    weights = torch.tensor([1.0, 0.0, 2.0, 0.5])
    expected = (formed * weights.view(4, 1, 1)).clamp(-0.3, 0.3).sum(dim=0)
    assert torch.allclose(both.sum(0.3, weights), expected, atol=1e-5)
