"""Means by group: the numbers, their intervals and their cost, the words, and what is refused."""

import itertools
import math
import re
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch

import ringfence as rf
from ringfence.noise import Noise
from ringfence.releases.budget import Budget, LaplaceNoise
from ringfence.releases.cells import UNITS
from ringfence.releases.means import LaplaceMeans

PEOPLE = pandas.DataFrame(
    {
        "id": [*range(1000), *range(1000)],  # everybody has two rows
        "region": ["n"] * 600 + ["s"] * 390 + ["w"] * 10 + ["n"] * 600 + ["s"] * 400,
        "income": [10.0] * 1000 + [30.0] * 600 + [-5.0] * 400,
    }
)
REGIONS = {"region": ["n", "s", "w", "e"]}
LIMITS: dict[str, Any] = {"of": "income", "by": "region", "domain": REGIONS, "lower": 0, "upper": 40}


def test_persons_count_once_with_the_mean_of_their_clamped_values() -> None:
    """Little noise: n has 20, s has (10 + 0) / 2 from 390 people and 0 from ten, w has 10."""
    table = rf.release_means(PEOPLE, **LIMITS, person="id", at_most=2, sigma=0.13).values
    assert table["people"].tolist()[:3] == pytest.approx([600, 400, 10], abs=2)
    assert table["mean"].tolist()[:2] == pytest.approx([20, 5 * 390 / 400], abs=0.3)
    assert table["mean"][2] == pytest.approx(10, abs=6)
    assert table["suppressed"].tolist() == [False, False, False, True]
    assert math.isnan(table["mean"][3])


def test_intervals_and_errors_are_in_the_units_of_the_column() -> None:
    means = rf.release_means(PEOPLE, **LIMITS, epsilon=1.0, noise="gaussian", suppress_below=100)
    table = means.values
    shown = table[~table["suppressed"]]
    assert bool(((shown["low"] <= shown["mean"]) & (shown["mean"] <= shown["high"])).all())
    assert bool(((shown["low"] >= 0) & (shown["high"] <= 40)).all())
    error = means.errors["standard_error"]
    half = (shown["high"] - shown["low"]) / 2
    assert (half / error[: len(half)]).tolist() == pytest.approx([1.96] * len(half), rel=0.02)
    wider = rf.release_means(PEOPLE, **LIMITS, epsilon=1.0, coverage=0.999, seed=2)
    narrower = rf.release_means(PEOPLE, **LIMITS, epsilon=1.0, coverage=0.5, seed=2)
    assert wider.values["high"][1] > narrower.values["high"][1]


def test_the_sentence_to_print() -> None:
    means = rf.release_means(polars.from_pandas(PEOPLE), **LIMITS, epsilon=1.0, suppress_below=50)
    assert means.statement.public == (
        "These means are protected by differential privacy (epsilon 1, delta 1e-06) for each person (each "
        "row is taken as one person): values of income were clamped to 0 to 40, Laplace noise was added, and "
        "groups with a noisy size below 50 are not shown (the noise decides: one person alone is a "
        "group that is shown with a chance of at most 0.001 %); the intervals have a coverage of 0.95."
    )
    assert isinstance(means.values, polars.DataFrame)


def test_how_often_one_person_alone_is_shown_is_said() -> None:
    alone = pandas.DataFrame({"group": range(2000), "x": 1.0})
    table = rf.release_means(
        alone, "x", "group", domain={"group": range(2000)}, lower=0, upper=1, sigma=4.0, suppress_below=10
    )
    share = np.mean([value is not None for value in table.columns["mean"]])
    said = re.search(r"shown with a chance of at most ([\d.]+) %", table.statement.public)
    assert said is not None
    assert float(said[1]) == pytest.approx(100 * share, rel=0.3)
    assert float(said[1]) == pytest.approx(11, abs=0.1)


def groups(
    truth: float, size: int, below: int, groups: int = 3000, noise: str = "auto", coverage: float = 0.9
) -> rf.Release:
    """Intervals of 90 % of groups with the same mean; the noise of their sizes is 8.7, or 7 with Laplace."""
    frame = pandas.DataFrame({"group": np.repeat(np.arange(groups), size), "x": truth})
    return rf.release_means(
        frame,
        "x",
        "group",
        domain={"group": range(groups)},
        lower=-1,
        upper=1,
        sigma=5.0,
        suppress_below=below,
        noise=noise,
        coverage=coverage,
        seed=11,
    )


