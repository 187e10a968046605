"""Writes rows to a CSV file."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def write_csv(rows: "Sequence[DataclassInstance]", path: Path) -> Path:
    """Writes one line per row; the columns are the fields of the rows.

    >>> from tempfile import TemporaryDirectory
    >>> from ringfence.mechanisms.law import Look
    >>> with TemporaryDirectory() as folder:
    ...     write_csv([Look("#000000", "", "x")], Path(folder) / "looks.csv").read_text().split()
    ['color,marker,point', '#000000,,x']
    """
    text = StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(rows[0])])
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(text.getvalue().encode())
    return path
