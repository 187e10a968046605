"""``ringfence account``: every number, what it promises, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import ringfence as rf
from tests.shell import ringfence


@pytest.fixture(scope="module")
def theta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("theta") / "theta.npy"
    np.save(file, np.linspace(-3, 3, 50))
    return file


SETTINGS = ["--mechanism", "rectified", "--sigma", 1, "--bound", 2, "--sensitivity", 5e-3, "--steps", 10]


def test_account_prints_every_number_and_what_it_promises(theta: Path) -> None:
    run = ringfence("account", theta, *SETTINGS)
    assert run.returncode == 0, run.stderr
    for words in ("DP, every dataset", "ex-post", "per-instance", "Rényi", "50 coordinates", "releases: 10"):
        assert words in run.stdout
    assert "must not be published" in run.stdout
    assert "One record moves every coordinate by at most 0.005." in run.stdout


def test_account_as_json_is_what_the_library_says(theta: Path) -> None:
    run = ringfence("account", theta, *SETTINGS, "--json")
    row = json.loads(run.stdout)
    account = rf.PerInstanceAccountant(rf.RectifiedGaussian(1.0, 2.0), 5e-3)
    account.step(torch.linspace(-3, 3, 50, dtype=torch.float64), count=10)
    claim = account.guarantee(1e-5)
    own = row["per_instance"]
    assert own["renyi_epsilon"] == pytest.approx(claim.per_instance.renyi_epsilon, rel=1e-6)
    assert own["epsilon"] <= claim.per_instance.epsilon
    assert claim.per_instance.statement[:40] in own["statement"]
    assert (row["mechanism"], row["coordinates"]) == ("RectifiedGaussian(sigma=1.0, bound=(-2.0, 2.0))", 50)
    assert "every_dataset" not in row


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            ["--mechanism", "laplace"],
            "mechanism must be one of gaussian, quantized, rectified, sign, truncated",
        ),
        (["--mechanism", "sign"], "mechanism sign does not take bound"),
        (["--mechanism", "quantized"], "mechanism quantized needs levels"),
        (["--sigma", -1], "sigma must be > 0, got -1.0"),
        (["--sensitivity", -1], "sensitivity must be >= 0, got -1.0"),
        (["--at-most", 0], "at_most must be at least 1, got 0"),
        (["--norm", "nan"], "norm must not be NaN"),
        (["--norm", -2], "norm must be >= 0, got -2.0"),
        (["--delta", 2], "delta must be in (0, 1), got 2.0"),
        (["--steps", 0], "steps must be at least 1, got 0"),
    ],
)
def test_account_refuses_bad_settings_in_one_line(theta: Path, change: list[object], complaint: str) -> None:
    run = ringfence("account", theta, *SETTINGS, *change)
    assert run.returncode == 2
    assert complaint in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_what_floats_do_not_hold_is_one_line(tmp_path: Path) -> None:
    """A FloatingPointError was a traceback."""
    np.save(tmp_path / "theta.npy", np.full(3, 1.7e308))
    run = ringfence(
        "account", tmp_path / "theta.npy", "--mechanism", "quantized", "--levels", 3, *SETTINGS[:-2]
    )
    assert (run.returncode, run.stderr.count("\n")) in ((2, 1), (0, 0)), run.stderr
    assert "Traceback" not in run.stderr


def test_one_person_sits_in_one_cell(tmp_path: Path) -> None:
    """24 cells, sigma 4, delta 1e-6: epsilon 1.06, where every cell used to be charged."""
    np.save(tmp_path / "counts.npy", np.arange(24.0))
    shared = ["account", tmp_path / "counts.npy", "--mechanism", "gaussian", "--sigma", 4, "--delta", 1e-6]
    row = json.loads(ringfence(*shared, "--sensitivity", 1, "--at-most", 1, "--json").stdout)
    assert row["sensitivity"] == {"each": 1.0, "at_most": 1, "norm": None}
    assert row["per_instance"]["epsilon"] == pytest.approx(1.0607, abs=1e-3)
    by_length = json.loads(ringfence(*shared, "--norm", 1, "--json").stdout)
    assert by_length["per_instance"]["epsilon"] == pytest.approx(row["per_instance"]["epsilon"], rel=1e-6)
    neither = ringfence(*shared, "--at-most", 1)
    assert (neither.returncode, neither.stderr.count("\n")) == (2, 1)
    assert "--sensitivity or --norm must be given" in neither.stderr
