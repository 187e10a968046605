"""What all jobs have in common: target, noise, account, refusals."""

import gc
import math
import pickle
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import ringfence as rf
from ringfence.accounting import decisions
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.noise import Noise
from ringfence.releases.budget import Budget

PEOPLE = pandas.DataFrame(
    {"id": range(300), "region": ["n"] * 200 + ["s"] * 99 + ["w"], "age": [20, 40, 70] * 100}
)
REGIONS: dict[str, Any] = {"by": "region", "domain": {"region": ["n", "s", "w", "e"]}}
AGES: dict[str, Any] = {"of": "age", "lower": 0, "upper": 100, **REGIONS}
ANSWERS = pandas.DataFrame(
    {"trees": [1] * 60 + [-1] * 20, "cars": [-1] * 50 + [1] * 10 + [None] * 20, "trams": [1, -1] * 40}
)
COUNTS = pandas.DataFrame({"cat": [240, 3, 90], "dog": [9, 235, 80], "fox": [1, 12, 0]})
PETS = {"candidates": ["cat", "dog", "fox"]}
BALLOTS = pandas.DataFrame({"q1": ["cat"] * 40 + ["dog"] * 8 + [None] * 3, "q2": ["dog"] * 50 + ["cat"]})

TEACHERS = COUNTS.assign(fox=[1, 12, 80])


def labels(votes: Any, **arguments: Any) -> rf.Release:
    """Labels of one call, as the release of a job."""
    planned = None if arguments.get("epsilon") is None else len(votes)
    pate = rf.Pate(queries=planned, adaptive=False, **arguments)
    pate.label(votes)
    return pate.release()


Job = Callable[..., rf.Release]
JOBS: dict[str, tuple[Job, Any, dict[str, Any]]] = {
    "counts": (rf.release_counts, PEOPLE, REGIONS),
    "means": (rf.release_means, PEOPLE, AGES),
    "sums": (rf.release_sums, PEOPLE, AGES),
    "shares": (rf.release_shares, ANSWERS, {"questions": ["trees", "cars", "trams"], "answers": [1, -1]}),
    "quantiles": (rf.release_quantiles, PEOPLE, {"of": "age", "candidates": range(0, 101, 5), **REGIONS}),
    "votes": (rf.release_votes, ANSWERS, {}),
    "winners": (rf.release_winners, COUNTS, {}),
    "labels": (labels, TEACHERS, {}),
}


def sigma_of(made: rf.Release) -> float:
    """The noise that the report names."""
    law = dict(made.settings)["law"]
    if "Means" in law:
        return float(re.findall(r"size=([\d.]+)", law)[0]) / math.sqrt(3)
    return float(re.findall(r"(?:sigma|deviation)=([\d.]+)", law)[0])


@pytest.mark.parametrize(
    ("name", "arguments", "square"),  # of what one person moves
    [
        ("counts", {"noise": "gaussian"}, 1),
        ("counts", {"noise": "gaussian", "suppress_below": 20, "person": "id", "at_most": 3}, 3),
        ("means", {"noise": "gaussian"}, 1),
        ("means", {"noise": "gaussian", "person": "id", "at_most": 2}, 2),
        ("sums", {"noise": "gaussian"}, 1),
        ("sums", {"noise": "gaussian", "of": ["age", "id"], "person": "id", "at_most": 2}, 4),
        ("shares", {"noise": "gaussian"}, 3),
        ("votes", {"noise": "gaussian"}, 3),
        ("votes", {"noise": "gaussian", "at_most": 2}, 2),
        ("votes", {"noise": "gaussian", "neighbours": "replaced"}, 12),
        ("winners", {"noise": "gaussian"}, 3 * 2),
        ("winners", {"noise": "gaussian", "neighbours": "added"}, 3),
        ("winners", {"noise": "gaussian", "neighbours": "added", "at_most": 2}, 2),
        ("winners", {"confident_above": 100}, 3 * 2.25),
        ("winners", {"confident_above": 100, "neighbours": "added", "at_most": 1}, 1.25),
        ("winners", {"confident_above": 100, "at_most": 1}, 2.5),  # leaves one query and joins another
        ("winners", {"noise": "gaussian", "at_most": 2}, 4),
        ("votes", {"noise": "gaussian", "at_most": 2, "neighbours": "replaced"}, 8),
        ("labels", {}, 3 * 2),
        ("labels", {"threshold": 100}, 3 * 2.25),
    ],
)
def test_a_target_is_met_for_every_dataset_and_hardly_missed(
    name: str, arguments: dict[str, Any], square: float
) -> None:
    job, data, own = JOBS[name]
    made = job(data, **{**own, **arguments}, epsilon=0.7, delta=1e-5)
    assert 0.6999 < made.account.epsilon <= 0.7
    exact = gaussian_epsilon(math.sqrt(square) / sigma_of(made), 1e-5)
    if name == "votes" and (arguments.get("neighbours") != "replaced" or "at_most" not in arguments):
        assert 1.01 * made.account.epsilon < exact  # the Gaussian's, which would need more noise
    else:
        assert made.account.epsilon == pytest.approx(exact, rel=1e-4)
    assert made.account.guarantee.epsilon == pytest.approx(made.account.epsilon, rel=1e-12)
    assert made.account.per_instance.epsilon <= made.account.epsilon


