"""Never an epsilon below the exact value: every number we print, against sixty digits."""

import math
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from mpmath import mp, mpf

import ringfence as rf
from ringfence.accounting.equivalent_information import equivalent_information
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW
from tests import oracle
from tests.fuzz import exact
from tests.fuzz import strategies as fuzz
from tests.fuzz.exact import Setting
from tests.fuzz.properties import fuzzed
from tests.mechanisms.cases import CASES

UP = 1 + mpf(ROUNDING)


@st.composite
def _settings(draw: Any) -> tuple[Setting, rf.Mechanism]:
    """One law and the same law in multi-precision."""
    law, sigma = (
        draw(st.sampled_from(("gaussian", "rectified", "truncated", "sign", "quantized"))),
        draw(fuzz.sizes(1e-3, 1e3)),
    )
    width, centre = sigma * draw(fuzz.sizes(1e-2, 30.0)), sigma * draw(st.floats(-2, 2))
    low, high, levels = centre - width / 2, centre + width / 2, draw(st.integers(2, 9))
    made: dict[str, Any] = {
        "gaussian": lambda: rf.Gaussian(sigma),
        "sign": lambda: rf.StochasticSign(sigma),
        "rectified": lambda: rf.RectifiedGaussian(sigma, (low, high)),
        "truncated": lambda: rf.TruncatedGaussian(sigma, (low, high)),
        "quantized": lambda: rf.QuantizedGaussian(sigma, (low, high), levels),
    }
    return Setting(law, sigma, low, high, levels), made[law]()


moves = st.one_of(fuzz.sizes(1e-6, 1e-1), fuzz.sizes(0.1, 5.0))  # in units of sigma
far_moves = st.one_of(moves, fuzz.sizes(5.0, 100.0))  # beyond, rounding grows: docs/security.md
deltas = fuzz.sizes(1e-12, 0.3)
KNOWN = {
    **{"setting": _settings(), "theta": st.one_of(st.floats(-3, 3), st.floats(-12, 12)), "move": moves},
    **{"delta": deltas, "alpha": fuzz.sizes(1.01, 512.0), "rate": fuzz.sizes(1e-2, 1.0)},
}


def pairs(theta: float, move: float) -> list[tuple[float, float]]:
    """(where P sits, how far Q is): both signs of the shift, both directions."""
    return [(theta, move), (theta, -move), (theta + move, -move), (theta - move, move)]


@fuzzed("exact", 0.25, 20, KNOWN, move=far_moves, epsilon=st.floats(0, 8))
def test_hockey_sticks_are_not_below(setting: Any, theta: float, move: float, epsilon: float) -> None:
    known, law = setting
    for start, shift in pairs(theta * known.sigma, move * known.sigma):
        value = float(law.hockey_stick(start, shift, epsilon))
        assert value * UP + UNDERFLOW >= exact.hockey_stick(known, start, shift, epsilon), (start, shift)


@fuzzed("exact", 0.25, 20, KNOWN)
def test_divergences_are_not_below(setting: Any, theta: float, move: float, alpha: float) -> None:
    known, law = setting
    for start, shift in pairs(theta * known.sigma, move * known.sigma):
        value = float(law.renyi_divergence(start, shift, alpha))
        assert value * UP + UNDERFLOW >= exact.renyi(known, start, shift, alpha), (start, shift)


