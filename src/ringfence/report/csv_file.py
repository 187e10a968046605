"""Rows to a CSV file."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def write_csv(rows: "Sequence[DataclassInstance]", path: Path) -> Path:
    """One line a row, the fields as columns."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(rows[0])])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    return path
