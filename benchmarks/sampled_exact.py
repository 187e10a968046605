"""Sampled bounds against the exact cost of small datasets, every batch enumerated.

    python -m benchmarks.sampled_exact [--settings 300] [--seed 0] [--smallest 0.001]

A dataset of at most five records is a mixture over at most 32 batches, so that the cost of adding or
removing a record is one integral. It is evaluated by definition (densities and atoms in numpy, no closed
form and no line of the package) and compared with two bounds: of a batch that is known
(``SampledDivergence.log_excess``), and the average of those over all batches, which ``subsampled_rdp``
estimates.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

import ringfence as rf
from ringfence.accounting.subsampling import SampledDivergence, checked_integer_orders

Vector = NDArray[np.float64]
LAWS = ("gaussian", "rectified", "truncated", "sign", "quantized")
ORDERS = (2, 3, 4, 8, 16, 32, 64, 128, 256)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclass(frozen=True)
class Setting:
    """A law with sigma = 1, the records' contributions (a row each, within +-size), a rate, an order."""

    law: str
    bound: float
    levels: int
    size: float
    rate: float
    order: int
    records: Vector

    @property
    def mechanism(self) -> rf.Mechanism:
        known = {"bound": self.bound, "levels": self.levels}
        wanted = {"rectified": ["bound"], "truncated": ["bound"], "quantized": ["bound", "levels"]}
        return rf.Mechanism.by_name(
            self.law, sigma=1.0, **{name: known[name] for name in wanted.get(self.law, [])}
        )

    def batches(self, records: Vector) -> tuple[Vector, Vector]:
        """theta of every batch of these records, and the log of its probability."""
        inside = np.array(list(product((0.0, 1.0), repeat=len(records)))).reshape(2 ** len(records), -1)
        chance = inside * np.log(self.rate) + (1 - inside) * np.log1p(-self.rate)
        return inside @ records, chance.sum(axis=1)

    def moves(self) -> Iterator[Vector]:
        """The corners of what a record may contribute."""
        yield from (self.size * np.array(signs) for signs in product((1, -1), repeat=self.records.shape[1]))

    def release(self, orders: list[int]) -> SampledDivergence:
        """The bounds that are compared."""
        theta = torch.zeros(self.records.shape[1])
        return SampledDivergence(self.mechanism, theta, self.size, self.rate, checked_integer_orders(orders))

    def costs(self, thetas: Vector, chances: Vector, move: Vector) -> Vector:
        """Forward and backward D, M averaged over ``thetas`` against the same with the record ``move``."""
        log_p = chances.reshape([-1] + [1] * len(move))
        log_ratio = np.zeros_like(log_p)
        for j, step in enumerate(move):
            grid = self._grid(thetas[:, j], step)
            without, within = (
                np.stack([self._log_masses(theta + s, grid) for theta in thetas[:, j]]) for s in (0.0, step)
            )
            shape = [len(thetas), *(-1 if i == j else 1 for i in range(len(move)))]
            log_p = log_p + without.reshape(shape)
            log_ratio = log_ratio + (within - without).reshape(shape)
        total = logsumexp(log_p, axis=0)
        # Q / P of the mixture is the average of Q_B / P_B under the posterior of the batch
        near = (np.exp(log_p - total) * np.expm1(np.minimum(log_ratio, 1))).sum(axis=0)
        far = logsumexp(log_p - total + log_ratio, axis=0) + np.log(self.rate)
        log_mixture = np.where(
            log_ratio.max(axis=0) < 1, np.log1p(self.rate * near), np.logaddexp(np.log1p(-self.rate), far)
        )
        both = [logsumexp(total + _log_excess(log_mixture, power)) for power in (1 - self.order, self.order)]
        return np.logaddexp(0, both) / (self.order - 1)

    def _grid(self, thetas: Vector, step: float) -> tuple[Vector, Vector]:
        """Gauss-Legendre nodes and log weights on panels that narrow towards the ends of a support."""
        fine = 1 / 8 if self.records.shape[1] == 1 else 1.0
        if self.law == "gaussian":
            reach = self.order * abs(step) + 11
            edges = np.arange(thetas.min() - reach, thetas.max() + reach + fine, fine)
        else:
            fine = min(fine, self.bound / 2)
            ends = fine * np.array([0, 1e-3, 1e-2, 0.1, 0.3])
            inner = np.linspace(fine - self.bound, self.bound - fine, 1 + int(np.ceil(2 * self.bound / fine)))
            edges = np.concatenate((ends - self.bound, inner, self.bound - ends[::-1]))
        width, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        nodes = middle[:, None] + width[:, None] * _NODES
        return nodes.ravel(), np.log(width[:, None] * _WEIGHTS).ravel()

    def _log_masses(self, theta: float, grid: tuple[Vector, Vector]) -> Vector:
        """log of the masses of M(theta): atoms, or a density times quadrature weights."""
        if self.law == "sign":
            return log_ndtr(np.array([-theta, theta]))
        if self.law == "quantized":
            spacing = 2 * self.bound / (self.levels - 1)
            cuts = -self.bound + (np.arange(self.levels - 1) + 0.5) * spacing - theta
            return _log_cells(np.concatenate(([-np.inf], cuts, [np.inf])))
        x, log_weights = grid
        inside = log_weights - 0.5 * (x - theta) ** 2 - 0.5 * np.log(2 * np.pi)
        if self.law == "rectified":
            return np.concatenate((inside, log_ndtr(np.array([-self.bound - theta, theta - self.bound]))))
        return inside if self.law == "gaussian" else inside - logsumexp(inside)


