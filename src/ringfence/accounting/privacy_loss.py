"""The one value that every kind of release becomes: what it costs, in a form that adds up.

``PrivacyLoss`` holds what is known about the releases between two neighbouring datasets: Gaussian releases
that dominate them, Rényi divergences for every dataset and for the data at hand, pairs of laws that dominate
them, and pairs (epsilon, delta) of which nothing else is known. Every accountant makes one, ``+`` composes
them, and ``epsilon``, ``delta``, ``trade_off`` and ``guarantee`` take the best of all that is known.
``Accountant`` is what accounts by Rényi sums have in common.
"""

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import (
    DEFAULT_ORDERS,
    AttackBound,
    CurveBound,
    GaussianBound,
    Rates,
    RenyiBound,
    delta_from_rdp,
    epsilon_from_rdp,
    ex_post_epsilon,
    zcdp_delta,
    zcdp_epsilon,
)
from ringfence.accounting.gaussian_releases import (
    SAMPLED_ORDERS,
    GaussianRelease,
    Releases,
    at_next_orders,
    composed_mu,
    merged_releases,
    sampled_gaussian_curve,
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
)
from ringfence.accounting.guarantee import ADDED_OR_REMOVED, REPLACED, Guarantee, PerInstance
from ringfence.accounting.induction import (
    Dominating,
    dominated_curve,
    dominated_delta,
    dominated_epsilon,
    merged,
)
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING

Sums = tuple[float, ...]  # one Rényi divergence per order

# methods of accountants, since 0.7; what a sample costs the data at hand (``step``) is known for none
_RENAMED = {"cost": "privacy_loss", "step_of_any": "step_worst_case", "step": "step_worst_case"}
_KNOWN_DELTAS = tuple(10.0**-power for power in range(1, 13))  # where attacks on pairs are bounded
_DOMINATING = ("range", "sign", "pure", "gaussian")
# how an epsilon was proved
_GAUSSIAN, _SAMPLED = "Gaussian, exactly", "Gaussian on random batches, by privacy loss distributions"
_LOSSES = "losses composed, by backward induction"
_EVERY_ORDER = tuple(sorted({*DEFAULT_ORDERS, *SAMPLED_ORDERS}))
_CLEARLY = 1 - 1e-9  # a zCDP that is smaller by rounding alone is no smaller


class HasPrivacyLoss(Protocol):
    """Anything that says what it costs: every accountant."""

    def privacy_loss(self) -> "PrivacyLoss":
        """The loss of all releases."""


class RenyiSums(NamedTuple):
    """Rényi divergences between the data at hand and its neighbours, added up over releases, by order."""

    orders: Sums
    forward: Sums  # the data at hand first
    backward: Sums

    @classmethod
    def of(cls, *sums: Tensor) -> "RenyiSums":
        """Orders, forward and backward sums, from vectors."""
        return cls(*(tuple(values.tolist()) for values in sums))


