"""The one value that every kind of release becomes: what it costs, in a form that adds up.

``PrivacyLoss`` holds what is known about the releases between two neighbouring datasets: Gaussian releases
that dominate them, Rényi divergences for every dataset and for the data at hand, pairs of laws that dominate
them, and pairs (epsilon, delta) of which nothing else is known. Every accountant makes one, ``+`` composes
them, and ``epsilon``, ``delta``, ``trade_off`` and ``guarantee`` take the best of all that is known.
``Accountant`` is what accounts by Rényi sums have in common.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
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
    Releases,
    RenyiBound,
    checked_orders,
    composed_mu,
    delta_from_rdp,
    epsilon_from_rdp,
    ex_post_epsilon,
    sampled_gaussian_curve,
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
    zcdp_delta,
    zcdp_epsilon,
)
from ringfence.accounting.guarantee import (
    ADDED_OR_REMOVED,
    ADDED_UP,
    BOUNDED_RANGE,
    GAUSSIAN,
    LOSSES,
    RENYI,
    REPLACED,
    SAMPLED,
    ZCDP,
    Guarantee,
    PerInstance,
)
from ringfence.accounting.induction import (
    Dominating,
    dominated_curve,
    dominated_delta,
    dominated_epsilon,
    merged,
)
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.numerics.rounding import ROUNDING

Sums = tuple[float, ...]  # one Rényi divergence per order

_RENAMED = {"cost": "privacy_loss", "step_of_any": "step_worst_case"}  # methods of accountants, since 0.7
_SUMS = ("ceiling", "forward", "backward", "gaussian")
_KNOWN_DELTAS = tuple(10.0**-power for power in range(1, 13))  # where attacks on pairs are bounded
_DOMINATING = ("range", "sign", "pure", "gaussian")
_CLEARLY = 1 - 1e-9  # a zCDP that is smaller by rounding alone is no smaller


class HasPrivacyLoss(Protocol):
    """Anything that says what it costs: every accountant."""

    def privacy_loss(self) -> "PrivacyLoss":
        """The loss of all releases."""


@dataclass(frozen=True)
class PrivacyLoss:
    """The cost of releases between two neighbouring datasets, in a form that adds up (``+``).

    What holds for every dataset: ``releases`` are Gaussian releases (shift / sigma, sampling rate, how many)
    that leak at least as much in every test; ``zcdp`` and ``ceiling``, at each of ``orders``, bound the Rényi
    divergences in both directions. Left out, ``zcdp`` is that of the Gaussian releases. It is infinite where
    Poisson samples are released. ``pairs`` are (epsilon, delta) of releases of which nothing else is known.
    ``dominating`` are pairs of laws that dominate the releases, where all of them have one: (name, parameter,
    how many).
    "range": losses lie in an interval of that length (``GumbelWinner``); "sign": the sign of a Gaussian
    release with that mu (``StochasticSign``); "pure": no loss is beyond that epsilon (``Laplace``);
    "gaussian": of the Gaussian with that mu, beside others.

    What holds for the data at hand: ``forward`` and ``backward`` are the sums of Rényi divergences at
    ``orders``, ``gaussian`` those of the Gaussian with the same sigma, and ``spent`` the part of delta that
    went into estimating them. Left out, the sums are those for every dataset.

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
    zcdp: float | None = None
    orders: Sums = field(default=(), repr=False)
    ceiling: Sums = field(default=(), repr=False)
    forward: Sums = field(default=(), repr=False)
    backward: Sums = field(default=(), repr=False)
    gaussian: Sums = field(default=(), repr=False)
    steps: int = 0
    change: str | None = None
    spent: float = 0.0
    pairs: tuple[tuple[float, float], ...] = ()
    dominating: tuple[tuple[str, float, int], ...] = ()

    def __post_init__(self) -> None:
        for name, _, _ in self.dominating:
            checks.one_of("dominating", name, _DOMINATING)
        sums = (value for name in _SUMS for value in getattr(self, name))
        sizes = (size for _, size, _ in self.dominating)
        negative = (mu for mu, *_ in self.releases if mu < 0)  # NaN is an error where mu is used
        for value in (
            self.zcdp or 0.0,
            self.steps,
            self.spent,
            *sums,
            *sizes,
            *negative,
            *sum(self.pairs, ()),
        ):
            if not value >= 0:
                raise ValueError(f"a PrivacyLoss must hold numbers from 0 on, got {value!r}")
        if self.zcdp is None:
            object.__setattr__(self, "zcdp", self.mu**2 / 2 if self._everything else math.inf)
        if self.releases and not self.orders:
            # nothing is known about the data at hand: the sums are those of every dataset
            whole = self.mu**2 / 2
            object.__setattr__(self, "orders", DEFAULT_ORDERS)
            for name in _SUMS:
                most = whole if name == "gaussian" else min(whole, self._zcdp)
                object.__setattr__(self, name, tuple(most * order for order in DEFAULT_ORDERS))
        for name in _SUMS:
            if len(getattr(self, name)) != len(self.orders):
                raise ValueError(
                    f"{name} must hold one sum for each of {len(self.orders)} orders, got "
                    f"{len(getattr(self, name))}"
                )
        if not self.releases and (any(self.ceiling) if self.orders else self.zcdp or self.dominating):
            raise ValueError(
                "releases must hold the Gaussian releases that dominate what zcdp, ceiling and dominating "
                "tell, got none, which would cost nothing: if none is known, take a pair (epsilon, delta)"
            )

    @classmethod
    def of_zcdp(
        cls,
        gaussian: float,
        bounded: float,
        *,
        orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
        forward: Tensor | None = None,
        backward: Tensor | None = None,
        steps: int = 1,
        change: str = ADDED_OR_REMOVED,
        dominating: tuple[tuple[str, float, int], ...] = (),
    ) -> "PrivacyLoss":
        """Releases of everything that are ``bounded``-zCDP, and whose Gaussian is ``gaussian``-zCDP.

        ``forward`` and ``backward`` are the sums for the data at hand; left out, those for every dataset.

        >>> round(PrivacyLoss.of_zcdp(0.0512, 0.0512).epsilon(1e-5), 4)
        1.2151
        """
        at = checked_orders(orders)
        ceiling = tuple((bounded * at).tolist())
        mu = math.sqrt(2 * gaussian)
        return cls(
            releases=((mu, 1.0, 1),) if mu > 0 else (),
            zcdp=bounded,
            orders=tuple(at.tolist()),
            ceiling=ceiling,
            forward=ceiling if forward is None else tuple(forward.tolist()),
            backward=ceiling if backward is None else tuple(backward.tolist()),
            gaussian=tuple((gaussian * at).tolist()),
            steps=steps,
            change=change,
            dominating=dominating,
        )

    @classmethod
    def of_pair(cls, epsilon: float, delta: float, change: str = ADDED_OR_REMOVED) -> "PrivacyLoss":
        """A release of which only its (epsilon, delta)-differential privacy is known."""
        size = checks.number("epsilon", epsilon, checks.not_negative)
        share = checks.number("delta", delta, checks.share)
        checks.one_of("change", change, (ADDED_OR_REMOVED, REPLACED))
        return cls(steps=1, change=change, pairs=((size, share),))

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
        first, second = _at_common_orders(self, other)
        sums = {
            name: tuple(a + b for a, b in zip(getattr(first, name), getattr(second, name), strict=True))
            for name in _SUMS
        }
        return PrivacyLoss(
            releases=merged((*self.releases, *other.releases)),
            zcdp=self._zcdp + other._zcdp,
            orders=first.orders,
            **sums,
            steps=self.steps + other.steps,
            change=self.change or other.change,
            spent=self.spent + other.spent,
            pairs=self.pairs + other.pairs,
            dominating=merged(entries),
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
        return all(rate == 1 for _, rate, _ in self.releases)

    @property
    def _zcdp(self) -> float:
        return math.inf if self.zcdp is None else self.zcdp

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
        """The part of delta that pairs and estimates take."""
        return 2 * self._pair[1] + self.spent

    def epsilon(self, delta: float) -> float:
        """The epsilon of (epsilon, delta)-differential privacy, for every dataset.

        Guarantee: Gaussian releases and Rényi divergences are composed, and the smaller epsilon counts: no
        law here leaks more in any test than the Gaussian, exactly, and the truncated law has a smaller Rényi
        curve. So do dominating pairs, by the distributions of their losses; where these are bounded, delta =
        0 is possible. The epsilons of pairs are added, and their deltas are taken from delta.

        >>> law = PrivacyLoss(releases=((0.32, 1.0, 1),), zcdp=0.004)  # a truncated law, narrow
        >>> round(law.epsilon(1e-5), 3), round(PrivacyLoss(law.releases).epsilon(1e-5), 3)
        (0.333, 1.215)
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
        if self._zcdp < math.inf:
            found.append(zcdp_delta(self._zcdp, left))
        elif self.orders:
            found.append(delta_from_rdp(*self._tensors("orders", "ceiling"))(left))
        if self._costly:
            found.append(dominated_delta(self._costly, left))
        return min(1.0, min(found) + share)

    def attack_rates(self, false_positive: Tensor) -> Rates:
        """(largest true positive rates, smallest false negative rates) of a vector of false positive rates.

        >>> at = torch.tensor([0.5], dtype=torch.float64)
        >>> [round(float(rate), 6) for rate in PrivacyLoss(releases=((1.0, 1.0, 1),)).attack_rates(at)]
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

        >>> PrivacyLoss(releases=((1.0, 1.0, 1),)).trade_off([0.001, 0.5]).numpy().round(4).tolist()
        [0.9817, 0.1587]
        """
        rates = checks.share("false_positive_rates", false_positive_rates).double().cpu()
        return self.attack_rates(rates.reshape(-1))[1].reshape(rates.shape)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate of any attack.

        >>> round(PrivacyLoss(releases=((1.0, 1.0, 1),)).advantage, 6)  # 2 Phi(1/2) - 1
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

        >>> loss = PrivacyLoss.of_zcdp(0.02, 0.02, orders=[8, 64], forward=torch.tensor([0.016, 0.128]))
        >>> claim = replace(loss, backward=loss.forward).guarantee(1e-5)
        >>> claim.per_instance.epsilon < claim.epsilon, claim.per_instance.proof
        (True, 'Rényi sums')
        """
        if checks.number("delta", delta) == 0 and self.pure_epsilon < math.inf:
            return self._pure_guarantee()
        delta = checks.probability("delta", delta)
        every = self._every_dataset(self._checked(delta))
        left = math.nextafter(delta - self.taken, 0.0) if self.taken else delta
        added = self._pair[0]
        loss = added + math.log(2) * sum(share > 0 for _, share in self.pairs)
        worst = ex_post = gaussian = gaussian_ex_post = 0.0
        if self.orders:
            orders, forward, backward, of_gaussian = self._tensors(
                "orders", "forward", "backward", "gaussian"
            )
            sums = torch.stack((torch.maximum(forward, backward), of_gaussian))
            worst, gaussian = epsilon_from_rdp(orders, sums, left).tolist()
            ex_post, gaussian_ex_post = ex_post_epsilon(orders, sums, left).tolist()
        own = PerInstance(
            epsilon=min(worst + added, every.epsilon),
            proof=RENYI if worst + added < every.epsilon else ADDED_UP if self.pairs else every.proof,
            ex_post_epsilon=ex_post + loss,
            renyi_epsilon=worst + added,
            gaussian_epsilon=min(gaussian + added, every.gaussian_epsilon),
            gaussian_ex_post_epsilon=gaussian_ex_post + loss,
            gaussian_renyi_epsilon=gaussian + added,
            delta=delta,
            steps=self.steps,
            failure_probability=self.spent,
            change=self.change or ADDED_OR_REMOVED,
        )
        return Guarantee(every.epsilon, delta, self.steps, own, self, change=own.change)

    @property
    def pure_epsilon(self) -> float:
        """The epsilon at delta = 0, which no loss exceeds; infinite where there is none.

        >>> PrivacyLoss.of_pair(0.5, 0.0).pure_epsilon, PrivacyLoss.of_pair(0.5, 1e-9).pure_epsilon
        (0.5, inf)
        """
        if self.taken or (not self._costly and (self.releases or self._zcdp)):
            return math.inf
        return self._pair[0] + dominated_epsilon(self._costly, 0.0)

    def _pure_guarantee(self) -> Guarantee:
        """The promise at delta = 0, which bounds every loss: nothing that depends on the data is smaller."""
        every, none = self.pure_epsilon, math.inf if self.releases else 0.0
        own = PerInstance(
            *(every, LOSSES, every, every, none, none, none),
            delta=0.0,
            steps=self.steps,
            change=self.change or ADDED_OR_REMOVED,
        )
        return Guarantee(every, 0.0, self.steps, own, self, change=own.change)

    def gaussian_bound(self) -> "PrivacyLoss":
        """The Gaussian releases that dominate these, and nothing else that is known about them.

        Guarantee: where all of them are of everything, the epsilon of a sum is a function of the sum of
        mu^2, so that it may be compared with a budget also where releases are chosen by looking at earlier
        ones (Smith and Thakurta 2022, arXiv 2210.17520: Gaussian differential privacy has a filter at the
        parameters of ordinary composition).

        >>> law = PrivacyLoss(releases=((1.0, 1.0, 1),), zcdp=0.1)
        >>> round(law.epsilon(1e-5), 2), round(law.gaussian_bound().epsilon(1e-5), 2)
        (1.91, 4.38)
        """
        if not self.is_gaussian:
            raise ValueError("releases of samples, and pairs, are not bounded by a Gaussian alone")
        return PrivacyLoss(self.releases, steps=self.steps, change=self.change)

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
        gaussian = 2 * self.mu**2
        zcdp = min(4 * self._zcdp, gaussian)
        ceiling = tuple(zcdp * order for order in self.orders)
        return replace(
            self,
            releases=tuple((2 * mu, 1.0, count) for mu, _, count in self.releases),
            zcdp=zcdp,
            ceiling=ceiling,
            forward=ceiling,
            backward=ceiling,
            gaussian=tuple(gaussian * order for order in self.orders),
            change=REPLACED,
            spent=0.0,
            pairs=tuple((2 * size, min(1.0, (1 + math.exp(size)) * share)) for size, share in self.pairs),
            dominating=tuple((name, 2 * eta, count) for name, eta, count in self.dominating),
        )

    def realised(self, sums: "PrivacyLoss") -> "PrivacyLoss":
        """This loss with the sums for the data at hand of ``sums``, which were known when all was released.

        What holds for every dataset stays as it was planned: how many releases were made may depend on data.
        """
        planned, known = _at_common_orders(self, sums)
        return replace(planned, forward=known.forward, backward=known.backward, spent=sums.spent)

    def state(self) -> dict[str, Any]:
        """The loss as plain data, which JSON keeps; ``from_state`` restores it exactly."""
        own = {field.name: _listed(getattr(self, field.name)) for field in fields(self)}
        if self.orders in ((), DEFAULT_ORDERS):
            del own["orders"]
        if not self.dominating:
            del own["dominating"]
        return own

    @classmethod
    def from_state(cls, state: Any) -> "PrivacyLoss":
        """The loss that a ``state`` describes, also one of version 0.6 where no release was a secure one."""
        names = {field.name for field in fields(cls)}
        if "orders" not in checks.mapping("cost", state):
            state = {**state, "orders": DEFAULT_ORDERS if state.get("forward") else ()}
        state = {"dominating": (), **state}
        if state.pop("numbers", 0) != 0:
            raise ValueError(
                "cost must have no numbers: version 0.6 drew them from 256 bits each in secure releases, and "
                "what that takes of delta depends on epsilon. Charge the pair (epsilon, delta) that version "
                "0.6 claims for them"
            )
        checks.keys("cost", state, names)
        return cls(**{name: _tupled(value) for name, value in state.items()})

    def _tensors(self, *names: str) -> list[Tensor]:
        return [torch.tensor(getattr(self, name), dtype=torch.float64) for name in names]

    def _checked(self, delta: float) -> float:
        """``delta``, which must be above what pairs and estimates take."""
        delta = checks.probability("delta", delta)
        if not delta > self.taken:
            raise ValueError(
                f"delta must be above {self.taken!r}, which pairs and estimates take, got {delta!r}"
            )
        return delta

    def _every_dataset(self, delta: float) -> "_EveryDataset":
        """The epsilon for every dataset at this delta."""
        added, share = self._pair
        left = math.nextafter(delta - share, 0.0) if share else delta
        exact = sampled_gaussian_epsilon(self.releases, left)
        if self._zcdp < math.inf or not self.orders:
            bound = zcdp_epsilon(self._zcdp, left) if self._zcdp < math.inf else math.inf
        else:
            orders, ceiling = self._tensors("orders", "ceiling")
            bound = float(epsilon_from_rdp(orders, ceiling, left))
        ranged = all(name == "range" for name, _, _ in self._costly)
        composed = dominated_epsilon(self._costly, left) if self._costly else math.inf
        epsilon, proof = min(
            (exact, GAUSSIAN if self._everything else SAMPLED),
            (bound, ZCDP),
            (composed, BOUNDED_RANGE if ranged else LOSSES),
        )
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
        if self._zcdp < gaussian:
            return [*bounds, RenyiBound.of_zcdp(self._zcdp)]
        orders, ceiling = self._tensors("orders", "ceiling")
        smaller = ceiling < gaussian * orders
        return [*bounds, RenyiBound(orders[smaller], ceiling[smaller])] if bool(smaller.any()) else bounds


class _EveryDataset(NamedTuple):
    """An epsilon that holds for every dataset, how it was proved, and that of the Gaussian releases."""

    epsilon: float
    proof: str
    gaussian_epsilon: float


class Accountant:
    """Running Rényi sums over releases, at orders that are fixed at construction, and what they promise.

    A class of accounts has ``privacy_loss`` and names what its constructor takes (``_SETTINGS``), its sums by
    order (``_SUMS``) and its single numbers (``_NUMBERS``); claims and saved states follow.
    """

    _SETTINGS: ClassVar[dict[str, Callable[[Any], Any]]]  # how each is read from a saved state
    _SUMS: ClassVar[tuple[str, ...]] = ("forward", "backward")
    _NUMBERS: ClassVar[tuple[str, ...]] = ()

    forward: Tensor  # sum over releases of D(M(theta) || M(neighbour)), one number per order
    backward: Tensor

    def __init__(self, orders: Tensor) -> None:
        self._orders = orders.clone()
        for name in self._SUMS:
            setattr(self, name, torch.zeros_like(orders))
        for name in self._NUMBERS:
            setattr(self, name, 0.0)
        self.steps = 0

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise checks.missing_attribute(type(self).__name__, name, _RENAMED)

    def privacy_loss(self) -> PrivacyLoss:
        """The releases so far as one value, which adds up with that of other accounts."""
        raise NotImplementedError

    def guarantee(self, delta: float) -> Guarantee:
        """The promise of all releases so far at this delta, and what they cost the data at hand."""
        return self.privacy_loss().guarantee(delta)

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    @property
    def worst(self) -> Tensor:
        """The larger of the two running sums, order by order."""
        return torch.maximum(self.forward, self.backward)

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps; ``from_state_dict`` restores it exactly."""
        own = {name: _plain(getattr(self, name)) for name in self._state_names()}
        return {"kind": type(self).__name__, "version": 1, **own}

    @classmethod
    def _state_names(cls) -> tuple[str, ...]:
        return (*cls._SETTINGS, "orders", *cls._SUMS, *cls._NUMBERS, "steps")

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        checks.state(cls.__name__, 1, state, {*cls._state_names()})
        settings = {name: read(state[name]) for name, read in cls._SETTINGS.items()}
        account = cls(**settings, orders=state["orders"])
        for name in cls._SUMS:
            setattr(account, name, checks.sums(name, state[name], len(account.orders)))
        for name in cls._NUMBERS:
            setattr(account, name, checks.number(name, state[name], checks.not_negative))
        account.steps = checks.count("steps", state["steps"], at_least=0)
        return account


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
        elif loss._zcdp:
            return ()
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
    none: dict[str, Any] = dict.fromkeys(("releases", "orders", "dominating", *_SUMS), ())
    return replace(loss, **none, zcdp=0.0, pairs=(*loss.pairs, (added, 0.0)))


def _at_common_orders(*losses: PrivacyLoss) -> list[PrivacyLoss]:
    """The losses at the orders that all of them have, or at the default ones where they differ.

    Guarantee: upper bounds, since Rényi divergences do not fall with the order: where an order is missing,
    the sum of the next larger one counts, and infinity beyond the last.
    """
    grids = {loss.orders for loss in losses if loss.orders}
    orders = grids.pop() if len(grids) == 1 else DEFAULT_ORDERS if grids else ()

    def at_orders(loss: PrivacyLoss) -> PrivacyLoss:
        if loss.orders == orders:
            return loss
        sums: dict[str, Any] = {}
        for name in _SUMS:
            known = list(zip(loss.orders, getattr(loss, name), strict=True))
            above = ((value for at, value in known if at >= order) for order in orders)
            sums[name] = tuple(min(values, default=math.inf if known else 0.0) for values in above)
        return replace(loss, orders=orders, **sums)

    return [at_orders(loss) for loss in losses]


def as_given(value: Any) -> Any:
    """A setting that a saved state holds as it is: the constructor checks it."""
    return value


def _plain(value: Any) -> Any:
    """A setting or a sum of an account as plain data."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Sensitivity):
        return value.state()
    return value.state_dict() if hasattr(value, "state_dict") else _listed(value)


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
