"""Reads tables of people through Ibis: frames, arrays, files, and tables of any engine where they are.

What is in memory or in files is read by a DuckDB of its own, which may hold less than they have. A table of
another engine (an Ibis table, a PySpark DataFrame) is asked where it is, and only answers come back.
"""

import csv
import gzip
import math
import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from glob import escape, glob
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from ringfence import checks

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow
    from ibis.backends.duckdb import Backend
    from ibis.expr.types.relations import CachedTable

Columns = Mapping[str, Sequence[Any]]
Codes = Callable[[str, Sequence[Any]], dict[Any, int]]  # of the values of a column with a name

LARGEST_COUNT = 2.0**50  # its neighbours are then whole numbers in float64
_CSV, _PARQUET = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"), (".parquet", ".pq")
LARGEST = sys.float_info.max
_MEMORY = "4GB"  # of DuckDB; what does not fit goes to disk
_BLOCK = 1 << 20  # bytes of a file that are looked at at once
_HELD = 1 << 18  # numbers at once
_LIBRARIES = ("pandas", "polars", "pyarrow", "duckdb", "ibis", "pyspark")
# How every CSV file is read. Nothing is looked for in the data: one row would change how all others are read.
_FIXED: dict[str, Any] = {
    **{"auto_detect": False, "header": True, "skip": 0, "encoding": "utf-8", "strict_mode": True},
    **{"quote": '"', "escape": '"', "comment": "", "nullstr": "", "null_padding": False},
}


@dataclass(frozen=True)
class MemoryTable:
    """The columns of a table in memory by name.

    A missing value is null in a frame, NaN in one of pandas and an empty cell in a file; arrays have none.
    """

    columns: Mapping[str, Any]  # of pyarrow, or arrays

    def read(self, names: Sequence[str]) -> "MemoryTable":
        """Some of the columns, of at least one row."""
        if not len(self.columns[names[0]]):
            raise ValueError("the table must have at least one row, got none")
        return MemoryTable({name: self.columns[name] for name in names})

    def coded(self, names: Sequence[str], codes_of: Codes) -> Tensor:
        """Columns of few different values as numbers, (rows, names); a value without a code is refused.

        >>> from functools import partial
        >>> with open_ballots(np.array([[3], [4]])) as table:
        ...     table.coded(["0"], partial(code_values, code={3: 0}.get, rule="must hold 3"))
        Traceback (most recent call last):
        ValueError: column '0' must hold 3, got 4
        """
        if isinstance(self.columns[names[0]], np.ndarray):
            return _coded_arrays(names, [self.columns[name] for name in names], codes_of)
        found = []
        for name in names:
            codes = codes_of(name, values := self.values(name))
            found.append(torch.tensor([codes[value] for value in values], dtype=torch.int64))
        return torch.stack(found, dim=1)

    def counts(self, name: str) -> Tensor:
        """A column of whole numbers from 0 on, in float64.

        >>> with open_ballots(np.array([[3.0], [0.5]])) as table:
        ...     table.counts("0")
        Traceback (most recent call last):
        ValueError: column '0' must hold counts (0, 1, 2, ...), got 0.5
        """
        raw = self.values(name)
        numbers = torch.tensor([_number_or_nan(value) for value in raw], dtype=torch.float64)
        fits = (numbers >= 0) & (numbers == numbers.round()) & (numbers < LARGEST_COUNT)
        if not bool(fits.all()):
            bad = raw[int((~fits).nonzero()[0])]
            what = "a missing value" if bad is None else repr(bad)
            raise ValueError(f"column {name!r} must hold counts (0, 1, 2, ...), got {what}")
        return numbers

    def values(self, name: str) -> list[Any]:
        """The values of a column."""
        column = self.columns[name]
        return list(column.tolist() if isinstance(column, np.ndarray) else column.to_pylist())


