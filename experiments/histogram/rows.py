"""Figure 5b: a sparse histogram with small counts suppressed, and what it costs the people in each cell.

Every cell is released as count + N(0, sigma^2), clamped to [tau, highest]; whoever reads the value tau reads
"suppressed". The Gaussian's histogram, clamped afterwards, is the same release: only the accounts differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.accounting.divergence_sums import both_directions
from ringfence.accounting.profile.few_moves import single_epsilons
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.numerics.normal import cumulative, density
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW


@dataclass(frozen=True)
class HistogramSettings:
    """Counts that fall like rank^-exponent over the occupied cells; the other cells are empty.

    ``thresholds`` are values of tau / sigma. Every count up to ``plotted`` is accounted for, whether or not
    a cell has it.

    >>> counts = HistogramSettings().counts()
    >>> len(counts), int((counts == 0).sum()), int(counts.sum()), int(counts.max())
    (2000, 1500, 10006, 2410)
    """

    cells: int = 2000
    occupied: int = 500
    people: int = 10_000
    exponent: float = 1.2
    sigma: float = 4.0
    thresholds: tuple[float, ...] = (3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0)
    highest: float = 10_000.0
    plotted: int = 60
    alpha: float = 2.0
    delta: float = 1e-5

    def counts(self) -> Tensor:
        """The counts of all cells, the largest first."""
        weights = torch.arange(1, self.occupied + 1, dtype=torch.float64) ** -self.exponent
        counts = torch.zeros(self.cells, dtype=torch.float64)
        counts[: self.occupied] = torch.round(self.people * weights / weights.sum())
        return counts

    def law(self, threshold: float | Tensor) -> RectifiedGaussian:
        """The law of a release that suppresses what is below threshold * sigma."""
        return RectifiedGaussian(self.sigma, (threshold * self.sigma, self.highest))


@dataclass(frozen=True)
class HistogramRow:
    """What the release costs one person in a cell of this count, and how often such a cell is shown."""

    threshold: float  # tau / sigma
    count: int
    cells: int  # how many cells have this count
    shown: float  # the probability that such a cell is shown
    epsilon: float
    gaussian_epsilon: float
    renyi: float  # of order alpha
    gaussian_renyi: float


@dataclass(frozen=True)
class HistogramUtilityRow:
    """What the release is good for, on average over the noise, and whom the support protects."""

    threshold: float
    large_cells: int  # cells with a count of tau or more
    large_shown: float
    small_shown: float  # cells that hold someone, but fewer than tau
    empty_shown: float
    absolute_error: float  # the mean over large cells
    people_spared: float  # the share of people whose epsilon is at most half the Gaussian's
    cells_spared: float  # the same share of cells, the empty ones included


@dataclass(frozen=True)
class Histogram:
    """What the release costs people in each cell, and what each threshold does to the whole histogram."""

    people: tuple[HistogramRow, ...]
    utility: tuple[HistogramUtilityRow, ...]


def histogram(settings: HistogramSettings) -> Histogram:
    """A row for every count and threshold, and one for what each threshold does to the whole histogram.

    >>> result = histogram(HistogramSettings(thresholds=(3.0, 5.0), plotted=0))
    >>> [round(row.epsilon, 3) for row in result.people if row.count == 0]  # someone joining an empty cell
    [0.926, 0.0]
    """
    people = tuple(_people(settings))
    utility = []
    for threshold in settings.thresholds:
        rows = [row for row in people if row.threshold == threshold]
        utility.append(_utility(settings, threshold, rows))
    return Histogram(people, tuple(utility))


def shown_probability(count: Tensor, tau: Tensor | float, sigma: float) -> Tensor:
    """The probability that a cell is shown, P(count + N(0, sigma^2) > tau).

    >>> float(shown_probability(torch.tensor([12.0]), tau=12.0, sigma=4.0))
    0.5
    """
    return cumulative((count - tau) / sigma)


def absolute_error(count: Tensor, law: RectifiedGaussian) -> Tensor:
    """E |clamp(count + N(0, sigma^2)) - count|, for counts inside the support.

    If u is the distance to an end in units of sigma, each end adds phi(0) - phi(u) + u Phi(-u).

    >>> round(float(absolute_error(torch.tensor([5e3]), RectifiedGaussian(4.0, (12.0, 1e4)))), 4)
    3.1915
    """
    sides = []
    for end in (law.lower, law.upper):
        u = (count.double() - end).abs() / law.sigma
        sides.append(density(torch.zeros_like(u)) - density(u) + u * cumulative(-u))
    return law.sigma * (sides[0] + sides[1])


def _people(settings: HistogramSettings) -> Iterator[HistogramRow]:
    counts, numbers = settings.counts().unique(return_counts=True)
    cells = dict(zip(counts.tolist(), numbers.tolist(), strict=True))
    every = torch.cat((counts, torch.arange(settings.plotted + 1).double())).unique()
    thresholds = torch.tensor(settings.thresholds, dtype=torch.float64).repeat_interleave(len(every))
    theta = every.repeat(len(settings.thresholds))
    law = settings.law(thresholds)
    one, orders = torch.ones_like(theta), torch.tensor([settings.alpha], dtype=torch.float64)
    renyi = both_directions(law, theta, one, orders)[:, 0].amax(dim=0)
    columns = (
        single_epsilons(law, theta, 1.0, settings.delta),
        shown_probability(theta, law.lower, settings.sigma),
        renyi * (1 + ROUNDING) + UNDERFLOW,
        thresholds,
        theta,
    )
    gaussian = gaussian_epsilon(1 / settings.sigma, settings.delta)
    for epsilon, shown, divergence, threshold, count in zip(*(c.tolist() for c in columns), strict=True):
        yield HistogramRow(
            threshold=threshold,
            count=int(count),
            cells=cells.get(count, 0),
            shown=shown,
            epsilon=epsilon,
            gaussian_epsilon=gaussian,
            renyi=divergence,
            gaussian_renyi=settings.alpha / (2 * settings.sigma**2),
        )


def _utility(settings: HistogramSettings, threshold: float, rows: list[HistogramRow]) -> HistogramUtilityRow:
    tau = threshold * settings.sigma
    counts = settings.counts()
    large = counts[counts >= tau]
    spared = [row for row in rows if row.epsilon <= row.gaussian_epsilon / 2]

    def shown(some: list[HistogramRow]) -> float:
        return sum(row.cells * row.shown for row in some)

    return HistogramUtilityRow(
        threshold=threshold,
        large_cells=len(large),
        large_shown=shown([row for row in rows if row.count >= tau]),
        small_shown=shown([row for row in rows if 0 < row.count < tau]),
        empty_shown=shown([row for row in rows if row.count == 0]),
        absolute_error=float(absolute_error(large, settings.law(threshold)).mean()),
        people_spared=sum(row.cells * row.count for row in spared) / float(counts.sum()),
        cells_spared=sum(row.cells for row in spared) / settings.cells,
    )