def _log_cells(cuts: Vector) -> Vector:
    """log of the normal masses between neighbouring cuts, each from its nearer tail."""
    low, high = cuts[:-1], cuts[1:]
    right = low + high > 0
    far, near = np.where(right, -low, high), np.where(right, -high, low)
    return log_ndtr(far) + np.log(-np.expm1(log_ndtr(near) - log_ndtr(far)))


def _log_excess(log_value: Vector, power: int) -> Vector:
    """log(m^power - 1 - power (m - 1)), m = e^log_value: nowhere negative, and integrates to E - 1."""
    x, y = np.expm1(np.minimum(log_value, 500.0)), power * log_value
    small = np.where(np.abs(power * x) < 1e-2, x, 0.0)
    series, term = np.zeros_like(x), power * small
    for i in range(2, 9):
        term = term * small * (power - i + 1) / i
        series += term
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moderate = np.log(np.expm1(np.minimum(y, 30)) - power * x)
        large = y + np.log1p(-(1 + power * x) * np.exp(-y))
        return np.where(small == x, np.log(series), np.where(y > 30, large, moderate))


def random_setting(generator: np.random.Generator, smallest: float = 1e-3, records: int = 5) -> Setting:
    """Any law, supports from narrow to wide, at most so many records, moves from ``smallest`` to 3 sigma."""
    law, order = str(generator.choice(LAWS)), int(generator.choice(ORDERS))
    width = 1 if order > 16 else int(generator.choice([1, 1, 2, 3]))
    width = min(width, 2) if law in ("gaussian", "rectified", "truncated") else width
    most = 3.0 if law != "gaussian" or width == 1 else 16 / order
    size = float(10 ** generator.uniform(np.log10(smallest), np.log10(max(most, smallest))))
    count = int(generator.integers(0, 1 + (records if width == 1 else min(records, 3))))
    contributions = size * generator.uniform(-1, 1, (count, width))
    at_the_end = generator.random(contributions.shape) < 0.5
    return Setting(
        law=law,
        bound=float(10 ** generator.uniform(-1.5, 0.7)),
        levels=int(generator.integers(2, 9)),
        size=size,
        rate=float(generator.choice([0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9])),
        order=order,
        records=np.where(at_the_end, size * np.sign(contributions), contributions),
    )


def known_batch(setting: Setting, release: SampledDivergence) -> Iterator[tuple[str, float, float]]:
    """(direction, exact cost, bound) where it is known who is in the batch: half of the records."""
    theta = setting.records[::2].sum(axis=0)
    bounds = release.divergence(release.log_excess(torch.tensor(theta))).squeeze(-1).numpy()
    for bound, inside in zip(bounds, (0.0, 1.0), strict=True):  # added, removed
        costs = [setting.costs(theta[None] - inside * v, np.zeros(1), v) for v in setting.moves()]
        yield from zip(("forward", "backward"), np.max(costs, axis=0), bound, strict=True)


def whole_dataset(setting: Setting, release: SampledDivergence) -> Iterator[tuple[str, float, float]]:
    """The same for the release itself, against the average over all batches."""
    thetas, chances = setting.batches(setting.records)
    added, removed = torch.stack([release.log_excess(torch.tensor(theta)) for theta in thetas], dim=1)
    kinds = torch.stack((added, removed, torch.maximum(added, removed)), dim=1)
    averages = torch.logsumexp(kinds + torch.tensor(chances)[:, None, None, None], dim=0)
    bound = release.divergence(release.either_record(*averages)).squeeze(-1).numpy()
    costs = [setting.costs(thetas, chances, v) for v in setting.moves()]
    for i, record in enumerate(setting.records):
        costs.append(setting.costs(*setting.batches(np.delete(setting.records, i, axis=0)), record))
    yield from zip(("forward", "backward"), np.max(costs, axis=0), bound, strict=True)


COMPARISONS = {"known batch": known_batch, "all batches": whole_dataset}


def ratios(
    count: int, seed: int, comparison: str, smallest: float = 1e-3, records: int = 5
) -> Iterator[tuple[Setting, str, float]]:
    """(setting, direction, bound over exact cost) of random settings."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        setting = random_setting(generator, smallest, records)
        release = setting.release([setting.order])
        for way, exact, bound in COMPARISONS[comparison](setting, release):
            if exact > 1e-280:  # a law may return 0 for less
                yield setting, way, bound / exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smallest", type=float, default=1e-3, help="smallest move of a record / sigma")
    arguments = parser.parse_args()
    heads = ("count", "least", "median", "75 %", "95 %", "99 %", "most")
    print(f"{'bound / exact cost':26s}" + "".join(f"{head:>10s}" for head in heads))
    for comparison in COMPARISONS:
        found = list(ratios(arguments.settings, arguments.seed, comparison, arguments.smallest))
        rows = {"": found}
        rows |= {way: [row for row in found if row[1] == way] for way in ("forward", "backward")}
        rows |= {law: [row for row in found if row[0].law == law] for law in LAWS}
        for name, row in rows.items():
            values = [ratio for _, _, ratio in row]
            quantiles = np.quantile(values, [0.5, 0.75, 0.95, 0.99, 1])
            shown = "".join(f"{value:10.4g}" for value in quantiles)
            print(f"{comparison:12s} {name:13s}{len(values):10d}{min(values):10.6f}{shown}", flush=True)


if __name__ == "__main__":
    main()
