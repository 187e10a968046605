"""What holds for every dataset: the smaller epsilon of two proofs, and the rates of both."""

import math

import pytest

from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.accounting.claim.data_independent import (
    GAUSSIAN,
    ZCDP,
    data_independent_epsilon,
    data_independent_proof,
)


def test_the_gaussian_by_its_exact_curve() -> None:
    found = data_independent_proof(0.0512, 0.0512, 1e-5)
    assert (found.epsilon, found.proof) == (gaussian_epsilon(0.32, 1e-5), GAUSSIAN)
    assert found.gaussian_epsilon == found.epsilon == data_independent_epsilon(0.0512, 0.0512, 1e-5)
    assert found.trade_off.whole == pytest.approx(0.32)
    assert found.trade_off.zcdp == math.inf  # the Gaussian's own rates are the smaller ones


def test_a_law_with_a_smaller_bound_has_smaller_rates() -> None:
    found, gaussian = (data_independent_proof(0.0512, zcdp, 1e-5) for zcdp in (0.004, 0.0512))
    assert (found.proof, found.trade_off.zcdp) == (ZCDP, 0.004)
    assert found.epsilon < found.gaussian_epsilon == gaussian.epsilon
    assert found.trade_off.advantage < 0.5 * gaussian.trade_off.advantage
    assert found.trade_off.whole == gaussian.trade_off.whole