@dataclass(frozen=True)
class Rows:
    """A table of Ibis, and the ``kind`` of table that it came in, as ``make_table`` takes it.

    Where ``text`` is true, values are compared as text: files have no types that everyone agrees on (007 is a
    number to some). ``for_owner`` are sentences about the data for its owner alone.
    """

    table: "ir.Table"
    kind: str = "pyarrow"
    text: bool = False
    for_owner: list[str] = field(default_factory=list)

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        return cast(Sequence[str], self.table.columns)

    def column(self, argument: str, name: object) -> "ir.Column":
        """A column that is there; NaN is null."""
        import ibis.expr.operations as ops

        column = self.table[known_column(argument, name, self.columns)]
        floating = column.type().is_floating() and self.table.get_backend().has_operation(ops.IsNan)
        return column.isnan().ifelse(None, column) if floating else column

    def numbers(self, argument: str, name: object, within: bool = False) -> "ir.Column":
        """A column of finite numbers in float64, null where there is none.

        ``within`` limits that are looked at next anyway it may hold others too, which is quicker.
        """
        import ibis.expr.operations as ops

        column, engine = self.column(argument, name), self.table.get_backend()
        kind = column.type()
        if kind.is_integer():
            return column.cast("float64")
        if not kind.is_numeric() and not engine.has_operation(ops.TryCast):
            raise ValueError(f"column {str(name)!r} must hold numbers, which {engine.name} has as {kind}")
        number = column.cast("float64") if kind.is_numeric() else column.try_cast("float64")
        return number if within else number.between(-LARGEST, LARGEST).ifelse(number, None)

    def moments(self, argument: str, name: object) -> "ir.Column":
        """A column of dates or moments without a time zone, null where there is none."""
        column = self.column(argument, name)
        kind = column.type()
        if not (kind.is_string() or kind.is_date() or kind.is_timestamp()):
            raise ValueError(f"column {str(name)!r} must hold dates, since its {argument} are, got {kind}")
        return column.try_cast("timestamp") if kind.is_string() else column.cast("timestamp")

    def ask(self, query: "ir.Table") -> "pyarrow.Table":
        """The answer to a query; an error of the engine is one line."""
        with _errors_in_one_line("the table"):
            return query.to_pyarrow()

    def computed(self, table: "ir.Table") -> "CachedTable":
        """A table that is computed once, where the data is, for several queries."""
        with _errors_in_one_line("the table"):
            return table.cache()

    @property
    def is_here(self) -> bool:
        """Whether rows are on this machine, in files or a relation, and in order: not on another engine."""
        return self.kind != "ibis" and self.table.get_backend().name == "duckdb"

    def fits(self, columns: int, most: int) -> bool:
        """Whether this many columns are on this machine and have at most ``most`` values."""
        size = self.table.aggregate(rows=self.table.count())
        return self.is_here and int(self.ask(size)["rows"][0].as_py()) * columns <= most

    def read(self, names: Sequence[str]) -> MemoryTable:
        """Reads columns into memory."""
        return MemoryTable(_columns(self.ask(self.table.select(*names)))).read(names)


@contextmanager
def open_ballots(data: Any) -> "Iterator[MemoryTable | Rows]":
    """Opens what is in memory as it is, and other data as a table of Ibis.

    The columns of an array or tensor have their numbers as names.

    >>> with open_ballots(torch.zeros(5, 2)) as table:
    ...     list(table.columns)
    ['0', '1']
    """
    if is_array(data):
        yield MemoryTable(_array_columns(data, "", (2,)))
    elif _library(data) in ("pandas", "polars", "pyarrow"):
        yield MemoryTable(_columns(_arrow_table(data)))
    else:
        with open_rows(data, in_order=True) as rows:
            yield rows


