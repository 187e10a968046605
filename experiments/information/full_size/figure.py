"""Figure 4 at full size from images to files: what ``ringfence reproduce --figure fil`` does with images."""

import csv
from dataclasses import fields
from pathlib import Path
from typing import Any

from experiments.csv_file import write_csv
from experiments.information.full_size.chart import full_size_chart
from experiments.information.full_size.rows import NetworkRow, read_csv, read_network_rows
from experiments.information.full_size.settings import FullSizeSettings
from experiments.information.full_size.sweep import run_full_size
from experiments.information.rows import InformationRow

ROWS = "network_information.csv"
ROUNDS = 16


def reproduce_full_size(
    images: Path, out: Path, *, settings: FullSizeSettings | None = None, rounds: int = ROUNDS, **how: Any
) -> list[Path]:
    """Runs what is left of the sweep, and draws all that is finished. ``how`` goes to ``run_full_size``."""
    run_full_size(images, out, FullSizeSettings() if settings is None else settings, rounds=rounds, **how)
    file = write_rows(out)
    return [*draw_rows(file, out), file]


def write_rows(folder: Path, *, with_epsilons: bool = True) -> Path:
    """Writes the finished rows of a folder as CSV; without dp-accounting their epsilons are left out."""
    try:
        rows: list[NetworkRow] = read_network_rows(folder, with_epsilons=with_epsilons)
    except ModuleNotFoundError:
        rows = read_network_rows(folder, with_epsilons=False)
    if not rows:
        raise ValueError(f"{folder} has no finished run yet")
    return write_csv(rows, folder / ROWS)


def draw_rows(file: Path, out: Path, probe: Path | None = None) -> list[Path]:
    """Draws the chart of a CSV file as PNG and PDF; ``probe`` is the CSV file of the probe's panels."""
    from ringfence.report.drawing import save_chart

    chart = full_size_chart(read_csv(file), () if probe is None else read_probe(probe))
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{chart.name}.txt").write_text(f"{chart.caption}\n\n{chart.details}\n")
    return [*save_chart(chart, out), out / f"{chart.name}.txt"]


def read_probe(path: Path) -> list[InformationRow]:
    """The linear probe's rows of a CSV file that Figure 4 was written to."""
    numbers = {"validation_accuracy", "test_accuracy", "max_eta", "median_eta"}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or ()) != [field.name for field in fields(InformationRow)]:
            raise ValueError(f"{path} must hold rows of Figure 4, got {reader.fieldnames!r:.100}")
        rows = [
            {name: float(text) if name in numbers else text for name, text in row.items()} for row in reader
        ]
    return [InformationRow(**row) for row in rows if row["model"] == "linear probe"]  # type: ignore[arg-type]
