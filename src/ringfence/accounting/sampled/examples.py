"""Single examples in runs of Poisson samples with Gaussian noise, each charged by its own gradient's length.

Example i is in the batch of a step with probability q, independently, and adds a vector of length s sigma to
a sum that is released with noise N(0, sigma^2). With and without it, the releases are averages over the rest
of the batch of P = N(0, 1) and of (1 - q) N(0, 1) + q N(s, 1), up to a rotation and a translation. At an
integer order alpha, with x = s^2,

    exp((alpha - 1) D) <= sum over k of C(alpha, k) (1 - q)^(alpha - k) q^k exp(k (k - 1) x / 2),

in the worse of both directions (Mironov, Talwar and Zhang 2019, Theorem 5). The logarithm of a sum of
exponentials is convex in x, so D is at most its chord between two values of x at which it is tabulated.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.examples.guarantee import ex_post_epsilons
from ringfence.accounting.sampled.divergence import checked_integer_orders
from ringfence.accounting.sampled.poisson_mixture import PoissonMixture, highest_moment
from ringfence.accounting.sampled.subsampling import SAMPLED_ORDERS
from ringfence.numerics.rounding import ROUNDING

_PER_OCTAVE, _OCTAVES = 64, 16  # nodes of x: 64 per octave, from the largest x down to 1.5e-5 of it, and 0
_ESTIMATED = (
    "An estimated epsilon charges the steps in which the record's gradient was not measured with the length "
    "that was measured last (Yu et al. 2023, arXiv 2206.02617): it is an estimate and not a guarantee."
)


class SampledExampleAccountant:
    """Each example's own privacy loss in a run that releases Poisson samples with Gaussian noise.

    Call ``step`` once for each release, with the lengths of the clipped gradients that were measured. The
    examples that were not measured in a step are charged ``longest``, the length that the clip allows:
    whether an example is in the batch must not matter, because the charge is about a batch that stays
    unknown.

    Guarantee: ``sums`` are upper bounds, for each example and order, of the Rényi divergence in the worse
    direction between the releases with the example and without it, provided every example is in every batch
    with probability ``sampling_rate``, independently, and its gradient depends on itself and on earlier
    releases only. That the chords lie above is proved. Epsilon was measured to be at most 1 % too large
    where it is above 1, and 3 % where it is above 0.5. ``statement`` says what an epsilon promises.

    >>> account = SampledExampleAccountant(examples=3, sampling_rate=0.1)
    >>> for _ in range(100):
    ...     account.step(torch.tensor([1.0, 0.1]), torch.tensor([0, 1]), sigma=2.0, longest=1.0)
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
        self._last = torch.ones(examples, dtype=torch.float64)  # the length measured last, in longest ones
        self._owed = torch.zeros(examples, dtype=torch.int64)  # steps that the estimates do not hold yet
        self._table: _Table | None = None

    def step(
        self,
        lengths: Tensor,
        indices: Tensor | None = None,
        *,
        sigma: float,
        longest: float,
        sampling_rate: float | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases with noise ``sigma``; no example adds more than ``longest`` to their sums.

        ``lengths`` are those of the clipped gradients of the examples with these ``indices``, or of all
        examples in their order. The sampling rate is the account's own unless another is given. An error
        leaves the account as it was.
        """
        count = checks.count("count", count, at_least=1)
        rate = self.sampling_rate if sampling_rate is None else checks.rate("sampling_rate", sampling_rate)
        longest = checks.number("longest", longest, checks.positive)
        sigma = checks.number("sigma", sigma, checks.positive)
        lengths = checks.not_negative("lengths", lengths).detach().double().cpu()
        checks.require("lengths", f"must be at most longest {longest!r}", lengths, lengths <= longest)
        chosen = torch.arange(self.examples) if indices is None else indices.cpu().long()
        if lengths.shape != chosen.shape or len(chosen.unique()) != chosen.numel():
            raise ValueError(
                f"lengths must be one number for each of {chosen.numel()} different examples, "
                f"got shape {list(lengths.shape)}"
            )
        table = _Table.of(rate, longest / sigma, tuple(self._orders.tolist()))
        own = self.sums[chosen] + count * table.costs(lengths / longest)
        self.sums += count * table.largest
        self.sums[chosen] = own
        # what an example owes the estimates does not change until it is measured again
        self._settle(chosen if table is self._table else torch.arange(self.examples))
        self._last[chosen], self._table = lengths / longest, table
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
        >>> account.step(torch.tensor([0.5, 0.0]), sigma=1.0, longest=1.0)
        >>> [round(epsilon, 2) for epsilon in account.epsilons(delta=1e-5).tolist()]
        [2.9, 0.0]
        """
        delta = checks.probability("delta", delta)
        self._settle(torch.arange(self.examples))
        sums = self._estimates if estimated else self.sums
        epsilons = ex_post_epsilons(self._orders, sums, delta) * (1 + ROUNDING)
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
            f"examples and steps, {share:.1%} were measured; the others are charged with the longest "
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

    def costs(self, lengths: Tensor) -> Tensor:
        """The chords at these lengths, given as shares of the longest: one row per length."""
        x = lengths.square()
        right = torch.searchsorted(self._shares, x).clamp(min=1, max=len(self._shares) - 1)
        left = right - 1
        share = (x - self._shares[left]) / (self._shares[right] - self._shares[left])
        return torch.lerp(self._rows[left], self._rows[right], share.clamp(0, 1).unsqueeze(1))
