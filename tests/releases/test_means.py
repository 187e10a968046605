"""Means by group: the numbers, their intervals and their cost, the words, and what is refused."""

import math
import re
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.releases.account import Budget, ReleaseAccount
from ringfence.releases.means import MeanPlan, NoisyMeans, with_private_sizes, with_public_sizes

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
    means = rf.release_means(PEOPLE, **LIMITS, epsilon=1.0)
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


def test_public_sizes_keep_means_within_the_limits_and_say_what_is_protected() -> None:
    sizes = {"n": 1200, "s": 790, "w": 10}
    means = rf.release_means(PEOPLE, **LIMITS, sizes=sizes, epsilon=0.05, delta=1e-6)
    assert means.account.epsilon <= 0.05
    assert means.values["people"].tolist() == [1200, 790, 10, 0]
    assert means.values["suppressed"].tolist() == [False, False, False, True]
    assert bool(means.values["mean"][:3].between(0, 40).all())
    assert "whose values are replaced by any others" in means.statement.promises[0]
    assert "published as it is, without noise" in means.statement.leaves_out[2]
    listed = rf.release_means(PEOPLE, **LIMITS, sizes=[1200, 790, 10, 0], sigma=0.13)
    assert listed.values["mean"].tolist()[:2] == pytest.approx([20, (10 * 390) / 790], abs=0.05)


def test_the_sentence_to_print() -> None:
    means = rf.release_means(polars.from_pandas(PEOPLE), **LIMITS, epsilon=1.0, suppress_below=50)
    assert means.statement.public == (
        "These means are protected by differential privacy (epsilon 1, delta 1e-06) for each person (each "
        "row is taken as one person): values of income were clamped to 0 to 40, random noise was added, and "
        "groups with a noisy size below 50 are not shown (the noise decides: one person alone is a "
        "group that is shown with a chance of at most 0.001 %); the intervals allow for the "
        "noise, with a coverage of 0.95."
    )
    assert isinstance(means.values, polars.DataFrame)


def test_means_have_no_negative_counts_to_set_to_0() -> None:
    with pytest.raises(TypeError, match="non_negative is for counts, got 'Means of income'"):
        rf.release_means(PEOPLE, **LIMITS, epsilon=1.0).non_negative()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lower": 5, "upper": 5}, "lower must be below upper, got 5 and 5"),
        ({"upper": math.inf}, "upper must be finite"),
        ({"lower": math.nan}, "lower must not be NaN"),
        ({"of": "wage"}, "of names the column 'wage', which the table lacks"),
        ({"of": "region"}, "column 'region' has the value 'n', where a number is needed"),
        ({"suppress_below": -1}, "suppress_below must be at least 0"),
        ({"coverage": 1.0}, "coverage must be"),
        ({"sizes": {"n": 3}}, r"sizes says 3 people in group \('n',\), and the data has 1200"),
        ({"sizes": {"x": 3}}, r"sizes has the group \('x',\), which the domain lacks"),
        ({"sizes": [1]}, "sizes must have 4 numbers, one per group, got 1"),
        ({"sizes": [1200, 790, 10, 0], "suppress_below": 5000}, "sizes must have a group of at least 5000"),
        ({"epsilon": None}, "epsilon or sigma must be given"),
    ],
)
def test_bad_input_is_named_in_one_line(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint) as raised:
        rf.release_means(PEOPLE, **{**LIMITS, "epsilon": 1.0, **change})
    assert "\n" not in str(raised.value)


def test_nan_is_refused_by_name() -> None:
    holes = PEOPLE.assign(income=PEOPLE["income"].where(PEOPLE.index != 3, np.nan))
    with pytest.raises(ValueError, match="column 'income' has a missing value"):
        rf.release_means(holes, **LIMITS, epsilon=1.0)


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
    assert "groups of fewer than" not in table.statement.public


