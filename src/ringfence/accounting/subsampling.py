"""Poisson sampling: what releases of random batches cost, with every possible record covered.

Each record enters the batch with probability q, independently; theta is the sum over the batch.
For any one record the two releases are averages over the rest B of the batch, of P_B = M(theta_B) and of
(1 - q) P_B + q Q_B, where Q_B = M(theta_B + v). exp((alpha - 1) D_alpha) is jointly convex, so it is at most
the average over B of its values for a known B. That average is bounded from batches drawn for the purpose.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, Releases, checked_orders
from ringfence.accounting.divergence_sums import pushes, recentre, released_shape
from ringfence.accounting.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.induction import merged
from ringfence.accounting.per_instance import (
    DivergenceTables,
    PerInstanceAccountant,
    PerInstanceRdp,
    ceilings,
)
from ringfence.accounting.poisson_mixture import PoissonMixture, moments
from ringfence.accounting.privacy_loss import Accountant, PrivacyLoss, as_given
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.pieces import log_expm1
from ringfence.numerics.confidence import upper_confidence_bound
from ringfence.numerics.rounding import ROUNDING

SAMPLED_ORDERS: tuple[int, ...] = (
    *range(2, 33),
    *(36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256),
)

# Shares of the failure probability for three averages: of the cost of a record that is added, of one that is
# removed, and of the larger cost. Where one record moves theta little, the last average is what counts.
_SHARES = (0.01, 0.01, 0.98)
_FEW = 16  # coordinates: with more, a table pays, because several batches are read from it
_LARGEST_ORDER = 1 << 10  # every moment up to the largest order is evaluated


def checked_integer_orders(orders: Sequence[float] | Tensor) -> Tensor:
    """Orders as a float64 vector: at least one, all of them integers from 2 on.

    >>> checked_integer_orders([2, 8])
    tensor([2., 8.], dtype=torch.float64)
    """
    tensor = checked_orders(orders)
    checks.require(
        "orders", f"must be at most {_LARGEST_ORDER} for sampling", tensor, tensor <= _LARGEST_ORDER
    )
    return checks.require("orders", "must be integers >= 2 for sampling", tensor, tensor == tensor.round())


@dataclass(frozen=True)
class SubsampledRdp(PerInstanceRdp):
    """Rényi divergences of one release of a Poisson sample at each order, in both directions.

    ``forward`` has the law without the record first, ``backward`` the law with it. The numbers cover every
    record that is added to the dataset or removed from it. They hold except with probability
    ``failure_probability`` over the auxiliary batches.

    >>> import ringfence as rf
    >>> batches = torch.zeros(2, 1)  # of a law whose divergences do not depend on theta
    >>> rdp = subsampled_rdp(rf.Gaussian(1.0), batches, 1.0, 0.5, [2, 4], failure_probability=1e-9)
    >>> rdp.orders.tolist(), [round(cost, 3) for cost in rdp.worst.tolist()], rdp.failure_probability
    ([2.0, 4.0], [0.357, 1.151], 1e-09)
    """

    failure_probability: float


def subsampled_rdp(
    mechanism: Mechanism,
    batches: Tensor | Iterable[Real],
    sensitivity: Real | Sensitivity,
    sampling_rate: float,
    orders: Sequence[float] | Tensor = SAMPLED_ORDERS,
    *,
    failure_probability: float,
) -> SubsampledRdp:
    """Rényi divergences of a release of a Poisson sample, from independent auxiliary batches.

    ``batches`` are the thetas of n >= 2 independent Poisson samples of the dataset, drawn for this
    purpose and never released: a tensor whose first dimension counts them, or an iterable. The
    released batch is not one of them: the bound is an average over batches, and one batch does not
    stand for the dataset. One record moves coordinate j of a theta by at most ``sensitivity``, up or
    down, or theta as a ``Sensitivity`` says. Orders are integers.

    For a known batch the backward direction is exact (by the binomial theorem), up to the 0.5 % of
    ``per_instance_rdp``, and with the worst v taken moment by moment. It does not dominate the forward
    direction here, which is bounded by moments (``PoissonMixture.mixture_second``).

    Adding and removing a record are both covered. A record of the dataset may itself be in an auxiliary
    batch: then it is in theta_B, and the pair is M(theta_B - v), M(theta_B) instead of M(theta_B),
    M(theta_B + v). ``SampledDivergence.either_record`` says what both cost together.

    Guarantee: with probability at least 1 - ``failure_probability`` over the batches, all numbers
    are upper bounds, for one release whose theta is the sum over a Poisson sample of contributions
    that depend only on the record and on earlier releases. Never above those of the Poisson-sampled
    Gaussian with the same sigma. Where every record is in every batch, ``per_instance_rdp`` is exact.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> batches = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)).double()
    >>> law = TruncatedGaussian(1.0, bound=2.0)
    >>> rdp = subsampled_rdp(law, batches, 0.01, 0.1, [2, 4], failure_probability=1e-6)
    >>> gaussian = 0.1**2 * 40 * 0.01**2 / 2 * rdp.orders
    >>> (rdp.worst / gaussian).round(decimals=2).tolist()
    [0.71, 0.73]
    """
    thetas = _checked_batches(batches)
    orders = checked_integer_orders(orders)
    release = SampledDivergence(mechanism, thetas[0], sensitivity, sampling_rate, orders)
    return release.average(thetas, failure_probability)


def chance_of_cut(records: float, sampling_rate: float, maximum: int) -> float:
    """An upper bound of the chance that a Poisson sample of at most this many records reaches ``maximum``.

    Let each record enter with probability q, and keep the ``maximum`` = B of smallest priorities, which are
    drawn for each record by itself. A record more changes nothing where it does not enter. Where it does, and
    fewer than B others did, it is added: the pair of ordinary sampling. Where B others entered, it takes the
    place of one of them, if its priority is small enough: given the others and their priorities, with a
    probability of at most q, it moves the sum by no more than two records do. That B others entered has the
    same probability with and without it, which grows with their number, and the second pair dominates the
    first. So the release is dominated by their mixture, in which one sees which of them was used.

    >>> chance_of_cut(1000, 0.1, 150), chance_of_cut(1000, 0.1, 100) > 0.5
    (4.489442863939484e-07, True)
    """
    from scipy.stats import binom  # type: ignore[import-untyped]

    return min(1.0, float(binom.sf(maximum - 1, math.ceil(records), sampling_rate)) * (1 + 1e-9))


class SampledDivergence:
    """Divergences of a release of a Poisson sample, at integer orders, as functions of theta.

    Costs are given as log(E - 1), where E = exp((alpha - 1) D_alpha), for the two directions: forward has
    the law without the record first, backward the law with it. Of the ``theta`` that the release is made
    for only the shape counts.

    ``ceilings`` are upper bounds of the cost over all theta, forward and backward, and ``gaussian`` is the
    cost of the sampled Gaussian with the same sigma, in its larger direction. The Gaussian's pair dominates
    every pair here in every test (Blackwell), and its mixture dominates theirs; the Gaussian's forward
    direction is below its backward one (Mironov, Talwar, Zhang 2019, Theorem 5). A law with a smaller bound
    of all its divergences has smaller moments. Of samples that are ``cut`` with at most that chance, the
    excess is the average of both cases, of which each has its own pairs (``chance_of_cut``).

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> release = SampledDivergence(Gaussian(1.0), torch.zeros(4), 0.1, 0.5, checked_integer_orders([2]))
    >>> round(float(release.divergence(release.gaussian)), 6)  # log(1 + q^2 (e^(4 * 0.1^2) - 1))
    0.010151
    """

    def __init__(
        self,
        mechanism: Mechanism,
        theta: Tensor,
        sensitivity: Real | Sensitivity,
        sampling_rate: float,
        orders: Tensor,
        tables: DivergenceTables | None = None,
        cut: float = 0.0,
    ) -> None:
        self.mechanism, self.orders = checks.instance("mechanism", mechanism, Mechanism), orders
        self.sensitivity = Sensitivity.of(sensitivity)
        self.sampling_rate = checks.rate("sampling_rate", sampling_rate)
        self._tables = DivergenceTables(moments(orders), _FEW) if tables is None else tables
        gaussian, bounded = ceilings(mechanism, theta, self.sensitivity)
        self.mu = math.sqrt(2 * gaussian)  # shift / sigma of the Gaussian that dominates a whole release
        self.shape = theta.shape
        if sampling_rate == 1:
            exact = (log_expm1(cost * orders * (orders - 1)) for cost in (gaussian, bounded))
            self.gaussian, self.ceilings = next(exact), next(exact).expand(2, -1)
        else:
            self._mixture = PoissonMixture(self.sampling_rate, orders)
            most = self._tables.orders * (self._tables.orders - 1)
            self._largest_moments = bounded * most
            self.gaussian = self._mixture.mixture_first(gaussian * most)
            # about the third moment it is only known that it is at least 1
            nothing, largest = torch.zeros((), dtype=torch.float64), self._largest_moments
            forward = self._mixture.mixture_second(largest, nothing, largest)
            both = torch.stack((forward, self._mixture.mixture_first(largest)))
            self.ceilings = torch.minimum(both, self.gaussian)
        if cut:  # then a record takes another's place
            twice = (self.sensitivity.times(2), sampling_rate, orders, self._tables)
            whole = SampledDivergence(mechanism, theta, *twice)
            self.mu = whole.mu
            for name in ("gaussian", "ceilings"):
                usual = getattr(self, name) + math.log1p(-cut) if cut < 1 else torch.tensor(-math.inf)
                setattr(self, name, torch.logaddexp(usual, getattr(whole, name) + math.log(cut)))

    def log_excess(self, theta: Tensor) -> Tensor:
        """The cost for one known batch: (added or removed, forward or backward, orders).

        For a record that is added P = M(theta) and Q = M(theta + v), and the moments of Q/P are the
        backward sums of ``per_instance_rdp``. A record that is removed is in theta: P = M(theta - v) and
        Q = M(theta), and the moments are the forward sums.
        """
        sums = self._tables.sums(self.mechanism, theta, self.sensitivity) * (self._tables.orders - 1)
        reverse = torch.minimum(sums, self._largest_moments)
        own, third = reverse.flip(0), 2 * self._third_below(theta).flip(0)
        forward = self._mixture.mixture_second(own, third, reverse)
        both = torch.stack((forward, self._mixture.mixture_first(own)), dim=1)
        return torch.minimum(both, self.ceilings)

    def average(self, batches: Sequence[Tensor], failure_probability: float) -> SubsampledRdp:
        """``subsampled_rdp`` of this release."""
        failure_probability = checks.probability("failure_probability", failure_probability)
        if self.sampling_rate == 1:
            raise ValueError(
                "sampling_rate must be below 1 where batches are given, got 1: every batch is the dataset, "
                "use PerInstanceAccountant or per_instance_rdp"
            )
        values: list[Tensor] = []
        for theta in batches:
            added, removed = self.log_excess(theta)
            values.append(torch.stack((added, removed, torch.maximum(added, removed))))
        share = failure_probability / values[0][0].numel()  # two directions, every order
        averages = [
            upper_confidence_bound(kind, self.ceilings, share * part)
            for kind, part in zip(torch.stack(values, dim=1), _SHARES, strict=True)
        ]
        forward, backward = self.divergence(self.either_record(*averages))
        return SubsampledRdp(self.orders, forward, backward, failure_probability)

    def either_record(self, added: Tensor, removed: Tensor, worse: Tensor) -> Tensor:
        """Covers a record that is added and one that is removed, from averages over the dataset's batches.

        ``added`` and ``removed`` are averages of the two kinds of ``log_excess``, ``worse`` is the average of
        the larger of the two. An added record costs at most ``added``. A removed record costs A, an average
        over batches of the other records. A batch of the dataset lacks the record with probability 1 - q;
        given that, it is such a batch, and costs at most the added kind. Given that it holds the record, it
        is such a batch once the record is taken out, and costs at most the removed kind. Both conditional
        averages are A, so (1 - q) A <= ``added``, q A <= ``removed`` and A <= ``worse``.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> release = SampledDivergence(Gaussian(1.0), torch.zeros(1), 0.1, 0.2, checked_integer_orders([2]))
        >>> averages = (torch.tensor([x]).double().log() for x in (0.4, 3.0, 3.1))
        >>> release.either_record(*averages).exp()  # 0.4 / (1 - q)
        tensor([0.5000], dtype=torch.float64)
        """
        lacking = added - math.log1p(-self.sampling_rate)
        holding = torch.maximum(added, removed - math.log(self.sampling_rate))
        return torch.minimum(worse, torch.minimum(lacking, holding))

    def divergence(self, log_excess: Tensor) -> Tensor:
        """D = log(1 + excess) / (alpha - 1)."""
        if bool(log_excess.isnan().any()):
            raise FloatingPointError(f"float64 cannot represent what a sample of {self.mechanism!r} costs")
        return torch.logaddexp(log_excess, torch.zeros_like(log_excess)) / (self.orders - 1)

    def _third_below(self, theta: Tensor) -> Tensor:
        """Sums over coordinates of the smaller sign's divergence of order 3, rows forward and backward.

        No v in {-c, c}^d has less, and no other v matters: E_P f(Q/P) with a convex f grows with every
        |v_j| (monotone likelihood ratio). Coordinates are evaluated, because a table bounds from above only.
        Where not every coordinate may move as far as it can, all that is known is that none is negative.
        """
        size = self.sensitivity
        if not size.binding(released_shape(self.mechanism, theta, size.farthest)).is_plain:
            return torch.zeros(2, dtype=torch.float64)
        law, theta = recentre(self.mechanism, theta.double())
        move = size.farthest.to(theta.device).double()
        both = ([law.renyi_divergence(*pair, 3.0) for pair in pairs] for pairs in pushes(theta, move))
        return torch.stack([torch.minimum(*values).sum().cpu() for values in both]) * (1 - ROUNDING)


def _checked_batches(batches: object) -> list[Tensor]:
    """The thetas of auxiliary batches: at least two, finite, and all of one shape."""
    single = getattr(batches, "ndim", 1) == 0
    if single or isinstance(batches, str | bytes | dict) or not isinstance(batches, Iterable):
        raise TypeError(f"batches must be a tensor or an iterable of thetas, one a batch, got {batches!r}")
    read = isinstance(batches, Tensor) or not hasattr(batches, "__array__")
    thetas = [checks.finite("batches", row) for row in (batches if read else np.asarray(batches))]
    if len(thetas) < 2:
        raise ValueError(
            "batches must hold at least 2 independent auxiliary batches, drawn for the purpose and never "
            f"released, got {len(thetas)}: the released batch does not stand for the dataset"
        )
    for theta in thetas:
        if theta.shape != thetas[0].shape:
            shapes = f"{list(thetas[0].shape)} and {list(theta.shape)}"
            raise ValueError(f"batches must all have one shape, got {shapes}")
    return thetas


class SampledAccountant(Accountant):
    """Adds up releases of Poisson samples and says what they cost.

    Call ``step(batches)`` once for each release, with the thetas of auxiliary batches: independent
    Poisson samples that are drawn for the purpose at the same model parameters as the release, and never
    the released batch itself (``subsampled_rdp``). A record must enter theta with a contribution that
    depends only on the record and on earlier releases, within ``sensitivity``: a number for the largest move
    of each coordinate, or a ``Sensitivity``.

    Guarantee: for each order there is one running sum per direction. Each is an upper bound except with
    probability ``spent``, to which every step adds ``failure_probability``, and is never above the sum of
    the Poisson-sampled Gaussian. ``spent`` is paid out of delta. ``docs/guarantees.md`` says what the sums
    promise. ``cut`` is the chance that a sample of the other records reaches the public maximum of a batch
    (``chance_of_cut``), 0 where there is none; such steps are charged with what holds for every dataset.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> batches = torch.randn(10, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> account = SampledAccountant(TruncatedGaussian(1.0, bound=2.0), 0.1, 0.5, orders=[8, 16, 32])
    >>> account.step(batches, count=100)
    >>> own = account.guarantee(delta=1e-5).per_instance
    >>> own.epsilon < own.gaussian_epsilon, own.failure_probability
    (True, 1e-09)
    """

    _SETTINGS: ClassVar = {
        **{"mechanism": Mechanism.from_state_dict, "sensitivity": Sensitivity.from_state},
        **{"sampling_rate": as_given, "failure_probability": as_given, "cut": as_given},
    }
    _SUMS: ClassVar = ("forward", "backward", "gaussian", "data_independent")
    _NUMBERS: ClassVar = ("spent",)

    gaussian: Tensor  # of the sampled Gaussian with the same sigma
    data_independent: Tensor  # what the law proves for every theta
    spent: float

    def __init__(
        self,
        mechanism: Mechanism,
        sensitivity: Real | Sensitivity,
        sampling_rate: float,
        orders: Sequence[float] | Tensor = SAMPLED_ORDERS,
        failure_probability: float = 1e-9,
        cut: float = 0.0,
    ) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = Sensitivity.of(sensitivity)
        self.sampling_rate = checks.rate("sampling_rate", sampling_rate)
        self.failure_probability = checks.probability("failure_probability", failure_probability)
        self.cut = checks.number("cut", cut, checks.share)
        super().__init__(checked_integer_orders(orders))
        self.settings: Releases = ()
        self._tables = DivergenceTables(moments(self._orders), _FEW)
        self._own: SampledDivergence | None = None  # the last release with the account's own settings

    def step(self, batches: Tensor | Iterable[Real], *, count: int = 1) -> None:
        """Adds ``count`` releases, with the account's own settings.

        They are ``count`` samples of the same dataset at the same model parameters: the average over batches
        is the same number, which is estimated once.
        """
        count = checks.count("count", count, at_least=1)
        if self.cut:
            raise ValueError("batches must not be given where samples are cut: use step_worst_case")
        thetas = _checked_batches(batches)
        release = self._release(thetas[0])
        rdp = release.average(thetas, self.failure_probability)
        self._add(release, rdp.forward, rdp.backward, count)
        self.spent += rdp.failure_probability

    def step_worst_case(
        self,
        theta: Real,
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        sampling_rate: float | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases, charged with what holds for every dataset: nothing is estimated.

        Of ``theta`` only the shape counts.
        """
        count = checks.count("count", count, at_least=1)
        release = self._release(checks.tensor("theta", theta), mechanism, sensitivity, sampling_rate)
        forward, backward = release.divergence(release.ceilings)
        self._add(release, forward, backward, count)

    def charge(self, theta: Tensor) -> None:
        """Charges one release of a Poisson sample in training, with what holds for every dataset.

        Of ``theta``, the released batch itself, only the shape counts.
        """
        self.step_worst_case(theta)

    def _release(
        self,
        theta: Tensor,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        sampling_rate: float | None = None,
    ) -> SampledDivergence:
        own = mechanism is None and sensitivity is None and sampling_rate is None
        if own and self._own is not None and self._own.shape == theta.shape:
            return self._own
        release = SampledDivergence(
            self.mechanism if mechanism is None else mechanism,
            theta,
            self.sensitivity if sensitivity is None else sensitivity,
            self.sampling_rate if sampling_rate is None else sampling_rate,
            self._orders,
            self._tables,
            self.cut,
        )
        self._own = release if own else self._own
        return release

    def _add(self, release: SampledDivergence, forward: Tensor, backward: Tensor, count: int) -> None:
        self.forward = self.forward + count * forward
        self.backward = self.backward + count * backward
        self.gaussian = self.gaussian + count * release.divergence(release.gaussian)
        ceiling = release.divergence(release.ceilings.amax(dim=0))
        self.data_independent = self.data_independent + count * ceiling
        rate = release.sampling_rate
        setting = (release.mu, (rate, self.cut) if self.cut else rate, count)
        self.settings = merged((*self.settings, setting))
        self.steps += count

    def privacy_loss(self) -> PrivacyLoss:
        """The steps so far as one value, which adds up with that of other accounts."""
        return PrivacyLoss(
            releases=self.settings,
            zcdp=math.inf,
            orders=tuple(self._orders.tolist()),
            ceiling=tuple(self.data_independent.tolist()),
            forward=tuple(self.forward.tolist()),
            backward=tuple(self.backward.tolist()),
            gaussian=tuple(self.gaussian.tolist()),
            steps=self.steps,
            change=ADDED_OR_REMOVED,
            spent=self.spent,
        )

    @classmethod
    def _state_names(cls) -> tuple[str, ...]:
        return (*super()._state_names(), "settings")

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        account = super().from_state_dict({"cut": 0.0, **checks.mapping("state", state)})
        for entry in checks.listed("settings", state["settings"]):
            mu, rate, count = checks.listed("settings", entry, length=3)
            pair = checks.listed("settings", rate, length=2) if isinstance(rate, list | tuple) else None
            share = checks.rate("settings", rate if pair is None else pair[0])
            size = checks.number("settings", mu, checks.not_negative)
            cut = None if pair is None else checks.number("settings", pair[1], checks.share)
            count = checks.count("settings", count, at_least=1)
            account.settings += ((size, share if cut is None else (share, cut), count),)
        if sum(count for *_, count in account.settings) != account.steps:
            raise ValueError(f"settings must count {account.steps} steps, got {state['settings']!r}")
        return account

    def __repr__(self) -> str:
        return (
            f"SampledAccountant({self.mechanism!r}, sampling_rate={self.sampling_rate}, steps={self.steps})"
        )


class AllocatedAccountant(Accountant):
    """Adds up epochs, in each of which every record is in one of ``steps_an_epoch`` releases.

    Which one is drawn at random for each record by itself. An epoch counts as a whole once it was begun
    (``enter``), and what is charged holds for every dataset. Two draws for the same steps are two epochs.

    Guarantee: all releases of an epoch together are dominated as ``allocation.epoch_losses`` says. Each of
    its Rényi divergences is at most that of one Gaussian release of the longest move, by convexity.

    >>> import ringfence as rf
    >>> account = AllocatedAccountant(rf.Gaussian(1.0), rf.Sensitivity(norm=1.0), steps_an_epoch=100)
    >>> account.step_worst_case(torch.zeros(5), count=1000)
    >>> round(account.guarantee(delta=1e-5).epsilon, 2), account.epochs
    (1.7, 10.0)
    """

    _SETTINGS: ClassVar = {
        **{"mechanism": Mechanism.from_state_dict, "sensitivity": Sensitivity.from_state},
        "steps_an_epoch": as_given,
    }
    _NUMBERS: ClassVar = ("epochs", "mu")

    epochs: float
    mu: float  # the longest move, in units of sigma

    def __init__(
        self,
        mechanism: Mechanism,
        sensitivity: Real | Sensitivity,
        steps_an_epoch: int,
        orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    ) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = Sensitivity.of(sensitivity)
        self.steps_an_epoch = checks.count("steps_an_epoch", steps_an_epoch, at_least=1)
        super().__init__(checked_orders(orders))
        self._entered: tuple[int, ...] | None = None

    def enter(self, epoch: tuple[int, ...]) -> None:
        """Counts one epoch more, unless it is the one that was entered last."""
        if epoch != self._entered:
            self.epochs += 1
            self._entered = epoch

    def before(self, epoch: tuple[int, ...]) -> int:
        """The number of epochs that were entered before this one."""
        return round(self.epochs) - (epoch == self._entered)

    def charge(self, theta: Tensor) -> None:
        """Counts one release, in training, of the epoch that was entered last."""
        if self._entered is None:
            raise ValueError("enter must be called before charge: which epoch a release is in is not known")
        self._add(theta, 1, 0)

    def step_worst_case(self, theta: Real, *, count: int = 1) -> None:
        """Adds ``count`` releases, epoch after epoch. Of ``theta`` only the shape counts."""
        count = checks.count("count", count, at_least=1)
        before, after = (math.ceil(steps / self.steps_an_epoch) for steps in (self.steps, self.steps + count))
        self._add(checks.tensor("theta", theta), count, after - before)

    def _add(self, theta: Tensor, count: int, epochs: int) -> None:
        self.mu = max(self.mu, math.sqrt(2 * ceilings(self.mechanism, theta, self.sensitivity)[0]))
        self.epochs += epochs
        self.steps += count
        self.forward = self.backward = 0.5 * self.mu**2 * self.epochs * self._orders

    def privacy_loss(self) -> PrivacyLoss:
        """The steps so far as one value, which adds up with that of other accounts."""
        sums = tuple(self.forward.tolist())
        return PrivacyLoss(
            releases=((self.mu, (self.steps_an_epoch,), round(self.epochs)),) if self.epochs else (),
            zcdp=0.5 * self.mu**2 * self.epochs,
            orders=tuple(self._orders.tolist()),
            ceiling=sums,
            forward=sums,
            backward=sums,
            gaussian=sums,
            steps=self.steps,
            change=ADDED_OR_REMOVED,
        )

    def __repr__(self) -> str:
        return f"AllocatedAccountant({self.mechanism!r}, steps={self.steps}, epochs={round(self.epochs)})"


# Training charges one of these before each release (``charge``).
Account = PerInstanceAccountant | SampledAccountant | AllocatedAccountant

_KINDS: dict[str, type[PerInstanceAccountant] | type[SampledAccountant] | type[AllocatedAccountant]] = {
    kind.__name__: kind for kind in (PerInstanceAccountant, SampledAccountant, AllocatedAccountant)
}


def accountant_from_state_dict(state: dict[str, Any]) -> Account:
    """The account that a ``state_dict`` describes; its ``kind`` chooses the class.

    An unknown kind or version is an error that names it.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> saved = PerInstanceAccountant(Gaussian(1.0), sensitivity=0.1).state_dict()
    >>> accountant_from_state_dict(saved)
    PerInstanceAccountant(Gaussian(sigma=1.0), steps=0)
    """
    kind = checks.one_of("kind", checks.mapping("state", state).get("kind"), _KINDS)
    return _KINDS[kind].from_state_dict(state)
