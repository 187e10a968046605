"""What holds for every call, however bad its arguments: no NaN, or an error that names an argument."""

import builtins
import dataclasses
import inspect
import math
import re
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ringfence.accounting.calibration import PerInstanceCalibrationWarning
from ringfence.report.chart import Chart

# What a refusal may name beside the arguments: their parts.
PARTS = (
    *("sigma", "bound", "lower", "upper", "theta", "mechanism", "orders", "each", "norm", "at_most", "state"),
    *("law", "kind", "parameter", "parameters", "sensitivity"),
)


class ContractError(AssertionError):
    """A call broke the contract; the message repeats the call."""


def calls_well(
    function: Callable[..., Any], *args: Any, names: Iterable[str] = (), ours: bool = False, **kwargs: Any
) -> Any:
    """The result of a call, which holds no NaN, or None where it was refused as it should be.

    A refusal is a ValueError or a TypeError whose message contains the name of an argument (those of
    the signature, and ``names``), or a FloatingPointError of ours: what was asked is beyond what floats
    hold. Anything else is ``ContractError``: other errors, warnings (which are errors here), NaN. With
    ``ours`` the error must come from a ``raise`` of this package, not from another library or from Python.

    >>> calls_well(math.sqrt, -1.0)
    Traceback (most recent call last):
    tests.fuzz.contract.ContractError: sqrt(-1.0)
        raised ValueError: math domain error
        which names none of x
    >>> calls_well(math.sqrt, 4.0)
    2.0
    """
    allowed = sorted({*names, *_parameters(function)})
    try:
        with warnings.catch_warnings():
            # about speed alone
            warnings.filterwarnings("ignore", "Creating a tensor from a list of numpy.ndarrays")
            # which belongs to the answer
            warnings.simplefilter("ignore", PerInstanceCalibrationWarning)
            result = function(*args, **kwargs)
    except Exception as error:
        complaint = _complaint(error, allowed) or (_stranger(error) if ours else "")
        if complaint:
            call = _call(function, args, kwargs)
            raise ContractError(
                f"{call}\n    raised {type(error).__name__}: {error}\n    {complaint}"
            ) from error
        return None
    place = nan_in(result)
    if place is not None:
        raise ContractError(f"{_call(function, args, kwargs)}\n    gave a NaN{place}: {result!r}")
    return result


def as_in_the_tests() -> None:
    """One thread, and warnings are errors but for those that pyproject.toml lists."""
    torch.set_num_threads(1)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    for line in project["tool"]["pytest"]["ini_options"]["filterwarnings"]:
        action, message, category, *_ = [*line.split(":"), "", ""]
        warnings.filterwarnings(action, message, getattr(builtins, category or "Warning"))


def nan_in(value: Any, place: str = "") -> str | None:
    """Where a NaN is: in a number, a tensor, an array, a container or a dataclass; in a chart it is a gap.

    >>> nan_in({"a": [1.0, math.nan]}), nan_in(torch.ones(3))
    ("['a'][1]", None)
    """
    if isinstance(value, torch.Tensor):
        return place if value.is_floating_point() and bool(torch.isnan(value).any()) else None
    if isinstance(value, np.ndarray | np.generic):
        return place if value.dtype.kind in "fc" and bool(np.isnan(value).any()) else None
    if isinstance(value, float):
        return place if math.isnan(value) else None
    parts: list[tuple[str, Any]] = []
    if isinstance(value, Chart):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        parts = [(f"[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"[{index}]", part) for index, part in enumerate(value)]
    return next((found for name, part in parts if (found := nan_in(part, place + name)) is not None), None)


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return [
            name for name in inspect.signature(function).parameters if name not in ("self", "args", "kwargs")
        ]
    except (TypeError, ValueError):
        return []


def _complaint(error: Exception, names: list[str]) -> str:
    if isinstance(error, FloatingPointError):
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "" if "ringfence" in last.filename else "which is not one of ours"
    if not isinstance(error, ValueError | TypeError):
        return "which is neither ours nor a ValueError or a TypeError"
    named = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in names)
    return "" if named else f"which names none of {', '.join(names)}"


def _stranger(error: Exception) -> str:
    """Where an error comes from, unless it is a ``raise`` of this package."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = "/ringfence/" in last.filename and (last.line or "").startswith("raise ")
    return "" if own else f"which comes from {last.filename}:{last.lineno}: {last.line}"


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", repr(function))
    shown = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    prefix = f"{owner!r}." if owner is not None and not inspect.ismodule(owner) else ""
    return f"{prefix}{name}({', '.join(shown)})"