@contextmanager
def open_rows(data: Any, *, in_order: bool = False) -> Iterator[Rows]:
    """Opens data of every kind as a table of Ibis.

    Files are read as a stream. What does not fit in memory goes to a private folder that is removed at the
    end. Rows of files keep their order only where that is asked for.

    >>> with open_rows(np.array([[1, 2], [3, 4]])) as rows:
    ...     rows.ask(rows.table.aggregate(n=rows.table.count())).to_pydict(), rows.table.columns
    ({'n': [2]}, ('0', '1'))
    """
    ibis, pyarrow, _ = map(_of_tables, ("ibis", "pyarrow", "duckdb"))
    library = _library(data)
    if library == "ibis" and data.get_backend().name != "polars":  # which is in memory, and has no windows
        yield Rows(data, "ibis")
        return
    if library == "pyspark":
        name = f"ringfence_{os.urandom(8).hex()}"
        data.createTempView(name)
        try:
            yield Rows(ibis.pyspark.connect(data.sparkSession).table(name))
        finally:
            data.sparkSession.catalog.dropTempView(name)
        return
    with ExitStack() as closing:
        engine = ibis.duckdb.connect(
            temp_directory=closing.enter_context(tempfile.TemporaryDirectory()),
            memory_limit=_MEMORY,
            preserve_insertion_order=in_order,
            autoinstall_known_extensions=False,
        )
        closing.callback(engine.disconnect)
        if are_files(data):
            with _errors_in_one_line("the files"):
                files = _table_of_files(engine, [data] if isinstance(data, str | Path) else data)
            yield Rows(files, text=True)
            return
        if library == "duckdb":
            rows, names = _Relation(data), data.columns
        else:
            own = _array_columns(data, "biuf", (0, 1, 2)) if is_array(data) else None
            rows = _arrow_table(data) if own is None else pyarrow.table(own)
            names = rows.column_names
        check_columns("the table", names)
        with _errors_in_one_line("the table"):
            engine.con.register("rows", rows)
            table = engine.table("rows")
        yield Rows(table, kind_of(data))


def engine_table(url: str, table: str) -> Any:
    """A table of an engine that a URL names: of Spark, or of any backend of Ibis (postgresql, duckdb, ...).

    ``spark://`` alone is the session that Spark's own settings describe, ``sc://host`` that of Spark Connect.
    ``table`` may have the name of its schema before it, with a dot between them.

    >>> engine_table("sqlite://", "people")
    Traceback (most recent call last):
    ValueError: the table 'people' of sqlite cannot be read: TableNotFound: people
    """
    ibis = _of_tables("ibis")
    kind = url.partition("://")[0]
    *schema, name = table.split(".")
    try:
        if kind in ("spark", "sc"):
            from pyspark.sql import SparkSession

            named = {"sc": "spark.remote", "spark": "spark.master"}[kind]
            settings: dict[str, Any] = {} if url == "spark://" else {named: url}
            return SparkSession.builder.config(map=settings).getOrCreate().table(table)
        return ibis.connect(url).table(name, database=".".join(schema) or None)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{kind} needs the library {error.name}: pip install {error.name}"
        ) from None
    except Exception as error:
        said = " ".join(str(error).split("\n\n")[0].split()).split(". ")[0]
        wrong = f"{type(error).__name__}: {said}"
        raise ValueError(f"the table {table!r} of {kind} cannot be read: {wrong}") from None


@dataclass(frozen=True)
class _Relation:
    """A relation of DuckDB, which no other connection may see: read as a stream, anew for each query."""

    relation: Any

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.relation.to_arrow_reader().__arrow_c_stream__(requested_schema)


def kind_of(data: Any) -> str:
    """The kind of table that a release of ``data`` is made as, for ``make_table``.

    >>> kind_of(torch.ones(2)), kind_of([1.0]), kind_of("people.csv")
    ('torch', 'numpy', 'pyarrow')
    """
    if is_array(data):
        return "torch" if isinstance(data, Tensor) else "numpy"
    return found if (found := _library(data)) in ("pandas", "polars", "ibis") else "pyarrow"


def _library(data: Any) -> str:
    """The library that a frame is of, or an empty text."""
    roots = (base.__module__.partition(".")[0] for base in type(data).__mro__)
    return next((root for root in roots if root in _LIBRARIES), "")


