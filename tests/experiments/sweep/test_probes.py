"""A job is the probe that the estimator fits; tests/faults/test_kills.py kills sweeps."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import ringfence as rf
from experiments.sweep.data import SweepData, sweep_data
from experiments.sweep.probes import linear_settings, measure, read_rows, run_sweep
from experiments.sweep.runner import attempt
from experiments.sweep.settings import FairSearch, Grid, SweepSetting
from ringfence.accounting.conversion import gaussian_delta
from tests.afresh import afresh
from tests.experiments.sweep.sweeps import DATA, GRID, comparable
from tests.faults.conditions import no_room_beyond

JOBS = GRID.jobs("paper")
TOTAL = len(JOBS)


def run(out: Path, **options: Any) -> None:
    torch.set_num_threads(1)
    run_sweep(GRID, DATA, out, **{"batch_size": 2, **options})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("sweep")
    run(out)
    return read_rows(out)


def test_every_job_is_a_row(uninterrupted: Any) -> None:
    rows = uninterrupted
    laws = ["Gaussian"] * 4 + ["sign"] * 4
    assert [*zip(rows.law, rows.seed, strict=True)] == [(law, seed) for law in laws for seed in range(3)]
    assert rows[["error", "validation_accuracy"]].isna().all(axis=None)
    assert rows.test_accuracy.max() > 0.5
    assert (rows.epsilon_pdp > 0).all()
    assert (rows.epsilon_pdp <= rows.gaussian_epsilon_pdp * (1 + 1e-9)).all()
    assert rows.ringfence.all()


def test_a_finished_sweep_has_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, batch_size=48)
    monkeypatch.delattr(SweepData, "to")  # nothing is even moved to the device
    run(tmp_path, batch_size=5)


def test_a_full_disk_is_an_error_and_the_sweep_goes_on_when_there_is_room(tmp_path: Path) -> None:
    small = replace(GRID, clip=(0.1,), learning_rate=(1.0,), seeds=tuple(range(8)))
    full, whole = tmp_path / "full", tmp_path / "whole"
    run_sweep(small, DATA, whole, batch_size=1)
    with no_room_beyond(9_000), pytest.raises(OSError, match=r"sweep\.db cannot be read or written: "):
        run_sweep(small, DATA, full, batch_size=1)
    done = read_rows(full)
    assert 0 < len(done) < len(small.jobs("paper"))
    run_sweep(small, DATA, full, batch_size=1)
    rows = read_rows(full)
    assert comparable(rows, "seconds") == comparable(read_rows(whole), "seconds")
    again = comparable(rows)
    assert all(row in again for row in comparable(done))  # the first ones were not made again


def test_a_fair_search_chooses_by_examples_it_did_not_train_on(tmp_path: Path) -> None:
    run_sweep(GRID, DATA, tmp_path, search="fair")
    rows = read_rows(tmp_path)
    assert len(rows) == 2 * 4 * 3
    # 30 of 120 examples are kept back
    shares = 30 * rows.validation_accuracy
    assert shares.to_numpy() == pytest.approx(shares.round().to_numpy(), abs=1e-9)
    assert shares.nunique() > 3


def test_another_grid_search_or_file_in_the_folder_is_refused(tmp_path: Path) -> None:
    run_sweep(GRID, DATA, tmp_path)
    with pytest.raises(ValueError, match=r"another grid \(SHA-256\)"):
        run_sweep(replace(GRID, steps=(3,)), DATA, tmp_path)
    with pytest.raises(ValueError, match="another search: 'paper', not 'fair'"):
        run_sweep(GRID, DATA, tmp_path, search="fair")
    with pytest.raises(ValueError, match=r"another data file \(SHA-256\)"):
        run_sweep(GRID, replace(DATA, test_labels=1 - DATA.test_labels % 2), tmp_path)  # type: ignore[operator]
    # what this search does not look at may change
    run_sweep(replace(GRID, fair=FairSearch()), DATA, tmp_path)
    assert len(read_rows(tmp_path)) == TOTAL


def test_torch_alone_trains_and_this_machine_converts(tmp_path: Path, uninterrupted: Any) -> None:
    """As on a GPU machine that has torch, numpy and safetensors, and nothing else."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from experiments.sweep.probes import run_sweep\n"
        "from tests.experiments.sweep.sweeps import DATA, GRID\n"
        "run_sweep(GRID, DATA, Path(sys.argv[1]), batch_size=2)\n"
    )
    nothing_else = ["sklearn", "dp_accounting", "scipy", "rich", "typer", "matplotlib", "pandas"]
    ran = afresh(program, tmp_path, without=nothing_else)
    assert ran.returncode == 0, ran.stderr
    rows = (read_rows(tmp_path), uninterrupted)
    alone, here = (comparable(one, "seconds") for one in rows)
    assert alone == here


