"""Noise that is bounded around the true value: the account is above the exact cost."""

import math
from itertools import pairwise

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.gaussian_releases import GaussianRelease, sampled_gaussian_epsilon
from ringfence.accounting.moving import bounded_noise_epsilon


def exact_delta(lower: float, upper: float, move: float, epsilon: float) -> float:
    """The hockey stick of one number whose bounded noise moves with it, by integration."""
    mass = norm.cdf(upper) - norm.cdf(lower)

    def stick(y: float) -> float:
        other = norm.pdf(y - move) if lower <= y - move <= upper else 0.0
        return max(norm.pdf(y) - math.exp(epsilon) * other, 0.0) / mass

    inside = sorted(
        min(max(edge, lower), upper) for edge in (lower + move, upper + move, move / 2 - epsilon / move)
    )
    places = [lower, *inside, upper]
    return sum(quad(stick, a, b, epsabs=1e-14)[0] for a, b in pairwise(places) if b > a)


@pytest.mark.parametrize("bound", [(-4.0, 4.0), (-6.0, 4.5), (-4.5, 6.0)])
@pytest.mark.parametrize("move", [0.3, 1.0])
def test_the_claim_covers_the_exact_cost_of_either_sign(bound: tuple[float, float], move: float) -> None:
    delta = 0.02
    epsilon = bounded_noise_epsilon(1.0, bound, norm=move, coordinates=1, delta=delta)
    for ends in (bound, (-bound[1], -bound[0])):  # a move down is a move up of the mirrored law
        assert exact_delta(*ends, move, epsilon) <= delta
        assert exact_delta(*ends, move, 50.0) > 0  # what no epsilon removes
    assert epsilon >= gaussian_epsilon(move, delta)


def test_more_numbers_steps_and_less_room_cost_more() -> None:
    cost = [
        bounded_noise_epsilon(
            1.0, bound, norm=1.0, coordinates=count, delta=1e-5, steps=steps, sampling_rate=0.1
        )
        for bound, count, steps in ((math.inf, 1, 10), (7.0, 1, 10), (7.0, 100, 10), (7.0, 100, 11))
    ]
    assert cost[0] == sampled_gaussian_epsilon((GaussianRelease(1.0, rate=0.1, count=10),), 1e-5)
    assert cost == sorted(cost)
    assert cost[0] < cost[1] < cost[2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise_bound": 3.0}, "noise_bound must be wider for delta = 1e-05.*no epsilon is proved"),
        ({"noise_bound": (1.0, 2.0)}, "noise_bound must have 0 inside"),
        ({"sigma": math.nan}, "sigma"),
        ({"delta": 0.0}, "delta"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"coordinates": 0}, "coordinates must be at least 1"),
    ],
)
def test_what_is_not_proved_is_refused(changes: dict, said: str) -> None:
    given = {"sigma": 1.0, "noise_bound": 8.0, "norm": 1.0, "coordinates": 10, "delta": 1e-5} | changes
    with pytest.raises(ValueError, match=said):
        bounded_noise_epsilon(**given)
