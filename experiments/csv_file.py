"""Writes rows to a CSV file."""

import csv
from codecs import getwriter
from collections.abc import Sequence
from dataclasses import asdict, fields
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
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        writer = csv.DictWriter(getwriter("utf-8")(file), [field.name for field in fields(rows[0])])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    return path
