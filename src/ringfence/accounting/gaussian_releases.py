"""Gaussian releases, of everything, of Poisson samples and of random epochs: what they cost together.

No law here leaks more in any test than a Gaussian release, exactly, and some have smaller Rényi divergences.
A ``GaussianRelease`` says both of one release, and how much of the data is in it. Distributions of losses are
composed by dp-accounting, which is imported where it is used, because it imports scipy.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import gaussian_delta, gaussian_epsilon, raised
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.pieces import log_expm1
from ringfence.numerics.bisection import smallest
from ringfence.numerics.normal import cumulative
from ringfence.numerics.rounding import ROUNDING

# Integer orders, at which the divergences of Poisson samples are known.
SAMPLED_ORDERS: tuple[float, ...] = (
    *map(float, range(2, 33)),
    *(36.0, 40.0, 44.0, 48.0, 56.0, 64.0, 72.0, 80.0, 96.0, 112.0, 128.0, 144.0, 160.0, 192.0, 224.0, 256.0),
)
_SHARES = 33  # values of p / q tried
_SUM_ROUNDING = 1e-12  # of sums and differences of exponentials, charged upwards

# Where a curve of (epsilon, delta) ends: at the first of these deltas that has a finite epsilon.
_LAST_DELTAS = (1e-12, 1e-10, 1e-8, 1e-6)
_MOST_POINTS, _LARGEST_EXPONENT = 1 << 14, 700.0
# dp-accounting takes deltas from running sums, of which the rounding is charged here
_DELTA_FACTOR, _DELTA_TERM = 1 + 1e-9, 1e-15

_MU_BISECTIONS = 50
_MOST_POINTS_OF_MU = 2048  # of the search for mu


@dataclass(frozen=True)
class GaussianRelease:
    """``count`` releases, each of them dominated in every test by a Gaussian with shift / sigma = ``mu``.

    Where everything is released, its Rényi divergences are at most ``zcdp`` times the order, in both
    directions; left out, they are those of the Gaussian.

    With ``rate`` below 1 it is a release of a Poisson sample. With ``cut`` samples are cut at a public
    maximum, which the other records reach with at most this chance (``subsampling.chance_of_cut``): ``mu`` is
    then that of a record that takes another's place, and half of it where the maximum is not reached. With an
    ``epoch`` above 1 every record is in one of that many steps, drawn at random (``allocation``), and
    ``count`` counts epochs.

    >>> GaussianRelease(1.0, zcdp=0.3), GaussianRelease(1.0, rate=0.1, count=5).is_whole
    (GaussianRelease(mu=1.0, zcdp=0.3, rate=1.0, cut=0.0, epoch=1, count=1), False)
    """

    mu: float
    zcdp: float = math.inf
    rate: float = 1.0
    cut: float = 0.0
    epoch: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not (self.mu >= 0 and self.zcdp >= 0):
            raise ValueError(f"a release must have numbers from 0 on, got mu={self.mu!r}, zcdp={self.zcdp!r}")
        checks.rate("rate", self.rate)
        checks.number("cut", self.cut, checks.share)
        checks.count("epoch", self.epoch, at_least=1)
        checks.count("count", self.count, at_least=1)
        if self.cut and self.rate == 1:
            raise ValueError(f"cut must be 0 where everything is released, got {self.cut!r}")
        if self.epoch > 1 and self.rate < 1:
            raise ValueError(f"epoch must be 1 where samples are released, got {self.epoch!r}")
        object.__setattr__(self, "zcdp", min(self.zcdp, 0.5 * self.mu * self.mu))

    @property
    def is_whole(self) -> bool:
        """Whether everything is released."""
        return self.rate == 1 and self.epoch == 1

    def divergences(self, orders: Tensor) -> Tensor:
        """Upper bounds of the Rényi divergences of all together at these orders.

        Rows are forward (the law without the record first) and backward.
        A divergence does not fall with the order: that of a Poisson sample is one of ``SAMPLED_ORDERS``, the
        next larger one, and infinite beyond the last. A release of an epoch has no larger one than that of
        one release of everything, by convexity.

        >>> at = torch.tensor([2.0, 7.5], dtype=torch.float64)
        >>> [GaussianRelease(0.1, rate=rate, count=10).divergences(at)[1].round(decimals=4).tolist()
        ...  for rate in (1.0, 0.1)]
        [[0.1, 0.375], [0.001, 0.004]]
        """
        if self.rate == 1:
            return (self.count * self.zcdp * orders).expand(2, -1)
        found = _sample_divergences(self.mu, self.zcdp, self.rate, self.cut)
        return self.count * at_next_orders(SAMPLED_ORDERS, found, orders)


Releases = tuple[GaussianRelease, ...]


def merged_releases(releases: Iterable[GaussianRelease]) -> Releases:
    """The releases, of which equal ones are counted together.

    >>> [release.count for release in merged_releases([GaussianRelease(1.0), GaussianRelease(1.0, count=2)])]
    [3]
    """
    counts: dict[GaussianRelease, int] = {}
    for release in releases:
        kind = replace(release, count=1)
        counts[kind] = counts.get(kind, 0) + release.count
    return tuple(replace(kind, count=count) for kind, count in counts.items())


def at_next_orders(known: tuple[float, ...], values: Tensor, orders: Tensor) -> Tensor:
    """Upper bounds at these orders of what does not fall with the order: the value at the next known one.

    >>> at_next_orders((2.0, 8.0), torch.tensor([0.5, 1.0]), torch.tensor([1.5, 8.0, 9.0]))
    tensor([0.5000, 1.0000,    inf])
    """
    endless = torch.nn.functional.pad(values, (0, 1), value=math.inf)
    return endless[..., torch.searchsorted(torch.tensor(known, dtype=orders.dtype), orders)]


@lru_cache(maxsize=256)
def _sample_divergences(mu: float, zcdp: float, rate: float, cut: float) -> Tensor:
    """Both divergences of a release of a Poisson sample, (2, orders) at ``SAMPLED_ORDERS``.

    exp((alpha - 1) D_alpha) is jointly convex, so it is at most the average over the rest of the sample of
    its values for a known rest. Of samples that are cut it is also at most the average of both cases.
    """
    excess = _log_excess(mu, zcdp, rate)
    if cut:
        usual = _log_excess(0.5 * mu, 0.25 * zcdp, rate)
        chance = torch.tensor(cut, dtype=torch.float64)
        excess = torch.logaddexp(usual + torch.log1p(-chance), excess + chance.log())
    found = torch.logaddexp(excess, torch.zeros_like(excess)) / (_orders() - 1)
    if bool(found.isnan().any()):
        raise FloatingPointError(f"float64 cannot represent what a sample costs at mu={mu!r}, rate={rate!r}")
    return found


def _log_excess(mu: float, zcdp: float, rate: float) -> Tensor:
    """log(E - 1), where E = exp((alpha - 1) D_alpha), of both directions, at ``SAMPLED_ORDERS``.

    Let P be the law without a record and Q that with it. Their moments E_P[(Q/P)^k] and E_Q[(P/Q)^k] are at
    most exp(zcdp k (k - 1)), for every k >= 1, and the release has the law (1 - q) P + q Q = P (1 + x), where
    x = q (Q/P - 1) has the mean 0. With the mixture first, E - 1 is

        sum over k >= 2 of C(alpha, k) q^k (1 - q)^(alpha - k) (M_k - 1),

    the binomial theorem less its value 1 at Q = P, so that nothing cancels. With P first, E is the mean under
    P of (1 + x)^-b, b = alpha - 1, and the smaller of two bounds counts:

    - (1 + x)^-b = 1 - b x + x^2 R(x), where R decreases (by the integral form of the remainder), so that the
      mean of the last term is at most R(-q) q^2 (M_2 - 1), and R(-q) q^2 = (1 - q)^-b P(Bin(alpha, q) >= 2).
    - 1 - q + q r >= e^-KL(p||q) r^p for every p, the inequality between weighted means. So E is at most
      e^(b KL(p||q)) E_P[(P/Q)^(p b)], which is E_Q[(P/Q)^(p b + 1)] in the last factor.

    A Gaussian's pair dominates P and Q in every test (Blackwell), and its mixture dominates theirs. Its
    direction with P first is the smaller one (Mironov, Talwar and Zhang 2019, Theorem 5), so that nothing is
    above the sampled Gaussian's with the mixture first.
    """
    orders = _orders()
    alpha, k = orders.unsqueeze(1), torch.arange(2, int(orders[-1]) + 1, dtype=torch.float64)
    inside, log_in, log_out = k <= alpha, math.log(rate), math.log1p(-rate)
    chosen = k.clamp(max=alpha)
    binomial = torch.lgamma(alpha + 1) - torch.lgamma(chosen + 1) - torch.lgamma(alpha - chosen + 1)
    weights = binomial + chosen * log_in + (alpha - chosen) * log_out

    def sums(terms: Tensor) -> Tensor:
        return torch.logsumexp(torch.where(inside, terms, -torch.inf), dim=1) + _SUM_ROUNDING

    gaussian = sums(weights + log_expm1(0.5 * mu * mu * k * (k - 1)))
    if zcdp == math.inf:
        return gaussian.expand(2, -1)
    mixture_first = sums(weights + log_expm1(zcdp * k * (k - 1)))
    b = alpha - 1
    second = log_expm1(torch.tensor(2 * zcdp, dtype=torch.float64))
    remainder = sums(weights) - (orders - 1) * log_out + second
    share = torch.linspace(0, 1, _SHARES, dtype=torch.float64)
    p = rate * share
    divergence = torch.xlogy(p, share) + (1 - p) * (torch.log1p(-p) - log_out)  # KL(p || q)
    means = log_expm1((b * divergence + zcdp * p * b * (p * b + 1)).amin(dim=1)) + _SUM_ROUNDING
    both = torch.stack((torch.minimum(remainder, means), mixture_first))
    return torch.minimum(both, gaussian)


def _orders() -> Tensor:
    return torch.tensor(SAMPLED_ORDERS, dtype=torch.float64)


def composed_mu(releases: Releases) -> float:
    """The mu of Gaussian differential privacy of all releases together, without anything sampling hides.

    >>> round(composed_mu((GaussianRelease(3.0), GaussianRelease(2.0, rate=0.5, count=4))), 9)
    5.0
    """
    return math.sqrt(sum(release.count * release.mu * release.mu for release in releases))


def sampled_gaussian_epsilon(releases: Releases, delta: float) -> float:
    """epsilon of Gaussian releases, of everything or of random batches.

    Releases of everything (rate 1) compose to one Gaussian; the others are composed by dp-accounting's PLD.
    Losses too large for it (shift / sigma above about 2,600) are charged as releases of everything, which
    cost at least as much: a sampled release is a function of the whole one and of coin flips.

    >>> sample = GaussianRelease(0.5, rate=0.01, count=100)
    >>> round(sampled_gaussian_epsilon((sample,), 1e-5), 3), round(gaussian_epsilon(5.0, 1e-5), 3)
    (0.19, 33.104)
    """
    delta = checks.probability("delta", delta)
    composed = _composed(releases)
    if composed is None:
        return gaussian_epsilon(composed_mu(releases), delta)
    return raised(float(composed[0].get_epsilon_for_delta(delta)))


def sampled_gaussian_delta(releases: Releases, epsilon: float) -> float:
    """delta(epsilon) of the same releases.

    >>> round(sampled_gaussian_delta((GaussianRelease(0.5, rate=0.01, count=100),), 0.19), 6)
    1e-05
    """
    composed = _composed(releases)
    if composed is None:
        return gaussian_delta(composed_mu(releases), epsilon)
    return min(1.0, float(composed[0].get_delta_for_epsilon(epsilon)) * _DELTA_FACTOR + _DELTA_TERM)


@lru_cache(maxsize=4)
def sampled_gaussian_curve(releases: Releases) -> tuple[Tensor, Tensor] | None:
    """Many (epsilon, delta) of the same releases, epsilon from 0 on.

    None where all are releases of everything, or where the losses are too large for dp-accounting.

    >>> epsilons, deltas = sampled_gaussian_curve((GaussianRelease(0.5, rate=0.01, count=100),))
    >>> float(epsilons[0]), round(float(deltas[0]), 4), bool((deltas.diff() <= 0).all())
    (0.0, 0.0212, True)
    """
    if (composed := _composed(releases)) is None:
        return None
    losses, interval = composed
    ends = (float(losses.get_epsilon_for_delta(delta)) for delta in _LAST_DELTAS)
    end = min(next((end for end in ends if math.isfinite(end)), 0.0), _LARGEST_EXPONENT)
    interval *= max(1, math.ceil(end / interval / _MOST_POINTS))
    epsilons = interval * torch.arange(math.ceil(end / interval) + 1, dtype=torch.float64)
    deltas = torch.as_tensor(losses.get_delta_for_epsilon(epsilons.tolist()), dtype=torch.float64)
    deltas = (deltas * _DELTA_FACTOR + _DELTA_TERM).clamp(max=1.0)
    return epsilons, deltas.cummin(0).values


@lru_cache(maxsize=16)
def _composed(releases: Releases) -> tuple[Any, float] | None:
    """dp-accounting's losses, which are rounded up to multiples of an interval, and the interval.

    None where nothing is sampled, or where the losses are too large for dp-accounting.
    """
    sampled = [release for release in releases if release.mu > 0 and not release.is_whole]
    if not sampled:
        return None
    from dp_accounting.pld import privacy_loss_distribution as pld

    from ringfence.accounting.allocation import epoch_losses

    def losses_of(mu: float, rate: float = 1.0) -> Any:
        return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval, sampling_prob=rate)

    whole = composed_mu(tuple(release for release in releases if release.is_whole))
    try:
        largest = max(whole, *(release.mu for release in sampled))
        interval = 1e-4 * max(1.0, largest**2)  # losses grow like squares
        total = pld.identity(value_discretization_interval=interval)
        total = total.compose(losses_of(whole)) if whole > 0 else total
        for one in sampled:
            if one.epoch > 1:
                losses = epoch_losses(one.mu, one.epoch, interval)
            else:
                losses = losses_of(one.mu, one.rate)
            if one.cut:
                losses = losses.compute_mixture(losses_of(one.mu / 2, one.rate), one.cut)
            total = total.compose(losses.self_compose(one.count))
    except OverflowError:
        return None
    return total, interval


def smallest_mu(releases: Releases, slack: float) -> float:
    """The mu of Gaussian differential privacy of these releases, less where samples are released.

    Guarantee: no attack's true positive rate is more than ``slack`` above the one that mu allows, and none is
    above it where everything is released. Let delta be the curve of the releases and g that of mu, as
    functions of u = e^epsilon. Both are convex and decrease, and delta <= g + slack is what has to hold.
    Beyond the first u with delta <= slack there is nothing to show. Between two u of the curve, delta is
    below its chord, and g is at most (u_b - u_a) (g'(u_b) - g'(u_a)) / 4 below its own, because it is above
    its tangents.

    >>> sample = (GaussianRelease(1.0, rate=0.01, count=100),)
    >>> round(composed_mu(sample), 2), round(smallest_mu(sample, 1e-5), 2)
    (10.0, 0.18)
    """
    whole = composed_mu(releases) * (1 + ROUNDING)
    curve = sampled_gaussian_curve(releases)
    if curve is None or float(curve[1][-1]) > slack:
        return whole
    until = int((curve[1] <= slack).nonzero()[0])
    picked = torch.linspace(0, until, min(until + 1, _MOST_POINTS_OF_MU), dtype=torch.float64).long()
    epsilons, deltas = (values[picked] for values in curve)

    def dominates(mu: float) -> bool:
        gap = Gaussian(1.0).hockey_stick(0.0, mu, epsilons) * (1 - ROUNDING) + slack - deltas
        slope = -cumulative(-epsilons / mu - mu / 2)
        below_chord = epsilons.exp().diff() * slope.diff() / 4
        return bool((torch.minimum(gap[1:], gap[:-1]) >= below_chord).all()) and bool((gap >= 0).all())

    return smallest(dominates, 0.0, whole, halvings=_MU_BISECTIONS)
