"""Where the rows are: a frame in memory, or files that may be larger than memory, as one view of DuckDB."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.decisions.frames import Columns, Frame, read_frame, tables_extra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Table

_CSV, _PARQUET = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"), (".parquet", ".pq")
_MEMORY = "4GB"  # of DuckDB; what does not fit goes to disk
_INTEGERS = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG")} | {"INTEGER"}
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
    files = [found for name in names for found in (sorted(glob(name, recursive=True)) or [name])]
    for name in files:
        if not Path(name).is_file():
            raise FileNotFoundError(2, "No such file", name)
    kinds = {_kind(name) for name in files}
    if len(kinds) > 1:
        raise ValueError(f"files must be all CSV or all parquet, got both: {', '.join(files)}")
    if kinds == {"csv"}:  # every cell is text, an empty one is missing; columns are found by name
        relation = connection.read_csv(
            files,  # type: ignore[arg-type]
            header=True,
            all_varchar=True,
            union_by_name=True,
        )
    else:
        relation = connection.read_parquet(files, union_by_name=True)
    relation.create_view("rows")


def _kind(name: str) -> str:
    lower = name.lower()
    if lower.endswith(_CSV):
        return "csv"
    if lower.endswith(_PARQUET):
        return "parquet"
    raise ValueError(f"a file must end in {', '.join((*_CSV, *_PARQUET))}, got {name!r}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split("\n\n")[0].split())
