"""Checks of arguments: each returns the value, or raises an error that names the argument and the value."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from sys import float_info
from typing import Any

import numpy as np
import torch
from torch import Tensor

Real = float | int | Tensor
Bound = Real | tuple[Real, Real]

_MOST = 2**63 - 1  # the largest count: what a tensor and a file can hold

_FLOATS = (torch.float64, torch.float32)
_INTEGERS = (
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
)


def tensor(name: str, value: object) -> Tensor:
    """``value``, a number or a container of numbers, as a float32 or float64 tensor; it may hold NaN.

    Of a Series or a DataFrame only the values count, in their order, and no index. Arrays and tensors of
    floats keep their dtype; all others become float64.

    Guarantee: an integer of an array or a tensor is that number in float64, or is refused: a rounded count
    could move further than one record moves it.

    >>> tensor("sigma", 2)
    tensor(2., dtype=torch.float64)
    >>> tensor("theta", torch.tensor([3, 4]))
    tensor([3., 4.], dtype=torch.float64)
    """
    if value is None or isinstance(value, bool | np.bool_ | str | bytes):
        raise TypeError(f"{name} must be a number or a tensor, got {value!r}")
    if np.ma.is_masked(value):
        raise TypeError(f"{name} must not hold masked values, got {value!r}: fill or leave them out")
    try:
        values = _as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(f"{name} must be a number or a tensor, got {type(value).__name__}") from None
    if values.dtype not in (*_FLOATS, *_INTEGERS):
        raise TypeError(f"{name} must be float32 or float64, got {values.dtype}")
    if values.layout != torch.strided or values.is_meta:
        raise TypeError(f"{name} must be dense and hold numbers, got {values.layout} on {values.device}")
    return _exact(name, values) if values.dtype in _INTEGERS else values.detach()


def _as_tensor(value: object) -> Tensor:
    """Converts a Series or a DataFrame by its values, and a number or a list to float64, Python's own."""
    if isinstance(value, Tensor):
        return value
    if type(value) is float:
        return torch.tensor(value, dtype=torch.float64)
    if not hasattr(value, "__array__"):
        values = torch.as_tensor(value)
        return values if values.is_complex() else torch.as_tensor(value, dtype=torch.float64)
    array = np.asarray(value)
    if not array.flags.writeable or min(array.strides, default=0) < 0 or array is not value:
        array = np.array(array, order="C")  # a copy: torch takes no array that is read-only or backwards
    values = torch.as_tensor(array)
    return values.double() if values.dtype == torch.bool else values


def _exact(name: str, integers: Tensor) -> Tensor:
    """Converts integers to float64, which must hold them exactly."""
    values = integers.double()
    if not bool((values.abs() < 2.0**53).all()):
        raise ValueError(
            f"{name} must be integers within 2^53 of 0, or floats, got {values.abs().max().item()!r}"
        )
    return values


def real(name: str, value: object) -> Tensor:
    """``value`` as ``tensor`` takes it, without NaN."""
    values = tensor(name, value)
    return require(name, "must not be NaN", values, ~torch.isnan(values))


def finite(name: str, value: object) -> Tensor:
    """``value`` as ``tensor`` takes it, without NaN and infinity."""
    values = tensor(name, value)
    # one pass, no copy, and a GPU is waited for once
    short = values.numel() < 2
    ends = values.reshape(-1) if short else torch.stack(torch.aminmax(values))
    if not all(map(math.isfinite, ends.tolist())):
        require(name, "must not be NaN", values, ~torch.isnan(values))
        require(name, "must be finite", values, torch.isfinite(values))
    return values


def require(name: str, rule: str, tensor: Tensor, holds: Tensor) -> Tensor:
    """``tensor``, or a ValueError with the rule and the first value that breaks the rule."""
    if bool(holds.all()):
        return tensor
    holds = holds.expand_as(tensor) if holds.numel() == 1 else holds
    index = tuple((~holds).nonzero()[0].tolist())
    place = f" at index {list(index)}" if index else ""
    raise ValueError(f"{name} {rule}, got {tensor[index].item()!r}{place}")


