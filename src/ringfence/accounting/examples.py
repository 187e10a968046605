"""Single examples: what releases of theta cost each record that is in the data.

``ExampleAccountant`` is for releases of everything, with any law: four Rényi sums over coordinates for each
example (``example_sums``). ``SampledExampleAccountant`` is for Poisson samples with Gaussian noise, where an
example is charged by the norm of its own gradient: it is in the batch of a step with probability q,
independently, and adds a vector of norm s sigma to a sum that is released with noise N(0, sigma^2). With and
without it, the releases are averages over the rest of the batch of P = N(0, 1) and of
(1 - q) N(0, 1) + q N(s, 1), up to a rotation and a translation. At an integer order alpha, with x = s^2,

    exp((alpha - 1) D) <= sum over k of C(alpha, k) (1 - q)^(alpha - k) q^k exp(k (k - 1) x / 2),

in the worse of both directions (Mironov, Talwar and Zhang 2019, Theorem 5). The logarithm of a sum of
exponentials is convex in x, so D is at most its chord between two values of x at which it is tabulated.
"""

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.coordinates import Setting, recentre
from ringfence.accounting.example_sums import (
    EXACT_BLOCK,
    VARIANTS,
    InUnits,
    ShiftTable,
    checked_blocks,
    exact_bound,
    fits,
    polynomial_bound,
    table_bound,
)
from ringfence.accounting.guarantee import EpsilonKind
from ringfence.accounting.poisson_mixture import PoissonMixture, highest_moment
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.subsampling import SAMPLED_ORDERS, checked_integer_orders
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.numerics.rounding import ROUNDING

_PER_OCTAVE, _OCTAVES = 64, 16  # nodes of x: 64 per octave, from the largest x down to 1.5e-5 of it, and 0
_ESTIMATED = (
    "An estimated epsilon charges the steps in which the record's gradient was not measured with the norm "
    "that was measured last (Yu et al. 2023, arXiv 2206.02617): it is an estimate and not a guarantee."
)


@dataclass(frozen=True)
class ExampleGuarantee:
    """One ex-post epsilon and one per-instance epsilon for each example, at the same delta.

    >>> claim = ExampleGuarantee(1e-5, torch.tensor([1.2]), torch.tensor([0.9]), steps=1)
    >>> claim.statement.startswith("Per example, this dataset and this trajectory")
    True
    """

    delta: float
    epsilons: Tensor  # ex-post
    per_instance_epsilons: Tensor  # the realised Rényi sums converted to (epsilon, delta)
    steps: int

    @property
    def statement(self) -> str:
        """In plain English: what an example's epsilon promises, what it does not, who may see it."""
        return statement(self.steps)


def statement(steps: int) -> str:
    """In plain English: what an example's epsilon promises, what it does not, and who may see it.

    >>> "do not publish it" in statement(10)
    True
    """
    releases = "the release" if steps == 1 else f"the {steps} releases"
    holds = (
        "is a guarantee for the one release it is about"
        if steps <= 1
        else "is a guarantee only if theta at every release was fixed in advance; where theta depends on "
        "earlier releases, as in training, it is an estimate and not a guarantee"
    )
    return (
        "Per example, this dataset and this trajectory: each epsilon is about one record that is in the "
        "data, compared with leaving that record out and with having it twice. Ex-post: except with "
        f"probability delta over the run, the realised privacy loss of {releases} about that record is "
        "at most its epsilon, also when theta depends on earlier releases, provided what the record "
        "contributes depends on itself and on earlier releases only, and that delta was fixed "
        "beforehand, as the Rényi orders of an account are. The loss is that of everything released "
        "together, not of something that is computed from it afterwards. The probability is for each "
        "example by itself, not for all of them at once.\n\n"
        f"The per-instance (epsilon, delta) number, kind='per_instance', {holds}.\n\n"
        "Neither is differential privacy: they say nothing about records that are not in the data, about "
        "other datasets or about other runs. Each number is computed from its record and, through theta, "
        "from all the others, and is itself sensitive: do not publish it, do not show it to anybody who may "
        "not see the data, and do not stop, go on, leave out examples or change the noise because of it."
    )


