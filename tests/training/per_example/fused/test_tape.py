"""The tape: what it hands on, and what it refuses."""

import pytest
import torch
from torch import nn
from torch.backends import mha

from ringfence.training.per_example.fused.contributions import Rows
from ringfence.training.per_example.fused.tape import ALL, Tape, step_by_step, without_gradients


def test_a_gradient_comes_before_what_was_done_in_place() -> None:
    """Activations that work in place follow layers everywhere."""
    tape, x = Tape(2, torch.device("cpu")), torch.tensor([[1.0], [-1.0]])
    seen = []
    output = tape.watch(x.clone(), (x,), lambda gradient, kept: [("weight", ALL, Rows(gradient * kept))])
    tape.receive = seen.extend
    (3 * output.relu_()).sum().backward()
    ((name, rows, contribution),) = seen
    assert (name, rows) == ("weight", ALL)
    assert contribution.gradients.tolist() == [[3.0], [0.0]]


def test_an_input_that_was_changed_is_refused() -> None:
    tape, x = Tape(1, torch.device("cpu")), torch.ones(1, 1)
    output = tape.watch(2 * x, (x,), lambda gradient, kept: [])
    x.add_(1)
    with pytest.raises(RuntimeError, match="was changed in place"):
        output.sum().backward()


def test_what_is_switched_off_is_switched_on_again() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    with without_gradients(layer.parameters()), step_by_step():
        assert not layer.weight.requires_grad
        assert not mha.get_fastpath_enabled()
    assert layer.weight.requires_grad
    assert not layer.bias.requires_grad
    assert mha.get_fastpath_enabled()
