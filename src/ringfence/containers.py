"""Converts numbers and what holds them (tensors, arrays, lists, Series, DataFrames) to tensors."""

import numpy as np
import torch
from torch import Tensor

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
