"""Properties over the whole range of parameters, extremes included."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import ringfence as rf
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

sizes = st.floats(1e-3, 1e3)  # everything below is in units of sigma and scaled by it
positions = st.one_of(st.floats(-1000, 1000), st.floats(-2, 2), st.just(0.0))
widths = st.one_of(st.floats(1e-3, 64), st.sampled_from([1e-3, 1.0, 1e3]))
shifts = st.one_of(st.floats(-10, 10), st.floats(-1e-3, 1e-3), st.sampled_from([1e-6, -1e-6, 0.0]))
orders = st.one_of(st.floats(1.01, 1024), st.floats(1.01, 3))
epsilons = st.one_of(st.floats(-3, 3), st.floats(0, 60), st.just(0.0))

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
SMALLEST = 1e-290


def build(case: Case, sigma: float, width: float, centre: float) -> rf.Mechanism:
    low, high = (centre - width / 2) * sigma, (centre + width / 2) * sigma
    return case.make(sigma, low, high if high > low else math.nextafter(low, math.inf))


@every_case
@given(sigma=sizes, theta=positions, width=widths, centre=st.floats(-3, 3), shift=shifts, alpha=orders)
@example(sigma=1.0, theta=1000.0, width=1e-3, centre=0.0, shift=-10.0, alpha=1024.0)
@example(sigma=1e-3, theta=-1000.0, width=1e3, centre=0.0, shift=1e-6, alpha=1.01)
def test_divergence(
    case: Case, sigma: float, theta: float, width: float, centre: float, shift: float, alpha: float
) -> None:
    law, gaussian = build(case, sigma, width, centre), rf.Gaussian(sigma)
    theta, shift = theta * sigma, shift * sigma
    limit = float(gaussian.renyi_divergence(theta, shift, alpha))
    starts, steps = float64([theta, theta, theta + shift]), float64([shift, -shift, -shift])
    # three calls: the largest shift and order of a call decide how all of them are evaluated
    value, more, further = (
        law.renyi_divergence(starts, longer * steps, higher * alpha)
        for longer, higher in ((1.0, 1.0), (1.0, 1.1), (1.1, 1.0))
    )
    assert (value >= 0).all()
    assert (value <= limit * (1 + 1e-11) + SMALLEST).all()
    assert (more >= value * (1 - 1e-11) - SMALLEST).all()
    assert (further >= value * (1 - 1e-11) - SMALLEST).all()


@every_case
@given(sigma=sizes, theta=positions, width=widths, centre=st.floats(-3, 3))
def test_information(case: Case, sigma: float, theta: float, width: float, centre: float) -> None:
    law = build(case, sigma, width, centre)
    value = float(law.fisher_information(theta * sigma))
    assert 0 <= value <= (1 + 1e-12) / sigma**2
    single = float(law.fisher_information(torch.tensor(theta * sigma, dtype=torch.float32)))
    assert 0 <= single <= (1 + 1e-5) / sigma**2


@every_case
@given(sigma=sizes, theta=positions, width=widths, centre=st.floats(-3, 3), shift=shifts, epsilon=epsilons)
@example(sigma=1.0, theta=0.0, width=1.0, centre=0.0, shift=0.0, epsilon=-1.0)
@example(sigma=1.0, theta=900.0, width=1.0, centre=0.0, shift=1e-6, epsilon=60.0)
def test_hockey_stick(
    case: Case, sigma: float, theta: float, width: float, centre: float, shift: float, epsilon: float
) -> None:
    law = build(case, sigma, width, centre)
    theta, shift = theta * sigma, shift * sigma
    value, less = law.hockey_stick(theta, shift, float64([epsilon, epsilon + 0.1])).tolist()
    trivial = max(-math.expm1(epsilon), 0.0)  # what P and Q give when they agree
    assert trivial * (1 - 1e-12) <= value <= 1
    assert value <= float(rf.Gaussian(sigma).hockey_stick(theta, shift, epsilon)) * (1 + 1e-9) + 1e-300
    assert less <= value * (1 + 1e-10)


@every_case
@given(sigma=sizes, theta=positions, width=widths, centre=st.floats(-3, 3), seed=st.integers(0, 99))
def test_draws_lie_in_the_support(
    case: Case, sigma: float, theta: float, width: float, centre: float, seed: int
) -> None:
    law = build(case, sigma, width, centre)
    where = torch.full((64,), theta * sigma, dtype=torch.float64)
    values = law.sample(where, generator=torch.Generator().manual_seed(seed))
    assert torch.isfinite(values).all()
    assert (law.log_prob(values, where) > -torch.inf).all()


@every_case
@given(
    theta=st.floats(-1e30, 1e30),
    sigma=st.floats(1e-30, 1e30),
    width=st.floats(1e-6, 1e6),
    shift=st.floats(-1e6, 1e6),
    alpha=st.floats(1.0001, 1e6),
)
def test_absurd_scales_give_a_number_or_an_error(
    case: Case, theta: float, sigma: float, width: float, shift: float, alpha: float
) -> None:
    """Never a NaN, never a negative number, never above the Gaussian."""
    law = build(case, sigma, width, 0.0)
    if law.whole:  # a move must not pass very many whole numbers
        shift = max(-4000.0, min(4000.0, shift * sigma)) / sigma
    for value in (
        law.fisher_information(theta) * sigma**2,
        law.renyi_divergence(theta, shift * sigma, alpha) / (0.5 * alpha * shift**2 + 1e-300),
        law.hockey_stick(theta, shift * sigma, 1.0),
    ):
        assert 0 <= float(value) <= 1 + 1e-9
