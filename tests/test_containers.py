"""Series, DataFrames, integer tensors and lists are accepted wherever numbers are, and mean the same."""

from collections.abc import Callable
from contextlib import chdir
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import ringfence as rf
from ringfence import checks
from tests.fuzz.arguments import FUNCTIONS, PLACE, SLOW, good
from tests.tensors import seeded_releases


def series(values: Any) -> Any:
    """A Series, or a DataFrame where there are rows; the index is not the order of the rows."""
    return (pd.Series if values.ndim < 2 else pd.DataFrame)(values, index=range(len(values), 0, -1))


def polars(values: Any) -> Any:
    return pl.Series(values) if values.ndim < 2 else pl.DataFrame(values)


def has_numbers(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def result(name: str, of: Callable[[Any], Any]) -> str:
    """What the function gives where its arrays come as ``of`` makes them, all else being the same."""
    arguments = good(name)
    for argument, value in arguments.items():
        if has_numbers(value):
            values = np.asarray(value)
            assert (values == values.round()).all(), argument  # else an integer tensor could not hold it
            arguments[argument] = of(values)
        elif isinstance(value, torch.Generator):
            arguments[argument] = torch.Generator().manual_seed(0)
    with seeded_releases(), chdir(PLACE):
        return repr(FUNCTIONS[name][0](**arguments | ({"seed": 0} if "seed" in arguments else {})))


@cache
def of_floats(name: str) -> str:
    return result(name, lambda values: values.astype(np.float64))


# What a model is given is the model's business.
TAKING = [
    name
    for name in FUNCTIONS
    if name not in {*SLOW, "PrivateModule"} and any(map(has_numbers, good(name).values()))
]
CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda values: series(values.astype(np.int64)),
    "polars": lambda values: polars(values.astype(np.int64)),
    "integer tensor": lambda values: torch.from_numpy(values.astype(np.int64)),
    "list": lambda values: values.astype(np.int64).tolist(),
}


@pytest.mark.filterwarnings("ignore:X has feature names")  # of scikit-learn, where arrays were fitted
@pytest.mark.parametrize(  # two for each function, and every pair of neighbours for every fourth
    ("name", "container"),
    [(name, list(CONTAINERS)[(place + more) % 4]) for place, name in enumerate(TAKING) for more in (0, 1)],
)
def test_numbers_are_taken_from_any_container(name: str, container: str) -> None:
    assert result(name, CONTAINERS[container]) == of_floats(name)


def test_masked_cells_are_refused_and_backward_arrays_taken() -> None:
    """A masked cell is no data: its value would be released."""
    hidden = np.ma.masked_array([1.0, 99.0], [False, True])
    with pytest.raises(TypeError, match="theta must not hold masked values"):
        rf.Gaussian(1.0).release(hidden)
    assert checks.tensor("theta", np.ma.masked_array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert checks.tensor("theta", np.array([1.0, 2.0])[::-1]).tolist() == [2.0, 1.0]