def _columns(table: "pyarrow.Table") -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _array_columns(data: Any, kinds: str, dimensions: Sequence[int]) -> dict[str, Any]:
    """The columns of an array by number; of these ``kinds`` of dtype, where some are given."""
    array = as_numpy(data)
    if (kinds and array.dtype.kind not in kinds) or array.ndim not in dimensions:
        raise ValueError(
            f"data must be an array{' of numbers' * bool(kinds)} with rows and columns, got shape "
            f"{list(array.shape)} of {array.dtype}"
        )
    array = array.reshape(-1, 1) if array.ndim < 2 else array
    # DuckDB reads no float16 and no other order of bytes
    dtype = np.dtype(np.float64) if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    return {str(number): column for number, column in enumerate(array.astype(dtype, copy=False).T)}


def _arrow_table(data: Any) -> "pyarrow.Table":
    """A frame as a table of Arrow."""
    pyarrow, library = _of_tables("pyarrow"), _library(data)
    if not hasattr(data, "__arrow_c_stream__"):
        raise TypeError(
            "data must be a frame (pandas, polars, pyarrow), a table (Ibis, DuckDB, Spark), an array, a "
            f"tensor or files, got {type(data).__name__}"
        )
    if library == "pandas":
        check_columns("the table", list(map(str, data.columns)))
        data = data.copy(deep=False)
        for name, kind in data.dtypes.items():
            if "interval" in str(kind.categories.dtype if hasattr(kind, "categories") else kind):
                data[name] = data[name].astype(object).map(str, "ignore")
    try:
        if library == "pandas":
            return pyarrow.Table.from_pandas(data, preserve_index=False)
        return pyarrow.table(data)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        raise ValueError("data must have columns of one type each, got a column of several") from None


def make_table(kind: str, columns: Columns) -> Any:
    """Makes a table: a frame of a library, a table of Ibis, or an array ("numpy") or tensor ("torch").

    None becomes the missing value of that kind.

    >>> make_table("numpy", {"0": [1, 3], "count": [7, None]})
    array([[ 1.,  7.],
           [ 3., nan]])
    """
    if kind in ("numpy", "torch"):
        array = np.column_stack([_numbers(name, values) for name, values in columns.items()])
        return torch.from_numpy(array) if kind == "torch" else array
    made = {name: list(values) for name, values in columns.items()}
    if kind in ("pandas", "polars"):
        return import_module(kind).DataFrame(made)
    import pyarrow

    table = pyarrow.table(made)
    return import_module("ibis").memtable(table) if kind == "ibis" else table


def make_coded_table(kind: str, codes: Mapping[Any, int], columns: Columns) -> Any:
    """``make_table``; for arrays the last column alone, with ``codes`` in place of names.

    >>> answers = {"question": ["0", "1"], "answer": ["yes", "no"]}
    >>> make_coded_table("numpy", {"yes": 1, "no": -1}, answers)
    array([ 1, -1])
    """
    if kind not in ("numpy", "torch"):
        return make_table(kind, columns)
    *_, last = columns.values()
    array = np.array([value if isinstance(value, float) else codes[value] for value in last])
    return torch.from_numpy(array) if kind == "torch" else array


def check_columns(what: str, names: Sequence[str]) -> None:
    """Refuses names of columns of which two are the same, as engines know them: in any case of letters."""
    seen = set()
    for name in map(str.lower, names):
        if name in seen:
            raise ValueError(f"{what} must name each column once, in upper or lower case, got {name!r} twice")
        seen.add(name)


def looks_like(value: object, known: Iterable[Any]) -> str:
    """Words about what is there and is written almost as ``value``, or an empty text.

    >>> looks_like(2, ["1", "2"]), looks_like("north", ["south"])
    ("; it has '2', which only looks like 2", '')
    """
    own, *others = (unicodedata.normalize("NFKC", str(one)).casefold().strip() for one in (value, *known))
    if own not in others:
        return ""
    return f"; it has {[*known][others.index(own)]!a}, which only looks like {value!a}"


