"""Any frame in, the same kind out."""

import sys
from functools import cache
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch

import ringfence as rf
from ringfence.decisions.frames import read_frame

COLUMNS = {"ward": [0, 1, 1, 2] * 50, "sex": [0, 1, 0, 1] * 50}
KINDS = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.table,
    "numpy": lambda columns: np.column_stack(list(columns.values())),
    "torch": lambda columns: torch.tensor(list(columns.values())).T,
}


def plain(frame: Any) -> list[list[float]]:
    """The numbers of any frame, row by row."""
    if hasattr(frame, "to_pydict"):
        frame = pandas.DataFrame(frame.to_pydict())
    if hasattr(frame, "to_numpy"):
        frame = frame.to_numpy()
    return np.asarray(frame, dtype=float).tolist()


@cache
def expected() -> list[list[float]]:
    """The table of a pandas frame."""
    domain = {"ward": [0, 1, 2, 3], "sex": [0, 1]}
    frame = pandas.DataFrame(COLUMNS)
    table = rf.release_counts(frame, ["ward", "sex"], domain=domain, sigma=3.0, noise=rf.Noise(seed=1))
    return plain(table.values)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_numbers_in_its_own_kind(kind: str) -> None:
    data = KINDS[kind](COLUMNS)
    by: list[Any] = ["ward", "sex"] if kind in ("pandas", "polars", "pyarrow") else [0, 1]
    domain = {by[0]: [0, 1, 2, 3], by[1]: [0, 1]}
    table = rf.release_counts(data, by, domain=domain, sigma=3.0, noise=rf.Noise(seed=1))
    assert type(table.values) is type(data)
    assert type(table.errors) is type(data)
    assert plain(table.values) == expected()
    assert len(expected()) == 8


def test_hidden_numbers_are_missing_in_every_kind() -> None:
    columns = {"0": [1, 2], "count": [5, None]}
    for kind, make in KINDS.items():
        made = read_frame(make({"a": [1], "b": [2]})).like(columns)
        assert np.isnan(plain(made)[1][1]), kind


def test_what_a_frame_declares() -> None:
    ordered = pandas.Categorical(["b"], ["b", "a"], ordered=True)
    assert read_frame(pandas.DataFrame({"x": ordered})).declared == {}  # .astype("category").cat.as_ordered()
    seen = pandas.DataFrame({"x": ["b", "a"]}).astype("category")  # categories that happen to occur
    assert read_frame(seen).declared == {}
    chosen = polars.DataFrame({"x": polars.Series(["b"], dtype=polars.Enum(["b", "a"]))})
    assert read_frame(chosen).declared == {"x": ("b", "a")}
    assert read_frame(chosen.cast(polars.Categorical)).declared == {}
    assert read_frame(pyarrow.table({"x": pyarrow.array(["b"]).dictionary_encode()})).declared == {}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({1, 2}, "data must be a frame .* got set"),
        (np.zeros((2, 2, 2)), r"rows and columns, got shape \[2, 2, 2\]"),
        (np.array([["a"]]), "array of numbers"),
        (pandas.DataFrame({"x": [1, "one"]}), "columns of one type each"),
    ],
)
def test_what_is_no_frame_is_refused(data: object, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        read_frame(data)


def test_text_does_not_fit_in_an_array() -> None:
    with pytest.raises(ValueError, match="column 'age' must hold numbers to go into an array"):
        read_frame(np.zeros((1, 1))).like({"age": ["0 to 18"]})


@pytest.mark.parametrize("missing", ["narwhals", "pyarrow", "duckdb"])
def test_the_extra_is_named_where_a_library_is_missing(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=r"ringfence\[tables\]"):
        rf.release_counts(np.zeros((3, 1)), by=[0], domain={0: [0]}, sigma=1.0)


def test_categories_taken_from_the_data_are_no_public_domain() -> None:
    seen = pandas.Series(["flu", "cholera"]).astype("category").cat.as_ordered()
    with pytest.raises(ValueError, match="domain= must list the public values of column 'ill'"):
        rf.release_counts(pandas.DataFrame({"ill": seen}), "ill", sigma=1.0)


@pytest.mark.parametrize(
    "data",
    [
        np.ma.array([3, 8_000_000], mask=[0, 1]),
        [np.ma.array([3, 8_000_000], mask=[0, 1])],
        [3, np.ma.masked],
        np.ma.array([[1, 1], [1, 8_000_000]], mask=[[0, 0], [0, 1]]),
    ],
)
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
def test_a_masked_cell_is_not_released(data: Any) -> None:
    with pytest.raises(ValueError, match="data must have no masked cells"):
        rf.release_counts(data, sigma=1.0)
    with pytest.raises(ValueError, match="masked cells"):
        read_frame(data)
    plain = np.ma.array([3, 4])
    assert rf.release_counts(plain, sigma=1.0).account.details["cell_values"] == [3, 4]
