"""What releases cost, in a form in which the costs of several kinds of releases add up to one claim."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, epsilon_from_rdp, sampled_gaussian_epsilon
from ringfence.accounting.claim.data_independent import SAMPLED, ZCDP, DataIndependent, data_independent_proof
from ringfence.accounting.claim.guarantee import ADDED_OR_REMOVED, REPLACED, Guarantee, guarantee
from ringfence.accounting.claim.trade_off import TradeOff

Sums = tuple[float, ...]  # one Rényi divergence per order of DEFAULT_ORDERS

_NOTHING: Sums = (0.0,) * len(DEFAULT_ORDERS)
_KNOWN_DELTAS = (1e-1, 1e-2, 1e-3, 1e-4)  # where attacks on what was added up are bounded, besides delta
ADDED_UP = "epsilons added up"


@dataclass(frozen=True)
class Cost:
    """Sums that add up, whichever kinds of releases they are of.

    ``releases`` are Gaussian releases (shift / sigma, sampling rate, how many) that give away at least as
    much for every dataset. ``zcdp`` bounds the same where everything is released, and is infinite otherwise;
    ``ceiling`` does at every order. ``forward`` and ``backward`` are the sums for the data at hand,
    ``gaussian`` those of the Gaussian with the same sigma. ``spent`` is a part of delta that went into
    estimates, ``numbers`` counts the numbers of secure releases. ``pairs`` are (epsilon, delta) of releases
    of which nothing else is known.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=0.1)
    >>> account.step([0.0])
    >>> total = account.cost() + account.cost()
    >>> round(total.guarantee(1e-5).mu, 4), total.steps
    (0.1414, 2)
    """

    releases: tuple[tuple[float, float, int], ...] = ()
    zcdp: float = 0.0
    ceiling: Sums = _NOTHING
    forward: Sums = _NOTHING
    backward: Sums = _NOTHING
    gaussian: Sums = _NOTHING
    steps: int = 0
    change: str | None = None  # what happens to a single record between neighbours; None in an empty cost
    spent: float = 0.0
    numbers: int = 0
    pairs: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of_pair(cls, epsilon: float, delta: float, change: str = ADDED_OR_REMOVED) -> "Cost":
        """The cost of a release of which only its (epsilon, delta)-differential privacy is known."""
        size = checks.number("epsilon", epsilon, checks.not_negative)
        share = checks.number("delta", delta, checks.share)
        checks.one_of("change", change, (ADDED_OR_REMOVED, REPLACED))
        return cls(steps=1, change=change, pairs=((size, share),))

    def __add__(self, other: "Cost") -> "Cost":
        if None not in (self.change, other.change) and self.change != other.change:
            raise ValueError(
                f"neighbours must be the same, got one record {self.change} and one record {other.change}"
            )
        counts: dict[tuple[float, float], int] = {}
        for mu, rate, count in (*self.releases, *other.releases):
            counts[mu, rate] = counts.get((mu, rate), 0) + count
        sums = {
            name: tuple(a + b for a, b in zip(getattr(self, name), getattr(other, name), strict=True))
            for name in ("ceiling", "forward", "backward", "gaussian")
        }
        return Cost(
            releases=tuple((mu, rate, count) for (mu, rate), count in counts.items()),
            zcdp=self.zcdp + other.zcdp,
            **sums,
            steps=self.steps + other.steps,
            change=self.change or other.change,
            spent=self.spent + other.spent,
            numbers=self.numbers + other.numbers,
            pairs=self.pairs + other.pairs,
        )

    @property
    def is_whole(self) -> bool:
        """Whether every release is bounded by a Gaussian release of everything, which mu alone describes."""
        return not self.pairs and all(rate == 1 for _, rate, _ in self.releases)

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of all ``releases``, without what sampling hides."""
        return math.sqrt(math.fsum(count * mu * mu for mu, _, count in self.releases))

    @property
    def taken(self) -> float:
        """The part of delta that pairs and estimates take."""
        return 2 * math.fsum(share for _, share in self.pairs) + self.spent

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about all these releases, at this delta; finite randomness is not in it.

        Guarantee: Rényi sums and Gaussian releases are composed. What is known by a pair only is added: its
        epsilon to epsilon, and its delta is taken from delta. The loss of an (epsilon, delta)-private release
        exceeds epsilon + log 2 with probability at most 2 delta, which the ex-post number adds.
        """
        delta = checks.probability("delta", delta)
        if not delta > self.taken:
            raise ValueError(
                f"delta must be above {self.taken!r}, which pairs and estimates take, got {delta!r}"
            )
        left = math.nextafter(delta - self.taken, 0.0) + self.spent if self.pairs else delta
        orders = torch.tensor(DEFAULT_ORDERS, dtype=torch.float64)
        worst, gaussian = (torch.tensor(sums).double() for sums in (self._worst(), self.gaussian))
        claim = guarantee(
            orders=orders,
            worst=worst,
            gaussian=gaussian,
            data_independent=self._every_dataset(orders, left),
            steps=self.steps,
            delta=left,
            spent=self.spent,
            change=self.change or ADDED_OR_REMOVED,
        )
        return self._with_pairs(claim, delta) if self.pairs else claim

    def _worst(self) -> Sums:
        return tuple(map(max, self.forward, self.backward))

    def _every_dataset(self, orders: Tensor, delta: float) -> DataIndependent:
        settings = {(mu, rate): count for mu, rate, count in self.releases}
        if all(rate == 1 for _, rate in settings):
            return data_independent_proof(self.mu**2 / 2, self.zcdp, delta)
        ceiling = torch.tensor(self.ceiling).double()
        exact = sampled_gaussian_epsilon(settings, delta)
        bound, _ = epsilon_from_rdp(orders, ceiling, delta)
        finite = [place for place, value in enumerate(self.ceiling) if value < math.inf]
        attacks = TradeOff(
            self.releases,
            orders=tuple(DEFAULT_ORDERS[place] for place in finite),
            divergences=tuple(self.ceiling[place] for place in finite),
        )
        return DataIndependent(*min((exact, SAMPLED), (bound, ZCDP)), exact, attacks)

    def _with_pairs(self, claim: Guarantee, delta: float) -> Guarantee:
        """The claim about all but the pairs, with the pairs added."""
        more = math.fsum(epsilon for epsilon, _ in self.pairs)
        loss = more + math.log(2) * sum(share > 0 for _, share in self.pairs)
        taken = math.fsum(share for _, share in self.pairs)
        rest = replace(self, pairs=(), spent=0.0)
        orders = torch.tensor(DEFAULT_ORDERS, dtype=torch.float64)
        deltas = sorted((at for at in {*_KNOWN_DELTAS, delta} if at > taken), reverse=True)
        # in order of epsilon, and the smallest delta of each
        known = {rest._every_dataset(orders, at - taken).epsilon + more: at for at in deltas}
        every, own = claim.epsilon + more, claim.per_instance
        return replace(
            claim,
            epsilon=every,
            delta=delta,
            per_instance=replace(
                own,
                epsilon=min(own.epsilon + more, every),
                proof=ADDED_UP,
                ex_post_epsilon=own.ex_post_epsilon + loss,
                renyi_epsilon=own.renyi_epsilon + more,
                gaussian_epsilon=own.gaussian_epsilon + more,
                gaussian_ex_post_epsilon=own.gaussian_ex_post_epsilon + loss,
                gaussian_renyi_epsilon=own.gaussian_renyi_epsilon + more,
                delta=delta,
            ),
            every_dataset=TradeOff(((math.inf, 1.0, 1),), known=tuple(known.items())),
        )

    def of_replaced(self) -> "Cost":
        """What the same releases cost where one record is replaced: it is removed, and another one is added.

        Guarantee: two records together are 2 mu-GDP where one is mu-GDP (Dong, Roth and Su 2022, Theorem
        2.14), (4 rho)-zCDP where one is rho-zCDP (Bun and Steinke 2016, Proposition 27), and (2 epsilon,
        (1 + e^epsilon) delta)-private. Samples count as releases of everything, and the sums for the data at
        hand, which are about one record, become those for every dataset.
        """
        if self.change != ADDED_OR_REMOVED:
            return self
        gaussian = 2 * self.mu**2
        zcdp = min(4 * self.zcdp, gaussian)
        ceiling = tuple(zcdp * order for order in DEFAULT_ORDERS)
        return replace(
            self,
            releases=tuple((2 * mu, 1.0, count) for mu, _, count in self.releases),
            zcdp=zcdp,
            ceiling=ceiling,
            forward=ceiling,
            backward=ceiling,
            gaussian=tuple(gaussian * order for order in DEFAULT_ORDERS),
            change=REPLACED,
            spent=0.0,
            pairs=tuple((2 * size, min(1.0, (1 + math.exp(size)) * share)) for size, share in self.pairs),
        )

    def realised(self, sums: "Cost") -> "Cost":
        """This cost with the sums for the data at hand of ``sums``, which were known when all was released.

        What holds for every dataset stays as it was planned: how many releases were made may depend on data.
        """
        return replace(self, forward=sums.forward, backward=sums.backward, spent=sums.spent)

    def state(self) -> dict[str, Any]:
        """The cost as plain data, which JSON keeps; ``from_state`` restores it exactly."""
        return {name: _listed(value) for name, value in asdict(self).items()}

    @classmethod
    def from_state(cls, state: Any) -> "Cost":
        """The cost that a ``state`` describes."""
        checks.keys("cost", state, {field.name for field in fields(cls)})
        values = {name: _tupled(value) for name, value in state.items()}
        return cls(**values)


def _listed(value: Any) -> Any:
    return (
        [_listed(item) for item in value]
        if isinstance(value, Iterable) and not isinstance(value, str)
        else value
    )


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
