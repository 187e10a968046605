"""From a finished sweep, or from its CSV file alone, to the files of the figure."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments.csv_file import write_csv
from experiments.information.full_size.figure import draw_rows, read_probe, reproduce_full_size, write_rows
from experiments.information.full_size.rows import network_file, read_csv
from experiments.information.rows import InformationRow
from ringfence.report import drawing
from tests.experiments.information.full_size import toys

PROBE = [
    InformationRow("linear probe", "Gaussian", "clip 0.1", 0.8, 0.8, "spectral", 0.2, 0.1),
    InformationRow("network", "Gaussian", "clip 0.1", 0.8, 0.8, "trace", 0.2, 0.1),
]


def test_a_finished_sweep_is_drawn(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "save_chart", lambda chart, out: [out / f"{chart.name}.png"])
    files = reproduce_full_size(
        swept / "images.npz", swept, settings=replace(toys.SETTINGS, seeds=(0,)), rounds=1
    )
    assert [file.name for file in files] == [
        "network_information.png",
        "network_information.txt",
        "network_information.csv",
    ]
    # epsilons, which the machine that trained could not make, are there now
    assert all(row.epsilon_data_independent for row in read_csv(files[-1]))


def test_the_csv_file_is_enough(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **_: file.write(b"drawn"))
    file = write_rows(swept)
    probe = write_csv(PROBE, tmp_path / "information.csv")
    assert len(draw_rows(file, tmp_path / "new", probe)) == 3
    assert "Largest η at 75 %" in (tmp_path / "new" / "network_information.txt").read_text()
    assert read_probe(probe) == PROBE[:1]
    with pytest.raises(ValueError, match="must hold rows of Figure 4, got"):
        read_probe(file)


def test_a_sweep_without_rows_is_refused(tmp_path: Path) -> None:
    network_file(tmp_path, {"examples": "1", "batch_size": "1", "parameters": "1", "delta": "1e-5"})
    with pytest.raises(ValueError, match="has no finished run yet"):
        write_rows(tmp_path)
