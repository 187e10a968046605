"""A toy sweep of networks from images to rows: it stops in time, goes on, and refuses another sweep."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import nn, zeros
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from experiments.information import networks
from experiments.information.network import METHODS
from experiments.information.networks import COLUMNS, complete, on_frontiers, run_networks, write_rows
from experiments.sweep.runner import HERE, read_file, run_jobs
from ringfence import PrivacyEngine
from tests.experiments.information import toys


def test_every_method_is_trained_and_measured(swept: Path) -> None:
    assert (swept / "said.txt").read_text() == f"{swept / 'sweep.db'}\n"
    rows = pd.read_csv(write_rows(swept))
    assert [*zip(rows.method, rows.seed, strict=True)] == [(name, 0) for name in METHODS]
    assert rows.error.isna().all()
    assert (rows.epsilon_data_independent > 0).all()
    # the definition is above the mean over pixels, whose bound is above its estimate
    assert (rows.spectral_max > rows.trace_max).all()
    assert (rows.trace_max > rows.estimate_max).all()
    assert (rows.estimate_max > 0).all()
    assert (rows.spectral_max >= rows.spectral_median).all()
    assert {*zip(rows.epochs, rows.delta, rows["round"], strict=True)} == {(1, 1e-5, 0)}
    assert rows.test_accuracy.max() > 0.5  # of four classes


def fake(seen: list[Any]) -> Any:
    def train(data: Any, settings: Any, job: Any) -> dict[str, float]:
        seen.append(job)
        return {"validation_accuracy": 0.5, "test_accuracy": 0.5, "spectral_max": 1e-9}

    return train


def test_it_goes_on_and_takes_turns(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(swept / "sweep.db", tmp_path)
    seen: list[Any] = []
    monkeypatch.setattr(networks, "train_and_measure", fake(seen))
    run_networks(swept / "images.npz", tmp_path, replace(toys.SETTINGS, seeds=(0,)), rounds=1)
    assert seen == []
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    assert [(setting.label, seed) for setting, seed in seen] == [(name, 1) for name in METHODS]
    seen.clear()
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=3)  # more rounds than before
    assert [setting.label for setting, _ in seen[:8]] == [*METHODS, *METHODS]
    assert {seed for _, seed in seen[:8]} == {0}
    again = {row["round"] for row in read_file(tmp_path)[1] if row["seed"] == 1}
    assert again == {0, 1}  # the frontier has moved: the fakes are alike, and the first of them is on it


def test_errors_of_a_job_are_rows_and_those_of_a_machine_are_not(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> Any:
        def train(*_: Any) -> Any:
            raise error

        return train

    monkeypatch.setattr(networks, "train_and_measure", fail(RuntimeError("CUDA error: launch failure")))
    with pytest.raises(RuntimeError, match="CUDA error"):
        run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    with pytest.raises(ValueError, match="has no finished run yet"):
        write_rows(tmp_path)
    monkeypatch.setattr(networks, "train_and_measure", fail(ValueError("it does not converge")))
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    assert (pd.read_csv(write_rows(tmp_path)).error == "ValueError: it does not converge").sum() == 4
    seen: list[Any] = []
    monkeypatch.setattr(networks, "train_and_measure", fake(seen))
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    assert not {seed for _, seed in seen}  # an error is a result, and there is no frontier


def test_another_sweep_is_refused(swept: Path) -> None:
    with pytest.raises(ValueError, match=r"holds a sweep with another settings \(SHA-256\)"):
        run_networks(swept / "images.npz", swept, replace(toys.SETTINGS, momentum=0.5), rounds=1)


def test_epsilon_is_that_of_the_engine_after_as_many_steps(tmp_path: Path) -> None:
    settings = toys.SETTINGS.rounds(1, steps_per_epoch=3)[0][1]
    model = nn.Linear(2, 2)
    engine = PrivacyEngine(settings.law, settings.gradient_clip, seed=0)
    private, optimizer, loader = engine.make_private(
        model,
        SGD(model.parameters(), lr=0.0),
        DataLoader(TensorDataset(zeros(30, 2), zeros(30).long()), batch_size=10),
    )
    for inputs, labels in loader:
        nn.functional.cross_entropy(private(inputs), labels).backward()
        optimizer.step()
    assert engine.steps == settings.steps
    public = {"examples": 30, "batch_size": 10, "parameters": 6, "delta": 1e-05}
    done = {"round": 4, "epochs": 1, "test_accuracy": 0.5}
    run_jobs(lambda _: [done], [[(settings, 0)]], tmp_path, public, HERE)
    [row] = pd.read_csv(write_rows(tmp_path)).itertuples()
    assert row.epsilon_data_independent == engine.guarantee(1e-5).epsilon
    assert (row.method, row.round, row.epochs, row.clip) == ("rectified", 4, 1, settings.clip)


def test_a_round_counts_when_every_method_has_its_run() -> None:
    rows = [*toys.whole_round(0, 0.5, 1.0), *toys.whole_round(1, 0.6, 2.0)[:-1]]
    assert complete(toys.frame(rows)).index.tolist() == [0, 1, 2, 3]
    # a run that ended with an error had its chance
    failed = toys.row("Gaussian, L2 clip", 1, None, None, error="no")
    assert len(complete(toys.frame([*rows, failed]))) == 8


def test_frontiers_take_turns() -> None:
    rounds = toys.SETTINGS.rounds(5, steps_per_epoch=3)
    numbers = [
        (0.5, 1.0),
        (0.7, 3.0),
        (0.6, 4.0),  # beaten by the second
        (0.9, None),  # not measured
        (0.95, 0.0),  # flattened by its clip
    ]
    rows = [
        {"setting": setting, "validation_accuracy": accuracy, "spectral_max": eta}
        for own, (accuracy, eta) in zip(rounds, numbers, strict=True)
        for setting in own
    ]
    assert on_frontiers(rows) == [*rounds[1], *rounds[0]]
    assert on_frontiers(rows[1:2]) == [rounds[0][1]]


def test_published_rows_are_those_of_the_search() -> None:
    rows = pd.read_csv("docs/results/network_information.csv")
    assert list(rows) == COLUMNS
    assert len(complete(rows)) >= 4 * 8
    assert set(rows.method) == set(METHODS)
    known = networks.WIDE.rounds(1 + rows["round"].max(), 225)
    for row in rows.itertuples():
        setting = known[row.round][METHODS.index(row.method)]
        assert (setting.clip, setting.steps) == (row.clip, 225 * row.epochs)
        assert row.bound == setting.bound or (pd.isna(row.bound) and setting.bound is None)