@dataclass(frozen=True)
class PrivacyLoss:
    """The cost of releases between two neighbouring datasets, in a form that adds up (``+``).

    Accounts make one (``privacy_loss``), and so do ``of_gaussian``, ``of_zcdp`` and ``of_pair``.

    What holds for every dataset: ``releases`` are Gaussian releases that leak at least as much in every
    test, each with its Rényi divergences. ``pairs`` are (epsilon, delta) of releases of which nothing else is
    known. ``dominating`` are pairs of laws that dominate the releases, where all of them have one: (name,
    parameter, how many). "range": losses lie in an interval of that length (``GumbelWinner``); "sign": the
    sign of a Gaussian release with that mu (``StochasticSign``); "pure": no loss is beyond that epsilon
    (``Laplace``); "gaussian": of the Gaussian with that mu, beside others.

    What holds for the data at hand: ``own``; left out, it is what holds for every dataset.

    ``steps`` counts releases. ``change`` says what happens to a single record between neighbours; it is None
    where nothing was released.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=0.1)
    >>> account.step([0.0])
    >>> total = sum([account.privacy_loss(), account.privacy_loss()])
    >>> round(total.epsilon(delta=1e-5), 3), round(total.delta(epsilon=0.497), 6), total.steps
    (0.497, 1e-05, 2)
    """

    releases: Releases = ()
    pairs: tuple[tuple[float, float], ...] = ()
    dominating: Dominating = ()
    own: RenyiSums | None = field(default=None, repr=False)
    steps: int = 0
    change: str | None = None

    def __post_init__(self) -> None:
        for name, _, _ in self.dominating:
            checks.one_of("dominating", name, _DOMINATING)
        sizes = (size for _, size, _ in self.dominating)
        for value in (self.steps, *sizes, *sum(self.pairs, ()), *sum(self.own or (), ())):
            if not value >= 0:
                raise ValueError(f"a PrivacyLoss must hold numbers from 0 on, got {value!r}")
        if self.own is not None and len({len(sums) for sums in self.own}) > 1:
            raise ValueError(f"own must hold one sum for each order, got {self.own!r}")
        if self._costly and not self.releases:
            raise ValueError(
                "releases must hold the Gaussian releases that dominate what dominating tells, got none: if "
                "none is known, take a pair (epsilon, delta)"
            )

    @classmethod
    def of_gaussian(cls, *releases: GaussianRelease) -> "PrivacyLoss":
        """Gaussian releases, or others that leak no more in any test.

        >>> round(PrivacyLoss.of_gaussian(GaussianRelease(0.32)).epsilon(1e-5), 4)
        1.2151
        """
        return cls(releases, steps=sum(release.count for release in releases), change=ADDED_OR_REMOVED)

    @classmethod
    def of_zcdp(
        cls,
        gaussian: float,
        bounded: float,
        *,
        own: RenyiSums | None = None,
        steps: int = 1,
        change: str = ADDED_OR_REMOVED,
        dominating: Dominating = (),
    ) -> "PrivacyLoss":
        """Releases of everything that are ``bounded``-zCDP, and whose Gaussian is ``gaussian``-zCDP.

        >>> round(PrivacyLoss.of_zcdp(0.0512, 0.0512).epsilon(1e-5), 4)
        1.2151
        """
        releases = (GaussianRelease(math.sqrt(2 * gaussian), bounded),) if gaussian > 0 else ()
        return cls(releases, (), dominating, own, steps, change)

    @classmethod
    def of_pair(cls, epsilon: float, delta: float, change: str = ADDED_OR_REMOVED) -> "PrivacyLoss":
        """A release of which only its (epsilon, delta)-differential privacy is known."""
        size = checks.number("epsilon", epsilon, checks.not_negative)
        share = checks.number("delta", delta, checks.share)
        checks.one_of("change", change, (ADDED_OR_REMOVED, REPLACED))
        return cls(pairs=((size, share),), steps=1, change=change)

    @classmethod
    def of(cls, value: "PrivacyLoss | HasPrivacyLoss | tuple[float, float]") -> "PrivacyLoss":
        """The privacy loss that an argument stands for: itself, an account's, or that of a pair.

        >>> PrivacyLoss.of((0.5, 0.0)).pairs
        ((0.5, 0.0),)
        """
        if isinstance(value, PrivacyLoss):
            return value
        if isinstance(value, tuple):
            return cls.of_pair(*checks.listed("cost", value, length=2))
        if not hasattr(value, "privacy_loss"):
            raise TypeError(
                f"cost must be an account, a PrivacyLoss or a pair (epsilon, delta), got {value!r}"
            )
        return value.privacy_loss()

    def __add__(self, other: "PrivacyLoss") -> "PrivacyLoss":
        if None not in (self.change, other.change) and self.change != other.change:
            raise ValueError(
                f"neighbours must be the same, got one record {self.change} and one record {other.change}"
            )
        if (entries := _together(self, other)) is None:  # at worst, epsilons of pure privacy are added
            return _with_pure_added(self) + _with_pure_added(other)
        return PrivacyLoss(
            merged_releases((*self.releases, *other.releases)),
            self.pairs + other.pairs,
            merged(entries),
            _own_together(self, other),
            self.steps + other.steps,
            self.change or other.change,
        )

    def __radd__(self, other: object) -> "PrivacyLoss":
        """The loss itself where ``sum`` begins with 0."""
        return self if other == 0 else NotImplemented

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of all ``releases``, without what sampling hides."""
        return composed_mu(self.releases)

    @property
    def is_gaussian(self) -> bool:
        """Whether a Gaussian release of everything dominates every release, which mu alone describes."""
        return not self.pairs and self._everything

    @property
    def _everything(self) -> bool:
        return all(release.is_whole for release in self.releases)

    @property
    def zcdp(self) -> float:
        """The most that a Rényi divergence is times its order; infinite where there are Poisson samples."""
        sampled = any(release.rate < 1 for release in self.releases)
        return math.inf if sampled else sum(release.count * release.zcdp for release in self.releases)

    def divergences(self, orders: Tensor) -> Tensor:
        """Upper bounds of the Rényi divergences of ``releases`` at these orders, rows forward and backward.

        >>> loss = PrivacyLoss.of_gaussian(GaussianRelease(1.0, zcdp=0.3, count=2))
        >>> loss.divergences(torch.tensor([2.0, 8.0], dtype=torch.float64)).tolist()
        [[1.2, 4.8], [1.2, 4.8]]
        """
        none = torch.zeros(2, len(orders), dtype=torch.float64)
        return sum((release.divergences(orders) for release in self.releases), none)

    def _ceiling(self) -> tuple[Tensor, Tensor]:
        """Orders, and the larger divergence at each of them."""
        orders = _vector(_EVERY_ORDER)
        return orders, self.divergences(orders).amax(dim=0)

    def _own(self) -> RenyiSums:
        """The sums for the data at hand, or those for every dataset where none are known."""
        if self.own is not None:
            return self.own
        orders = _vector(DEFAULT_ORDERS if self.zcdp < math.inf else SAMPLED_ORDERS)
        return RenyiSums.of(orders, *self.divergences(orders))

    @property
    def _costly(self) -> Dominating:
        """The entries of ``dominating`` that cost anything."""
        return tuple((name, size, count) for name, size, count in self.dominating if size * count > 0)

    @property
    def _pair(self) -> tuple[float, float]:
        """The (epsilon, delta) of all pairs together."""
        return math.fsum(size for size, _ in self.pairs), math.fsum(share for _, share in self.pairs)

    @property
    def taken(self) -> float:
        """The part of delta that pairs take."""
        return 2 * self._pair[1]

    def epsilon(self, delta: float) -> float:
        """The epsilon of (epsilon, delta)-differential privacy, for every dataset.

        Guarantee: Gaussian releases and Rényi divergences are composed, and the smaller epsilon counts: no
        law here leaks more in any test than the Gaussian, exactly, and the truncated law has a smaller Rényi
        curve. So do dominating pairs, by the distributions of their losses; where these are bounded, delta =
        0 is possible. The epsilons of pairs are added, and their deltas are taken from delta.

        >>> law = GaussianRelease(0.32, zcdp=0.004)  # a truncated law, narrow
        >>> [round(PrivacyLoss.of_gaussian(one).epsilon(1e-5), 3) for one in (law, GaussianRelease(0.32))]
        [0.333, 1.215]
        """
        if checks.number("delta", delta) == 0 and (pure := self.pure_epsilon) < math.inf:
            return pure
        return self._every_dataset(self._checked(delta)).epsilon

    def delta(self, epsilon: float) -> float:
        """The delta of (epsilon, delta)-differential privacy, for every dataset.

        >>> round(PrivacyLoss.of_pair(0.5, 1e-6).delta(0.5), 9), PrivacyLoss.of_pair(0.5, 1e-6).delta(0.4)
        (1e-06, 1.0)
        """
        epsilon = checks.number("epsilon", epsilon, checks.not_negative)
        added, share = self._pair
        if epsilon < added:
            return 1.0
        left = epsilon - added
        found = [sampled_gaussian_delta(self.releases, left)]
        if self.zcdp < math.inf:
            found.append(zcdp_delta(self.zcdp, left))
        else:
            found.append(delta_from_rdp(*self._ceiling())(left))
        if self._costly:
            found.append(dominated_delta(self._costly, left))
        return min(1.0, min(found) + share)

    def attack_rates(self, false_positive: Tensor) -> Rates:
        """(largest true positive rates, smallest false negative rates) of a vector of false positive rates.

        >>> at = torch.tensor([0.5], dtype=torch.float64)
        >>> [round(float(rate), 6) for rate in PrivacyLoss.of_gaussian(GaussianRelease(1.0)).attack_rates(at)]
        [0.841345, 0.158655]
        """
        found = [bound.rates(false_positive) for bound in self._attack_bounds()]
        ones = torch.ones_like(false_positive)
        highest = torch.stack([ones, *(rates[0] for rates in found)]).amin(dim=0)
        lowest = torch.stack([0 * ones, *(rates[1] for rates in found)]).amax(dim=0)
        if bool((highest.isnan() | lowest.isnan()).any()):
            raise FloatingPointError("rates of attacks cannot be represented at these arguments")
        return torch.maximum(highest, false_positive).clamp(max=1.0), lowest.clamp(min=0.0)

    def trade_off(self, false_positive_rates: Real) -> Tensor:
        """The smallest false negative rate of any attack, at each of these false positive rates.

        >>> PrivacyLoss.of_gaussian(GaussianRelease(1.0)).trade_off([0.001, 0.5]).numpy().round(4).tolist()
        [0.9817, 0.1587]
        """
        rates = checks.share("false_positive_rates", false_positive_rates).double().cpu()
        return self.attack_rates(rates.reshape(-1))[1].reshape(rates.shape)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate of any attack.

        >>> round(PrivacyLoss.of_gaussian(GaussianRelease(1.0)).advantage, 6)  # 2 Phi(1/2) - 1
        0.382925
        """
        return min(1.0, min((bound.advantage for bound in self._attack_bounds()), default=1.0))

    def guarantee(self, delta: float) -> Guarantee:
        """The promise at this delta, and the numbers of the data at hand.

        Guarantee: the promise is ``epsilon``. (epsilon, delta)-indistinguishability of every two neighbours
        includes that of this dataset and its neighbours, so the smaller of both epsilons is proved. The
        ex-post epsilon is not lowered: it bounds the loss itself, about which (epsilon, delta) says less. The
        loss of an (epsilon, delta)-private release exceeds epsilon + log 2 with probability at most 2 delta,
        which the ex-post number adds.

        >>> own = RenyiSums(orders=(8.0, 64.0), forward=(0.016, 0.128), backward=(0.016, 0.128))
        >>> claim = PrivacyLoss.of_zcdp(0.02, 0.02, own=own).guarantee(1e-5)
        >>> claim.per_instance.epsilon < claim.epsilon, claim.per_instance.proof
        (True, 'Rényi sums')
        """
        if checks.number("delta", delta) == 0 and (pure := self.pure_epsilon) < math.inf:
            # it bounds every loss, and nothing that depends on the data is smaller
            both = [pure, math.inf if self.releases else 0.0]
            return self._claim(0.0, _EveryDataset(pure, _LOSSES, both[1]), both, both)
        delta = self._checked(delta)
        left = math.nextafter(delta - self.taken, 0.0) if self.taken else delta
        added = self._pair[0]
        loss = added + math.log(2) * sum(share > 0 for _, share in self.pairs)
        renyi = ex_post = torch.zeros(2, dtype=torch.float64)
        if self.releases or self.own is not None:
            orders, forward, backward = map(_vector, self._own())
            of_gaussian = self._of_gaussian().divergences(orders).amax(dim=0)
            sums = torch.stack((torch.maximum(forward, backward), of_gaussian))
            renyi, ex_post = epsilon_from_rdp(orders, sums, left), ex_post_epsilon(orders, sums, left)
        return self._claim(
            delta, self._every_dataset(delta), (renyi + added).tolist(), (ex_post + loss).tolist()
        )

    def _claim(
        self, delta: float, every: "_EveryDataset", renyi: list[float], ex_post: list[float]
    ) -> Guarantee:
        """The claim from these epsilons; each list holds that of the releases, and that of the Gaussian's."""
        is_smaller = renyi[0] < every.epsilon
        own = PerInstance(
            epsilon=min(renyi[0], every.epsilon),
            proof="Rényi sums" if is_smaller else every.proof,
            every_dataset=not is_smaller,
            ex_post_epsilon=ex_post[0],
            renyi_epsilon=renyi[0],
            gaussian_epsilon=min(renyi[1], every.gaussian_epsilon),
            gaussian_ex_post_epsilon=ex_post[1],
            gaussian_renyi_epsilon=renyi[1],
            delta=delta,
            steps=self.steps,
            change=self.change or ADDED_OR_REMOVED,
        )
        return Guarantee(every.epsilon, delta, self.steps, own, self, change=own.change)

    @property
    def pure_epsilon(self) -> float:
        """The epsilon at delta = 0, which no loss exceeds; infinite where there is none.

        >>> PrivacyLoss.of_pair(0.5, 0.0).pure_epsilon, PrivacyLoss.of_pair(0.5, 1e-9).pure_epsilon
        (0.5, inf)
        """
        if self.taken or (self.mu and not self._costly):
            return math.inf
        return self._pair[0] + dominated_epsilon(self._costly, 0.0)

    def gaussian_bound(self) -> "PrivacyLoss":
        """The Gaussian releases that dominate these, and nothing else that is known about them.

        Guarantee: where all of them are of everything, the epsilon of a sum is a function of the sum of
        mu^2, so that it may be compared with a budget also where releases are chosen by looking at earlier
        ones (Smith and Thakurta 2022, arXiv 2210.17520: Gaussian differential privacy has a filter at the
        parameters of ordinary composition).

        >>> law = PrivacyLoss.of_gaussian(GaussianRelease(1.0, zcdp=0.1))
        >>> round(law.epsilon(1e-5), 2), round(law.gaussian_bound().epsilon(1e-5), 2)
        (1.91, 4.38)
        """
        if not self.is_gaussian:
            raise ValueError("releases of samples, and pairs, are not bounded by a Gaussian alone")
        return self._of_gaussian()

    def _of_gaussian(self) -> "PrivacyLoss":
        releases = tuple(replace(release, zcdp=math.inf) for release in self.releases)
        return PrivacyLoss(releases, steps=self.steps, change=self.change)

    def of_replaced(self) -> "PrivacyLoss":
        """The cost of the same releases where one record is replaced: it is removed, and another is added.

        Guarantee: two records together are 2 mu-GDP where one is mu-GDP (Dong, Roth and Su 2022, Theorem
        2.14), (4 rho)-zCDP where one is rho-zCDP (Bun and Steinke 2016, Proposition 27), and (2 epsilon, (1 +
        e^epsilon) delta)-private; losses add up, and so do the lengths of their intervals. Samples count as
        releases of everything, and the sums for the data at hand, which are about one record, become those
        for every dataset.
        """
        if self.change != ADDED_OR_REMOVED:
            return self
        return replace(
            self,
            releases=tuple(
                GaussianRelease(2 * one.mu, 4 * one.zcdp, count=one.count) for one in self.releases
            ),
            pairs=tuple((2 * size, min(1.0, (1 + math.exp(size)) * share)) for size, share in self.pairs),
            dominating=tuple((name, 2 * eta, count) for name, eta, count in self.dominating),
            own=None,
            change=REPLACED,
        )

    def realised(self, sums: "PrivacyLoss") -> "PrivacyLoss":
        """This loss with the sums for the data at hand of ``sums``, which were known when all was released.

        What holds for every dataset stays as it was planned: how many releases were made may depend on data.
        """
        return replace(self, own=sums._own())

    def state(self) -> dict[str, Any]:
        """The loss as plain data, which JSON keeps; ``from_state`` restores it exactly."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_state(cls, state: Any) -> "PrivacyLoss":
        """The loss that a ``state`` describes; one of version 0.6 is refused by name."""
        if "zcdp" in checks.mapping("cost", state):
            raise ValueError(
                "cost must be of this version, got one of version 0.6: finish with that version, or charge "
                "the pair (epsilon, delta) that it claims"
            )
        checks.keys("cost", state, {field.name for field in fields(cls)})
        plain = {name: _tupled(value) for name, value in state.items()}
        own = None if plain["own"] is None else RenyiSums(*plain["own"])
        return cls(**{**plain, "releases": releases_from_state(state["releases"]), "own": own})

    def _checked(self, delta: float) -> float:
        """``delta``, which must be above what pairs take."""
        delta = checks.probability("delta", delta)
        if not delta > self.taken:
            raise ValueError(f"delta must be above {self.taken!r}, which pairs take, got {delta!r}")
        return delta

    def _every_dataset(self, delta: float) -> "_EveryDataset":
        """The epsilon for every dataset at this delta."""
        added, share = self._pair
        left = math.nextafter(delta - share, 0.0) if share else delta
        exact = sampled_gaussian_epsilon(self.releases, left)
        if self.zcdp < math.inf:
            bound = zcdp_epsilon(self.zcdp, left)
        else:
            bound = float(epsilon_from_rdp(*self._ceiling(), left))
        ranged = all(name == "range" for name, _, _ in self._costly)
        composed = dominated_epsilon(self._costly, left) if self._costly else math.inf
        epsilon, proof = min(
            (exact, _GAUSSIAN if self._everything else _SAMPLED),
            (bound, "zCDP of the law"),
            (composed, "bounded range, by backward induction" if ranged else _LOSSES),
        )
        proof = "epsilons added up" if self.pairs else proof
        return _EveryDataset(epsilon + added, proof, exact + added)

    def _attack_bounds(self) -> list[AttackBound]:
        """All that is known about attacks on these releases; on pairs, by the epsilons that hold."""
        if self.pairs:
            share = self._pair[1]
            # in order of epsilon, and the smallest delta of each
            known = {self._every_dataset(at).epsilon: at for at in _KNOWN_DELTAS if at > share}
            return [CurveBound(*torch.tensor([*known.items()], dtype=torch.float64).T)] if known else []
        bounds: list[AttackBound] = [GaussianBound(self.mu * (1 + ROUNDING))]
        if (sampled := sampled_gaussian_curve(self.releases)) is not None:
            bounds.append(CurveBound(*sampled))
        if self._costly and (curve := dominated_curve(self._costly)) is not None:
            bounds.append(CurveBound(*map(torch.from_numpy, curve)))
        # at the same divergence the Gaussian's own rates are the smaller ones
        gaussian = self.mu**2 / 2 * _CLEARLY
        if self.zcdp < gaussian:
            return [*bounds, RenyiBound.of_zcdp(self.zcdp)]
        orders, most = self._ceiling()
        smaller = most < gaussian * orders
        return [*bounds, RenyiBound(orders[smaller], most[smaller])] if bool(smaller.any()) else bounds


class _EveryDataset(NamedTuple):
    """An epsilon that holds for every dataset, how it was proved, and that of the Gaussian releases."""

    epsilon: float
    proof: str
    gaussian_epsilon: float


class Accountant:
    """What releases cost so far: an account that adds up, makes a claim, and is saved as plain data.

    A class of accounts has ``privacy_loss``, and names what its constructor takes (``_SETTINGS``) and what it
    counts (``_COUNTED``), which is 0 or empty in a new account; claims and saved states follow.
    """

    _SETTINGS: ClassVar[tuple[str, ...]]
    _READ: ClassVar[dict[str, Callable[[Any], Any]]] = {  # from a saved state; others are held as they are
        "mechanism": Mechanism.from_state_dict,
        "sensitivity": Sensitivity.from_state,
    }
    _COUNTED: ClassVar[tuple[str, ...]] = ("steps",)

    steps = 0

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise checks.missing_attribute(type(self).__name__, name, _RENAMED)

    def privacy_loss(self) -> PrivacyLoss:
        """The releases so far as one value, which adds up with that of other accounts."""
        raise NotImplementedError

    def guarantee(self, delta: float) -> Guarantee:
        """The promise of all releases so far at this delta, and what they cost the data at hand."""
        return self.privacy_loss().guarantee(delta)

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps; ``from_state_dict`` restores it exactly."""
        own = {name: _plain(getattr(self, name)) for name in (*self._SETTINGS, *self._COUNTED)}
        return {"kind": type(self).__name__, "version": 1, **own}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        checks.state(cls.__name__, 1, state, {*cls._SETTINGS, *cls._COUNTED})
        read = {name: read(state[name]) for name, read in cls._READ.items()}
        account = cls(**{name: state[name] for name in cls._SETTINGS} | read)
        for name in cls._COUNTED:
            setattr(account, name, account._read(name, state[name]))
        return account

    def _read(self, name: str, value: Any) -> Any:
        """What was counted, from a saved state, of the kind that it is of in a new account."""
        new = getattr(self, name)
        if isinstance(new, Tensor):
            return checks.sums(name, value, len(new))
        if isinstance(new, float):
            return checks.number(name, value, checks.not_negative)
        return checks.count(name, value, at_least=0)


