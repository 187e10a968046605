"""Tuning: what every run spends, what is drawn by chance, what is chosen, and what stays secret."""

import math
import pickle
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.accounting.selection import selection_epsilon
from ringfence.noise import Noise
from ringfence.training import tune as tuning
from ringfence.training.target import Target
from ringfence.training.tune import Tuned, TuningPlan, tuning_settings

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 300)
FEATURES = RNG.normal(size=(300, 5)) + 2 * np.eye(3, 5)[LABELS]
GRID = {"learning_rate": [1e-3, 30.0], "steps": [4, 8], "clip": [rf.Norm(0.5), 0.05]}
TARGET: dict[str, Any] = {"target_epsilon": 4.0, "target_delta": 1e-4}


@pytest.fixture(autouse=True, scope="module")
def _each_plan_once() -> Iterator[None]:
    """A plan takes half a second to find, depends on public numbers only, and is needed again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TuningPlan, "for_target", cache(TuningPlan.for_target))
        yield


def watched(grid: dict[str, Any], **options: Any) -> tuple[Tuned, list[tuple[Any, int]]]:
    """What tuning returns, and every run of it with its score."""
    runs: list[tuple[Any, int]] = []
    scored = tuning._scored

    def seen(probe: Any, *rest: Any) -> int:
        _ = probe.account_  # while the data is there
        runs.append((probe, scored(probe, *rest)))
        return runs[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "_scored", seen)
        return rf.tune(FEATURES, LABELS, grid, **TARGET, **options), runs


def test_every_run_spends_the_same_and_only_the_best_is_released() -> None:
    tuned, runs = watched(GRID, expected_runs=12, random_state=159)
    plan = tuned.plan
    assert len({(p.steps_, p.learning_rate_, repr(p.clip_)) for p, _ in runs}) == 8
    for probe, _ in runs:
        spent = 2 * probe.account_.gaussian_zcdp + plan.score_sigma**-2
        assert 0.99 * plan.mu**2 < spent <= plan.mu**2
    assert tuned.epsilon == selection_epsilon(plan.mu, 12, 1e-4)
    assert 0.995 * 4.0 < tuned.epsilon <= 4.0
    assert tuned.delta == 1e-4

    scores = [score for _, score in runs]
    best = runs[scores.index(max(scores))][0]
    assert tuned.probe is best
    assert tuned.right == max(scores) > min(scores)
    assert {name: getattr(best, name) for name in GRID} == tuned.setting
    assert len(runs) != 12  # and so it would be seen if it were released
    assert len(runs) not in [*vars(tuned).values(), *vars(plan).values()]
    assert "12 on average" in tuned.statement
    assert f" {len(runs)} " not in tuned.statement


def test_the_chosen_probe_has_no_account_of_its_own_and_no_data() -> None:
    tuned = rf.tune(FEATURES, LABELS, GRID, **TARGET, expected_runs=1)
    for probe in (tuned.probe, pickle.loads(pickle.dumps(tuned.probe))):
        assert probe.score(FEATURES, LABELS) > 0.2
        with pytest.raises(ValueError, match="nor one of tune"):
            probe.guarantee(1e-4)
    assert (tuned.probe.target_epsilon, tuned.probe.target_delta) == (4.0, 1e-4)
    assert tuned.probe.random_state is None


def test_a_seed_gives_the_same_again_and_no_two_runs_share_noise() -> None:
    grid, options = {"learning_rate": [30.0], "steps": [4]}, {"expected_runs": 12, "random_state": 1}
    first, runs = watched(grid, **options)
    again = rf.tune(FEATURES, LABELS, grid, **TARGET, **options)
    assert first.right == again.right
    assert (first.probe.coef_ == again.probe.coef_).all()
    assert len(runs) > 2
    assert len({probe.coef_.tobytes() for probe, _ in runs}) == len(runs)
    assert "A seed was given" in first.statement


def test_the_number_of_runs_is_geometric(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mean and the spread that are charged for; settings are drawn from all of the grid."""
    drawn: list[int] = []
    monkeypatch.setattr(tuning, "_trained", lambda *a: drawn.append(a[2]["steps"]) or rf.LinearProbe())
    monkeypatch.setattr(tuning, "_scored", lambda *_: 0)
    monkeypatch.setattr(rf.LinearProbe, "assumptions_", (), raising=False)
    counts = []
    for seed in range(300):
        before = len(drawn)
        rf.tune(FEATURES, LABELS, {"steps": [4, 8, 16]}, **TARGET, expected_runs=5, random_state=seed)
        counts.append(len(drawn) - before)
    assert min(counts) == 1
    assert np.mean(counts) == pytest.approx(5, abs=4 * math.sqrt(20 / 300))
    assert np.mean(np.equal(counts, 1)) == pytest.approx(0.2, abs=4 * math.sqrt(0.16 / 300))
    assert np.unique(drawn, return_counts=True)[1] / len(drawn) == pytest.approx(1 / 3, abs=0.06)


