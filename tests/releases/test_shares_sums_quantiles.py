"""Shares, sums, quantiles and margins: what they tell, how often their intervals miss, what they cost."""

import itertools
import math
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import ringfence as rf
from ringfence.accounting.decisions import loss_of_any
from ringfence.mechanisms.winner import GumbelWinner
from ringfence.releases.budget import GaussianNoise, LaplaceNoise, errors_of_sum
from ringfence.releases.counts import non_negative, with_totals
from ringfence.releases.quantiles import Rank, level_range

MANY = 1500
GROUPS = pandas.DataFrame({"g": np.repeat(np.arange(MANY), 30), "x": np.tile(np.arange(30.0), MANY)})
BY: dict[str, Any] = {"by": "g", "domain": {"g": range(MANY)}}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("job", ["shares", "sums", "counts"])
def test_an_interval_misses_as_seldom_as_it_says_and_hardly_more_seldom(job: str, noise: Any) -> None:
    epsilon = 0.3 if job == "counts" else 2.0  # at 2 the interval of a count is a step or two
    how: dict[str, Any] = {"epsilon": epsilon, "noise": noise, "coverage": 0.8, "seed": 3, **BY}
    if job == "counts":
        made, truth = rf.release_counts(GROUPS, **how), 30.0
        table = made.error_columns
    elif job == "sums":
        made, truth = rf.release_sums(GROUPS, "x", lower=0, upper=20, **how), 19 * 10.0 + 20 * 10
        table = made.columns
    else:
        coded = GROUPS.assign(x=(GROUPS["x"] < 12).astype(int) + (GROUPS["x"] < 3))
        made, truth = rf.release_shares(coded, ["x"], answers=[0, 1, 2], suppress_below=1, **how), 0.6
        assert "answers below 1 are not shown" in made.statement.public
        table = {name: values[::3] for name, values in made.columns.items()}
    low, high = (
        np.array([math.nan if end is None else end for end in table[end]]) for end in ("low", "high")
    )
    missed = float(((low > truth) | (high < truth)).mean())
    assert 0.1 < missed < 0.2 + 3 * math.sqrt(0.16 / MANY)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_quantiles_are_found_with_intervals_that_hold_them(level: float) -> None:
    values = np.repeat(np.arange(100), 40)
    frame = pandas.DataFrame({"g": np.tile([0, 1], 4000)[: len(values)], "x": values})
    for seed in range(3):
        how: dict[str, Any] = {"domain": {"g": [0, 1]}, "quantiles": level, "epsilon": 1.0, "seed": seed}
        made = rf.release_quantiles(frame, "x", "g", candidates=range(100), **how)
        for value, low, high in zip(*(made.columns[name] for name in ("value", "low", "high")), strict=True):
            assert low <= 100 * level <= high
            assert low <= value <= high
            assert abs(value - 100 * level) < 5
            assert high - low < 40
    empty = rf.release_quantiles(frame[:3], "x", candidates=range(100), epsilon=0.1, coverage=1 - 1e-6)
    assert empty.columns["suppressed"] == [True]
    assert empty.account.per_instance.epsilon <= empty.account.epsilon <= 0.1
    alone = rf.release_quantiles(frame, "x", candidates=range(100), epsilon=1.0, coverage=None)
    assert "suppressed" not in alone.columns
    assert alone.statement.public.endswith("or more with a chance of at most 5 %.")


@pytest.mark.parametrize("level", [0.5, 0.1, 0.97])
@pytest.mark.parametrize("shift", [0.0, -6.0, 9.5])
def test_one_person_moves_no_utility_by_more_than_half_the_range(level: float, shift: float) -> None:
    """And no log ratio by more than 1 / scale, for any of the datasets."""
    people = torch.randint(0, 5, (200, 7), generator=torch.Generator().manual_seed(1)).double()
    target, law = Rank(level, shift), GumbelWinner(3.0)
    moves = target.moves(people)
    assert float(moves.abs().max()) <= level_range(level) / 2
    assert float(moves.abs().max()) > 0.9 * level_range(level) / 2
    utility = target.utility(people)
    assert bool((utility.max(dim=-1).values == 0).all())
    for place in range(7):
        there = people[:, place] > 0
        fewer = people[there].clone()
        fewer[:, place] -= 1
        assert torch.equal(moves[there, 7 + place], target.utility(fewer) - utility[there])
    scaled = target.law(law).pair(utility.unsqueeze(1), moves)[1]
    assert float(scaled.abs().max()) <= 1 / 3.0 + 1e-9