# Noise of means, shares and sums costs everybody the same.
@pytest.mark.parametrize("name", sorted(JOBS.keys() - {"means", "shares", "sums"}))
def test_a_release_computes_what_it_publishes_and_the_account_when_it_is_asked_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, work in ((PerInstanceAccountant, "step"), (decisions, "rdp_of_pairs")):
        monkeypatch.setattr(owner, work, lambda *_, **__: pytest.fail("accounted"))
    job, data, own = JOBS[name]
    made = job(data, **own, epsilon=1.0)
    assert made.account.epsilon <= 1.0
    assert made.statement.public in str(made)
    assert made.chart().panels
    with pytest.raises(pytest.fail.Exception, match="accounted"):
        _ = made.account.per_instance
    with pytest.raises(pytest.fail.Exception, match="accounted"), rf.Ledger(neighbours="replaced") as ledger:
        job(data, **own, epsilon=1.0, ledger=ledger)


@pytest.mark.parametrize("epsilon", [0.01, 20.0])
def test_the_noise_meets_the_target_and_a_little_less_does_not(epsilon: float) -> None:
    sigma = Budget.checked(epsilon, 1e-7).multiplier
    assert gaussian_epsilon(1 / sigma, 1e-7) <= epsilon < gaussian_epsilon(1.002 / sigma, 1e-7)


@pytest.mark.parametrize(
    ("job", "data"),
    [(rf.release_counts, np.full(200, 50)), (rf.release_votes, np.tile([[-1], [1]], (3, 60)))],
)
def test_two_releases_with_one_source_of_noise_share_none_of_it(job: Job, data: Any) -> None:
    """Otherwise the difference of last year's and this year's table would be exact."""
    noise, next_year = Noise(), data.copy()
    first, again = (job(data, sigma=8.0, seed=noise).values for _ in range(2))
    assert np.array_equal(first, again)
    next_year[0] += 1
    second = job(next_year, sigma=8.0, seed=noise).values
    assert (second - first != next_year - data if data.ndim == 1 else second != first).any()
    other = job(data, sigma=16.0, seed=noise).values  # the noise of 8, twice, would tell
    assert (abs(other - 50 - 2 * (first - 50)) > 2 if data.ndim == 1 else other != first).any()


def test_the_smallest_proof_is_the_per_instance_number() -> None:
    account = rf.release_counts(np.array([3, 80]), sigma=4.0, suppress_below=30).account
    assert account.per_instance.proof == "the worst cell, exactly"
    assert account.per_instance.epsilon < account.per_instance.renyi_epsilon
    assert "for the one release it is about" in account.per_instance.statement