def test_the_score_has_the_noise_that_is_charged() -> None:
    probe = rf.LinearProbe(rf.Gaussian(1.0), random_state=0).fit(FEATURES, LABELS)
    right = probe.score(FEATURES, LABELS) * len(LABELS)
    columns = torch.tensor(LABELS)[:, None]  # must not be compared row against row
    scores = [tuning._scored(probe, FEATURES, columns, 20.0, Noise(seed)) for seed in range(600)]
    assert np.mean(scores) == pytest.approx(right, abs=4 * 20 / math.sqrt(600))
    assert np.std(scores) == pytest.approx(20, rel=0.12)


def test_one_seed_never_covers_two_counts_with_the_same_noise() -> None:
    noise = [
        tuning._scored(probe, FEATURES, LABELS, 1e9, Noise(7))
        for probe in (
            rf.LinearProbe(rf.Gaussian(s), random_state=0).fit(FEATURES, LABELS) for s in (1.0, 2.0)
        )
    ]
    assert abs(noise[0] - noise[1]) > 1000


@pytest.mark.parametrize(("epsilon", "share"), [(0.01, 0.5), (50.0, 0.01)])
def test_what_a_run_is_asked_for_is_its_part_of_mu(epsilon: float, share: float) -> None:
    plan = TuningPlan.for_target(Target(epsilon, 1e-6), 10, share)
    assert plan.training_mu**2 + plan.score_sigma**-2 == pytest.approx(plan.mu**2)
    assert 0.998 * plan.training_mu < plan.run_target.mu <= plan.training_mu
    assert 0.99 * epsilon < plan.epsilon <= epsilon


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target_epsilon": None}, "target_epsilon must be given"),
        ({"target_delta": 0.0}, "target_delta"),
        ({"expected_runs": 0.5}, r"expected_runs must be in \[1, 1000000\], got 0.5"),
        ({"score_share": 1.0}, "score_share"),
        ({"steps": 3}, "steps must be given once"),
        ({"secure": True}, "tune has no argument 'secure'"),
        ({"mechanism": "sign"}, "tune has no argument 'mechanism'"),
        ({"random_state": -1}, "random_state"),
        ({"public_classes": [0, 1]}, "y must hold labels of public_classes"),
    ],
)
def test_bad_arguments_are_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        rf.tune(FEATURES, LABELS, GRID, **{**TARGET, "expected_runs": 12, **changed})


def test_a_grid_is_every_combination_of_its_lists() -> None:
    settings = tuning_settings({"clip": [1e-3, rf.Norm(0.1), rf.Norm(1.0)], "steps": [8, 32]})
    assert len(settings) == 6
    assert all(
        {"clip": c, "steps": n} in settings for c in (1e-3, rf.Norm(0.1), rf.Norm(1.0)) for n in (8, 32)
    )


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"sigma": [1.0]}, "grid must hold lists of clip, learning_rate, steps, momentum, got 'sigma'"),
        ({"steps": 8}, r"grid\['steps'\] must be a list that is not empty, got 8"),
        ({"steps": []}, r"grid\['steps'\] must be a list that is not empty"),
        ({}, "grid must be a dict of lists, got {}"),
        ({"steps": [8.5]}, r"steps must be an integer, got 8\.5"),
        ({"steps": [4, 0]}, "steps must be at least 1, got 0"),
        ({"clip": [-1.0]}, "clip must be > 0"),
        ({"clip": [True]}, "clip must be .* got True"),
        ({"steps": [1] * 1200, "momentum": [0.5] * 1200}, "at most 1000000 combinations, got 1440000"),
    ],
)
def test_a_bad_grid_is_refused_by_name(grid: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):  # before any run
        rf.tune(FEATURES, LABELS, grid, **TARGET)
