"""``python -m experiments``: what each command leaves behind, and errors in one line."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments import reproduce
from experiments.__main__ import FIGURES, app, terminal_table
from experiments.comparison_page import comparison_table
from experiments.progress import track
from tests.cli.test_app import DEEP
from tests.experiments.test_comparison import only, sweep
from tests.shell import experiments


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["figure", "motivation", "--out", "/dev/null/x"],
            "Not a directory that may be written: /dev/null/x",
        ),
        (["figure", "nonsense"], "figure must be one of motivation, mean-estimation, pdp, fil"),
        (["figure", "votes", "--data", "pets"], "--data and --features are for figure pdp, got 'votes'"),
        (["figure", "motivation", "--nope"], "No such option: --nope"),
        (["sweep", "cifar10", "--out", "o"], "--features is needed with cifar10"),
        (["sweep", "nowhere.toml", "--features", "f.npz", "--out", "o"], "nowhere.toml"),
        (
            ["sweep", "deep.toml", "--features", "f.npz", "--out", "o"],
            "deep.toml is not TOML: maximum recursion depth exceeded",
        ),
        (["compare", "nowhere"], "nowhere"),
        (["reproduce", "--data", "pets"], "--features is needed with pets"),
        (["figure", "pdp", "--public-statistics", "x.npz"], "digits are scaled by constants"),
        (["features", "nowhere", "--backbone", "nowhere", "--out", "new.npz"], "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deep.toml").write_text(f"steps = {DEEP}\n")
    np.savez("f.npz", features=np.eye(3, 40, dtype=np.float32), labels=np.arange(3))
    run = experiments(*arguments)
    assert run.returncode == 2
    assert run.stderr.startswith("experiments: ")
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [command.callback.__name__ for command in app.registered_commands])
def test_every_command_has_help_with_an_example(command: str) -> None:
    run = CliRunner().invoke(app, [command, "--help"])
    assert run.exit_code == 0
    assert f"Example: python -m experiments {command}" in " ".join(run.stdout.split())


def test_bars_are_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
        monkeypatch.setattr("sys.stderr", shown := io.StringIO())
        assert list(track([1, 2], "votes")) == [1, 2]
        assert ("votes" in shown.getvalue()) is terminal


def test_options_of_reproduce_reach_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def fake(out: Path, **options: Any) -> list[Path]:
        asked.update(options, out=out)
        return [out / "report.html"]

    monkeypatch.setattr(reproduce, "reproduce", fake)
    run = experiments("reproduce", "--out", tmp_path)
    assert run.stdout == f"{tmp_path / 'report.html'}\n"
    assert (asked["out"], asked["grid"], asked["features"]) == (tmp_path, "digits", None)
    assert asked["device"] == "cpu"


def test_a_figure_is_png_pdf_and_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "a" / "b"
    run = experiments("figure", "motivation", "--out", out)
    assert run.returncode == 0, run.stderr
    files = [Path(line) for line in run.stdout.split()]
    assert [file.name for file in files] == ["motivation.png", "motivation.pdf", "motivation.csv"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert files[1].read_bytes().startswith(b"%PDF")
    assert files[2].read_text().startswith("mechanism,sigma,theta,fisher_information_loss,")
    assert run.stderr == ""  # no spinner into a pipe
    monkeypatch.setattr(reproduce, "draw", lambda name, out: [out / name])
    assert experiments("figure", "votes", "--out", tmp_path).stdout == f"{tmp_path / 'votes'}\n"


def test_the_figure_of_a_sweep_is_drawn_of_its_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = only(sweep("gaussian", 1.0) + sweep("truncated", 0.5))
    asked: list[Any] = []

    def compared(grid: Any, features: Any, out: Path, **how: Any) -> Any:
        asked.extend([grid.name, len(features.train_features), out, how["device"]])
        return [result], None

    monkeypatch.setattr(reproduce, "comparisons", compared)
    run = experiments("figure", "pdp", "--out", tmp_path)
    assert [Path(line).name for line in run.stdout.split()] == ["utility_ratio.png", "utility_ratio.pdf"]
    assert asked == ["digits", 1257, tmp_path / "sweeps", "cpu"]


def test_the_command_line_and_the_library_know_the_same_figures() -> None:
    """The command line lists them by itself, so that its help loads no experiment."""
    assert [name for name in FIGURES if name != "pdp"] == list(reproduce.FIGURES)


def test_options_of_features_reach_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def extract(*given: Any, **options: Any) -> Path:
        asked.extend([*given, options["batch_size"]])
        return Path(given[2])

    monkeypatch.setattr("experiments.features.extract", extract)
    out = tmp_path / "features.npz"
    run = experiments("features", tmp_path, "--backbone", "any", "--out", out)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{out}\n"
    assert asked == [tmp_path, "any", out, 64]


def test_the_table_of_a_terminal_holds_the_numbers() -> None:
    result = only(sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6))
    console = Console(width=80)
    with console.capture() as text:
        console.print(terminal_table(comparison_table(result)))
    lines = {line[:9].strip(): line[9:].split() for line in text.get().splitlines()}
    assert lines["45 %"] == ["2.03", "1.02"]  # 10 * 0.45^2 = 2.025, rounded up
    assert lines["90 %"] == ["8.11", "never"]
    assert "toy: per-instance epsilon by accuracy on a validation part" in " ".join(text.get().split())


def test_compare_says_yes_or_no_in_one_sentence(swept: Path) -> None:
    run = experiments("compare", swept / "out", "--out", swept / "report.html")
    assert run.returncode == 0, run.stderr
    assert "Did bounded support help?" in (swept / "report.html").read_text()
    assert run.stdout.startswith(("toy: Yes", "toy: No"))
    tables = [line for line in run.stdout.splitlines() if line.startswith(" ")]
    assert 0 < max(map(len, tables)) <= 80  # sentences are whole in a pipe
    said = " ".join(run.stdout.split())
    assert "The cost of tuning is not in epsilon" in said
    assert "different numbers of settings" in said  # the Gaussian had 2, the truncated law 4
    [found] = json.loads(experiments("compare", swept / "out", "--json").stdout)
    assert found["answer"] in said
    [clip] = found["clips"]
    assert clip["data"] == found["everything"]["data"] == "toy"
    assert {one["law"] for one in clip["candidates"]} == {"Gaussian", "truncated"}