def known_column(argument: str, name: object, columns: Iterable[str]) -> str:
    """The name of a column that is there; raises ValueError naming those that are.

    >>> known_column("by", 0, ["0", "1"])
    '0'
    """
    if str(name) not in (names := list(columns)):
        has = looks_like(name, names) or f"; it has {', '.join(map(repr, names))}"
        raise ValueError(f"{argument} names the column {name!r}, which the table lacks{has}")
    return str(name)


def check_names(column: str, values: list[Any]) -> list[Any]:
    """Names, each of which must be there, and there once.

    >>> check_names("0", [3, 3])
    Traceback (most recent call last):
    ValueError: column '0' must hold each name once, got 3 twice
    """
    seen = set()
    for value in values:
        if value is None or value != value:
            raise ValueError(f"column {column!r} must hold a name in every row, got a missing value")
        if value in seen:
            raise ValueError(f"column {column!r} must hold each name once, got {value!r} twice")
        seen.add(value)
    return values


def chosen_columns(
    argument: str, names: Sequence[Any] | None, ignored: Sequence[Any], columns: Iterable[str]
) -> list[str]:
    """The names of the columns to use: those given, or all that are not ignored.

    >>> chosen_columns("questions", None, ignored=[1], columns=["0", "1", "2"])
    ['0', '2']
    """
    ignored = [known_column("ignore", name, columns) for name in ignored]
    if names is None:
        chosen = [name for name in columns if name not in ignored]
    else:
        chosen = [known_column(argument, name, columns) for name in checks.listed(argument, names)]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{argument} must name each column once, got {chosen}")
    if not chosen:
        raise ValueError(f"{argument} must name at least one column, got none")
    return chosen


def code_values(
    name: str, values: Sequence[Any], *, code: Callable[[Any], int | None], rule: str
) -> dict[Any, int]:
    """The codes of the values of a column, -1 for a missing one; a value whose ``code`` is None raises
    ValueError.

    >>> code_values("age", [None, 4], code={3: 0}.get, rule="must hold 3")
    Traceback (most recent call last):
    ValueError: column 'age' must hold 3, got 4
    """
    try:
        codes = {value: -1 if value is None else code(value) for value in set(values)}
    except TypeError:  # a list, or something else that is no value
        raise ValueError(f"column {name!r} {rule}, got values of type {type(values[0]).__name__}") from None
    for value, own in codes.items():
        if own is None:
            raise ValueError(f"column {name!r} {rule}, got {value!r}")
    return cast(dict[Any, int], codes)


def public_values(argument: str, values: Any, text: bool) -> dict[Any, Any]:
    """Public values, each once and no NaN, by how each stands in the data: as text in files.

    None stands for a missing value, and so does an empty text in a file.

    >>> public_values("candidates", [1, True, None], text=True)
    {'1': 1, 'true': True, None: None}
    """
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        found: dict[Any, Any] = {}
        for listed in values:
            value = listed.item() if hasattr(listed, "item") else listed
            value = str(value) if type(value).__name__ == "Interval" else value  # of pandas
            key = _as_text(value) if text else value
            if key in found or key != key:
                raise ValueError(f"{argument} must hold each value once and no NaN, got {value!r}")
            found[key] = value
    except (TypeError, RuntimeError):  # no list, or of things that are no values
        raise TypeError(f"{argument} must be a list of values, got {values!r}") from None
    return found


def _as_text(value: Any) -> str | None:
    """A value as DuckDB writes it: true and false are lower case there, and an empty cell is missing."""
    text = "" if value is None else str(value)
    return (text.lower() if isinstance(value, bool) else text) or None


def is_array(data: Any) -> bool:
    """Whether ``data`` is numbers without names of columns: an array, a tensor, a Series, or lists of them.

    >>> is_array(np.zeros(3)), is_array([0.0]), is_array(["people.csv"])
    (True, True, False)
    """
    if isinstance(data, list | tuple):
        try:
            return np.asarray(data).dtype.kind in "biuf"
        except (TypeError, ValueError, RuntimeError):  # rows of different lengths
            return False
    is_series = hasattr(data, "__array__") and len(getattr(data, "shape", ())) == 1
    return is_series or isinstance(data, Tensor | np.ndarray)


