"""Files of features with labels are read without running anything that is in them.

    .npz                 arrays under one of these sets of names:
        features, labels                  and perhaps test_features, test_labels
        train_features, train_labels      and perhaps test_features, test_labels
        x_train, y_train                  and perhaps x_test, y_test
        f_train, y_train                  and perhaps f_test, y_test
        q_train, y_train                  and perhaps q_test, y_test; uint8 q stands for 6 (q / 255)^2
    .parquet             a column ``label``; a column ``features`` of lists, or else every other column of
                         numbers is a feature; perhaps a column ``split`` that says train or test

Other arrays and columns are not read. Features are numbers, and labels are integers (in parquet also text).
``read_theta`` reads what is released before noise, the numbers of a .npy file.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Arrays = dict[str, NDArray[Any]]
_TEST = ("test_features", "test_labels")
_NAMES = (
    ("features", "labels", *_TEST),
    ("train_features", "train_labels", *_TEST),
    *((f"{x}_train", "y_train", f"{x}_test", "y_test") for x in "xfq"),
)
_KNOWN = {name for names in _NAMES for name in names}
# the 256 levels of quantised features, finer near 0, over the range of ReLU6
_QUANTISED: NDArray[np.float32] = (6 * (np.arange(256) / 255) ** 2).astype(np.float32)


@dataclass(frozen=True)
class Features:
    """Features (n, p) in float32 and labels (n,), int64 or text, for training and perhaps for a test.

    >>> Features(np.zeros((3, 2), np.float32), np.array([0, 1, 1])).test_features is None
    True
    """

    train_features: NDArray[np.float32]
    train_labels: NDArray[Any]
    test_features: NDArray[np.float32] | None = None
    test_labels: NDArray[Any] | None = None


def read_features(path: Path) -> Features:
    """Reads the features and labels of a file, whose ending says how (see above).

    There is a test split only where the file has one.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "data.npz"
    ...     np.savez(file, x_train=np.eye(3), y_train=[0, 1, 1], x_test=np.ones((1, 3)), y_test=[1])
    ...     read_features(file).test_labels
    array([1])
    """
    readers = {".npz": read_archive, ".parquet": _parquet}
    if path.suffix not in readers:
        raise ValueError(
            f"{path} must end in .npz or .parquet: write other arrays by numpy.savez(FILE, features=..., "
            "labels=...)"
        )
    return _from_arrays(path, readers[path.suffix](path))


def read_array(path: Path) -> NDArray[Any]:
    """Reads the array in a .npy file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "a.npy"), [1, 2])
    ...     read_array(Path(folder, "a.npy"))
    array([1, 2])
    """
    with path.open("rb") as file:
        try:
            values = np.load(file, allow_pickle=False)
        except Exception:  # damaged bytes raise errors of many kinds
            raise ValueError(f"{path} is not a .npy file of numbers") from None
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{path} must hold one array, got {type(values).__name__}")
    return values


def read_theta(path: Path) -> Tensor:
    """The numbers of a .npy file as a vector; integers become float64.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "theta.npy", np.array([[1, 2]]))
    ...     read_theta(Path(folder) / "theta.npy")
    tensor([1., 2.], dtype=torch.float64)
    """
    values = read_array(path)
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{path} must hold numbers, got {values.dtype}")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if values.size == 0:
        raise ValueError(f"{path} must hold at least one coordinate, got none")
    return torch.from_numpy(np.ascontiguousarray(values)).reshape(-1)


def _from_arrays(path: Path, arrays: Arrays) -> Features:
    found = [names for names in _NAMES if names[0] in arrays]
    if len(found) != 1:
        wanted, got = ", ".join(names[0] for names in _NAMES), ", ".join(names[0] for names in found)
        raise ValueError(f"{path} must hold features under one of {wanted}, got {got or 'none of them'}")
    splits = []
    for features, labels in (found[0][:2], found[0][2:]):
        given = [key for key in (features, labels) if key in arrays]
        if not given:
            continue
        if len(given) == 1:
            raise ValueError(f"{path} must hold both {features} and {labels}, got {given[0]} alone")
        x, y = _numbers(path, features, arrays[features]), _labels(path, labels, arrays[labels])
        if len(x) != len(y):
            raise ValueError(f"{path}: {features} holds {len(x)} examples, {labels} {len(y)}")
        splits.append((x, y))
    if len(splits) == 2 and splits[0][0].shape[1] != splits[1][0].shape[1]:
        widths = " and ".join(str(values.shape[1]) for values, _ in splits)
        raise ValueError(f"{path}: {found[0][0]} and {found[0][2]} must be as wide, got {widths}")
    return Features(*(array for split in splits for array in split))


def _numbers(path: Path, key: str, values: NDArray[Any]) -> NDArray[np.float32]:
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{path}: {key} must hold numbers, got {values.dtype}")
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{path}: {key} must have shape (n, p) and not be empty, got {list(values.shape)}")
    if key.startswith("q_"):
        if values.dtype != np.uint8:
            raise ValueError(f"{path}: {key} must be uint8, got {values.dtype}")
        return np.take(_QUANTISED, values)
    with np.errstate(over="ignore"):  # refused below
        single = np.ascontiguousarray(values, dtype=np.float32)
    finite = np.isfinite(single)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        value = values[row, column]
        raise ValueError(f"{path}: {key} must be finite in float32, got {value} at index [{row}, {column}]")
    return single


def _labels(path: Path, key: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1:
        raise ValueError(f"{path}: {key} must have shape (n,), got {list(values.shape)}")
    if values.dtype.kind == "U" and path.suffix == ".parquet":
        return values
    if values.dtype.kind not in "iu":
        raise ValueError(f"{path}: {key} must hold integers, got {values.dtype}")
    if values.size and values.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{path}: {key} must fit int64, got {values.max()}")
    return values.astype(np.int64)


def read_archive(path: Path, names: Collection[str] = _KNOWN) -> Arrays:
    """Reads those of the named arrays that a .npz file holds, whose checksums must be right.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "two.npz"
    ...     np.savez(file, features=np.eye(2), other=[0, 1])
    ...     list(read_archive(file))
    ['features']
    """
    arrays, at = {}, f"{path} is not a .npz file of arrays"
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                if archive.zip.testzip() is not None:
                    raise ValueError(at)
                for key in sorted(set(names) & set(archive.files)):
                    at = f"{path}: {key} cannot be read as an array of numbers"
                    arrays[key] = archive[key]
        except Exception:  # damaged bytes raise errors of many kinds
            raise ValueError(at) from None
    return arrays


def _parquet(path: Path) -> Arrays:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(".parquet files need pyarrow: pip install 'ringfence[tables]'") from None
    path.open("rb").close()
    try:
        return _from_table(path, arrow.types, parquet.read_table(path, partitioning=None))
    except (arrow.ArrowException, OSError, MemoryError) as error:
        raise ValueError(f"{path} is not a .parquet file that can be read: {error}") from None


def _from_table(path: Path, types: Any, table: Any) -> Arrays:
    def column(name: str) -> Any:
        if table.column_names.count(name) != 1:
            raise ValueError(f"{path} must have one column {name}, got {table.column_names.count(name)}")
        if table[name].null_count:
            raise ValueError(f"{path}: {name} must not have missing values, got {table[name].null_count}")
        return table[name].combine_chunks()

    if "features" in table.column_names:
        x = _lists(path, column("features"))
    else:
        fields = [field for field in table.schema if field.name not in ("label", "split")]
        numbers = [f.name for f in fields if types.is_integer(f.type) or types.is_floating(f.type)]
        if not numbers:
            raise ValueError(f"{path} must have a column features or columns of numbers, got neither")
        x = np.stack([column(name).to_numpy(zero_copy_only=False) for name in numbers], axis=1)
    y = np.array(column("label").to_pylist())
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