def positive(name: str, value: object) -> Tensor:
    """``value``, finite and above 0.

    >>> positive("sigma", -1.0)
    Traceback (most recent call last):
    ValueError: sigma must be > 0, got -1.0
    """
    tensor = finite(name, value)
    return require(name, "must be > 0", tensor, tensor > 0)


def order(name: str, value: object) -> Tensor:
    """``value``, the finite order of a Rényi divergence, above 1."""
    tensor = finite(name, value)
    return require(name, "must be > 1", tensor, tensor > 1)


def interval(name: str, value: object, *, bounded: bool = False) -> tuple[Tensor, Tensor]:
    """(lower, upper) from a pair, or (-value, value) from one positive number or tensor.

    An end may be infinite unless ``bounded``.

    >>> [end.item() for end in interval("bound", 2.0)]
    [-2.0, 2.0]
    """
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise ValueError(f"{name} must be a number or a pair (lower, upper), got {value!r}")
        lower, upper = real(f"{name}[0]", value[0]), real(f"{name}[1]", value[1])
    else:
        upper = real(name, value)
        require(name, "must be > 0", upper, upper > 0)
        lower = -upper
    shape = broadcast((f"{name}[0]", f"{name}[1]"), (lower, upper))
    lower, upper = lower.expand(shape), upper.expand(shape)
    empty = ~(lower < upper)
    if bool(empty.any()):
        first = tuple(empty.nonzero()[0].tolist())
        ends = [end[first].item() for end in (lower, upper)]
        raise ValueError(f"{name} must have lower < upper, got ({ends[0]!r}, {ends[1]!r})")
    if bounded:
        for end in (lower, upper):
            require(name, "must be finite", end, torch.isfinite(end))
        require(name, "must have a finite width", upper, torch.isfinite(upper - lower))
    return lower, upper


def count(name: str, value: object, *, at_least: int, at_most: int = _MOST) -> int:
    """``value``, an integer from ``at_least`` to ``at_most``.

    >>> count("steps", 0, at_least=1)
    Traceback (most recent call last):
    ValueError: steps must be at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, Integral):  # numpy's integers are among them
        raise TypeError(f"{name} must be an integer, got {value!r}")
    value = int(value)
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    if value > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {value}")
    return value


def seed(value: object) -> int:
    """``value``, the seed of random numbers, an integer of up to 256 bits.

    >>> seed(2**200) == 2**200
    True
    """
    return count("seed", value, at_least=0, at_most=2**256 - 1)


def flag(name: str, value: object) -> bool:
    """``value``, which must be True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def rounded(dtype: torch.dtype, name: str, value: object, check: Callable[[str, object], Tensor]) -> Tensor:
    """``value`` in this dtype, checked before and after (float32 may round it)."""
    tensor = check(name, value)
    return tensor if tensor.dtype == dtype else check(f"{name} (as {dtype})", tensor.to(dtype))


def like(theta: Tensor, name: str, value: object, check: Callable[[str, object], Tensor]) -> Tensor:
    """``value`` on theta's device and in its dtype, checked."""
    # moved at last: a check on a GPU waits for it
    return rounded(theta.dtype, name, value, check).to(theta.device)


def broadcast(names: Sequence[str], tensors: Sequence[Tensor]) -> torch.Size:
    """The common shape, or a ValueError that lists the shape of each argument."""
    try:
        shape: torch.Size = torch.broadcast_tensors(*tensors)[0].shape
        return shape
    except RuntimeError:
        shapes = ", ".join(
            f"{name} {list(tensor.shape)}" for name, tensor in zip(names, tensors, strict=True)
        )
        raise ValueError(f"shapes do not broadcast: {shapes}") from None


