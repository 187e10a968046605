"""The loop around the private model and optimizer stays as it was."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.training.engine.runs import INPUTS, Run, network


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.NAdam(p, lr=0.1),
        lambda p: torch.optim.Rprop(p, lr=0.1),
    ],
)
def test_any_optimizer_gets_the_released_gradient(optimizer: Any) -> None:
    run = Run(optimizer=optimizer)
    by_hand = network()
    theirs = optimizer(by_hand.parameters())
    for _ in range(3):
        run.train(run.engine.steps + 1)
        for p, released in zip(by_hand.parameters(), run.original.parameters(), strict=True):
            p.grad = released.grad.clone()
        theirs.step()
    for ours, expected in zip(run.original.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_schedulers_and_closures_work() -> None:
    run = Run(optimizer=lambda p: torch.optim.SGD(p, lr=1.0), batch_size=60)
    scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, step_size=1, gamma=0.5)
    for inputs, labels in run.loader:

        def closure(inputs: torch.Tensor = inputs, labels: torch.Tensor = labels) -> torch.Tensor:
            run.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(run.model(inputs), labels)
            loss.backward()
            return loss

        assert run.optimizer.step(closure).item() > 0
        scheduler.step()
    assert run.optimizer.param_groups[0]["lr"] == 0.5
    assert run.engine.steps == 1


def test_outside_of_training_the_model_is_the_users() -> None:
    run = Run()
    assert run.model.eval()(INPUTS).grad_fn is not None
    with torch.no_grad():
        assert torch.equal(run.model.train()(INPUTS), run.original(INPUTS))
    assert run.model.append == run.original.append  # other attributes are the model's
    assert list(run.model.state_dict()) == [f"module.{name}" for name in run.original.state_dict()]


def test_nothing_is_left_on_the_users_objects() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = {id(layer): set(vars(layer)) for layer in model.modules()}
    names = set(vars(optimizer))
    run = Run(model, optimizer=lambda _: optimizer).train(2)
    assert all(set(vars(layer)) == before[id(layer)] for layer in model.modules())
    assert all(not layer._forward_hooks and not layer._backward_hooks for layer in model.modules())
    assert set(vars(optimizer)) == names
    for p in model.parameters():
        assert set(vars(p)) == set()
        assert not p._backward_hooks
    run.original(INPUTS)  # still an ordinary model


def test_a_compiled_model_trains_as_the_plain_one_before_and_after_it_is_made_private() -> None:
    """It went through the model one example after the other, because compiled layers cannot be watched."""
    plain = Run().train(2)
    compiled = Run(model=torch.compile(network(), backend="eager"))
    compiled.model = torch.compile(compiled.model, backend="eager")
    compiled.train(2)
    assert compiled.engine.fallback_reason is None
    assert torch.equal(compiled.weights(), plain.weights())
    assert torch.equal(compiled.model.eval()(INPUTS), plain.model.eval()(INPUTS))
