"""A pass under vmap: who sees one example, who sees all, and what may not be kept of it."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends import mha

from ringfence.training.kernels.clipped_sums import ALL, Rows
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.isolation import (
    Tape,
    nothing_kept,
    refuse_changed,
    state_of,
    watched,
    without_gradients,
)
from tests.training.per_example.alone import agree, drawn


class Several(nn.Module):
    """Calls a layer once more, or another one, for numbers above 100."""

    def __init__(self, other: bool = False) -> None:
        super().__init__()
        self.other = nn.Linear(4, 4) if other else None
        self.layer, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(x, x, x)[0] + self.layer(x)
        return (self.other or self.layer)(y) if bool((x > 100).any()) else y


@pytest.mark.parametrize("other", [False, True])
def test_examples_that_decide_differently_go_in_separate_passes(other: bool) -> None:
    """Some call a layer again, whose two uses are clipped together, and some do not."""
    inputs = drawn(6, 2, 4)
    inputs[[1, 4]] += 200
    assert not agree(lambda: Several(other), inputs).slower_layers
    gradients = ExampleGradients(Several(other))
    passes = [] if gradients._falls_back(((inputs,), {})) else gradients._passes(((inputs,), {}))
    assert sorted(one.rows.tolist() for one in passes) == [[0, 2, 3, 5], [1, 4]]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_old_weight_norm_is_refused_by_name() -> None:
    """It keeps its product in an attribute; torch's newer one (``parametrizations``) does not."""
    with pytest.warns(FutureWarning, match="weight_norm"):
        layer = nn.utils.weight_norm(nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"layer '0' \(Linear\) keeps 'weight' of a pass"):
        ExampleGradients(nn.Sequential(layer, nn.Linear(3, 2))).forward(((drawn(5, 3),), {}))


def test_a_gradient_comes_before_what_was_done_in_place() -> None:
    """Activations that work in place follow layers everywhere."""
    x, seen = torch.tensor([[1.0], [-1.0]]), []
    tape = Tape(((x,), {}))
    output = tape.watch(x.clone(), x, lambda gradient, kept: [("weight", ALL, Rows(gradient * kept))])
    tape.receive = seen.extend
    (3 * output.relu_()).sum().backward()
    ((name, rows, contribution),) = seen
    assert (name, rows) == ("weight", ALL)
    assert contribution.gradients.tolist() == [[3.0], [0.0]]
    output = tape.watch(2 * x, x, lambda gradient, kept: [])
    x.add_(1)
    with pytest.raises(RuntimeError, match="was changed in place"):
        output.sum().backward()


def test_what_is_switched_off_is_switched_on_again() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    tape = Tape(((torch.ones(1, 2),), {}))
    with without_gradients(layer.parameters()), watched([], tape):
        assert not layer.weight.requires_grad
        assert not mha.get_fastpath_enabled()
    assert layer.weight.requires_grad
    assert not layer.bias.requires_grad
    assert mha.get_fastpath_enabled()


class Keeping(nn.Module):
    """Keeps something of its inputs, or how often it was called."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer, self.seen, self.large, self.calls = how, nn.Linear(3, 2), [], False, 0
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "buffer":
            self.mean = self.mean + x.mean(dim=0)
        elif self.how == "list":
            self.seen = [x.sum()]
        elif self.how == "attribute":
            self.last = self.layer(x)
        elif self.how == "answer" and x.sum() > 1:
            self.large = True
        elif self.how == "calls":
            self.calls += 1
        return self.layer(x)


KEPT = {"buffer": "mean", "list": "seen", "attribute": "last"}


@pytest.mark.parametrize("how", KEPT)
def test_what_is_kept_is_named_and_taken_off(how: str) -> None:
    model = Keeping(how)
    mean = model.mean
    gradients = ExampleGradients(model)
    for _ in range(2):  # a loop that goes on after the error gets it again
        with pytest.raises(ValueError, match=rf"layer '' \(Keeping\) keeps '{KEPT[how]}' of a pass"):
            gradients.forward(((torch.ones(4, 3),), {}))
    assert model.mean is mean
    assert not mean.any()
    assert not hasattr(model, "last")
    assert not any(isinstance(value, list) and value for value in vars(model).values())


def test_other_values_are_taken_back_and_errors_of_a_pass_are_its_own() -> None:
    """An answer about an example, and the number of passes, which says something of the batch."""
    for model in (Keeping("answer"), Keeping("calls")):
        ExampleGradients(model).forward(((torch.ones(4, 3),), {}))
        assert not model.large
        assert model.calls == 0
    layer = nn.Linear(1, 1)
    with pytest.raises(AttributeError, match="no attribute 'unknown'"), nothing_kept({"": layer}):
        setattr(layer, "seen", 1) or layer.unknown
    assert not hasattr(layer, "seen")


def test_a_state_changes_with_modes_hooks_and_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    def changed(change: Any) -> bool:
        before = state_of(model)
        change()
        return state_of(model) != before

    assert not changed(lambda: model[0].weight.data.add_(1.0))
    assert changed(lambda: model.eval())
    assert changed(lambda: model[0].register_forward_hook(lambda *given: None))
    assert changed(lambda: model[0].bias.requires_grad_(False))
    assert changed(lambda: setattr(model[0], "weight", nn.Parameter(torch.ones(2, 2))))
    assert changed(lambda: model.append(nn.ReLU()))


def test_a_changed_copy_is_named() -> None:
    model = nn.Linear(2, 2)
    used = copy.deepcopy(model)
    refuse_changed(model, used)
    used.weight.data.add_(1e-3)
    with pytest.raises(ValueError, match="'weight' is changed by a forward pass"):
        refuse_changed(model, used)
    used = copy.deepcopy(model)
    used.register_buffer("seen", torch.zeros(1))
    for before, after in ((model, used), (used, model)):
        with pytest.raises(ValueError, match="'seen' is changed by a forward pass"):
            refuse_changed(before, after)
