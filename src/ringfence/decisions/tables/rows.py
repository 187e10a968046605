"""Where the rows are: a frame in memory, or files that may be larger than memory, as one view of DuckDB."""

import csv
import gzip
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape, glob
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.decisions.frames import Columns, Frame, read_frame, tables_extra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Table

_CSV, _PARQUET = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"), (".parquet", ".pq")
MOST_COLUMNS = 20_000
_MEMORY = "4GB"  # of DuckDB; what does not fit goes to disk
_INTEGERS = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG")} | {"INTEGER"}
# How every CSV file is read. Nothing is looked for in the data: one row would change how all others are read.
_FIXED: dict[str, Any] = {
    **{"auto_detect": False, "header": True, "skiprows": 0, "encoding": "utf-8", "strict_mode": True},
    **{"quotechar": '"', "escapechar": '"', "comment": "", "na_values": "", "null_padding": False},
}
Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Rows:
    """A view named ``rows`` in a database in memory.

    ``types`` has DuckDB's type of each column. Where ``text`` is true, cells are compared as text: files have
    no types that everyone agrees on (007 is a number to some).
    """

    connection: "DuckDBPyConnection"
    types: Mapping[str, str]
    text: bool
    frame: Frame | None = None

    def like(self, columns: Columns) -> Any:
        """A frame of the kind that came in; of files, a pyarrow table."""
        return (self.frame or Frame("pyarrow", None)).like(columns)

    def column(self, argument: str, name: object) -> str:
        """The quoted name of a column that is there."""
        if str(name) not in self.types:
            known = ", ".join(map(repr, self.types))
            raise ValueError(f"{argument} names the column {name!r}, which the table lacks; it has {known}")
        return quoted(str(name))

    def numbers(self, argument: str, name: object) -> str:
        """An expression for a column of numbers, NULL where there is none; NaN is NULL too."""
        column, kind = self.column(argument, name), self.types[str(name)]
        if kind in _INTEGERS:
            return f"CAST({column} AS DOUBLE)"
        number = column if kind == "DOUBLE" else f"TRY_CAST({column} AS DOUBLE)"
        return f"CASE WHEN isnan({number}) THEN NULL ELSE {number} END"

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows that a query gives; an error of DuckDB is one line."""
        import duckdb

        try:
            return self.connection.execute(query).fetchall()
        except duckdb.Error as error:
            raise ValueError(f"the table cannot be read: {_one_line(error)}") from None

    def table(self) -> "Table":
        """All rows as a pyarrow table, in the order of the files."""
        import duckdb

        try:
            self.connection.execute("SET preserve_insertion_order = true")
            return self.connection.sql("SELECT * FROM rows").to_arrow_table()
        except duckdb.Error as error:
            raise ValueError(f"the table cannot be read: {_one_line(error)}") from None


@contextmanager
def open_rows(data: Any) -> Iterator[Rows]:
    """The rows of a frame, an array, a tensor, or of CSV or parquet files (names or patterns of names).

    Files are read as a stream. What does not fit in memory goes to a private folder that is removed at the
    end.

    >>> import numpy as np
    >>> with open_rows(np.array([[1, 2], [3, 4]])) as rows:
    ...     rows.ask("SELECT count(*) FROM rows"), list(rows.types)
    ([(2,)], ['0', '1'])
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        raise tables_extra("tables") from None
    with tempfile.TemporaryDirectory() as scratch:
        connection = duckdb.connect(
            config={
                "temp_directory": scratch,
                "memory_limit": _MEMORY,
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
            }
        )
        try:
            if isinstance(data, str | Path) or is_list_of_names(data):
                frame = None
                try:
                    _view_of_files(connection, data)
                except duckdb.Error as error:
                    raise ValueError(f"the files cannot be read: {_one_line(error)}") from None
            else:
                frame = read_frame(data)
                if not frame.table.column_names:
                    raise ValueError("the table must have at least one column, got none")
                connection.register("rows", frame.table)
            described = connection.execute("DESCRIBE rows").fetchall()
            yield Rows(connection, {row[0]: row[1] for row in described}, frame is None, frame)
        finally:
            connection.close()


def quoted(name: str) -> str:
    """A name as SQL takes it.

    >>> print(quoted('a "b'))
    "a ""b"
    """
    return '"' + name.replace('"', '""') + '"'