@pytest.mark.parametrize(
    "job",
    [
        lambda data: rf.release_counts(data, sigma=4.0),
        lambda data: rf.release_counts(data, 0, domain={0: [0, 1]}, sigma=4.0),
        lambda data: rf.release_means(data, 1, lower=0, upper=1, sigma=4.0),
        lambda data: rf.release_sums(data, 1, lower=0, upper=1, sigma=4.0),
        lambda data: rf.release_shares(data, [1], answers=[0, 1], sigma=4.0),
        lambda data: rf.release_quantiles(data, 1, candidates=[0, 1, 2], epsilon=1.0),
        lambda data: rf.release_votes(data, sigma=4.0),
        lambda data: rf.release_winners(data, sigma=4.0),
        lambda data: labels(data, sigma=4.0),
    ],
)
def test_a_release_keeps_no_data_but_its_account(job: Any) -> None:
    data = np.ones((5, 2))
    kept = weakref.ref(data)
    table = pickle.loads(pickle.dumps(made := job(data)))
    assert table.columns == made.columns
    assert table.account.per_instance == made.account.per_instance
    del data
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", ["count", "suppressed", "standard_error", "mean", "low", "high", "people"])
def test_a_column_is_not_overwritten_by_what_is_released(name: str) -> None:
    frame = pandas.DataFrame({name: [1], "x": [1.0]})
    counts = name in ("count", "suppressed", "standard_error")
    job: Job = rf.release_counts if counts else rf.release_means
    own = {} if counts else {"of": "x", "lower": 0, "upper": 1}
    with pytest.raises(ValueError, match=f"by must not name a column '{name}'.*: rename it"):
        job(frame, by=name, domain={name: [1]}, sigma=1.0, **own)


ONE = np.array([3])
CROSSTAB = pandas.DataFrame({"r": ["a", "b"], "men": [120, 30], "women": [99, 70]})
NOT_A_VOTE = r"must hold 1 \(yes\), -1 \(no\) or 0, or yes and no in words, or what yes= and no= say, got "
TINY = {"of": "age", "candidates": [1, 2], "epsilon": 1e-9, "delta": 1e-12}
NO_COUNT = r"column 'cat' must hold counts \(0, 1, 2, ...\), got "


