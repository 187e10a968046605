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
from ringfence.training.per_example.gradients import ExampleGradients
from tests.training.engine.runs import INPUTS, network
from tests.training.per_example.alone import agree, bounded, drawn, gradients_alone, seeded, words


@pytest.mark.parametrize("budget", [1, 200_000, 1 << 30])
@pytest.mark.parametrize("rows", [None, 4, 20])
def test_passes_of_one_size(budget: int, rows: int | None) -> None:
    """Copies that fill a pass up count nothing, and what does not fit takes another pass."""

    def make() -> nn.Module:
        block = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True)
        return nn.Sequential(nn.Embedding(5, 4), block, nn.Linear(4, 2))

    model, inputs = seeded(make), ((words(10, 3),), {})
    gradients, plain = ExampleGradients(model, budget, rows), ExampleGradients(model)
    outputs, theirs = gradients.forward(inputs), plain.forward(inputs)
    assert torch.allclose(outputs, theirs, atol=1e-5)
    sizes = [len(one.outputs) for one in gradients._passes(inputs)]
    assert rows is None or len(set(sizes)) == 1
    for clip in (rf.Clamp(0.05), rf.Norm(0.3)):
        slopes = drawn(*outputs.shape)
        sums = [each.clipped_sum(inputs, slopes, clip) for each in (gradients, plain)]
        assert torch.allclose(*sums, atol=1e-5)
        double = gradients.clipped_sum(inputs, slopes, clip, torch.float64)
        assert double.dtype == torch.float64
        assert torch.allclose(double.float(), sums[1], atol=1e-5)


def test_the_budget_counts_activations_and_gradients_that_are_formed() -> None:
    inputs = ((INPUTS,), {})
    small, large = (ExampleGradients(network(*extra), 1 << 16) for extra in ((), (nn.Linear(18, 18),)))
    counts = []
    for gradients in (small, large):
        slopes = torch.ones_like(gradients.forward(inputs))
        counts.append([len(rows) for rows in gradients.each(inputs, slopes)])
        assert max(counts[-1]) * 3 * 4 * gradients.size <= (1 << 16) / 4
    assert small._at_once(inputs) > large._at_once(inputs)
    assert max(counts[0]) > max(counts[1])
    assert sum(counts[0]) == sum(counts[1]) == len(INPUTS)
    none, few = ExampleGradients(network(), 1), ((INPUTS[:3],), {})
    none.forward(few)
    assert [one.count for one in none._passes(few)] == [1, 1, 1]


class Dropping(nn.Module):
    """Dropout by itself, or between recurrent layers that are not trained; linear in what is."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.drop, self.weight = how, nn.Dropout(0.5), nn.Parameter(torch.ones(16))
        self.layer = nn.GRU(16, 16, 2, dropout=0.5, batch_first=True).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "recurrent":
            return self.layer(x.unsqueeze(1))[0].squeeze(1) * self.weight
        return self.drop(x) * self.weight


@pytest.mark.parametrize("how", ["plain", "recurrent"])
@pytest.mark.parametrize("budget", [4_000, 1 << 30])
def test_dropout_draws_the_same_masks_forward_and_backward(how: str, budget: int) -> None:
    """Each example has a mask of its own, and its gradient the same one, also in several passes."""
    model, inputs = Dropping(how), ((torch.ones(50, 16),), {})
    gradients = ExampleGradients(model, budget)
    with Noise(5).global_draws("forward", device=torch.device("cpu")):
        outputs = gradients.forward(inputs)
    with Noise(5).global_draws("forward", device=torch.device("cpu")):
        total = gradients.clipped_sum(inputs, torch.ones(50, 16), rf.Clamp(1e9))
    assert torch.allclose(total, outputs.sum(dim=0), atol=1e-4)
    assert len(outputs.unique(dim=0)) > 25


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 2), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


def test_a_parameter_may_be_a_single_number() -> None:
    assert list(agree(Scaled, drawn(6, 3)).slower_layers) == ["scale"]


def test_empty_batches_sum_to_nothing() -> None:
    class Flat(nn.Module):
        """Cannot take a batch without rows, like the attention of transformers."""

        def forward(self, x: Tensor) -> Tensor:
            return x.view(*x.shape[:1], -1).view(x.shape)

    with pytest.raises(RuntimeError, match="ambiguous"):
        Flat()(INPUTS[:0])
    gradients = ExampleGradients(nn.Sequential(Flat(), network()))
    outputs = gradients.forward(((INPUTS[:0],), {}))
    assert outputs.shape == (0, 2)
    total = gradients.clipped_sum(((INPUTS[:0],), {}), outputs, rf.Clamp(1.0))
    assert torch.equal(total, torch.zeros(gradients.size))


class Pair(nn.Module):
    """Takes a named input and returns a dictionary, of which one entry is no tensor if ``odd``."""

    def __init__(self, odd: bool = False) -> None:
        super().__init__()
        self.layer, self.odd = nn.Linear(3, 2), odd

    def forward(self, a: Tensor, *, b: Tensor) -> object:
        return {"twice": 2 * self.layer(a + b), "sum": "odd" if self.odd else self.layer(a + b).sum(dim=1)}


def test_a_model_may_take_and_return_several_tensors() -> None:
    a, b, model = torch.randn(5, 3), torch.randn(5, 3), Pair()
    gradients, inputs = ExampleGradients(model, 100), ((a,), {"b": b})  # several passes
    outputs = gradients.forward(inputs)
    assert torch.allclose(outputs["sum"], model(a, b=b)["sum"], atol=1e-6)
    slopes = {name: torch.randn_like(output) for name, output in outputs.items()}
    total = gradients.clipped_sum(inputs, slopes, rf.Clamp(1e9))
    each = 2 * slopes["twice"] + slopes["sum"].unsqueeze(1)
    assert torch.allclose(total, torch.cat([(each.T @ (a + b)).reshape(-1), each.sum(dim=0)]), atol=1e-4)
    with pytest.raises(TypeError, match="must return tensors with one row for each example, got str"):
        ExampleGradients(Pair(odd=True)).forward(inputs)
    with pytest.raises(TypeError, match="takes 2 positional arguments"):
        ExampleGradients(nn.Sequential(nn.Tanh(), nn.Linear(3, 3))).forward(((a, b), {}))


class Branching(nn.Module):
    """Takes another way for each example, and a recurrent layer on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 4), nn.LSTM(1, 4, batch_first=True)
        self.register_buffer("seen", torch.zeros(()))
        self.counts = False

    def forward(self, x: Tensor) -> Tensor:
        if self.counts:
            self.seen += x.sum()
        return self.first(x[:, 0]) if float(x[0, 0]) > 0 else self.second(x)[1][0][0]


