"""A toy sweep from images to rows: it stops in time, goes on, and refuses what is another sweep."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.information.full_size import place
from experiments.information.full_size.rows import read_network_rows
from experiments.information.full_size.settings import methods
from experiments.information.full_size.sweep import run_full_size
from experiments.sweep import ray
from tests.experiments.information.full_size import toys


def test_every_method_is_trained_and_measured(swept: Path) -> None:
    rows = read_network_rows(swept)
    assert [(row.method, row.seed) for row in rows] == [(name, 0) for name in methods()]
    for row in rows:
        assert row.error is None
        assert row.test_accuracy is not None
        assert row.spectral_max is not None
        assert row.trace_max is not None
        assert row.estimate_max is not None
        assert row.epsilon_data_independent is not None
        # the definition is above the mean over pixels, whose bound is above its estimate
        assert row.spectral_max > row.trace_max > row.estimate_max > 0
        assert row.spectral_max >= row.spectral_median  # type: ignore[operator]
        assert (row.epochs, row.delta, row.round) == (1, 1e-5, 0)
    assert max(row.test_accuracy or 0 for row in rows) > 0.5  # of four classes


def fake(seen: list[Any]) -> Any:
    def train(data: Any, settings: Any, job: Any, pause: Any) -> dict[str, float]:
        pause()
        seen.append(job)
        return {"validation_accuracy": 0.5, "test_accuracy": 0.5, "spectral_max": 1e-9}

    return train


def test_it_goes_on_and_takes_turns(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(swept / "sweep.sqlite", tmp_path)
    seen: list[Any] = []
    monkeypatch.setattr(place, "train_and_measure", fake(seen))
    told: list[float] = []
    how: dict[str, Any] = {"progress": lambda _, share: told.append(share)}
    run_full_size(swept / "images.npz", tmp_path, replace(toys.SETTINGS, seeds=(0,)), rounds=1, **how)
    assert seen == []
    assert told == [1.0]
    run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1, **how)
    assert [(setting.label, seed) for setting, seed in seen] == [(name, 1) for name in methods()]
    seen.clear()
    run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=3, **how)  # more rounds than before
    assert [setting.label for setting, _ in seen[:8]] == [*methods(), *methods()]
    assert {seed for _, seed in seen[:8]} == {0}
    again = {row.round for row in read_network_rows(tmp_path, with_epsilons=False) if row.seed == 1}
    assert again == {0, 1}  # the frontier has moved: the fakes are alike, and the first of them is on it


def test_rows_of_a_csv_file_count_as_finished(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, seen = read_network_rows(swept), []  # type: ignore[var-annotated]
    monkeypatch.setattr(place, "train_and_measure", fake(seen))
    settings = replace(toys.SETTINGS, seeds=(0,))
    run_full_size(swept / "images.npz", tmp_path, settings, rounds=1, earlier=rows[:-1])
    assert [setting.label for setting, _ in seen] == [rows[-1].method]
    assert read_network_rows(tmp_path)[:-1] == rows[:-1]
    other = replace(rows[0], clip=rows[0].clip / 2)
    with pytest.raises(ValueError, match="the row of Gaussian, round 0, was trained with settings"):
        run_full_size(swept / "images.npz", tmp_path / "other", settings, rounds=1, earlier=[other])


def test_it_stops_in_time_and_a_job_that_is_not_finished_is_free(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    def slow(data: Any, settings: Any, job: Any, pause: Any) -> Any:
        begun.append(job)
        while True:
            pause()

    monkeypatch.setattr(place, "train_and_measure", slow)
    run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1, minutes=0.02)
    assert read_network_rows(tmp_path) == []
    assert len(begun) == 1
    run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1, minutes=1e-9)
    assert len(begun) == 1  # there was no time to begin anything
    seen: list[Any] = []
    monkeypatch.setattr(place, "train_and_measure", fake(seen))
    run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1, minutes=5)
    assert seen[0] == begun[0]  # at once: the claim did not have to end by itself
    assert [job[0].label for job in seen[:4]] == list(methods())


def test_errors_of_a_job_are_rows_and_those_of_a_machine_are_not(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> Any:
        def train(*_: Any) -> Any:
            raise error

        return train

    monkeypatch.setattr(place, "train_and_measure", fail(RuntimeError("CUDA error: launch failure")))
    with pytest.raises(RuntimeError, match="CUDA error"):
        run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    assert read_network_rows(tmp_path) == []
    monkeypatch.setattr(place, "train_and_measure", fail(ValueError("it does not converge")))
    run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1)
    assert [row.error for row in read_network_rows(tmp_path)] == ["ValueError: it does not converge"] * 4


def test_a_cluster_does_the_same_jobs(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(place, "train_and_measure", fake(seen))
    asked: list[Any] = []

    def results(work: Any, batches: Any, failed: Any, address: str, gpus: float) -> Any:
        """A cluster whose worker dies in the second job."""
        asked.append((len(batches), address, gpus))
        for number, batch in enumerate(batches):
            yield [failed(batch[0], OSError("died"))] if number == 1 else work(batch)

    monkeypatch.setattr(ray, "ray_results", results)
    how: dict[str, Any] = {"engine": "ray", "address": "auto", "workers": 4}
    run_full_size(swept / "images.npz", tmp_path, toys.SETTINGS, rounds=1, **how)
    rows = read_network_rows(tmp_path, with_epsilons=False)
    assert [row.error for row in rows if row.method == "rectified"] == ["OSError: died"]
    assert asked == [(4, "auto", 0.0), (3, "auto", 0.0)]  # one round, then the other seed of three frontiers


def test_another_sweep_is_refused(swept: Path) -> None:
    with pytest.raises(ValueError, match=r"holds a sweep with another settings \(SHA-256\)"):
        run_full_size(swept / "images.npz", swept, replace(toys.SETTINGS, momentum=0.5), rounds=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "dask"}, "engine must be one of .*, got 'dask'"),
        ({"address": "auto"}, "address is for engine ray, got 'auto'"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"minutes": 0}, "minutes must be > 0, got 0"),
    ],
)
def test_bad_options_are_refused_by_name(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_full_size(tmp_path / "none.npz", tmp_path, toys.SETTINGS, **{"rounds": 1, **options})
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_there_is(swept: Path) -> None:
    *lines, counts, file = (swept / "said.txt").read_text().splitlines()
    assert len(lines) == 4
    assert counts == "4 rows (Gaussian 1, rectified 1, truncated 1, Gaussian, L2 clip 1), 1 whole rounds"
    assert file.startswith(str(swept / "network_information.csv"))