@pytest.mark.parametrize(
    ("name", "data", "arguments", "complaint"),
    [
        ("counts", np.array([3, -1]), {}, r"counts must be whole numbers from 0 on, got -1\.0"),
        ("counts", np.array([3, 0.5]), {}, r"counts must be whole numbers from 0 on, got 0\.5"),
        ("counts", np.array([3, np.nan]), {}, "counts must not be NaN"),
        ("counts", np.array([]), {}, "counts must have at least one cell"),
        ("counts", np.array(["a"]), {}, "counts must be numbers"),
        ("counts", ONE, {"person": "id"}, "by must name columns where person"),
        ("counts", ONE, {"suppress_below": -1}, "suppress_below must be at least 0, got -1"),
        ("counts", ONE, {"suppress_below": 2.5}, r"suppress_below must be an integer, got 2\.5"),
        ("counts", ONE, {"at_most": 0}, "at_most must be at least 1"),
        ("counts", ONE, {"epsilon": None}, "epsilon or sigma must be given, and not both"),
        ("counts", ONE, {"sigma": 1.0}, "epsilon or sigma must be given, and not both"),
        ("counts", ONE, {"epsilon": 0.0}, "epsilon must be > 0"),
        ("counts", ONE, {"delta": -0.1}, r"delta must be in \[0, 1\)"),
        ("counts", ONE, {"delta": 0.0, "noise": "gaussian"}, r"delta must be in \(0, 1\)"),
        ("counts", ONE, {"noise": "cauchy"}, "noise must be one of"),
        ("counts", PEOPLE, {"by": "region"}, "domain= must list"),
        ("counts", PEOPLE, {"person": "name"}, "person names the column 'name'"),
        ("counts", PEOPLE, {"person": "id", "counts": "age"}, "person must not be given where"),
        ("counts", PEOPLE, {"at_most": 2}, "at_most must be 1 where no person column is given"),
        ("counts", PEOPLE[:0], {}, "the table must have at least one row"),
        ("means", PEOPLE, {**AGES, "lower": 5, "upper": 5}, "lower must be below upper, got 5.0 and 5.0"),
        ("means", PEOPLE, {**AGES, "upper": math.inf}, "upper must be finite"),
        ("means", PEOPLE, {**AGES, "lower": math.nan}, "lower must not be NaN"),
        ("means", PEOPLE, {**AGES, "of": "wage"}, "of names the column 'wage', which the table lacks"),
        ("means", PEOPLE, {**AGES, "of": "region"}, "column 'region' has the value 'n', where a"),
        ("means", PEOPLE, {**AGES, "suppress_below": -1}, "suppress_below must be at least 0"),
        ("means", PEOPLE, {**AGES, "coverage": 1.0}, "coverage must be"),
        ("means", PEOPLE, {**AGES, "noise": "gaussian", "delta": 0.0}, r"delta must be in \(0, 1\)"),
        ("means", PEOPLE.assign(age=math.nan), AGES, "column 'age' has a missing value"),
        ("means", PEOPLE, {**AGES, "of": ["age", "age"]}, "of must name at least one column, and each once"),
        ("sums", PEOPLE, {**AGES, "lower": [0, 1]}, "lower must be a number, or one for each of 1 columns"),
        ("counts", PEOPLE, {**REGIONS, "margins": 1}, "margins must be True or False"),
        ("counts", ONE, {"margins": True}, "margins must be False where data holds counts without names"),
        ("shares", ANSWERS, {"questions": []}, "questions must name at least one column"),
        ("shares", ANSWERS, {"questions": ["cars"]}, "domain= must list the public values of column 'cars'"),
        ("shares", ANSWERS, {"questions": ["cars"], "answers": [1, 2]}, "'cars' has the value -1"),
        ("shares", ANSWERS, {"questions": ["cars"], "answers": [1]}, "at least 2 public answers"),
        ("quantiles", PEOPLE, {"of": "age", "candidates": [1, 1]}, "candidates must rise, got 1 before 1"),
        ("quantiles", PEOPLE, {"of": "age", "candidates": [1]}, "candidates must be from 2 to 2,000 values"),
        ("quantiles", PEOPLE, {"of": "age", "candidates": [1, 2], "quantiles": 1.0}, "quantiles must be"),
        ("quantiles", PEOPLE, {"of": "age", "candidates": [1, 2], "quantiles": []}, "must hold at least one"),
        ("quantiles", PEOPLE, {"of": "age", "candidates": [1, 2], "quantiles": [0.5, 0.5]}, "and each once"),
        ("quantiles", PEOPLE, TINY, "epsilon=1e-09 and delta=1e-12 are too small for"),
        ("quantiles", PEOPLE, {"of": "region", "candidates": [1, 2]}, "column 'region' has the value 'n'"),
        ("votes", ANSWERS.assign(trees=2), {}, f"column 'trees' {NOT_A_VOTE}2"),
        ("votes", ANSWERS.assign(trees="maybe"), {}, f"column 'trees' {NOT_A_VOTE}'maybe'"),
        ("votes", ANSWERS.assign(trees=[0, 1] * 40), {}, "'trees' holds 0 and no -1: say what 0 means"),
        ("votes", np.zeros((9, 2)), {}, "column '0' holds 0 and no -1: say what 0 means"),
        ("votes", ANSWERS, {"yes": 1, "no": 2}, r"column '\w+' must hold 1 \(yes\) or 2 \(no\), got -?[01]"),
        ("votes", ANSWERS, {"yes": 1}, "yes and no must be given together, got yes=1 and no=None"),
        ("votes", ANSWERS, {"yes": 1, "no": "1"}, "yes, no and neither must be different, got '1' twice"),
        ("counts", ONE, {"delta": 0.5}, r"delta must be at most 0\.1, got 0\.5: with that chance"),
        ("counts", CROSSTAB, {"by": "r", "domain": ["a", "b"]}, "whole numbers in 'men', .* long"),
        ("counts", PEOPLE, {"by": "region", "missing": "no"}, "missing must be one of"),
        ("votes", np.array([[1.0, math.nan]]), {}, f"column '1' {NOT_A_VOTE}nan"),
        ("votes", polars.DataFrame({"q": [1.0, math.nan]}), {}, f"column 'q' {NOT_A_VOTE}nan"),
        ("votes", polars.DataFrame({"q": [[1]]}), {}, f"column 'q' {NOT_A_VOTE}values of type list"),
        ("votes", np.ones(3), {}, r"with rows and columns, got shape \[3\]"),
        ("votes", [1, 0], {}, r"rows and columns, got shape \[2\]"),
        ("votes", {1, 0}, {}, "data must be a frame"),
        ("votes", ANSWERS[:0], {}, "the table must have at least one row, got none"),
        ("votes", np.ones((3, 0)), {}, "questions must name at least one column, got none"),
        ("votes", ANSWERS, {"questions": ["bikes"]}, "questions names the column 'bikes', which the"),
        ("votes", ANSWERS, {"questions": ["cars", "cars"]}, "questions must name each column once"),
        ("votes", ANSWERS, {"ignore": ["bikes"]}, "ignore names the column 'bikes'"),
        ("votes", ANSWERS.assign(id=7), {"person": "id"}, "'id' must hold each name once, got 7 twice"),
        ("votes", ANSWERS.assign(id=None), {"person": "id"}, "'id' must hold a name in every row"),
        ("votes", ANSWERS, {"at_most": 0}, "at_most must be at least 1, got 0"),
        ("votes", ANSWERS, {"neighbours": "none"}, "neighbours must be"),
        ("votes", ANSWERS, {"publish_epsilon": 0.1}, "publish_epsilon must be True or False"),
        ("winners", COUNTS[["cat"]], {}, "data must have at least 2 columns of counts, got 1"),
        ("winners", COUNTS.assign(cat=-1), {}, f"{NO_COUNT}-1"),
        ("winners", COUNTS.assign(cat=0.5), {}, f"{NO_COUNT}0.5"),
        ("winners", COUNTS.assign(cat=math.nan), {}, f"{NO_COUNT}a missing value"),
        ("winners", COUNTS.assign(cat="many"), {}, f"{NO_COUNT}'many'"),
        ("winners", COUNTS.assign(cat=True), {}, f"{NO_COUNT}True"),
        ("winners", COUNTS[:0], {}, "the table must have at least one row"),
        ("winners", COUNTS, {"query": "place"}, "query names the column 'place'"),
        ("winners", COUNTS, {"person": "cat"}, "person must be left out where data holds counts"),
        ("winners", COUNTS, {"queries": ["cat"]}, "queries must be left out where data holds counts"),
        ("winners", COUNTS, {"noise": "laplace"}, "noise must be one of"),
        ("votes", ANSWERS, {"noise": "gumbel", "publish_epsilon": True}, "noise must be 'gaussian' with"),
        ("winners", COUNTS, {"noise": "gumbel", "confident_above": 9}, "noise must be 'gaussian' with conf"),
        ("winners", COUNTS, {"noise": "gumbel", "publish_epsilon": True}, "noise must be 'gaussian' with"),
        ("winners", COUNTS, {"threshold_sigma": 1.0}, "threshold_sigma needs confident_above and"),
        ("winners", COUNTS, {"confident_above": math.inf}, "confident_above must be finite"),
        ("winners", BALLOTS, {"candidates": ["cat"]}, "candidates must be at least 2 values"),
        ("winners", BALLOTS, {"candidates": ["cat", None]}, "candidates must be at least 2 values, no"),
        ("winners", BALLOTS, {"candidates": "cat"}, "candidates must be a list of values, got 'cat'"),
        ("winners", BALLOTS, {"candidates": ["cat", "cat"]}, "candidates must hold each value once"),
        ("winners", BALLOTS, {"candidates": ["cat", "fox"]}, "'q1' must hold one of the candidates, got"),
        ("winners", BALLOTS, {**PETS, "query": "q1"}, "query must be left out where data holds ball"),
        ("winners", BALLOTS, {**PETS, "by": "q1"}, "by must be left out where data holds ballots .of= is"),
        ("winners", BALLOTS, {**PETS, "of": "q1"}, "by must name the columns that tell the queries apart"),
        ("winners", BALLOTS, {"by": "q1", "of": "q2"}, "candidates must list the public candidates of"),
        ("winners", BALLOTS, {**PETS, "of": "q1", "at_most": 2}, "at_most must be 1 where no person"),
        ("winners", COUNTS.assign(winner=COUNTS.index), {"query": "winner"}, "query must not name a"),
        ("winners", BALLOTS, {**PETS, "queries": ["q3"]}, "queries names the column 'q3'"),
    ],
)  # fmt: skip
def test_bad_input_is_named_in_one_line(
    name: str, data: Any, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint) as raised:
        JOBS[name][0](data, **{"epsilon": 1.0, **arguments})
    assert "\n" not in str(raised.value)
