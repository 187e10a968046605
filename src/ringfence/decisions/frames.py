"""Frames that people bring: pandas, polars, pyarrow, numpy or torch in, and the same kind out.

narwhals reads and makes frames; arrays and tensors are done by hand. Inside, a frame is a pyarrow table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from pyarrow import Table

Columns = Mapping[str, Sequence[Any]]


def tables_extra(what: str) -> ModuleNotFoundError:
    """The error that names the extra which brings narwhals, pyarrow and duckdb.

    >>> tables_extra("frames")
    ModuleNotFoundError("frames need narwhals, pyarrow and duckdb: pip install 'ringfence[tables]'")
    """
    return ModuleNotFoundError(f"{what} need narwhals, pyarrow and duckdb: pip install 'ringfence[tables]'")


@dataclass(frozen=True)
class Frame:
    """A frame as a pyarrow table, and how to make another frame of the same kind.

    ``declared`` has the categories of the columns whose dtype declares them: a polars Enum. A Categorical may
    hold just what occurs in the data, ordered or not, and declares nothing.
    """

    kind: str  # a name of narwhals' backends, "numpy" or "torch"
    table: "Table"
    declared: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def like(self, columns: Columns) -> Any:
        """A frame of the same kind with these columns; None becomes the missing value of that kind.

        >>> from ringfence.decisions.frames import read_frame
        >>> frame = read_frame(np.array([[1, 2], [3, 4]]))
        >>> frame.like({"0": [1, 3], "count": [7, None]})
        array([[ 1.,  7.],
               [ 3., nan]])
        """
        if self.kind in ("numpy", "torch"):
            array = np.column_stack([_numbers(name, values) for name, values in columns.items()])
            return torch.from_numpy(array) if self.kind == "torch" else array
        import narwhals

        made = {name: list(values) for name, values in columns.items()}
        return narwhals.from_dict(made, backend=self.kind).to_native()  # type: ignore[arg-type]


def read_frame(data: Any) -> Frame:
    """Any frame that narwhals knows, an array of numbers or a tensor.

    The columns of an array or tensor have their numbers as names.

    >>> read_frame(torch.tensor([[1, 2], [3, 4]])).table.column_names
    ['0', '1']
    >>> read_frame({1, 2})
    Traceback (most recent call last):
    TypeError: data must be a frame (pandas, polars, pyarrow), an array, a tensor or files, got set
    """
    try:
        import narwhals
        import pyarrow
    except ModuleNotFoundError:
        raise tables_extra("tables") from None
    if is_array(data):
        array = as_numpy(data)
        if array.ndim > 2 or array.dtype.kind not in "biuf" or array.dtype.char in "eg":  # no float16
            raise ValueError(
                f"data must be an array of numbers with rows and columns, got shape {list(array.shape)} "
                f"of {array.dtype}"
            )
        array = array.reshape(-1, 1) if array.ndim < 2 else array
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        columns = {str(number): column for number, column in enumerate(array.T)}
        kind = "torch" if isinstance(data, Tensor) else "numpy"
        return Frame(kind, pyarrow.table(columns))
    try:
        frame = narwhals.from_native(data, eager_only=True)
    except TypeError:
        raise TypeError(
            "data must be a frame (pandas, polars, pyarrow), an array, a tensor or files, "
            f"got {type(data).__name__}"
        ) from None
    try:
        table = frame.to_arrow()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"data must have columns of one type each: {error.args[0]}") from None
    declared = {
        str(name): tuple(dtype.categories)
        for name, dtype in frame.schema.items()
        if isinstance(dtype, narwhals.Enum) and frame.implementation.is_polars()
    }
    return Frame(frame.implementation.value, table, declared)


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


def _numbers(name: str, values: Sequence[Any]) -> "np.ndarray[Any, Any]":
    try:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"column {name!r} must hold numbers to go into an array: bring a frame instead"
        ) from None