@pytest.mark.parametrize("name", ["mean", "low", "high", "people", "suppressed"])
def test_a_column_is_not_overwritten_by_what_is_released(name: str) -> None:
    frame = pandas.DataFrame({name: [1], "x": [1.0]})
    with pytest.raises(ValueError, match=f"by must not name a column '{name}'"):
        rf.release_means(frame, "x", name, domain={name: [1]}, lower=0, upper=1, sigma=1.0)


GROUPS = 4000
DEVIATIONS = NormalDist().inv_cdf(0.95)  # intervals of 90 %


def made(
    sizes: Tensor, sums: Tensor, threshold: int, at_most: int = 1, *, public: bool = False
) -> tuple[ReleaseAccount, NoisyMeans]:
    plan = MeanPlan.of(5.0, threshold, at_most, DEVIATIONS, public_sizes=public)
    budget = Budget.checked(None, 1e-6, sigma=5.0, seed=11)
    return (with_public_sizes if public else with_private_sizes)(sizes, sums, plan, budget)


def covered(means: NoisyMeans, truth: float) -> Tensor:
    return (means.low <= truth) & (truth <= means.high)


@pytest.mark.parametrize(("truth", "size"), [(0.6, 60), (0.0, 400), (-0.95, 60)])
def test_intervals_cover_as_often_as_they_say(truth: float, size: int) -> None:
    """Groups of the same mean; the noise of their sizes is 8.7, so 60 people are seven deviations."""
    sizes = torch.full((GROUPS,), float(size), dtype=torch.float64)
    slack = 4 * math.sqrt(0.09 / GROUPS)
    for public in (False, True):
        _, means = made(sizes, truth * sizes, 20, public=public)
        assert not bool(means.mean.isnan().any())
        rate = float(covered(means, truth).double().mean())
        assert 0.9 - slack < rate, public
        if public or size == 400:
            assert (
                rate < 0.9 + slack or abs(truth) > 0.9
            )  # beyond a limit an interval ends there: it may cover more


def test_a_group_that_is_shown_misses_no_more_often_than_promised() -> None:
    """Sizes near the threshold, where being shown and being covered go together."""
    sizes = torch.full((GROUPS,), 35.0, dtype=torch.float64)
    _, means = made(sizes, 0.5 * sizes, 35)
    shown = ~means.mean.isnan()
    assert 0.45 < float(shown.double().mean()) < 0.57
    assert min(people for people in means.people if people is not None) == 35  # below 35 alone is hidden
    assert float((shown & ~covered(means, 0.5)).double().mean()) < 0.1


def test_the_two_releases_cost_what_one_of_length_1_costs() -> None:
    """Also where a person is in three groups."""
    nobody, nine = torch.zeros(5).double(), torch.full((5,), 9.0).double()
    for account, _ in (made(nobody, nobody, 20, at_most=3), made(nine, nobody, 1, at_most=3, public=True)):
        assert account.epsilon == pytest.approx(gaussian_epsilon(1 / 5, 1e-6), rel=1e-9)


def test_a_bounded_support_spares_people_whose_mean_is_far_from_its_limits_nothing_and_at_them_much() -> None:
    """Public sizes: where everybody is at a limit, the noisy sum is often clamped there."""
    ten = torch.full((1,), 10.0, dtype=torch.float64)
    inner, _ = made(1000 * ten, 0 * ten, 1, public=True)
    edge, _ = made(ten, ten, 1, public=True)
    assert edge.per_instance.epsilon < 0.98 * inner.per_instance.epsilon


def test_lost_sizes_have_the_widest_interval() -> None:
    sizes = torch.full((50,), 2.0, dtype=torch.float64)
    _, means = made(sizes, sizes, 0)
    lost = ~means.mean.isnan() & (torch.tensor([one or 0 for one in means.people]) < 10)
    assert bool(lost.any())
    assert set(means.low[lost].tolist()) == {-1.0}
    assert set(means.high[lost].tolist()) == {1.0}