def covered(table: pandas.DataFrame, truth: float) -> pandas.Series:
    return (table["low"] <= truth) & (truth <= table["high"])


@pytest.mark.parametrize(("truth", "size"), [(0.6, 60), (0.0, 150), (-0.95, 60)])
def test_intervals_cover_as_often_as_they_say(truth: float, size: int) -> None:
    """60 people are seven deviations of the noise: all are shown."""
    table = groups(truth, size, below=20).values
    rate, slack = covered(table, truth).mean(), 4 * math.sqrt(0.09 / len(table))
    assert not table["suppressed"].any()
    assert 0.9 - slack < rate
    if truth == 0:  # beyond a limit an interval ends there: it may cover more
        assert rate < 0.9 + slack


@pytest.mark.parametrize(("truth", "coverage"), [(0.6, 0.9), (0.0, 0.9), (0.0, 0.5), (-0.9, 0.99)])
def test_intervals_cover_with_laplace_noise(truth: float, coverage: float) -> None:
    """How heavy the tails are depends on the mean: the widest of all laws counts, at 1/2 the Gaussian."""
    table = groups(truth, 150, below=20, noise="laplace", coverage=coverage).values
    rate, slack = covered(table, truth).mean(), 4 * math.sqrt(coverage * (1 - coverage) / len(table))
    assert coverage - slack < rate < coverage + slack + (0.07 if coverage == 0.5 else 0.03)


def test_one_person_moves_two_numbers_by_one_altogether() -> None:
    """With Laplace noise: what is drawn from, in units of 1 / (2 UNITS), for a person added to a group."""
    drawn: list[torch.Tensor] = []

    class Recorder(Budget):
        def release(self, law: rf.Mechanism, theta: torch.Tensor, what: str, step: Any = None) -> Any:
            assert float(law.scale) == pytest.approx(3.0 * 2 * UNITS, rel=1e-12)
            drawn.append(theta)
            return theta

    budget = Recorder(1.0, 1e-6, 1.0, Noise(1), None)
    people, units = torch.tensor([4, 5, 5]), torch.tensor([77, 77 + UNITS, 77 - UNITS // 3])
    size, total = LaplaceMeans(3.0).draw(budget, people, units)
    moves = torch.stack(drawn)[:, 1:] - torch.stack(drawn)[:, :1]
    assert moves.abs().sum(dim=0).tolist() == [2 * UNITS, 2 * UNITS]
    assert size.tolist() == [4.0, 5.0, 5.0]
    assert (total * UNITS).tolist() == units.tolist()


@pytest.mark.parametrize("coverage", [0.3, 0.9, 0.91, 0.999])
def test_no_sum_of_laplace_variables_has_a_larger_quantile(coverage: float) -> None:
    """Sums of 2 to 40 with weights of any size: the tail by the characteristic function (Gil-Pelaez 1951)."""
    deviations, rng = LaplaceNoise.deviations(coverage), np.random.default_rng(3)
    t = (np.arange(1 << 14) + 0.5) * 0.02
    for terms, spread in itertools.product((2, 3, 10, 40), (0.1, 1.0, 10.0, 1e3)):
        squares = rng.dirichlet(np.full(terms, spread))
        transform = np.prod(1 / (1 + np.outer(squares, t * t / 2)), axis=0)
        tail = 1 - (np.sin(t * deviations) * transform / t).sum() * 0.02 * 2 / math.pi
        assert tail <= 1 - coverage + 1e-6


def test_a_group_that_is_shown_misses_no_more_often_than_promised() -> None:
    """Sizes near the threshold, where being shown and being covered go together."""
    table = groups(0.5, 35, below=35).values
    shown = ~table["suppressed"]
    assert 0.45 < shown.mean() < 0.57
    assert table["people"].min() == 35  # below 35 alone is hidden
    assert (shown & ~covered(table, 0.5)).mean() < 0.1


def test_lost_sizes_have_the_widest_interval() -> None:
    table = groups(1.0, 2, below=0, groups=50).values
    lost = table[table["people"] < 10]
    assert len(lost) > 9
    assert set(lost["low"]) == {-1.0}
    assert set(lost["high"]) == {1.0}