class ExampleAccountant:
    """Each training example's own privacy loss, from its own clipped contribution to theta.

    Call ``step(theta, gradients)`` once for each release. theta has shape (d,) and is what the mechanism was
    applied to, the sum of the contributions. Row i of ``gradients`` is the contribution of example i, the
    same example at every step. A contribution must depend only on its own record and on earlier releases.
    ``epsilons(delta)`` gives one number for each example.

    There are four running sums for each example and order (``sums``, in the order of ``VARIANTS``), in
    float64: 96 MB for 50,000 examples and the default orders.

    Guarantee: the sums are upper bounds of the exact ones, whatever the gradients, and never above what
    holds for every theta, hence never above the Gaussian's. For exponential families (the Gaussian and the
    truncated law) that is proved up to the rounding of the information; for the other laws it is checked
    numerically. For the truncated law the sums were measured to lie within 0.6 % of the exact ones wherever
    alpha |g| / sigma <= 2.05. Orders beyond that are charged what holds for every theta, which matters (up
    to twice the epsilon) only where a handful of coordinates carry all that an example contributes to a
    single release. ``statement`` says what an epsilon promises.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> gradients = torch.tensor([[1e-3], [1e-4], [0.0]]).expand(3, 10_240)
    >>> account = ExampleAccountant(TruncatedGaussian(sigma=1.0, bound=2.0))
    >>> for _ in range(10):
    ...     account.step(gradients.sum(dim=0), gradients)
    >>> [round(epsilon, 3) for epsilon in account.epsilons(delta=1e-5).tolist()]
    [1.614, 0.158, 0.0]
    """

    def __init__(self, mechanism: Mechanism, orders: Sequence[float] | Tensor = DEFAULT_ORDERS) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self._orders = checked_orders(orders).clone()
        self.sums = torch.zeros(len(VARIANTS), 0, len(self._orders), dtype=torch.float64)
        self._zcdps = torch.zeros(2, dtype=torch.float64)  # of any example: the Gaussian's, and the law's
        self.steps = 0
        self._tables: dict[Setting, ShiftTable] = {}

    def step(
        self,
        theta: Real,
        gradients: Tensor | Iterable[Tensor],
        *,
        mechanism: Mechanism | None = None,
        count: int = 1,
        exact: bool = False,
    ) -> None:
        """Adds ``count`` releases of theta, with the account's own mechanism unless another is given.

        ``gradients`` has shape (n, d), or is an iterable of (m, d) chunks in the order of the examples; what
        an example is charged does not depend on the chunks. ``exact=True`` evaluates every entry at every
        order, for tests and small data. An error leaves the account as it was.
        """
        count = checks.count("count", count, at_least=1)
        law = self.mechanism if mechanism is None else checked_mechanism(mechanism)
        theta = checks.finite("theta", theta)
        fits(law, theta)
        law, theta = recentre(law, theta.double().cpu())
        if checks.flag("exact", exact):
            length, bound = EXACT_BLOCK, exact_bound(law, theta, self._orders)
        elif law.exponential_family:
            length, bound = None, polynomial_bound(law, theta, self._orders)
        else:
            length, bound = None, table_bound(law, theta, self._orders, self._tables)
        units, parts, zcdps = InUnits(law, theta), [], torch.zeros(2, dtype=torch.float64)
        shares = torch.stack((torch.ones_like(units.ceiling), units.ceiling), dim=1)
        for block in checked_blocks(gradients, theta.numel(), length):
            parts.append(bound(block))
            if len(block):
                squares = (block * units.per_sigma.to(block.device)).square()
                zcdps = torch.maximum(zcdps, 0.5 * (squares @ shares.to(block.device)).amax(dim=0).cpu())
        total = sum(part.shape[1] for part in parts)
        if total == 0:
            raise ValueError("gradients must hold at least one example, got none")
        if self.steps and total != self.examples:
            raise ValueError(f"gradients must hold {self.examples} examples as before, got {total}")
        if not self.steps:
            self.sums = torch.zeros(len(VARIANTS), total, len(self._orders), dtype=torch.float64)
        at = 0
        for part in parts:
            self.sums[:, at : at + part.shape[1]] += count * part
            at += part.shape[1]
        self._zcdps = self._zcdps + count * zcdps * (1 + ROUNDING)
        self.steps += count

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    @property
    def examples(self) -> int:
        """How many examples there are; 0 before the first step."""
        return self.sums.shape[1]

    @property
    def worst(self) -> Tensor:
        """The largest of the four running sums: one row per example, one column per order."""
        return self.sums.amax(dim=0)

    def epsilons(self, delta: float, kind: EpsilonKind = "ex_post") -> Tensor:
        """Each example's own epsilon at this delta, in float64.

        ``kind="ex_post"`` is the minimum over the K orders of the sum + log(K / delta) / (order - 1), as
        ``conversion.ex_post_epsilon``. ``kind="per_instance"`` converts the sums to (epsilon, delta), as
        ``conversion.epsilon_from_rdp``; no number is above what holds for every dataset of such examples.

        An example whose contribution was 0 throughout gets 0 and not the log(K / delta) term: with and
        without it the releases have the same law, so its loss is 0 whatever comes out.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> account = ExampleAccountant(Gaussian(sigma=1.0))
        >>> account.step(torch.zeros(2), torch.tensor([[0.3, 0.4], [0.0, 0.0]]))
        >>> [round(value, 3) for value in account.epsilons(1e-5, kind="per_instance").tolist()]
        [1.993, 0.0]
        """
        delta = checks.probability("delta", delta)
        checks.one_of("kind", kind, ("ex_post", "per_instance"))
        convert = ex_post_epsilon if kind == "ex_post" else epsilon_from_rdp
        worst = self.worst
        epsilons = convert(self._orders, worst, delta)
        if kind == "per_instance":  # what holds for every theta holds for each example
            gaussian, bounded = self._zcdps.tolist()
            epsilons = epsilons.clamp(max=PrivacyLoss.of_zcdp(gaussian, bounded).epsilon(delta))
        return torch.where((worst == 0).all(dim=1), 0.0, epsilons)

    def guarantee(self, delta: float) -> ExampleGuarantee:
        """Both kinds of epsilon of each example after all the steps so far, at this delta.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> account = ExampleAccountant(Gaussian(sigma=1.0))
        >>> account.step(torch.zeros(2), torch.tensor([[0.3, 0.4], [0.0, 0.0]]))
        >>> claim = account.guarantee(1e-5)
        >>> bool((claim.epsilons >= claim.per_instance_epsilons).all()), claim.steps
        (True, 1)
        """
        return ExampleGuarantee(
            delta=checks.probability("delta", delta),
            epsilons=self.epsilons(delta),
            per_instance_epsilons=self.epsilons(delta, kind="per_instance"),
            steps=self.steps,
        )

    @property
    def statement(self) -> str:
        """In plain English: what an example's epsilon promises, what it does not, who may see it."""
        return statement(self.steps)

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps; ``from_state_dict`` restores it exactly.

        The sums are base64 of little-endian float64, (4, examples, orders) in C order: as decimal text they
        would be several times as long and slow to read.
        """
        return {
            "kind": type(self).__name__,
            "version": 2,
            "mechanism": self.mechanism.state_dict(),
            "orders": self._orders.tolist(),
            "examples": self.examples,
            "steps": self.steps,
            "zcdps": self._zcdps.tolist(),
            "sums": base64.b64encode(self.sums.numpy().astype("<f8").tobytes()).decode("ascii"),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        if checks.mapping("state", state).get("version") == 1:  # of 0.6, which did not hold them
            state = {**state, "version": 2, "zcdps": [1e300] * 2}
        names = {"mechanism", "orders", "examples", "steps", "sums", "zcdps"}
        checks.state("ExampleAccountant", 2, state, names)
        account = cls(Mechanism.from_state_dict(state["mechanism"]), state["orders"])
        account.steps = checks.count("steps", state["steps"], at_least=0)
        account._zcdps = checks.sums("zcdps", state["zcdps"], 2)
        examples = checks.count("examples", state["examples"], at_least=1 if account.steps else 0)
        shape = (len(VARIANTS), examples, len(account.orders))
        try:
            data = bytearray(base64.b64decode(state["sums"], validate=True))
        except (TypeError, ValueError):
            raise ValueError(f"sums must be base64 text, got {str(state['sums'])[:20]!r}") from None
        if len(data) != 8 * math.prod(shape):
            raise ValueError(f"sums must hold {8 * math.prod(shape)} bytes, got {len(data)}")
        if data:
            sums = torch.frombuffer(data, dtype=torch.float64).reshape(shape)
            account.sums = checks.not_negative("sums", sums).clone()
        return account

    def __repr__(self) -> str:
        return f"ExampleAccountant({self.mechanism!r}, examples={self.examples}, steps={self.steps})"


class SampledExampleAccountant:
    """Each example's own privacy loss in a run that releases Poisson samples with Gaussian noise.

    Call ``step`` once for each release, with the norms of the clipped gradients that were measured. The
    examples that were not measured in a step are charged ``clip``, the largest norm that the clip allows:
    whether an example is in the batch must not matter, because the charge is about a batch that stays
    unknown.

    Guarantee: ``sums`` are upper bounds, for each example and order, of the Rényi divergence in the worse
    direction between the releases with the example and without it, provided every example is in every batch
    with probability ``sampling_rate``, independently, and its gradient depends on itself and on earlier
    releases only. That the chords lie above is proved. Epsilon was measured to be at most 1 % too large
    where it is above 1, and 3 % where it is above 0.5. ``statement`` says what an epsilon promises.

    >>> account = SampledExampleAccountant(examples=3, sampling_rate=0.1)
    >>> for _ in range(100):
    ...     account.step(torch.tensor([1.0, 0.1]), torch.tensor([0, 1]), sigma=2.0, clip=1.0)
    >>> [round(epsilon, 2) for epsilon in account.epsilons(delta=1e-5).tolist()]
    [3.53, 0.28, 3.53]
    """

    def __init__(
        self, examples: int, sampling_rate: float, orders: Sequence[float] | Tensor = SAMPLED_ORDERS
    ) -> None:
        self.examples = checks.count("examples", examples, at_least=1)
        self.sampling_rate = checks.rate("sampling_rate", sampling_rate)
        self._orders = checked_integer_orders(orders).clone()
        self.sums = torch.zeros(examples, len(self._orders), dtype=torch.float64)
        self.measured = torch.zeros(examples, dtype=torch.int64)  # in how many steps each was measured
        self.steps = 0
        self._estimates = torch.zeros_like(self.sums)
        self._last = torch.ones(
            examples, dtype=torch.float64
        )  # the norm measured last, as a share of the clip
        self._owed = torch.zeros(examples, dtype=torch.int64)  # steps that the estimates do not hold yet
        self._table: _Table | None = None

    def step(
        self,
        norms: Tensor,
        indices: Tensor | None = None,
        *,
        sigma: float,
        clip: float,
        sampling_rate: float | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases with noise ``sigma``; no example adds more than ``clip`` to their sums.

        ``norms`` are those of the clipped gradients of the examples with these ``indices``, or of all
        examples in their order. The sampling rate is the account's own unless another is given. An error
        leaves the account as it was.
        """
        count = checks.count("count", count, at_least=1)
        rate = self.sampling_rate if sampling_rate is None else checks.rate("sampling_rate", sampling_rate)
        clip = checks.number("clip", clip, checks.positive)
        sigma = checks.number("sigma", sigma, checks.positive)
        norms = checks.not_negative("norms", norms).detach().double().cpu()
        checks.require("norms", f"must be at most clip {clip!r}", norms, norms <= clip)
        chosen = torch.arange(self.examples) if indices is None else indices.cpu().long()
        if norms.shape != chosen.shape or len(chosen.unique()) != chosen.numel():
            raise ValueError(
                f"norms must be one number for each of {chosen.numel()} different examples, "
                f"got shape {list(norms.shape)}"
            )
        table = _Table.of(rate, clip / sigma, tuple(self._orders.tolist()))
        own = self.sums[chosen] + count * table.costs(norms / clip)
        self.sums += count * table.largest
        self.sums[chosen] = own
        # what an example owes the estimates does not change until it is measured again
        self._settle(chosen if table is self._table else torch.arange(self.examples))
        self._last[chosen], self._table = norms / clip, table
        self._owed += count
        self.measured[chosen] += count
        self.steps += count

    def _settle(self, chosen: Tensor) -> None:
        if self._table is not None:
            owed = self._owed[chosen].unsqueeze(1)
            self._estimates[chosen] += owed * self._table.costs(self._last[chosen])
            self._owed[chosen] = 0

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    def epsilons(self, delta: float, *, estimated: bool = False) -> Tensor:
        """Each example's ex-post epsilon at this delta; with ``estimated``, an estimate instead of a bound.

        An example that was measured in every step and added 0 in each gets 0: the releases have the same law
        with it and without it.

        >>> account = SampledExampleAccountant(examples=2, sampling_rate=1.0)
        >>> account.step(torch.tensor([0.5, 0.0]), sigma=1.0, clip=1.0)
        >>> [round(epsilon, 2) for epsilon in account.epsilons(delta=1e-5).tolist()]
        [2.9, 0.0]
        """
        delta = checks.probability("delta", delta)
        self._settle(torch.arange(self.examples))
        sums = self._estimates if estimated else self.sums
        epsilons = ex_post_epsilon(self._orders, sums, delta)
        return torch.where((sums == 0).all(dim=1), 0.0, epsilons)

    @property
    def statement(self) -> str:
        """In plain English: what an example's epsilon promises, what it does not, who may see it."""
        releases = "the release" if self.steps == 1 else f"the {self.steps} releases"
        share = float(self.measured.sum()) / max(1, self.steps * self.examples)
        return (
            "Per example, this run: each epsilon is about one record that is in the data, compared with "
            "leaving that record out and with having it twice. Ex-post: except with probability delta over "
            f"the run, the realised privacy loss of {releases} about that record is at most its epsilon, "
            "provided every record was in every batch with the sampling rate that is accounted for, "
            "independently, its gradient depends on itself and on earlier releases only, and delta was fixed "
            "beforehand. The probability is for each example by itself, not for all of them at once. Of all "
            f"examples and steps, {share:.1%} were measured; the others are charged with the largest "
            f"gradient that the clip allows. {_ESTIMATED}\n\n"
            "This is not differential privacy: the numbers say nothing about records that are not in the "
            "data, about other datasets or about other runs. They are computed from the records and are "
            "themselves sensitive: do not publish them, and change nothing about the training because of "
            "them."
        )