def instance(name: str, value: Any, kind: type) -> Any:
    """``value``, which must be of this kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
    return value


def path(name: str, value: Any) -> Path:
    """``value``, the name of a file, which need not be there yet."""
    try:
        if (encoded := os.fsencode(value)) and b"\0" not in encoded:
            return Path(os.fsdecode(value))
    except (TypeError, ValueError):  # no name, or none that a file can have
        pass
    raise TypeError(f"{name} must be the name of a file, got {value!r}")


def device(value: object) -> torch.device:
    """``value``, a device that torch has here, or its name."""
    name = str(value) if isinstance(value, torch.device) else instance("device", value, str)
    try:
        return torch.zeros((), device=name).device
    except (RuntimeError, AssertionError):  # torch built without it
        raise ValueError(f"device must be cpu, or one that torch has here, got {value!r}") from None


def mapping(name: str, value: object) -> dict[str, Any]:
    """``value``, which must be a dict."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, got {type(value).__name__}")
    return value


def listed(name: str, value: object, length: int | None = None) -> Sequence[Any]:
    """``value``, which must be a list, a tuple or an array of names, of ``length`` if that is given."""
    if hasattr(value, "tolist") and not isinstance(value, Tensor):
        value = value.tolist()
    if not isinstance(value, list | tuple | range) or length not in (None, len(value)):
        raise ValueError(f"{name} must be a list{f' of {length}' if length else ''}, got {value!r}")
    return value


def keys(name: str, state: object, expected: set[str]) -> None:
    """Raises ValueError naming missing and unknown keys, unless the state is a dict with exactly these."""
    given = set(mapping(name, state))
    missing, unknown = (sorted(some, key=str) for some in (expected - given, given - expected))
    if missing or unknown:
        raise ValueError(f"{name} has missing keys {missing}, unknown keys {unknown}")


def _between(name: str, value: object, interval: str, holds: Callable[[float], bool]) -> float:
    found = number(name, value)
    if not holds(found):
        raise ValueError(f"{name} must be in {interval}, got {value!r}")
    return found


def probability(name: str, value: object) -> float:
    """``value``, a number strictly between 0 and 1."""
    return _between(name, value, "(0, 1)", lambda share: 0 < share < 1)


def probability_or_zero(name: str, value: object) -> float:
    """``value``, a number from 0 on and below 1: a delta where pure differential privacy is possible."""
    return _between(name, value, "[0, 1)", lambda share: 0 <= share < 1)


def rate(name: str, value: object) -> float:
    """``value``, a number above 0 and at most 1; a subnormal number counts as 0."""
    return _between(name, value, "(0, 1]", lambda share: float_info.min <= share <= 1)


def share(name: str, value: object) -> Tensor:
    """``value``, from 0 to 1."""
    tensor = finite(name, value)
    return require(name, "must be in [0, 1]", tensor, (tensor >= 0) & (tensor <= 1))


def not_negative(name: str, value: object) -> Tensor:
    """``value``, finite and at least 0."""
    tensor = finite(name, value)
    return require(name, "must be >= 0", tensor, tensor >= 0)


def number(name: str, value: object, check: Callable[[str, object], Tensor] = finite) -> float:
    """``value`` as a float: one number, which passes ``check``.

    >>> number("delta", 0.5)
    0.5
    """
    tensor = check(name, value)
    if tensor.numel() != 1:
        raise ValueError(f"{name} must be a single number, got shape {list(tensor.shape)}")
    return float(tensor)


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """``value``, which must be one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {sorted(known)}, got {value!r}")
    return value


def sums(name: str, values: object, count: int) -> Tensor:
    """A saved list of running sums, one per order, in float64."""
    result = not_negative(name, values).double()
    if result.shape != (count,):
        raise ValueError(f"{name} must hold {count} sums, got {list(result.shape)}")
    return result


def missing_attribute(kind: str, name: str, renamed: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that is not there, which says what it is called now if it was renamed."""
    if name in renamed:
        return AttributeError(f"{kind}.{name} is now {kind}.{renamed[name]}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}")


def state(kind: str, version: int, value: object, expected: set[str]) -> None:
    """Raises ValueError unless a saved state is of this kind and version, with exactly the expected keys."""
    keys(f"state of {kind}", value, {"kind", "version", *expected})
    for name, wanted in (("kind", kind), ("version", version)):
        found = mapping(kind, value)[name]
        if type(found) is not type(wanted) or found != wanted:
            raise ValueError(f"{name} must be {wanted!r}, got {found!r}")