class RenyiAccountant(Accountant):
    """Running Rényi sums over releases, at orders that are fixed at construction."""

    _COUNTED: ClassVar = (*Accountant._COUNTED, "forward", "backward")

    forward: Tensor  # sum over releases of D(M(theta) || M(neighbour)), one number per order
    backward: Tensor

    def __init__(self, orders: Tensor) -> None:
        self._orders = orders.clone()
        self.forward, self.backward = torch.zeros_like(orders), torch.zeros_like(orders)

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    @property
    def worst(self) -> Tensor:
        """The larger of the two running sums, order by order."""
        return torch.maximum(self.forward, self.backward)

    @property
    def sums(self) -> RenyiSums:
        """The sums as a ``PrivacyLoss`` takes them."""
        return RenyiSums.of(self._orders, self.forward, self.backward)


def releases_from_state(state: Any) -> Releases:
    """The releases of a saved account or loss."""
    entries = (checks.listed("releases", entry, length=6) for entry in checks.listed("releases", state))
    return tuple(GaussianRelease(*entry) for entry in entries)


def _together(*losses: PrivacyLoss) -> Dominating | None:
    """The dominating pairs of all these losses, none if no loss has any; None where they do not go together.

    A Gaussian release of everything stands for itself beside pure privacy. Pairs (epsilon, delta) are apart.
    """
    entries: list[tuple[str, float, int]] = []
    for loss in losses:
        if loss.dominating:
            entries += loss.dominating
        elif not loss._everything:
            return None if any(own.dominating for own in losses) else ()
        elif loss.mu:
            entries.append(("gaussian", loss.mu, 1))
    names = {name for name, _, _ in entries}
    if names in ({"range"}, {"sign"}):
        return tuple(entries)
    if "pure" not in names:
        return ()
    if "sign" in names:  # beside others it counts as the Gaussian release
        entries = [
            ("gaussian", size * math.sqrt(n), 1) if name == "sign" else (name, size, n)
            for name, size, n in entries
        ]
        names = {*names, "gaussian"}
    return None if {"range", "gaussian"} <= names else tuple(entries)