class _Table:
    """D at each order, for x from 0 to the largest: one row per node."""

    def __init__(self, sampling_rate: float, largest: float, orders: tuple[float, ...]) -> None:
        alpha = torch.tensor(orders, dtype=torch.float64)
        k = torch.arange(2, highest_moment(alpha) + 1, dtype=torch.float64)
        octaves = torch.arange(_PER_OCTAVE * _OCTAVES, -1, -1, dtype=torch.float64) / _PER_OCTAVE
        shares = torch.exp2(-octaves)  # of the largest x, ascending; the last is 1
        moments = shares.unsqueeze(1) * (largest * largest / 2) * k * (k - 1)
        excess = PoissonMixture(sampling_rate, alpha).mixture_first(moments)
        rows = torch.logaddexp(excess, torch.zeros_like(excess)) / (alpha - 1)
        if not bool(torch.isfinite(rows).all()):
            raise FloatingPointError(f"float64 cannot represent what a sample costs at {largest!r} sigma")
        self._shares = torch.cat((torch.zeros(1, dtype=torch.float64), shares))
        self._rows = torch.cat((torch.zeros(1, len(alpha), dtype=torch.float64), rows)) * (1 + ROUNDING)
        self.largest = self._rows[-1]

    @staticmethod
    @lru_cache(maxsize=8)
    def of(sampling_rate: float, largest: float, orders: tuple[float, ...]) -> "_Table":
        return _Table(sampling_rate, largest, orders)

    def costs(self, norms: Tensor) -> Tensor:
        """The chords at these norms, given as shares of the clip: one row per norm."""
        x = norms.square()
        right = torch.searchsorted(self._shares, x).clamp(min=1, max=len(self._shares) - 1)
        left = right - 1
        share = (x - self._shares[left]) / (self._shares[right] - self._shares[left])
        return torch.lerp(self._rows[left], self._rows[right], share.clamp(0, 1).unsqueeze(1))