def test_every_small_group_and_neighbour_is_within_the_account_of_quantiles() -> None:
    """The exact chances of three draws: the range of their log ratios, divergences, and delta."""
    people = torch.cartesian_prod(*[torch.arange(4.0, dtype=torch.float64)] * 4)
    more, scale = people.unsqueeze(1) + torch.eye(4), 2.0
    promised = loss_of_any(GumbelWinner(scale), 3, "added", steps=3)
    for level, far in itertools.product((0.5, 0.1, 0.9), (0.0, 1.75, 50.0)):
        own, other = torch.zeros(256, 1, 1).double(), torch.zeros(256, 4, 1).double()
        for target in (Rank(level, side * far) for side in (0, -1, 1)):
            log_p, log_q = (
                torch.log_softmax(target.utility(counts) / (scale * target.range), dim=-1)
                for counts in (people.unsqueeze(1), more)
            )
            ratio = torch.nn.functional.pad(log_p - log_q, (0, 1))
            assert float((ratio.amax(dim=-1) - ratio.amin(dim=-1)).max()) <= 1 / scale + 1e-12
            for order in (1.01, 2.0, 64.0):
                for log_mass, loss in ((log_p, log_p - log_q), (log_q, log_q - log_p)):
                    moment = torch.logsumexp(log_mass + (order - 1) * loss, dim=-1)
                    assert float(moment.max()) <= (order - 1) * order / (8 * scale**2) + 1e-12
            own = (own.unsqueeze(-1) + log_p.unsqueeze(-2)).flatten(2)
            other = (other.unsqueeze(-1) + log_q.unsqueeze(-2)).flatten(2)
        bound = math.exp(promised.epsilon(0.01))
        for first, second in ((own.exp(), other.exp()), (other.exp(), own.exp())):
            assert float((first - bound * second).clamp(min=0).sum(dim=-1).max()) <= 0.01


