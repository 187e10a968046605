"""Gradients of single examples: as autograd gives them one by one, whatever the chunks."""

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.noise import Noise
from ringfence.training.per_example.gradients import ExampleGradients
from tests.training.engine.runs import INPUTS, LABELS, clipped_sum, network

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


def test_a_budget_of_nothing_takes_examples_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = ExampleGradients(network(), 1)
    assert [len(args[0]) for args, _ in gradients._chunks(((INPUTS[:3],), {}))] == [1, 1, 1]


def test_the_budget_counts_gradients_and_activations() -> None:
    small, large = ExampleGradients(network()), ExampleGradients(network(nn.Linear(18, 18)))
    needs = [each._bytes_per_example(((INPUTS,), {})) for each in (small, large)]
    assert needs[0] > 3 * 4 * small.size
    assert needs[1] - needs[0] >= 3 * 4 * (large.size - small.size)


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
    outputs = gradients.forward(((inputs,), {}))
    assert torch.allclose(outputs, torch.cat([model(x[None]) for x in inputs]))
    assert "vmap" in gradients.loop_because
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
