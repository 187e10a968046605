"""Votes: the law that answers, what it is said to cost, what stays private and what is refused."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import ringfence as rf
from ringfence.releases import ballots
from ringfence.releases.decisions import votes_ahead
from tests.report.samples import assert_readable

BALLOTS = pandas.DataFrame(
    {
        "trees": [1] * 60 + [-1] * 10 + [0] * 10,
        "cars": [-1] * 50 + [1] * 10 + [None] * 20,
        "trams": [1, -1] * 40,
    }
)


def chance(x: float) -> float:
    return float(torch.special.ndtr(torch.tensor(x, dtype=torch.float64)))


def test_answers_follow_the_law_and_a_wrong_sigma_is_rejected() -> None:
    """A surplus of one sigma at 1,000 questions: there a wrong sigma moves most standard errors."""
    votes = rf.release_votes(np.ones((5, 1000)), sigma=5.0, seed=3)
    yes, wanted = float((votes.values == 1).mean()), chance(5 / 5)
    error = 4 * math.sqrt(wanted * (1 - wanted) / 1000)
    assert abs(yes - wanted) < error
    assert min(abs(yes - chance(5 / sigma)) for sigma in (5 / math.sqrt(2), 5 * math.sqrt(2))) > error
    assert votes.errors.tolist() == pytest.approx([1 - wanted] * 1000)


def test_a_published_epsilon_is_paid_for() -> None:
    """Forty clear questions and one source of noise: more of it, within the same target."""
    ballots = np.repeat([[1], [-1]], [300, 100], axis=0) * np.ones((1, 40))
    with rf.Ledger(epsilon=2.0, delta=1e-6, neighbours="added") as ledger:
        plain = rf.release_votes(ballots, epsilon=2.0, ledger=ledger)
    votes = rf.release_votes(
        ballots, epsilon=2.0, publish_epsilon=True
    )  # counts as a Gaussian, as in a ledger
    assert 1.99 < votes.account.epsilon <= 2.0
    noise, more = (float(dict(one.settings)["law"].split("=")[1][:-1]) for one in (plain, votes))
    assert 1.01 < more / noise < 1.1
    (sentence,) = (
        set(votes.statement.promises) - set(plain.statement.promises) - {votes.statement.promises[0]}
    )
    assert "The releases and this number together satisfy (2, 1e-06)" in sentence
    found = float(sentence.split("the releases are (")[1].split(",")[0])
    assert plain.account.per_instance.epsilon < found < 1.9


def test_the_tight_account_holds_for_every_neighbour_by_enumeration() -> None:
    """Eight answers, all 27 ballots that could be added or removed, both directions."""
    votes = rf.release_votes(np.array([[1, -1, 0]] * 4 + [[1, 0, 0]]), neither=0, sigma=6.0, delta=1e-2)
    epsilon, surplus = votes.account.per_instance.epsilon, (5, -4, 0)

    def masses(votes: tuple[float, ...]) -> np.ndarray[Any, Any]:
        yes = [chance(value / 6) for value in votes]
        outcomes = itertools.product(*((share, 1 - share) for share in yes))
        return np.array([math.prod(outcome) for outcome in outcomes])

    here, worst = masses(surplus), 0.0
    for ballot in itertools.product((-1, 0, 1), repeat=3):
        there = masses(tuple(a + b for a, b in zip(surplus, ballot, strict=True)))
        for p, q in ((here, there), (there, here)):
            worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
    assert 0.9e-2 < worst <= 1e-2
    own = votes.account.per_instance
    assert epsilon < own.renyi_epsilon < own.gaussian_renyi_epsilon
    assert epsilon < votes.account.epsilon < own.gaussian_epsilon


@pytest.mark.parametrize(
    ("values", "coding"),
    [
        ([1, 0, None], {"yes": 1, "no": 0}),
        ([1, 2, 9], {"yes": 1, "no": 2, "neither": 9}),
        (["Yes", "NO ", None], {}),
        ([True, False, None], {}),
        (["TRUE", "False", "0"], {"neither": 0}),
        (["agree", "against", "-"], {"yes": ["agree", "rather agree"], "no": "against", "neither": ["-"]}),
        ([1, -1, 0], {}),
    ],
)
@pytest.mark.parametrize("kept", [ballots._KEPT, 0])
def test_surveys_are_coded_in_many_ways(
    values: list[Any], coding: dict[str, Any], kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ballots, "_KEPT", kept)
    yes, no, neither = values
    frame = pandas.DataFrame({"q": [yes] * 7 + [no] * 3 + [neither] * 2}, dtype=object)
    frame.to_csv(tmp_path / "q.csv", index=False)
    for data in (frame, tmp_path / "q.csv"):
        assert rf.release_votes(data, **coding, sigma=1.0).account.details["votes"] == [4]
    unclear = pandas.DataFrame({"q": [1, 0]})
    unclear.to_csv(tmp_path / "u.csv", index=False)
    with pytest.raises(ValueError, match="column 'q' holds 0 and no -1"):
        rf.release_votes(tmp_path / "u.csv", sigma=1.0)


def test_a_column_of_too_many_ways_to_answer_is_not_counted_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ballots, "_KEPT", 0)
    monkeypatch.setattr(ballots, "_VALUES", 3)
    (tmp_path / "q.csv").write_text("q\nyes\nYes\nno\nNo\n")
    with pytest.raises(ValueError, match="column 'q' must hold fewer than 3 different values"):
        rf.release_votes(tmp_path / "q.csv", sigma=1.0)


def test_the_owner_is_told_and_a_large_delta_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"delta 0\.01 is more than 1 / 120, the number of voters"):
        votes = rf.release_votes(np.ones((120, 2)), sigma=9.0, delta=0.01, neighbours="replaced", at_most=1)
    assert (
        votes.private[0] == "People of whom at_most=1 leaves something out, who would count more often: 120."
    )
    assert "of 2 decisions are expected to be wrong" in votes.private[1]
    assert not set(votes.private) & {*votes.statement.promises, *votes.statement.leaves_out}


def test_what_depends_on_the_ballots_is_in_the_account_alone(tmp_path: Path) -> None:
    ballots = BALLOTS.assign(id=range(80), group="a")
    votes = rf.release_votes(ballots, person="id", ignore=["group"], sigma=17.77)
    assert votes.errors_are_sensitive
    files = {path.name: path for path in votes.save(tmp_path / "v", private=tmp_path / "own")}
    private = json.loads(files["account.json"].read_text())
    assert private["chances_of_error"] == pytest.approx([chance(-50 / 17.77), chance(-40 / 17.77), 0])
    for name in ("table.csv", "statement.txt", "report.html"):
        text = files[name].read_text()
        assert "chance_of_error" not in text
        for number in (*private["chances_of_error"][:2], private["per_instance"]["epsilon"]):
            assert f"{number:.6g}" not in text
        for sentence in votes.account.statement.splitlines():
            assert sentence not in text


def test_the_sentence_to_print() -> None:
    votes = rf.release_votes(BALLOTS, epsilon=1.0, at_most=2, noise="gaussian")
    assert votes.statement.public == (
        "These answers are protected by differential privacy (epsilon 1, delta 1e-06) for each person (each "
        "row is taken as one person): Gaussian noise with a standard deviation of 5.82 votes was added "
        "before each majority was read off, and a question decided by at least 14 counted votes is answered "
        "wrong with a chance of at most 1 %."
    )
    assert "in at most 2 of the questions, at most once in each" in votes.statement.promises[1]
    lead = votes_ahead(rf.StochasticSign(5.82), 2)
    assert chance(-lead / 5.82) <= 0.01 < chance(-(lead - 1) / 5.82)


@pytest.mark.parametrize("neighbours", ["added", "replaced"])
@pytest.mark.parametrize(("questions", "better"), [(1, "Gumbel"), (4, "Gumbel"), (30, "Gaussian")])
def test_the_noise_that_decides_better_is_taken(questions: int, better: str, neighbours: Any) -> None:
    """For one question it is the exponential mechanism with all of epsilon; leads of 3 votes upwards."""
    asked = [[1] * min(3 * at, 90) + [-1] * (90 - min(3 * at, 90)) for at in range(16, 16 + questions)]
    ballots = np.array(asked).T
    wrong, noises = [], []
    for noise in ("auto", "gumbel", "gaussian"):
        votes = rf.release_votes(ballots, epsilon=1.0, neighbours=neighbours, noise=noise)
        assert 0.98 < votes.account.epsilon <= 1.0
        wrong.append(votes.errors.sum())
        noises.append(votes.statement.public.split(": ")[1].split()[0])
    assert noises == [better, "Gumbel", "Gaussian"]
    best, other = sorted(wrong[1:])
    assert wrong[0] == best < 0.95 * other
    if questions == 1:
        (surplus,) = ballots.sum(axis=0)
        scale = 1.0 if neighbours == "added" else 2.0
        assert wrong[0] == pytest.approx(1 / (1 + math.exp(abs(surplus) / scale)), rel=5e-3)


def test_answers_with_gumbel_noise_follow_their_law() -> None:
    votes = rf.release_votes(np.ones((2, 1000)), sigma=3.0, noise="gumbel", seed=3)
    wanted = 1 / (1 + math.exp(-2 * math.pi / (3.0 * math.sqrt(3))))  # a logistic surplus of deviation 3
    assert abs(float((votes.values == 1).mean()) - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / 1000)
    assert votes.errors.tolist() == pytest.approx([1 - wanted] * 1000)
    assert votes.account.per_instance.epsilon < votes.account.epsilon


def test_the_chart_shows_the_answers_and_nothing_else() -> None:
    votes = rf.release_votes(BALLOTS, sigma=1.0)
    assert_readable(votes.chart())
    (panel,) = votes.chart().panels
    assert panel.x_names == ("yes", "no")
    assert panel.lines[0].y == tuple(votes.columns["answer"].count(answer) for answer in ("yes", "no"))
