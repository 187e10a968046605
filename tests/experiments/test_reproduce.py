"""The whole job in small: every section on the page, every figure beside it, in any order of failure."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import reproduce
from experiments.drawing import Drawn
from experiments.motivation import motivation
from experiments.reproduce import FIGURES
from experiments.sweep.probes import read_rows
from experiments.sweep.settings import read_grid
from ringfence.data.features import Features
from ringfence.report.chart import Chart, Line, Panel

GRID = """
name = "toy"
mechanisms = ["gaussian", "rectified"]
seeds = [0, 1, 2]

[data]
center = 0.5

[paper]
clip = [0.1]
noise_multiplier = [10, 30]
bound = [4]
learning_rate = [4]
steps = [3]

[fair]
settings = 4
steps = [2, 4]
"""


def _quick(name: str) -> Drawn:
    rows = motivation(points=3)
    panel = Panel(name, "x", "y", (Line("Gaussian", (0.0, 1.0), (1.0, 2.0)),))
    return Drawn(Chart(name.replace("-", "_"), name, f"caption of {name}", (panel,)), rows)


def _quick_save(
    figure: Figure, file: Any, *, format: str, _save: Any = Figure.savefig, **options: Any
) -> None:
    """Draws what stands on the page alone."""
    if format == "svg":
        _save(figure, file, format=format, **options)
    else:
        file.write(b"drawn")


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Figures and their drawing have tests of their own: here they are there."""
    for name in list(FIGURES):
        monkeypatch.setitem(FIGURES, name, lambda name=name: _quick(name))
    monkeypatch.setattr(Figure, "savefig", _quick_save)
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path


def _features() -> Features:
    labels = np.arange(200) % 2
    values = np.eye(2, 4, dtype=np.float32)[labels]
    return Features(values, labels, values, labels)


def test_everything_is_drawn_and_a_second_call_does_not_sweep_again(whole: Path) -> None:
    arguments = {"grid": whole / "grid.toml", "features": _features()}
    reproduce.comparisons(read_grid(arguments["grid"]), arguments["features"], whole / "out" / "sweeps")
    swept = read_rows(whole / "out" / "sweeps" / "toy-paper")
    files = reproduce.reproduce(whole / "out", **arguments)
    assert read_rows(whole / "out" / "sweeps" / "toy-paper").equals(swept)
    assert all(file.exists() for file in files)
    page = (whole / "out" / "report.html").read_text()
    for heading in ("Did bounded support help?", "Figure 1", "Figure 2", "Figure 3", "Figure 4", "Figure 5"):
        assert heading in page
    for name in ("motivation", "mean_estimation", "information", "votes", "utility_ratio"):
        assert (whole / "out" / f"{name}.png").exists()
        assert (whole / "out" / f"{name}.pdf").exists()
    assert "4 settings for every law" in page  # Figure 4's caption, on these features
    assert "caption of fil" not in page
    assert "information.csv" in {file.name for file in files}
    assert page.count("<section") == 1  # the answer; everything else folds open
    assert len(page) < 2_000_000
