"""Bounded noise around the true value: an interval that moves with what it hides, as other libraries offer.

The laws here have a fixed interval. Noise that is itself bounded, theta + noise within [lower, upper], moves
its interval with theta: a release near its end says on which side of it the neighbour's interval ends. So
delta cannot fall below that mass however large epsilon is, and the Gaussian's account does not hold as it is.
"""

import math

from ringfence import checks
from ringfence.accounting.gaussian_releases import GaussianRelease, sampled_gaussian_epsilon
from ringfence.checks import Bound
from ringfence.numerics.rounding import UNDERFLOW, rounded_up

_SHARES = tuple(1 - 0.5**k for k in range(20, 0, -1)) + tuple(0.5**k for k in range(2, 21))
_UP = 1 + 1e-9  # rounding of the tails


def bounded_noise_epsilon(
    sigma: float,
    noise_bound: Bound,
    *,
    norm: float,
    coordinates: int,
    delta: float,
    steps: int = 1,
    sampling_rate: float = 1.0,
) -> float:
    """Epsilon at delta of releases theta + noise, the noise N(0, sigma^2) bounded to an interval by itself.

    ``noise_bound`` is a pair (lower, upper), or b for (-b, b): noise beyond it is drawn again or moved to the
    end. One record more or fewer moves theta by at most ``norm`` in L2, at each of ``steps`` releases of
    Poisson samples at this rate; later thetas may depend on earlier releases.

    Let tau be the probability that any of the steps * coordinates Gaussian numbers is beyond its interval.
    Else the run is the one with Gaussian noise, and noise does not depend on the data. So the two runs differ
    by at most tau in total variation, on either dataset: with M the Gaussian run, M' the bounded one and
    (epsilon, delta_0) that M has,

        M'(S) <= M(S) + tau <= e^epsilon M_2(S) + delta_0 + tau
              <= e^epsilon M'_2(S) + delta_0 + (1 + e^epsilon) tau.

    Guarantee: (epsilon, delta) holds for every dataset, one record more or fewer. Where no epsilon is proved
    this way there is an error.

    >>> round(bounded_noise_epsilon(1.0, 7.0, norm=1.0, coordinates=1000, delta=1e-5), 3)
    4.385
    >>> round(bounded_noise_epsilon(1.0, math.inf, norm=1.0, coordinates=1000, delta=1e-5), 3)
    4.377
    """
    sigma, norm = checks.number("sigma", sigma, checks.positive), checks.number("norm", norm, checks.positive)
    lower, upper = (float(end) for end in checks.interval("noise_bound", noise_bound))
    delta, rate = checks.probability("delta", delta), checks.rate("sampling_rate", sampling_rate)
    numbers = checks.count("coordinates", coordinates, at_least=1) * checks.count("steps", steps, at_least=1)
    if not lower < 0 < upper:
        raise ValueError(f"noise_bound must have 0 inside, got ({lower:g}, {upper:g})")
    tau = min(1.0, numbers * _UP * (_tail(upper / sigma) + _tail(-lower / sigma)))
    for share in _SHARES if tau > 0 else (1.0,):  # of delta for the Gaussian: the largest that leaves enough
        epsilon = sampled_gaussian_epsilon(
            (GaussianRelease(norm / sigma, rate=rate, count=steps),), share * delta
        )
        if tau == 0 or (epsilon < 700 and (1 + math.exp(epsilon)) * tau * _UP <= (1 - share) * delta):
            return epsilon
    raise ValueError(
        f"noise_bound must be wider for delta = {delta:g}, got ({lower:g}, {upper:g}): noise is beyond it "
        f"with probability {rounded_up(tau)}, and no epsilon is proved"
    )


def _tail(x: float) -> float:
    """P(N(0, 1) > x), above 0 unless x is infinite."""
    return math.erfc(x / math.sqrt(2)) / 2 + (UNDERFLOW if math.isfinite(x) else 0.0)