def test_where_torch_func_stops_examples_go_one_after_the_other() -> None:
    torch.manual_seed(0)
    model, inputs, clip = Branching(), ((torch.randn(6, 5, 1),), {}), rf.Norm(0.1)
    gradients = ExampleGradients(model)
    with pytest.warns(UserWarning, match="one by one"):
        outputs = gradients.forward(inputs)
    assert torch.allclose(outputs, torch.cat([model(x[None]) for x in inputs[0][0]]))
    assert "vmap" in gradients.fallback_reason
    slopes = drawn(*outputs.shape)
    wanted = clip(gradients_alone(model, inputs, [slopes])).sum(dim=0)
    assert torch.allclose(gradients.clipped_sum(inputs, slopes, clip), wanted, atol=1e-6)
    assert len(list(gradients.each(inputs, slopes))) == 6
    gradients.per_unit = 3
    units = gradients_alone(model, inputs, [slopes]).view(2, 3, -1).sum(dim=1)
    assert torch.allclose(gradients.clipped_sum(inputs, slopes, clip), clip(units).sum(dim=0), atol=1e-6)
    model.counts = True  # torch.func refuses it too, by a message of its own
    with pytest.raises(ValueError, match="'seen' is changed by a forward pass"):
        ExampleGradients(model).forward(inputs)


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


@pytest.mark.parametrize("budget", [None, 1], ids=["one pass", "another pass for the gradient"])
@pytest.mark.parametrize("clip", [rf.Clamp(0.1), rf.Norm(0.5)])
def test_half_precision_under_autocast(clip: rf.Clip, budget: int | None) -> None:
    """Gradients have the precision of bfloat16; what an example adds is bounded to the last bit."""
    model = seeded(lambda: Around(nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.LayerNorm(4))))
    gradients, inputs = ExampleGradients(model, budget), ((drawn(6, 3, 4),), {})
    with torch.autocast("cpu", torch.bfloat16):
        outputs = gradients.forward(inputs)
        assert gradients.fallback_reason is None
    slopes = drawn(*outputs.shape)
    total = gradients.clipped_sum(inputs, slopes, clip)
    exact = clip(gradients_alone(model, inputs, [slopes])).sum(dim=0)
    with torch.autocast("cpu", torch.bfloat16):
        half = clip(gradients_alone(model, inputs, [slopes])).sum(dim=0)
        bounded(model, *inputs[0])
    assert total.dtype == torch.float32
    assert float((total - half).norm() / half.norm()) < 0.02
    assert not torch.allclose(total, exact, rtol=1e-5)  # it was half precision
