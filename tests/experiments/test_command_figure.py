"""``python -m experiments figure``: the files it leaves, and the figures it knows."""

import json
import sys
from pathlib import Path

import pytest

from experiments import figures as paper
from experiments.__main__ import figures
from experiments.figures import FIGURES
from tests.shell import experiments


def test_figure_motivation_leaves_png_pdf_and_csv(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    run = experiments("figure", "motivation", "--out", out)
    assert run.returncode == 0, run.stderr
    files = [Path(line) for line in run.stdout.split()]
    assert [file.name for file in files] == ["motivation.png", "motivation.pdf", "motivation.csv"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert files[1].read_bytes().startswith(b"%PDF")
    assert files[2].read_text().startswith("mechanism,sigma,theta,fisher_information_loss,")
    assert run.stderr == ""  # no spinner into a pipe


def test_json_is_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [tmp_path / "motivation.png", tmp_path / "motivation.csv"]
    monkeypatch.setattr(paper, "draw", lambda name, out, _: drawn if (name, out) == asked else [])
    asked = ("motivation", tmp_path)
    run = experiments("figure", "motivation", "--out", tmp_path, "--json")
    assert json.loads(run.stdout)["files"] == [str(file) for file in drawn]


def test_the_command_line_and_the_library_know_the_same_figures() -> None:
    """The command line lists them by itself, so that its help loads no experiment."""
    listed = [command.name for command in figures.registered_commands if command.name != "pdp"]
    assert listed == list(FIGURES)


def test_a_missing_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    run = experiments("figure", "motivation")
    assert run.returncode == 2
    assert run.stderr == "experiments: figures need matplotlib: pip install 'ringfence[plots]'\n"
