"""Tight (epsilon, delta) for a theta fixed in advance: the best of several proofs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders, gaussian_delta
from ringfence.accounting.coordinates import recentre, released_shape
from ringfence.accounting.per_instance import ceilings, per_instance_rdp
from ringfence.accounting.profile.atoms import mechanism_delta
from ringfence.accounting.profile.central_limit import LossSums
from ringfence.accounting.profile.dominating_pair import MOST_COORDINATES, composed_delta
from ringfence.accounting.profile.few_moves import envelope_delta
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_BISECTIONS = 60
_RELATIVE = 1e-7
_LARGEST = 400  # the largest epsilon that is looked for, as a power of 2
_MOSTLY = 2.0  # how many times as much all coordinates may cost for that bound to be worth its time
_SMALLEST_RDP = 2.0**-52  # dp-accounting takes a logarithm of 1 - exp(-rdp)


@dataclass(frozen=True)
class PrivacyProfile:
    """delta(epsilon) of releases at a fixed theta, for each single record and in both directions.

    ``proofs`` maps names to functions from epsilon to an upper bound of delta; the smallest one counts.

    >>> import ringfence as rf
    >>> profile = rf.privacy_profile(rf.Gaussian(1.0), 0.0, sensitivity=1.0)
    >>> round(profile.epsilon(delta=1e-5), 4), round(profile.delta(epsilon=1.0), 4), profile.proof(delta=1e-5)
    (4.3772, 0.1269, 'Gaussian')
    """

    proofs: dict[str, Callable[[float], float]]
    _found: dict[float, tuple[float, str]] = field(default_factory=dict, repr=False, compare=False)

    def delta(self, epsilon: float) -> float:
        """An upper bound of the smallest delta for which (epsilon, delta) holds."""
        epsilon = checks.number("epsilon", epsilon, checks.not_negative)
        return min(1.0, *(proof(epsilon) for proof in self.proofs.values()))

    def epsilon(self, delta: float) -> float:
        """An epsilon with delta(epsilon) <= delta, within a relative 1e-7 of the smallest that is proved."""
        return self._best(delta)[0]

    def proof(self, delta: float) -> str:
        """The name of the proof that gives ``epsilon(delta)``."""
        return self._best(delta)[1]

    def _best(self, delta: float) -> tuple[float, str]:
        """The smallest epsilon, and the proof that gives it: what was found once is kept."""
        delta = checks.probability("delta", delta)
        if delta not in self._found:
            best = math.inf, ""
            for name, proof in reversed(self.proofs.items()):  # the sharp ones, which come last, go first
                # what does not hold at the best epsilon has no smaller one
                if best[0] == math.inf or proof(best[0]) <= delta:
                    epsilon = _smallest_epsilon(proof, delta)
                    best = (epsilon, name) if epsilon <= best[0] else best
            self._found[delta] = best
        return self._found[delta]


def privacy_profile(
    mechanism: Mechanism, theta: Real, sensitivity: Real | Sensitivity, steps: int = 1
) -> PrivacyProfile:
    """Tight (epsilon, delta) of ``steps`` releases of the same theta, about any one record.

    One record moves each coordinate by at most ``sensitivity``, or theta as a ``Sensitivity`` says, up or
    down, the same way or another at every step. For a theta that depends on earlier releases use
    ``PerInstanceAccountant``.

    There are up to four proofs: the Gaussian's exact curve, which dominates every law here, so that the
    profile is never worse; the realised Rényi sums; a normal law of the privacy loss with every error
    charged, within half a percent where coordinates are many and each moves little; and the composition of
    dominating pairs by dp-accounting, for a few coordinates or, as "worst coordinate", where a record moves a
    few of them. A law of atoms alone, such as the sign, has "backward induction" instead of the last two, for
    up to some ten thousand coordinates. A single move of a single coordinate, such as one person in one cell
    of a table, has its exact curve. Where the length of a move is bounded by ``norm``, there is no sharp
    proof: the first two count, and the third as if there were no such bound.

    Guarantee: an upper bound that covers every move and both directions. Like every number computed from
    theta it speaks of this dataset and is itself sensitive.

    >>> import torch
    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> theta = torch.linspace(-2, 2, 10_240, dtype=torch.float64)
    >>> profile = privacy_profile(TruncatedGaussian(1.0, bound=2.0), theta, sensitivity=1e-3, steps=10)
    >>> round(profile.epsilon(delta=1e-5), 2), profile.proof(delta=1e-5)
    (0.92, 'central limit')
    >>> cell = Sensitivity(each=1.0, at_most=1)
    >>> profile = privacy_profile(TruncatedGaussian(4.0, bound=20.0), torch.arange(24.0), cell)
    >>> round(profile.epsilon(delta=1e-6), 2), profile.proof(delta=1e-6)
    (1.06, 'worst coordinate')
    """
    theta = checks.finite("theta", theta).double()
    size = Sensitivity.of(sensitivity)
    steps = checks.count("steps", steps, at_least=1)
    zcdp = ceilings(mechanism, theta, size)[0]
    mu = math.sqrt(2 * steps * zcdp)
    size = size.binding(released_shape(mechanism, theta, size.farthest))
    farthest = size.farthest.double().to(theta.device)
    mechanism, theta = recentre(mechanism, theta)
    left_out = steps * theta.numel() * UNDERFLOW
    proofs: dict[str, Callable[[float], float]] = {"Gaussian": lambda epsilon: gaussian_delta(mu, epsilon)}
    if mu == 0:
        return PrivacyProfile(proofs)
    proofs["Rényi"] = _renyi(mechanism, theta, size, steps)
    # that all coordinates may move holds whatever else is known, and is close where most of them may
    if size.is_plain or ceilings(mechanism, theta, farthest)[0] <= _MOSTLY * zcdp:
        directions = _loss_sums(mechanism, theta, farthest, steps)
        proofs["central limit"] = lambda epsilon: left_out + max(sums.delta(epsilon) for sums in directions)
    if mechanism.atoms_alone:
        if size.norm is None and (every := mechanism_delta(mechanism, theta, farthest, steps, size.at_most)):
            proofs["backward induction"] = lambda epsilon: left_out + every(epsilon)
        return PrivacyProfile(proofs)
    if size.is_plain and theta.numel() <= MOST_COORDINATES:
        composed = composed_delta(mechanism, theta, farthest, steps)
        proofs["dominating pairs"] = lambda epsilon: left_out + composed(epsilon)
    if size.at_most is not None and size.norm is None:
        envelope = envelope_delta(mechanism, theta, farthest, size.at_most * steps)
        if envelope is not None:
            proofs["worst coordinate"] = lambda epsilon: left_out + envelope(epsilon)
    return PrivacyProfile(proofs)


def _renyi(
    mechanism: Mechanism, theta: Tensor, sensitivity: Sensitivity, steps: int
) -> Callable[[float], float]:
    orders = checked_orders(DEFAULT_ORDERS[::2])  # this proof is a fallback, so every other order will do
    return renyi_delta(orders, steps * per_instance_rdp(mechanism, theta, sensitivity, orders).worst)


def renyi_delta(orders: Tensor, rdp: Tensor) -> Callable[[float], float]:
    """delta(epsilon) of releases whose Rényi divergences are known at these orders, by dp-accounting.

    >>> orders = checked_orders([2.0, 8.0, 32.0])
    >>> round(renyi_delta(orders, 0.01 * orders)(0.5), 5)
    4e-05
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    sums = rdp.clamp(min=_SMALLEST_RDP).tolist()
    return lambda epsilon: (
        float(compute_delta(orders.tolist(), sums, epsilon)[0]) * (1 + ROUNDING) + UNDERFLOW
    )


def _loss_sums(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, steps: int) -> tuple[LossSums, ...]:
    """Moments of the loss, forward and backward, where each coordinate is free to choose its sign."""
    up, down = sensitivity, -sensitivity
    return (
        LossSums.worst_of(mechanism.loss_moments(theta, up), mechanism.loss_moments(theta, down), steps),
        LossSums.worst_of(
            mechanism.loss_moments(theta + up, down), mechanism.loss_moments(theta + down, up), steps
        ),
    )


def _smallest_epsilon(proof: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon found at which the proof gives delta or less; infinite if none.

    delta(epsilon) falls, so whatever holds at one epsilon holds at every larger one: it is enough
    to find an epsilon that passes and to bisect below it. Proofs may give up at a large epsilon.
    """
    if proof(0.0) <= delta:
        return 0.0
    passing = next((2.0**k for k in range(-20, _LARGEST) if proof(2.0**k) <= delta), None)
    if passing is None:
        return math.inf
    failing = passing / 2
    for _ in range(_BISECTIONS):
        middle = (failing + passing) / 2
        if proof(middle) <= delta:
            passing = middle
        else:
            failing = middle
        if passing - failing < _RELATIVE * passing:
            break
    return passing