@fuzzed("exact", 0.1, 20, KNOWN, farthest=moves, part=st.one_of(st.floats(0.05, 1.0), fuzz.sizes(1e-4, 1.0)))
def test_equivalent_information_is_not_below(
    setting: Any, theta: float, farthest: float, part: float, alpha: float
) -> None:
    """Every move, down to those for which the bound is checked by numbers only."""
    known, law = setting
    where, most = (torch.tensor([value * known.sigma], dtype=torch.float64) for value in (theta, farthest))
    rho = equivalent_information(law, where, most, torch.tensor([alpha], dtype=torch.float64)).flatten()
    move = part * farthest * known.sigma
    for index, (start, shift) in enumerate(pairs(float(where), move)):
        bound = mpf(float(rho[index // 2])) * mpf(alpha) * mpf(move) ** 2 / 2
        assert bound * UP + UNDERFLOW >= exact.renyi(known, start, shift, alpha), (start, shift)


@fuzzed("exact", 0.06, 4, KNOWN, searched=st.integers(0, 9))
def test_no_printed_epsilon_is_below(
    setting: Any, theta: float, move: float, delta: float, searched: int
) -> None:
    known, law = setting
    where, size = theta * known.sigma, move * known.sigma
    account = rf.PerInstanceAccountant(law, size)
    account.step(where)
    claim = account.guarantee(delta)
    profile = rf.privacy_profile(law, where, size)
    tight = profile.epsilon(delta) if searched == 0 else math.inf  # a search takes a second
    for start, shift in pairs(where, size):
        for epsilon in (
            claim.per_instance.epsilon,
            claim.epsilon,
            *([tight] if math.isfinite(tight) else []),
        ):
            assert exact.hockey_stick(known, start, shift, epsilon) <= delta, (start, shift, epsilon)
        assert exact.chance_of_more(known, start, shift, claim.per_instance.ex_post_epsilon) <= delta, (
            start,
            shift,
        )
        assert exact.hockey_stick(known, start, shift, 1.0) <= mpf(profile.delta(1.0)), (start, shift)


@fuzzed(
    *("exact", 0.25, 15),
    law=st.sampled_from((rf.Gaussian, rf.RectifiedGaussian, rf.TruncatedGaussian)),
    sigma=fuzz.sizes(1e-100, 1e100),
    move=fuzz.sizes(1e-6, 3.0),
    steps=st.integers(1, 10_000),
    coordinates=st.integers(1, 40),
    delta=st.one_of(deltas, fuzz.sizes(1e-200, 0.9)),
)
def test_compositions_are_not_below_the_gaussian(
    law: Any, sigma: float, move: float, steps: int, coordinates: int, delta: float
) -> None:
    """Without a bound the laws are the Gaussian, and so is what T releases of d coordinates compose to."""
    made = law(sigma) if law is rf.Gaussian else law(sigma, math.inf)
    account = rf.PerInstanceAccountant(made, move * sigma)
    account.step(torch.full((coordinates,), 0.3 * sigma, dtype=torch.float64), count=steps)
    claim = account.guarantee(delta)
    mu = mpf(move * sigma) / mpf(sigma) * mpf(steps * coordinates) ** mpf("0.5")
    for epsilon in (claim.per_instance.epsilon, claim.epsilon, claim.per_instance.gaussian_epsilon):
        assert epsilon == math.inf or exact.gaussian_delta(mu, epsilon) <= delta, epsilon
    for epsilon in (claim.per_instance.ex_post_epsilon, claim.per_instance.gaussian_ex_post_epsilon):
        assert oracle.below(mu / 2 - mpf(epsilon) / mu) <= delta, epsilon


@fuzzed(
    "exact", 0.12, 10, KNOWN, theta=st.floats(-4, 4), move=fuzz.sizes(1e-3, 2.0), steps=st.integers(1, 30)
)
def test_compositions_are_not_below_those_of_signs(
    theta: float, move: float, steps: int, delta: float
) -> None:
    account = rf.PerInstanceAccountant(rf.StochasticSign(1.0), move)
    account.step(theta, count=steps)
    claim = account.guarantee(delta)
    for start, shift in pairs(theta, move):
        p, q = oracle.below(mpf(start)), oracle.below(mpf(start) + mpf(shift))
        for epsilon in (claim.per_instance.epsilon, claim.epsilon):
            assert exact.composed_sign(p, q, steps, epsilon) <= delta, (start, shift, epsilon)


@fuzzed("exact", 0.004, 1, KNOWN)
def test_sampled_epsilons_are_not_below(
    setting: Any, theta: float, move: float, rate: float, delta: float
) -> None:
    """One release of one coordinate whose other records are known: (1 - q) P + q Q against P."""
    known, law = setting
    where, size, q = theta * known.sigma, move * known.sigma, min(rate, 0.999)
    account = rf.SampledAccountant(law, size, q)
    account.step_worst_case(where)
    claim = account.guarantee(delta)
    for epsilon in (claim.per_instance.epsilon, claim.epsilon):
        grown = math.exp(min(epsilon, 700.0))
        for start, shift in ((where, size), (where, -size)):
            # H(mixture || P) = q H(Q || P) at (e^eps - 1 + q) / q
            there = exact.hockey_stick(known, start + shift, -shift, math.log((grown - 1 + q) / q))
            assert q * there <= delta, (start, shift, epsilon)
            left = 1 - grown * (1 - q)
            if left > 0:  # H(P || mixture) = (1 - g (1 - q)) H(P || Q) at g q / (1 - g (1 - q))
                back = exact.hockey_stick(known, start, shift, math.log(grown * q / left))
                assert left * back <= delta, (start, shift, epsilon)


@fuzzed("exact", 0.25, 15, KNOWN, gap=st.floats(0, 40), move=fuzz.sizes(1e-6, 20.0), more=st.integers(0, 3))
def test_divergences_are_those_of_the_two_in_front(gap: float, move: float, alpha: float, more: int) -> None:
    """Others that are hopelessly behind change nothing: the exact value is that of a difference of two."""
    counts = torch.tensor([gap, 0.0, *[-500.0] * more], dtype=torch.float64)
    moves = torch.tensor([-move, *[0.0] * (1 + more)], dtype=torch.float64)
    with mp.workdps(400):
        first, second = (oracle.below(mpf(value) / mp.sqrt(2)) for value in (gap, mpf(gap) - mpf(move)))
        pairs = ((first, second), (1 - first, 1 - second))
        exact = mp.log(sum(p ** mpf(alpha) * q ** (1 - mpf(alpha)) for p, q in pairs)) / (mpf(alpha) - 1)
    found = float(rf.NoisyWinner(1.0).renyi_divergence(counts, moves, alpha))
    assert abs(found - float(exact)) <= 1e-10 * float(exact) + 1e-290


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in exact.LAWS], ids=lambda case: case.name
)
@pytest.mark.parametrize(("theta", "shift"), [(0.3, 0.7), (-2.0, -0.4), (3.0, -1.0)])
def test_the_closed_forms_are_the_definitions(case: Any, theta: float, shift: float) -> None:
    known = Setting(case.name, 1.0, -1.0, 1.5, levels=17)
    family = case.oracle(1.0, -1.0, 1.5)
    assert exact.renyi(known, theta, shift, 4.0) == pytest.approx(
        oracle.renyi(family, theta, shift, 4.0), rel=1e-20
    )
    slow = oracle.hockey_stick(family, theta, shift, 0.2)
    assert exact.hockey_stick(known, theta, shift, 0.2) == pytest.approx(slow, rel=1e-15)
