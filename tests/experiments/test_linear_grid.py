"""A grid of settings gives the runs that each setting gives by itself."""

import dataclasses
import math
from functools import cache
from typing import Any

import pytest
import torch

import ringfence as rf
from experiments import linear_grid
from experiments.linear_grid import accuracies, train_linear_grid
from ringfence.training.linear import LinearRun, LinearSettings, train_linear
from tests.mechanisms.cases import CASES, Case

FEATURES = torch.randn(300, 30, generator=torch.Generator().manual_seed(0))
LABELS = (FEATURES[:, 0] > 0).long() + (FEATURES[:, 1] > 1).long()


def setting(**changes: Any) -> LinearSettings:
    arguments = {
        "mechanism": rf.TruncatedGaussian(2.0, 30.0),
        "clip": rf.Clamp(0.1),
        "learning_rate": 10.0,
        "steps": 3,
        "seed": 1,
        **changes,
    }
    return LinearSettings(**arguments)


GRID = [
    setting(),
    setting(mechanism=rf.TruncatedGaussian(1.0, (-3.0, 8.0)), clip=rf.Clamp(0.3), steps=5),
    setting(mechanism=rf.RectifiedGaussian(3.0, 10.0), momentum=0.5, seed=2),
    setting(mechanism=rf.Gaussian(1.0), learning_rate=3.0, steps=1),
    setting(mechanism=rf.StochasticSign(4.0), clip=rf.Clamp(10.0), seed=4),
    setting(mechanism=rf.QuantizedGaussian(4.0, 20.0, levels=5), steps=2),
    setting(mechanism=rf.QuantizedGaussian(4.0, 20.0, levels=3), steps=4),
    setting(clip=rf.Norm(0.5)),
    setting(mechanism=rf.Gaussian(1.0), clip=rf.Norm(0.1), steps=5),
    setting(mechanism=rf.RectifiedGaussian(3.0, 10.0), clip=rf.Norm(0.5), momentum=0.5),
]


def grid(settings: list[LinearSettings] = GRID, **changes: Any) -> list[LinearRun]:
    arguments = {"features": FEATURES, "labels": LABELS, "classes": 3, "public_size": 300, **changes}
    return train_linear_grid(settings=settings, **arguments)


@cache
def usual() -> list[LinearRun]:
    """The grid as it stands, trained once for all who compare with it."""
    return grid()


def alone(one: LinearSettings, **changes: Any) -> LinearRun:
    arguments = {name.name: getattr(one, name.name) for name in dataclasses.fields(one)}
    data = {"features": FEATURES, "labels": LABELS, "classes": 3, "public_size": 300, **changes}
    return train_linear(**data, **arguments)


def assert_same(one: LinearRun, other: LinearRun) -> None:
    assert torch.allclose(one.weights, other.weights, rtol=1e-4, atol=1e-5)
    assert one.account.steps == other.account.steps
    for name in ("forward", "backward"):
        assert torch.allclose(getattr(one.account, name), getattr(other.account, name), rtol=1e-2, atol=0)
    assert one.account.bounded_zcdp == pytest.approx(other.account.bounded_zcdp, rel=1e-12)


def test_every_run_is_the_one_its_setting_gives_alone() -> None:
    for one, run in zip(GRID, usual(), strict=True):
        assert_same(run, alone(one))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_law_of_the_contract_goes_through_the_grid(case: Case) -> None:
    """Settings of one law share a call of its sampler, and each still has its own noise.

    A sampler that draws its numbers in pairs, in a last dimension of 2, is found out by the two settings.
    """
    settings = [setting(mechanism=case.make(sigma, -9.0, 12.0), seed=5, steps=2) for sigma in (2.0, 3.0)]
    for one, run in zip(settings, grid(settings), strict=True):
        assert_same(run, alone(one))


def test_trajectories_are_kept_where_they_are_asked_for() -> None:
    for one, run in zip(GRID[:3], grid(GRID[:3], trajectories=True), strict=True):
        own = alone(one)
        assert len(run.trajectory) == one.steps
        for ours, theirs in zip(run.trajectory, own.trajectory, strict=True):
            assert torch.allclose(ours.weights, theirs.weights, rtol=1e-4, atol=1e-5)
            assert torch.allclose(ours.theta, theirs.theta, rtol=1e-4, atol=1e-3)
    assert grid(GRID[:1])[0].trajectory == ()


def test_float64_features() -> None:
    for one, run in zip(GRID[:3], grid(GRID[:3], features=FEATURES.double()), strict=True):
        other = alone(one, features=FEATURES.double())
        assert run.weights.dtype == torch.float64
        assert torch.allclose(run.weights, other.weights, rtol=1e-10)


@pytest.mark.parametrize("entries", [1, 3 * 300 * 3])
def test_the_size_of_the_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    together = usual()
    monkeypatch.setitem(linear_grid._ENTRIES, "cpu", entries)
    for one, other in zip(grid(GRID[::2]), together[::2], strict=True):
        assert_same(one, other)


def test_draws_of_many_settings_are_cut_at_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [setting(seed=seed, steps=2) for seed in range(5)]
    monkeypatch.setattr(linear_grid, "block_length", lambda device: 2 * 3 * 30)
    for one, run in zip(settings, grid(settings), strict=True):
        assert_same(run, alone(one))


def test_one_seed_gives_one_noise_and_another_another() -> None:
    first, same, other = (run.weights for run in grid([setting(seed=seed) for seed in (5, 5, 6)]))
    assert torch.equal(first, same)
    assert float((first - other).abs().max()) > 0.01


def test_a_release_is_charged_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = []
    step, released = linear_grid.GridAccountant.step, linear_grid._released
    monkeypatch.setattr(
        linear_grid.GridAccountant,
        "step",
        lambda self, theta: (happened.append(("charged", theta)), step(self, theta)),
    )
    monkeypatch.setattr(
        linear_grid,
        "_released",
        lambda theta, *how: (happened.append(("released", theta)), released(theta, *how))[1],
    )
    grid(GRID[:3])
    names, thetas = [name for name, _ in happened], [theta for _, theta in happened]
    assert names == ["charged", "released"] * 5
    assert all(one is other for one, other in zip(thetas[::2], thetas[1::2], strict=True))


def test_accuracies_are_those_of_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = usual()
    expected = [float(((FEATURES @ run.weights.T).argmax(dim=1) == LABELS).double().mean()) for run in runs]
    monkeypatch.setitem(linear_grid._ENTRIES, "cpu", 4 * 300 * 3)
    assert accuracies(runs, FEATURES, LABELS).tolist() == pytest.approx(expected, abs=1e-2)


def test_no_settings_give_no_runs() -> None:
    assert grid([]) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LABELS + 1}, r"labels must be integers in 0 \.\. 2, got 3\.0 at index"),
        ({"features": FEATURES.where(FEATURES < 2, math.nan)}, "features must not be NaN"),
        ({"public_size": 0}, "public_size must be > 0"),
        ({"settings": [setting(mechanism=rf.Gaussian(torch.ones(30)))]}, "must be single numbers"),
        ({"settings": [setting(clip=rf.Norm(2.0, each=0.3))]}, "must be a number or a norm alone"),
    ],
)
def test_bad_data_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid(**changes)
