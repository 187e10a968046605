"""One number that is none is enough: no privacy number may pass as NaN beside others that are numbers."""

import math
from collections.abc import Callable

import pytest

import ringfence as rf
from ringfence.accounting.conversion import GaussianBound
from ringfence.mechanisms.base import without_nan
from tests.tensors import float64

ONE = float64([1.0, math.nan])

CASES: dict[str, Callable[[], object]] = {
    "a law": lambda: without_nan(rf.Gaussian(1.0), "renyi_divergence", ONE),
    "a decision": lambda: without_nan(rf.NoisyWinner(1.0), "renyi_divergence", ONE),
    "attacks": lambda: rf.PrivacyLoss.of_zcdp(0.5, 0.5).attack_rates(float64([0.1, 0.2])),
}


@pytest.mark.parametrize("name", CASES)
def test_one_is_enough(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GaussianBound, "rates", lambda *_: (ONE, float64([0.0, 0.0])))
    with pytest.raises(FloatingPointError, match="represent"):
        CASES[name]()
