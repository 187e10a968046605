"""Parquet files of features: a column of labels, and lists or columns of numbers."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


def read_parquet(path: Path) -> Arrays:
    """Reads the arrays of a .parquet file under the names that ``read_features`` knows.

    >>> import pyarrow, pyarrow.parquet
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "data.parquet"
    ...     table = pyarrow.table({"height": [1.5, 2.5], "label": ["cat", "dog"]})
    ...     pyarrow.parquet.write_table(table, file)
    ...     read_parquet(file)["labels"]
    array(['cat', 'dog'], dtype='<U3')
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(".parquet files need pyarrow: pip install 'ringfence[tables]'") from None
    path.open("rb").close()  # a missing file is the system's error, and not a damaged file
    try:
        table = parquet.read_table(path, partitioning=None)
    except (arrow.ArrowException, OSError, MemoryError) as error:
        raise ValueError(f"{path} is not a .parquet file: {error}") from None
    try:
        return _from_table(path, arrow.types, table)
    except arrow.ArrowException as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _from_table(path: Path, types: Any, table: Any) -> Arrays:
    def column(name: str) -> Any:
        if table.column_names.count(name) != 1:
            raise ValueError(f"{path} must have one column {name}, got {table.column_names.count(name)}")
        values = table[name].combine_chunks()
        if values.null_count:
            raise ValueError(f"{path}: {name} must not have missing values, got {values.null_count}")
        return values.dictionary_decode() if types.is_dictionary(values.type) else values

    labels = column("label")
    text = types.is_string(labels.type) or types.is_large_string(labels.type)
    if not text and not types.is_integer(labels.type):
        raise ValueError(f"{path}: label must hold integers or text, got {labels.type}")
    y = np.array(labels.to_pylist(), dtype=np.str_) if text else labels.to_numpy(zero_copy_only=False)
    if "features" in table.column_names:
        x = _lists(path, column("features"))
    else:
        fields = [field for field in table.schema if field.name not in ("label", "split")]
        numbers = [f.name for f in fields if types.is_integer(f.type) or types.is_floating(f.type)]
        if not numbers:
            raise ValueError(f"{path} must have a column features or columns of numbers, got neither")
        x = np.stack([column(name).to_numpy(zero_copy_only=False) for name in numbers], axis=1)
    if "split" not in table.column_names:
        return {"features": x, "labels": y}
    split = np.array(column("split").to_pylist(), dtype=np.str_)
    unknown = set(split.tolist()) - {"train", "test"}
    if unknown:
        raise ValueError(f"{path}: split must be train or test, got {min(unknown)!r}")
    train, test = split == "train", split == "test"
    arrays = {"features": x[train], "labels": y[train]}
    return {**arrays, "test_features": x[test], "test_labels": y[test]} if test.any() else arrays


def _lists(path: Path, column: Any) -> NDArray[Any]:
    lengths = set(column.value_lengths().to_pylist()) if hasattr(column, "value_lengths") else set()
    if len(lengths) != 1:
        raise ValueError(f"{path}: features must be lists of one length, got lengths {sorted(lengths)}")
    values = column.flatten()
    if values.null_count:
        raise ValueError(f"{path}: features must not have missing values, got {values.null_count}")
    flat: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), -1)
