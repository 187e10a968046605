"""From the shell: sweep, compare, report, features; what they leave behind and what they refuse."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ringfence.cli.app import app
from ringfence.paper.sweep.run import read_rows
from tests.shell import ringfence

GRID = """
name = "toy"
mechanisms = ["gaussian", "truncated"]
seeds = [0, 1]

[data]
center = 0.5

[paper]
clip = [0.1]
noise_multiplier = [10, 30]
bound = [4, 30]
learning_rate = [4]
steps = [3]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    labels = np.arange(300) % 3
    features = np.eye(3, 5, dtype=np.float32)[labels]
    np.savez(
        folder / "features.npz",
        **{"x_train": features, "y_train": labels, "x_test": features, "y_test": labels},
    )
    (folder / "grid.toml").write_text(GRID)
    run = ringfence(*_sweep(folder))
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(folder / "out" / "sweep.sqlite")
    assert run.stderr == ""
    return folder


def _sweep(folder: Path) -> list[object]:
    return ["sweep", folder / "grid.toml", "--features", folder / "features.npz", "--out", folder / "out"]


def test_the_same_sweep_again_changes_nothing(swept: Path) -> None:
    before = read_rows(swept / "out")
    assert len(before) == 12  # 2 settings of the Gaussian and 4 of the truncated law, 2 seeds
    assert ringfence(*_sweep(swept)).returncode == 0
    assert read_rows(swept / "out") == before


def test_compare_says_yes_or_no_in_one_sentence(swept: Path) -> None:
    run = ringfence("compare", swept / "out")
    assert run.returncode == 0, run.stderr
    assert "epsilon at equal accuracy" in run.stdout
    assert any(line.startswith(("Yes, on toy", "No, on toy")) for line in run.stdout.splitlines())
    assert "the cost of tuning is not in epsilon" in run.stdout
    assert "different numbers of settings" in run.stdout  # the Gaussian had 2, the truncated law 4
    (one,) = json.loads(ringfence("compare", swept / "out", "--json").stdout)
    assert one["data"] == "toy"
    assert {row["mechanism"] for row in one["rows"]} >= {"Gaussian", "truncated"}


def test_report_is_one_page_and_a_publishable_one_has_no_private_number(swept: Path) -> None:
    page = swept / "pages" / "report.html"
    assert ringfence("report", swept / "out", "--out", page).returncode == 0
    public = swept / "pages" / "public.html"
    assert ringfence("report", swept / "out", "--out", public, "--publishable").returncode == 0
    assert "Did bounded support help?" in page.read_text()
    assert "Did bounded support help?" not in public.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sweep", "cifar10", "--out", "o"], "--features is needed with cifar10"),
        (["sweep", "nowhere.toml", "--features", "f.npz", "--out", "o"], "nowhere.toml"),
        (["compare", "nowhere"], "nowhere"),
        (["reproduce", "--data", "pets"], "--features is needed with pets"),
        (["figure", "pdp", "--public-statistics", "x.npz"], "digits are scaled by constants"),
        (["features", "nowhere", "--backbone", "nowhere", "--out", "f.npz"], "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ringfence(*arguments)
    assert run.returncode == 2
    assert complaint in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_every_command_has_help_with_an_example() -> None:
    for command in ("reproduce", "features", "sweep", "compare", "report", "probe", "account", "audit"):
        run = CliRunner().invoke(app, [command, "--help"])
        assert run.exit_code == 0
        assert f"Example: ringfence {command}" in " ".join(run.stdout.split())