def as_numpy(data: Any) -> "np.ndarray[Any, Any]":
    """The numbers of what ``is_array``, a tensor's on the CPU; of a Series only the values, and no index.

    >>> as_numpy(torch.ones(2)).tolist()
    [1.0, 1.0]
    """
    if np.ma.is_masked(np.ma.asanyarray(data) if isinstance(data, list | tuple) else data):
        raise ValueError(
            "data must have no masked cells, whose values are no data: fill them or leave them out"
        )
    if isinstance(data, Tensor):
        try:
            return data.detach().cpu().numpy()
        except (TypeError, RuntimeError):  # sparse, without data, or of a dtype that numpy does not have
            raise TypeError(
                f"data must be a dense tensor of numbers, got {data.dtype}, {data.layout} on {data.device}"
            ) from None
    return np.asarray(data)


def are_files(data: Any) -> bool:
    """Whether ``data`` is the name of a file, or a list of them."""
    listed = data if isinstance(data, list | tuple) else [data]
    return len(listed) > 0 and all(isinstance(one, str | Path) for one in listed)


def _table_of_files(engine: "Backend", given: Sequence[str | Path]) -> "ir.Table":
    files: list[str] = []
    for name in map(str, given):
        if not name.lower().endswith((*_CSV, *_PARQUET)):
            raise ValueError(
                f"a name of a file must end in {', '.join((*_CSV, *_PARQUET))}, got {name!r}: texts are "
                "names of files, and a column of values belongs in a frame"
            )
        files += [name] if Path(name).is_file() else sorted(glob(name, recursive=True)) or [name]
    for name in files:
        if not Path(name).is_file():
            raise FileNotFoundError(2, "No such file", name)
    if len({(status.st_dev, status.st_ino) for status in map(os.stat, files)}) < len(files):
        raise ValueError(f"each file must be given once, got one of these twice: {', '.join(files)}")
    parquet = [name.lower().endswith(_PARQUET) for name in files]
    if any(parquet):
        if not all(parquet):
            raise ValueError(f"files must be all CSV or all parquet, got both: {', '.join(files)}")
        return engine.read_parquet([escape(name) for name in files], union_by_name=True)
    (header, delimiter, _), *others = dialects = [_dialect(name) for name in files]
    for name, other in zip(files[1:], others, strict=True):
        if other[:2] != (header, delimiter):
            raise ValueError(f"files must have the same columns in the same order, got {files[0]} and {name}")
    return engine.read_csv(
        [escape(name) for name in files],
        columns=dict.fromkeys(header, "VARCHAR"),
        delim=delimiter,
        # a thread that begins inside a cell takes its lines for rows
        parallel=not any(spans for *_, spans in dialects),
        **_FIXED,
    )


def _dialect(name: str) -> tuple[tuple[str, ...], str, bool]:
    """The header of a CSV file, the delimiter, which the header says, and whether a cell holds a line break.

    Guarantee: unless the file is refused, quotes stand at the ends of cells alone, and a line begins inside a
    cell if and only if the number of quotes before it is odd: no line, whatever it is, changes another one.
    """
    opened = gzip.open if name.lower().endswith(".gz") else open
    try:
        with opened(name, "rb") as file:
            first = file.readline().removeprefix(b"\xef\xbb\xbf")
            delimiter = ";" if b";" in first and b"," not in first else ","
            delimiter = "\t" if ".tsv" in name.lower()[-7:] else delimiter
            file.seek(0)
            spans = _spans(file, delimiter.encode())
        with opened(name, "rt", encoding="utf-8-sig", newline="") as text:
            header = next(csv.reader(text, delimiter=delimiter, strict=True), [])
    except (ValueError, EOFError, csv.Error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} must be CSV in UTF-8 as RFC 4180 has it, got {error}") from None
    if not any(header):
        raise ValueError(f"{name} must begin with a line of names of columns, got none: is it empty?")
    columns = [column or f"column{place}" for place, column in enumerate(header)]
    check_columns(name, columns)
    return tuple(columns), delimiter, spans


