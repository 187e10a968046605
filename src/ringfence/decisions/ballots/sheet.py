"""Columns of ballots or of counts, in memory, whatever they came in: a frame, files, an array or a tensor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.decisions.frames import Columns, as_numpy, is_array, read_frame
from ringfence.decisions.tables.rows import is_list_of_names, open_rows

_LARGEST = 2.0**50  # a count; its neighbours are then whole numbers in float64


@dataclass(frozen=True)
class Sheet:
    """The columns of a table by name, and how to make a table of the same kind.

    ``text`` says that values are compared as text, because the table comes from files. A missing value is
    null in a frame, NaN in a frame of pandas and an empty cell in a file; arrays and tensors have none.
    """

    columns: Mapping[str, Any]  # of pyarrow, or arrays
    text: bool
    made: Callable[[Columns], Any] | None  # None for arrays
    tensor: bool = False

    def like(self, columns: Columns, codes: Mapping[Any, int]) -> Any:
        """A frame with these columns; for arrays, the last column alone, with ``codes`` in place of names.

        >>> answers = {"question": ["0", "1"], "answer": ["yes", "no"]}
        >>> read_sheet(np.eye(2)).like(answers, {"yes": 1, "no": -1})
        array([ 1, -1])
        """
        if self.made is not None:
            return self.made(columns)
        last = list(columns.values())[-1]
        array = np.array([value if isinstance(value, float) else codes[value] for value in last])
        return torch.from_numpy(array) if self.tensor else array

    def chosen(self, argument: str, names: Sequence[Any] | None, ignored: Sequence[Any]) -> list[str]:
        """The names of the columns to use: those given, or all that are not ignored.

        >>> read_sheet(np.eye(3)).chosen("questions", None, ignored=[1])
        ['0', '2']
        """
        ignored = [self.known("ignore", name) for name in ignored]
        if names is None:
            chosen = [name for name in self.columns if name not in ignored]
        else:
            chosen = [self.known(argument, name) for name in checks.listed(argument, names)]
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"{argument} must name each column once, got {chosen}")
        if not chosen:
            raise ValueError(f"{argument} must name at least one column, got none")
        return chosen

    def known(self, argument: str, name: object) -> str:
        """The name of a column that is there."""
        if str(name) not in self.columns:
            raise ValueError(
                f"{argument} names the column {name!r}, which the table lacks; it has "
                f"{', '.join(map(repr, self.columns))}"
            )
        return str(name)

    def coded(self, name: str, code: Callable[[Any], int | None], missing: int, rule: str) -> Tensor:
        """A column of few different values as numbers; where ``code`` gives None the value is refused.

        >>> read_sheet(np.array([[3], [4]])).coded("0", {3: 0}.get, -1, "must hold 3")
        Traceback (most recent call last):
        ValueError: column '0' must hold 3, got 4
        """
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            different, places = np.unique(column, return_inverse=True)
            values, numbers = different.tolist(), torch.from_numpy(places.reshape(-1))
        else:
            import pyarrow.compute

            if pyarrow.types.is_null(column.type):  # nothing but missing values
                return torch.full((len(column),), missing, dtype=torch.int64)
            if pyarrow.types.is_nested(column.type):
                raise ValueError(f"column {name!r} {rule}, got values of type {column.type}")
            enum = pyarrow.types.is_dictionary(column.type)
            plain = column.cast(column.type.value_type) if enum else column
            encoded = pyarrow.compute.dictionary_encode(plain).combine_chunks()
            if hasattr(encoded, "chunks"):  # a column without rows
                return torch.zeros(0, dtype=torch.int64)
            values = [*encoded.dictionary.to_pylist(), None]
            indices = encoded.indices.fill_null(len(values) - 1)
            numbers = torch.from_numpy(indices.to_numpy(zero_copy_only=False).astype(np.int64))
        codes = []
        for value in values:
            own = missing if value is None else code(value)
            if own is None:
                raise ValueError(f"column {name!r} {rule}, got {value!r}")
            codes.append(own)
        return torch.tensor(codes, dtype=torch.int64)[numbers]

    def counts(self, name: str) -> Tensor:
        """A column of whole numbers from 0 on, in float64.

        >>> read_sheet(np.array([[3.0], [0.5]])).counts("0")
        Traceback (most recent call last):
        ValueError: column '0' must hold counts (0, 1, 2, ...), got 0.5
        """
        column = self.columns[name]
        raw = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
        numbers = torch.tensor([_count(value) for value in raw], dtype=torch.float64)
        fits = (numbers >= 0) & (numbers == numbers.round()) & (numbers < _LARGEST)
        if not bool(fits.all()):
            bad = raw[int((~fits).nonzero()[0])]
            what = "a missing value" if bad is None else repr(bad)
            raise ValueError(f"column {name!r} must hold counts (0, 1, 2, ...), got {what}")
        return numbers

    def names(self, name: str) -> list[Any]:
        """A column of names, each of which is there and stands there once.

        >>> read_sheet(np.array([[3], [3]])).names("0")
        Traceback (most recent call last):
        ValueError: column '0' must hold each name once, got 3 twice
        """
        column = self.columns[name]
        values = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
        seen = set()
        for value in values:
            if value is None or value != value:
                raise ValueError(f"column {name!r} must hold a name in every row, got a missing value")
            if value in seen:
                raise ValueError(f"column {name!r} must hold each name once, got {value!r} twice")
            seen.add(value)
        return list(values)


def read_sheet(data: Any) -> Sheet:
    """A frame, CSV or parquet files, or an array or tensor with rows and columns.

    >>> list(read_sheet(torch.zeros(5, 2)).columns)
    ['0', '1']
    """
    if is_array(data):
        array = as_numpy(data)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise ValueError(
                f"data must be an array of numbers with rows and columns, got shape {list(array.shape)} "
                f"of {array.dtype}"
            )
        columns = {str(number): column for number, column in enumerate(array.T)}
        return Sheet(columns, text=False, made=None, tensor=isinstance(data, Tensor))
    if isinstance(data, str | Path) or is_list_of_names(data):
        with open_rows(data) as rows:
            table = rows.table()
        return Sheet(dict(zip(table.column_names, table.columns, strict=True)), text=True, made=rows.like)
    frame = read_frame(data)
    table = frame.table
    return Sheet(dict(zip(table.column_names, table.columns, strict=True)), text=False, made=frame.like)


def _count(value: Any) -> float:
    """A number, or NaN, which is no count."""
    if isinstance(value, bool):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