def is_list_of_names(data: Any) -> bool:
    """Whether ``data`` is a list of names of files.

    >>> is_list_of_names(["a.csv", "b.csv"]), is_list_of_names([1, 2])
    (True, False)
    """
    return (
        isinstance(data, list | tuple) and len(data) > 0 and all(isinstance(one, str | Path) for one in data)
    )


def _view_of_files(connection: "DuckDBPyConnection", data: Files) -> None:
    names = [str(data)] if isinstance(data, str | Path) else [str(one) for one in data]
    files = []
    for name in names:
        files += [name] if Path(name).is_file() else sorted(glob(name, recursive=True)) or [name]
    for name in files:
        if not Path(name).is_file():
            raise FileNotFoundError(2, "No such file", name)
    if len({(status.st_dev, status.st_ino) for status in map(os.stat, files)}) < len(files):
        raise ValueError(f"each file must be given once, got one of these twice: {', '.join(files)}")
    kinds = {_kind(name) for name in files}
    if len(kinds) > 1:
        raise ValueError(f"files must be all CSV or all parquet, got both: {', '.join(files)}")
    if kinds == {"parquet"}:
        connection.read_parquet([escape(name) for name in files], union_by_name=True).create_view("rows")
        return
    parts: list[str] = []
    for (header, spans, delimiter), alike in groupby(files, _dialect):
        parts.append(f"SELECT * FROM part{len(parts)}")
        connection.read_csv(
            [escape(name) for name in alike],  # type: ignore[arg-type]
            columns=dict.fromkeys(header, "VARCHAR"),
            delimiter=delimiter,
            parallel=not spans,  # a thread that begins inside a cell takes its lines for rows
            **_FIXED,
        ).create_view(f"part{len(parts) - 1}")
    connection.execute(f"CREATE VIEW rows AS {' UNION ALL BY NAME '.join(parts)}")


def _dialect(name: str) -> tuple[tuple[str, ...], bool, str]:
    """The header of a CSV file, whether a cell holds a line break, and the delimiter.

    Guarantee: unless the file is refused, quotes stand at the ends of cells alone, and a line begins inside a
    cell if and only if the number of quotes before it is odd: no line, whatever it is, changes another one.
    """
    gz, delimiter = name.lower().endswith(".gz"), "\t" if ".tsv" in name.lower()[-7:] else ","
    around, inside, spans = (b"", delimiter.encode(), b"\r", b"\n"), False, False
    try:
        with (gzip.open if gz else open)(name, "rt", encoding="utf-8-sig", newline="") as text:
            header = next(csv.reader(text, delimiter=delimiter, strict=True), [])
        with (gzip.open if gz else open)(name, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if b'"' not in line:
                    continue
                pieces = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").split(b'"')
                for place in range(inside, len(pieces), 2):  # those outside quotes
                    before, after = pieces[place][:1] * (place > 0), pieces[place][-1:]
                    if before not in around or (place < len(pieces) - 1 and after not in around[:2]):
                        raise ValueError(f"a quote inside a cell in line {number}")
                inside ^= len(pieces) % 2 == 0
                spans |= inside
        if inside:
            raise ValueError("a quote that nothing closes")
    except (ValueError, EOFError, csv.Error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} must be CSV in UTF-8 as RFC 4180 has it, got {error}") from None
    columns = [column or f"column{place}" for place, column in enumerate(header)]
    if len(header) > MOST_COLUMNS:
        raise ValueError(f"{name} must have at most {MOST_COLUMNS:,} columns, got {len(header):,}")
    if len({column.lower() for column in columns}) < max(1, len(columns)):
        raise ValueError(f"{name} must have a header that names each column once, got {header}")
    return tuple(columns), spans, delimiter


def _kind(name: str) -> str:
    lower = name.lower()
    if lower.endswith(_CSV):
        return "csv"
    if lower.endswith(_PARQUET):
        return "parquet"
    raise ValueError(f"a file must end in {', '.join((*_CSV, *_PARQUET))}, got {name!r}")


def _one_line(error: Exception) -> str:
    file = re.search(r"file = (.*)", str(error))
    said = re.split(r"\n\n|\nPossible fixes", str(error))[0]
    return " ".join(f"{f'{file[1]}: ' if file else ''}{said}".split())