def _with_pure_added(loss: PrivacyLoss) -> PrivacyLoss:
    """The same loss with its pure epsilons as a pair, and without other dominating pairs."""
    if not loss.dominating or any(name != "pure" for name, _, _ in loss.dominating):
        return replace(loss, dominating=())
    added = math.fsum(size * count for _, size, count in loss.dominating) * (1 + ROUNDING)
    return replace(loss, releases=(), dominating=(), own=None, pairs=(*loss.pairs, (added, 0.0)))


def _own_together(*losses: PrivacyLoss) -> RenyiSums | None:
    """The sums for the data at hand of all losses together; None where they are those of every dataset.

    They are at the orders of all that have such sums, or at the default ones where those differ.

    Guarantee: upper bounds, since Rényi divergences do not fall with the order: where an order is missing,
    the sum of the next larger one counts, and infinity beyond the last.
    """
    grids = {loss.own.orders for loss in losses if loss.own is not None}
    if not grids:
        return None
    orders = grids.pop() if len(grids) == 1 else DEFAULT_ORDERS
    at, total = _vector(orders), torch.zeros(2, len(orders), dtype=torch.float64)
    for loss in losses:
        if loss.own is None:
            total += loss.divergences(at)
        elif loss.own.orders == orders:
            total += torch.stack([*map(_vector, loss.own[1:])])
        else:
            known, *both = loss.own
            total += torch.stack([at_next_orders(known, _vector(sums), at) for sums in both])
    forward, backward = total.tolist()
    return RenyiSums(orders, tuple(forward), tuple(backward))


def _vector(values: Sums) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _plain(value: Any) -> Any:
    """A setting, a sum or a part of a loss as plain data."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Sensitivity):
        return value.state()
    if isinstance(value, GaussianRelease):
        return list(astuple(value))
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.state_dict() if hasattr(value, "state_dict") else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
