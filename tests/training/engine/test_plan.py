"""A target instead of a sigma: what a run of the planned length costs is the target, and never more."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, network, refused


def with_epsilon(epochs: int = 2, epsilon: float = 3.0, **settings: Any) -> rf.PrivacyEngine:
    """An engine after exactly the planned epochs."""
    engine = rf.PrivacyEngine(**{"mechanism": rf.Gaussian(1.0), "clip": rf.Norm(0.5), **settings})
    original = network()
    model, optimizer, loader = engine.make_private_with_epsilon(
        original,
        torch.optim.SGD(original.parameters(), lr=0.1),
        DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16),
        target_epsilon=epsilon,
        target_delta=1e-5,
        epochs=epochs,
    )
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return engine


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": "full"},
        {"sampling": "full", "mechanism": LAW, "clip": CLIP, "secure": True, "public_size": 50},
        # a small target: dp-accounting takes seconds to compose the losses of samples at large ones
        {"secure": True, "public_size": 64, "mechanism": rf.StochasticSign(7.0), "epsilon": 0.3},
    ],
    ids=["full", "full, secure", "poisson, secure"],
)
def test_the_planned_steps_cost_the_target_and_no_more(settings: dict[str, Any]) -> None:
    engine = with_epsilon(**settings)
    assert engine.steps == (2 if settings.get("sampling") == "full" else 8)
    target = settings.get("epsilon", 3.0)
    assert 0.99 * target <= engine.guarantee(1e-5).epsilon <= target
    assert engine.run.settings["mechanism"] == engine.mechanism.state_dict()


def test_the_bound_is_kept_and_the_given_sigma_does_not_matter() -> None:
    laws = [
        with_epsilon(mechanism=rf.TruncatedGaussian(s, 2.0), sampling="full").mechanism for s in (0.1, 90)
    ]
    assert [float(law.support.interval[1]) for law in laws] == [2.0, 2.0]
    assert float(laws[0].sigma) == pytest.approx(float(laws[1].sigma), rel=2e-3)


def test_what_cannot_be_planned_is_named_and_leaves_the_engine_as_it_was() -> None:
    for changes, message in (
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"epsilon": 0.0}, "target_epsilon must be > 0, got 0.0"),
        ({"epsilon": None}, "target_epsilon must be given together with target_delta, got None"),
        ({"clip": rf.Norm(1e14)}, "target_epsilon must be attainable, got 3.0: no sigma up to 1e"),
    ):
        with refused(message):
            with_epsilon(**changes)
    model, law = network(), rf.Gaussian(1.0)
    engine, loader = rf.PrivacyEngine(law, rf.Norm(1.0)), DataLoader(TensorDataset(INPUTS, LABELS))
    target = {"target_epsilon": 1.0, "target_delta": 1e-5, "epochs": 1}
    with refused("optimizer must hold every trained parameter"):
        optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
        engine.make_private_with_epsilon(model, optimizer, loader, **target)
    assert engine.mechanism is law
