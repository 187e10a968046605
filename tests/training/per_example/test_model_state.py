"""What a model keeps of a pass is noticed."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.isolation import nothing_kept, refuse_changed, state_of


class Keeping(nn.Module):
    """Keeps something of its inputs."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer, self.seen, self.large = how, nn.Linear(3, 2), [], False
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
        return self.layer(x)


KEPT = {"buffer": "mean", "list": "seen", "attribute": "last", "answer": "large"}


@pytest.mark.parametrize("how", KEPT)
def test_what_is_kept_is_named_and_taken_off(how: str) -> None:
    model = Keeping(how)
    mean = model.mean
    gradients = ExampleGradients(model)
    for _ in range(2):  # whoever goes on after the error gets it again
        with pytest.raises(ValueError, match=rf"layer '' \(Keeping\) keeps '{KEPT[how]}' of a pass"):
            gradients.forward(((torch.ones(4, 3),), {}))
    assert not model.large
    assert model.mean is mean
    assert not mean.any()
    assert not hasattr(model, "last")
    assert not any(isinstance(value, list) and value for value in vars(model).values())


def test_what_depends_on_no_input_may_be_kept() -> None:
    class Counting(nn.Linear):
        calls = 0

        def forward(self, input: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(input)

    model = nn.Sequential(Counting(3, 2))
    ExampleGradients(model).forward(((torch.ones(4, 3),), {}))
    assert model[0].calls > 0


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


def test_errors_of_a_pass_are_its_own() -> None:
    with pytest.raises(KeyError), nothing_kept(nn.Linear(2, 2), []):
        raise KeyError