def _spans(file: Any, delimiter: bytes) -> bool:
    """Whether a cell of a CSV file holds a line break; raises ValueError where quotes or bytes are wrong."""
    around, inside, spans, first = (b"", delimiter, b"\r", b"\n"), False, False, 1
    while block := file.read(_BLOCK) + file.readline():
        plain = block.isascii() and b'"' not in block
        for at, line in enumerate(() if plain else BytesIO(block), first):
            if not line.isascii():
                try:
                    line.decode()
                except UnicodeDecodeError:
                    raise ValueError(f"other bytes in line {at}: save it as UTF-8") from None
            if b'"' not in line:
                continue
            pieces = line.removeprefix(b"\xef\xbb\xbf" if at == 1 else b"").split(b'"')
            for piece in range(inside, len(pieces), 2):  # those outside quotes
                before, after = pieces[piece][:1] * (piece > 0), pieces[piece][-1:]
                if before not in around or (piece < len(pieces) - 1 and after not in around[:2]):
                    raise ValueError(f"a quote inside a cell in line {at}")
            inside ^= len(pieces) % 2 == 0
            spans |= inside
        first += block.count(b"\n")
    if inside:
        raise ValueError("a quote that nothing closes")
    return spans


@contextmanager
def _errors_in_one_line(what: str) -> Iterator[None]:
    """Makes an error of an engine, whichever it is, a ValueError of one line; those of Python stay.

    An error about a line of a file tells which one it is, and nothing of what stands there.
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__ == "builtins":
            raise
        said = str(error)
        file, line = re.search(r"file = (.*)", said), re.search(r"CSV Error on Line: (\d+)", said)
        if line:
            cells = re.findall(r"Expected Number of Columns: (\d+) Found: (\d+)", said)
            wrong = f"{cells[-1][1]} instead of {cells[-1][0]} cells" if cells else "what is no CSV"
            where = file[1] if file else what
            raise ValueError(f"{where} cannot be read: line {line[1]} has {wrong}") from None
        said = " ".join(re.split(r"\n\n|\nPossible fixes|\nLINE ", said)[0].split())
        raise ValueError(f"{what} cannot be read: {f'{file[1]}: ' if file else ''}{said}") from None


def _of_tables(library: str) -> Any:
    """A library that the extra "tables" brings."""
    try:
        return import_module(library)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "tables need ibis, pyarrow and duckdb: pip install 'ringfence[tables]'"
        ) from None


def _coded_arrays(names: Sequence[str], arrays: Sequence[Any], codes_of: Codes) -> Tensor:
    """``MemoryTable.coded`` of arrays, in int16, some rows at a time and one value after the other."""
    found = np.zeros((len(arrays[0]), len(names)), np.int16)
    for start in range(0, len(found), rows := max(1, _HELD // len(names))):
        block = np.stack([array[start : start + rows] for array in arrays], axis=1)
        left = np.ones(block.shape, bool)
        while left.any():
            place = int(left.argmax())
            [value] = block.flat[[place]].tolist()
            here = block == value
            number = codes_of(names[place % len(names)], [value])[value]
            if abs(number) >= 1 << 15:
                raise ValueError(f"there must be at most {1 << 15:,} different values, got more")
            found[start : start + rows] += here * np.int16(number)  # far faster than at places
            left ^= here
    return torch.from_numpy(found)


def _number_or_nan(value: Any) -> float:
    """A number, or NaN, which is no count; True is no number."""
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _numbers(name: str, values: Sequence[Any]) -> "np.ndarray[Any, Any]":
    try:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"column {name!r} must hold numbers to go into an array: bring a frame instead"
        ) from None
