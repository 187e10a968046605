"""A toy sweep of networks from images to rows: it stops in time, goes on, and refuses another sweep."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn, zeros
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from experiments.drawing import read_csv
from experiments.information import networks
from experiments.information.network import METHODS
from experiments.information.networks import (
    NetworkRow,
    complete,
    frontiers,
    read_network_rows,
    run_networks,
    write_rows,
)
from experiments.sweep.runner import RowFile
from ringfence import PrivacyEngine
from tests.experiments.information import toys


def test_every_method_is_trained_and_measured(swept: Path) -> None:
    rows = read_network_rows(swept)
    assert [(row.method, row.seed) for row in rows] == [(name, 0) for name in METHODS]
    for row in rows:
        assert row.error is None
        assert row.epsilon_data_independent > 0  # type: ignore[operator]
        # the definition is above the mean over pixels, whose bound is above its estimate
        assert row.spectral_max > row.trace_max > row.estimate_max > 0  # type: ignore[operator]
        assert row.spectral_max >= row.spectral_median  # type: ignore[operator]
        assert (row.epochs, row.delta, row.round) == (1, 1e-5, 0)
    assert max(row.test_accuracy or 0 for row in rows) > 0.5  # of four classes


def fake(seen: list[Any]) -> Any:
    def train(data: Any, settings: Any, job: Any) -> dict[str, float]:
        seen.append(job)
        return {"validation_accuracy": 0.5, "test_accuracy": 0.5, "spectral_max": 1e-9}

    return train


def test_it_goes_on_and_takes_turns(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(swept / "sweep.journal", tmp_path)
    seen: list[Any] = []
    monkeypatch.setattr(networks, "train_and_measure", fake(seen))
    told: list[float] = []
    how: dict[str, Any] = {"progress": lambda _, share: told.append(share)}
    run_networks(swept / "images.npz", tmp_path, replace(toys.SETTINGS, seeds=(0,)), rounds=1, **how)
    assert seen == []
    assert told == [1.0]
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1, **how)
    assert [(setting.label, seed) for setting, seed in seen] == [(name, 1) for name in METHODS]
    seen.clear()
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=3, **how)  # more rounds than before
    assert [setting.label for setting, _ in seen[:8]] == [*METHODS, *METHODS]
    assert {seed for _, seed in seen[:8]} == {0}
    again = {row.round for row in read_network_rows(tmp_path, with_epsilons=False) if row.seed == 1}
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
    assert read_network_rows(tmp_path) == []
    monkeypatch.setattr(networks, "train_and_measure", fail(ValueError("it does not converge")))
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    assert [row.error for row in read_network_rows(tmp_path)] == ["ValueError: it does not converge"] * 4
    seen: list[Any] = []
    monkeypatch.setattr(networks, "train_and_measure", fake(seen))
    run_networks(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    assert not {seed for _, seed in seen}  # an error is a result, and there is no frontier


def test_another_sweep_is_refused(swept: Path) -> None:
    with pytest.raises(ValueError, match=r"holds a sweep with another settings \(SHA-256\)"):
        run_networks(swept / "images.npz", swept, replace(toys.SETTINGS, momentum=0.5), rounds=1)


def test_the_command_says_what_there_is(swept: Path) -> None:
    counts, file = (swept / "said.txt").read_text().splitlines()
    assert counts == "4 rows (Gaussian 1, rectified 1, truncated 1, Gaussian, L2 clip 1), 1 whole rounds"
    assert file.startswith(str(swept / "network_information.csv"))


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
    with RowFile(tmp_path, public).writing() as add:
        add([((settings, 0), {"round": 4, "epochs": 1, "test_accuracy": 0.5})])
    [row] = read_network_rows(tmp_path)
    assert row.epsilon_data_independent == engine.guarantee(1e-5).epsilon
    assert (row.method, row.round, row.epochs, row.clip) == ("rectified", 4, 1, settings.clip)


def test_a_round_counts_when_every_method_has_its_run() -> None:
    rows = [*toys.whole_round(0, 0.5, 1.0), *toys.whole_round(1, 0.6, 2.0)[:-1]]
    assert complete(rows) == rows[:4]
    # a run that ended with an error had its chance
    assert len(complete([*rows, toys.row("Gaussian, L2 clip", 1, None, None, error="no")])) == 8


def test_frontiers_take_turns() -> None:
    rows = [
        *toys.whole_round(0, 0.5, 1.0),
        *toys.whole_round(1, 0.7, 3.0),
        *toys.whole_round(2, 0.6, 4.0),  # beaten by the second
        *(toys.row(name, 3, 0.9, None) for name in METHODS),  # not measured
        *(toys.row(name, 4, 0.95, 0.0) for name in METHODS),  # flattened by its clip
    ]
    assert [(row.round, row.method) for row in frontiers(rows)] == [
        (number, name) for number in (1, 0) for name in METHODS
    ]
    assert frontiers([toys.row("rectified", 0, 0.5, 1.0)])[0].method == "rectified"


def test_a_sweep_without_rows_is_refused(tmp_path: Path) -> None:
    RowFile(tmp_path, {"examples": 1, "batch_size": 1, "parameters": 1, "delta": 1e-5})
    with pytest.raises(ValueError, match="has no finished run yet"):
        write_rows(tmp_path)


def test_published_rows_are_those_of_the_search() -> None:
    rows = read_csv(Path("docs/results/network_information.csv"), NetworkRow)
    assert len(complete(rows)) >= 4 * 8
    assert {row.method for row in rows} == set(METHODS)
    known = networks.WIDE.rounds(1 + max(row.round for row in rows), 225)
    for row in rows:
        setting = known[row.round][METHODS.index(row.method)]
        assert (setting.clip, setting.bound, setting.steps) == (row.clip, row.bound, 225 * row.epochs)
