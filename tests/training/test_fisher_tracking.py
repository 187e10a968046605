"""Measured steps add up, each with its share of the failure probability."""

from typing import Any

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.noise import Noise
from ringfence.training import information
from ringfence.training.information import ExampleInformation, FisherTracking
from tests.accounting.drawing import draw

MODEL = nn.Linear(3, 2).double()
INPUTS = draw(4, 3)


def tracking(every: int = 1) -> FisherTracking:
    return FisherTracking(nn.functional.cross_entropy, 6, every)


def measure(one: FisherTracking, step: int, indices: tuple[int, ...]) -> None:
    one.keep(indices, ((INPUTS[: len(indices)],), {}), torch.zeros(len(indices), dtype=torch.int64))
    theta = torch.zeros(8, dtype=torch.float64)
    one.measure(MODEL, rf.Gaussian(1.0), rf.Clamp(1.0), theta, noise=Noise(1), step=step, memory=1 << 20)


def test_steps_add_up_where_examples_took_part() -> None:
    one = tracking()
    measure(one, 0, (4, 0))
    once = one.squares.clone()
    assert (once > 0).tolist() == [True, False, False, False, True, False]
    measure(one, 1, (4, 0))
    assert one.measured == 2
    torch.testing.assert_close(one.squares, 2 * once, rtol=0.2, atol=0)  # other probes
    eta = one.fisher_information_loss()
    measured = one.squares > 0
    torch.testing.assert_close(eta[measured] ** 2, one.squares[measured])
    assert eta.isnan().tolist() == (~measured).tolist()  # never measured is not harmless


def test_an_example_without_information_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = ExampleInformation(torch.zeros(1), None)
    monkeypatch.setattr(information, "example_information", lambda *_, **__: nothing)
    one = tracking()
    measure(one, 0, (1,))
    assert one.fisher_information_loss()[1] == pytest.approx(0, abs=1e-100)
    assert one.fisher_information_loss().isnan().sum() == 5


def test_shares_of_the_failure_probability_stay_below_it_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []

    def fixed(*_: object, failure_probability: float, **__: object) -> ExampleInformation:
        shares.append(failure_probability)
        return ExampleInformation(torch.ones(1), None)

    monkeypatch.setattr(information, "example_information", fixed)
    one = tracking()
    for step in range(2000):
        measure(one, step, (1,))
    assert 0.999 * 1e-6 < sum(shares) < 1e-6


def test_a_state_goes_on_and_another_dataset_is_refused() -> None:
    one, other = tracking(), tracking()
    measure(one, 0, (2,))
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.squares, one.squares)
    assert other.measured == 1
    with pytest.raises(ValueError, match="squares must hold 6 examples, got 5"):
        other.load_state_dict({"squares": torch.zeros(5).double(), "measured": 0})


@pytest.mark.parametrize(
    "inputs", [((INPUTS, INPUTS), {}), ((INPUTS,), {"mask": INPUTS}), ((), {"x": INPUTS})]
)
def test_a_model_of_several_inputs_is_refused(inputs: Any) -> None:
    with pytest.raises(ValueError, match="fisher_every needs a model of one input, got"):
        tracking().keep((0,), inputs, torch.zeros(1))


def test_steps_that_are_not_measured_cost_nothing() -> None:
    one = tracking(every=2)
    measure(one, 1, (3,))
    assert one.measured == 0
    assert not bool(one.squares.any())
