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
    gradients = ExampleGradients(network())
    outputs = gradients.forward(((INPUTS[:0],), {}))
    assert outputs.shape == (0, 2)
    total = gradients.clipped_sum(((INPUTS[:0],), {}), outputs, rf.Clamp(1.0))
    assert torch.equal(total, torch.zeros(gradients.size))


def test_named_inputs_and_bad_outputs() -> None:
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
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, a: torch.Tensor) -> object:
            return self.layer(a), a

    with pytest.raises(TypeError, match="must return one tensor, got tuple"):
        ExampleGradients(Pair()).forward(((a,), {}))