def test_the_cost_of_quantiles_is_that_of_the_worst_person_by_hand() -> None:
    frame = pandas.DataFrame({"x": [1] * 5 + [2] * 9 + [3] * 4})
    made = rf.release_quantiles(frame, "x", candidates=[1, 2, 3], epsilon=1.0, delta=1e-9, coverage=None)
    scale = eval(dict(made.settings)["law"], {"GumbelWinner": GumbelWinner}).scale

    def chances(counts: list[int]) -> torch.Tensor:
        return torch.softmax(Rank(0.5, 0.0).utility(torch.tensor(counts).double()) / scale, dim=-1)

    own = chances([5, 9, 4])
    others = [chances([5 + a, 9 + b, 4 + c]) for a, b, c in [(1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    others += [chances([5 - a, 9 - b, 4 - c]) for a, b, c in [(1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    worst = max(float((own.log() - other.log()).abs().max()) for other in others)
    assert made.account.per_instance.epsilon == pytest.approx(worst, rel=1e-3)
    assert worst < made.account.epsilon <= 1.0


def test_margins_agree_with_the_cells_and_are_said_to() -> None:
    frame = pandas.DataFrame({"a": ["x", "y"] * 40, "b": ["u"] * 79 + ["w"]})
    how: dict[str, Any] = {"domain": {"a": ["x", "y", "z"], "b": ["u", "v", "w"]}, "epsilon": 1.0}
    for threshold in (None, 30):
        made = rf.release_counts(frame, ["a", "b"], margins=True, suppress_below=threshold, **how)
        rows = list(zip(made.columns["a"], made.columns["b"], made.columns["count"], strict=True))
        assert len(rows) == 16
        counts = {(a, b): count for a, b, count in rows}
        assert (counts["total", "v"] is None) == (counts["z", "v"] is None) == (threshold is not None)
        if threshold is None:
            cells = [count for a, b, count in rows if "total" not in (a, b)]
            assert min(cells) >= 0
            assert counts["total", "total"] == sum(cells) == sum(counts[a, "total"] for a in "xyz")
            assert counts["x", "total"] == sum(counts["x", b] for b in "uvw")
        assert abs(counts["total", "total"] - 80) < 60
        assert "nearest whole numbers from 0 on" in made.statement.public
        assert made.account.epsilon <= 1.0
    with pytest.raises(ValueError, match="column 'a' must not have the value 'total'"):
        with_totals({"a": ["total"]})


@pytest.mark.parametrize("noisy", [[5, -3, 4, 0], [-2, -2], [7, 0, 1], [1, -1, 1], [100, -99, 3, 3, 3], []])
def test_non_negative_numbers_are_the_nearest_with_their_sum(noisy: list[int]) -> None:
    found = non_negative(noisy)
    assert sum(found) == max(0, sum(noisy))
    assert min(found, default=0) >= 0
    for give in range(len(found)):
        for take in range(len(found)):
            if found[take] and give != take:
                other = [n + (at == give) - (at == take) for at, n in enumerate(found)]
                assert math.dist(other, noisy) >= math.dist(found, noisy) - 1e-9 or sum(noisy) <= 0


@pytest.mark.parametrize(
    "noise", [LaplaceNoise(0.7), LaplaceNoise(20.0), GaussianNoise(0.8), GaussianNoise(9)]
)
@pytest.mark.parametrize("numbers", [1, 2, 50])
def test_the_interval_of_a_total(noise: Any, numbers: int) -> None:
    generator = np.random.default_rng(4)
    size = (40_000, numbers)
    if noise.name == "Laplace":
        drawn = generator.geometric(1 - noise.ratio, size) - generator.geometric(1 - noise.ratio, size)
    else:
        drawn = generator.normal(0, noise.deviation, size).round()
    error, far = errors_of_sum(noise, 0.9, numbers)
    assert drawn.sum(axis=1).std() == pytest.approx(error, rel=0.02)
    missed = float((abs(drawn.sum(axis=1)) > far).mean())
    assert missed < 0.105
    assert float((abs(drawn.sum(axis=1)) > far - 1).mean()) > 0.095


def test_dates_are_binned_beside_missing_values() -> None:
    frame = pandas.DataFrame({"born": pandas.to_datetime(["1950-05-01", "1990-01-01", None, "2009-12-31"])})
    edges = {"born": ["1950-01-01", "1980-01-01", "2010-01-01"]}
    for missing, wanted in (("drop", [1, 2]), ("category", [1, 2, 1])):
        made = rf.release_counts(frame, "born", bins=edges, missing=missing, sigma=1.0)
        assert made.account.details["cell_values"] == wanted
        assert made.columns["born"][0] == "1950-01-01 to before 1980-01-01"
    with pytest.raises(ValueError, match="column 'born' has a missing value"):
        rf.release_counts(frame, "born", bins=edges, sigma=1.0)


def test_several_columns_share_a_budget_and_many_questions_suggest_shares() -> None:
    frame = pandas.DataFrame({"a": [1.0] * 5000, "b": [30.0] * 5000})
    for noise in ("gaussian", "laplace"):
        made = rf.release_means(frame, ["a", "b"], lower=0, upper=[2, 40], epsilon=1.0, noise=noise)
        assert made.columns["column"] == ["a", "b"]
        assert made.columns["mean"] == pytest.approx([1, 30], rel=0.05)
        assert made.account.epsilon <= 1.0
    answers = np.tile([[1], [-1], [1]], (300, 10))
    for questions, said in ((answers, True), (answers[:, :2], False)):
        told = rf.release_votes(questions, epsilon=1.0).private
        assert any("by release_shares with the same budget" in sentence for sentence in told) == said