def test_a_job_is_what_the_probe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sweep_data(DATA, replace(GRID, center=0.5, scale=2.0), "fair")
    jobs = [JOBS[0], JOBS[-1], JOBS[16]]
    for job, row in zip(jobs, measure(data, jobs, 1e-5), strict=True):
        setting, seed = job
        probe = rf.LinearProbe(
            *(setting.law, setting.clip, setting.learning_rate, setting.steps), fit_intercept=False
        )
        own = linear_settings(setting, seed).seed  # longer than a random_state may be
        monkeypatch.setattr("ringfence.training.probe.seed_of", lambda _, own=own: own)
        probe.fit(data.train[0].numpy(), data.train[1].numpy())
        for part, name in ((data.test, "test_accuracy"), (data.validation, "validation_accuracy")):
            assert row[name] == probe.score(part[0].numpy(), part[1].numpy())
        claim = probe.guarantee(1e-5)
        here = claim.per_instance
        for name, expected, apart in (
            ("epsilon_pdp", here.renyi_epsilon, 1e-3),
            ("epsilon_ex_post", here.ex_post_epsilon, 1e-3),
            ("epsilon_data_independent", claim.epsilon, 1e-9),
            ("gaussian_epsilon_pdp", here.gaussian_renyi_epsilon, 1e-9),
            ("gaussian_epsilon_ex_post", here.gaussian_ex_post_epsilon, 1e-9),
        ):
            assert row[name] == pytest.approx(expected, rel=apart), name


def test_the_gaussian_has_the_gaussians_epsilon() -> None:
    [row] = measure(sweep_data(DATA, GRID, "paper"), JOBS[:1], 1e-5)
    assert row["epsilon_pdp"] == pytest.approx(row["gaussian_epsilon_pdp"], rel=1e-9)
    assert row["epsilon_data_independent"] == row["gaussian_epsilon_data_independent"]
    # 2 releases of 15 coordinates at sigma = 5 clip: delta at this epsilon is the one asked for
    assert gaussian_delta(math.sqrt(30) / 5, row["epsilon_data_independent"]) == pytest.approx(1e-5, rel=1e-4)


def test_the_gaussian_under_an_l2_clip_costs_what_everyone_charges_for_it() -> None:
    jobs = [(SweepSetting(law, 0.5, 5.0, 1.0, 2, bound, clip_kind="norm"), 0)
            for law, bound in (("gaussian", None), ("truncated", 20.0))]  # fmt: skip
    row, bounded = measure(sweep_data(DATA, GRID, "paper"), jobs, 1e-5)
    assert gaussian_delta(math.sqrt(2) / 5, row["epsilon_data_independent"]) == pytest.approx(1e-5, rel=1e-4)
    assert 0 < bounded["epsilon_pdp"] <= row["epsilon_pdp"]
    assert linear_settings(*jobs[0]).clip == rf.Norm(0.5)


def test_one_bad_setting_does_not_end_the_others() -> None:
    bad, data = replace(JOBS[0][0], clip=1e-60), sweep_data(DATA, GRID, "paper")
    rows = attempt(partial(measure, data, delta=1e-5), [*JOBS[:3], (bad, 7), *JOBS[3:6]])
    assert ["error" not in row for row in rows] == [True] * 3 + [False] + [True] * 3
    assert rows[3] == {"error": "ValueError: clip (as torch.float32) must be > 0, got 0.0"}


def test_noise_depends_on_setting_and_seed_alone() -> None:
    toy = Grid("toy", ("gaussian", "truncated"), (0.1,), (10.0,), (1.0,), (4.0,), (5,))
    one, other = toy.settings("paper")
    seeds = [linear_settings(one, 0).seed, linear_settings(one, 1).seed, linear_settings(other, 0).seed]
    assert len(set(seeds)) == 3
    assert linear_settings(SweepSetting(**vars(one)), 0).seed == seeds[0]
    # written down: published rows are made again with the same noise
    assert one.key == "75f4c1dcece4301a14b3e84d3103590f"
