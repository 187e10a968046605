"""What a case is: a function from nothing to numbers by name."""

from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ringfence import Gaussian, QuantizedGaussian, RectifiedGaussian, StochasticSign, TruncatedGaussian
from ringfence.accounting.guarantee import Guarantee
from ringfence.mechanisms.base import Mechanism
from tests.tensors import float64

Values = dict[str, Any]  # tensors, numbers, or lists of them
CASES: dict[str, Callable[[], Values]] = {}

DELTAS = (1e-12, 1e-5, 0.1)
_GOLDEN = (5**0.5 - 1) / 2


def over(arguments: Iterable[Any]) -> Callable[[Callable[[Any], Values]], Callable[[Any], Values]]:
    """A case for each argument: a law goes by its name, everything else by how it prints."""

    def listed(function: Callable[[Any], Values]) -> Callable[[Any], Values]:
        for argument in arguments:
            label = argument.name if isinstance(argument, Mechanism) else argument
            CASES[f"{function.__name__} {label}"] = partial(_fresh, function, argument)
        return function

    return listed


def _fresh(function: Callable[[Any], Values], argument: Any) -> Values:
    return function(copy(argument))


def vector(*values: float) -> Tensor:
    return float64(values)


def even(count: int, low: float = 0.0, high: float = 1.0, start: float = 0.5) -> Tensor:
    """Numbers that fill [low, high] evenly, in no order, the same on every machine."""
    return low + (high - low) * ((start + _GOLDEN * torch.arange(count, dtype=torch.float64)) % 1)


def normal(*shape: int) -> Tensor:
    """As even, with the quantiles of N(0, 1)."""
    return torch.special.ndtri(even(torch.Size(shape).numel(), 1e-9, 1 - 1e-9)).reshape(shape)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def claims(guarantee: Guarantee) -> list[float]:
    return [
        *(guarantee.epsilon, guarantee.order, guarantee.epsilon_pdp, guarantee.order_pdp),
        *(guarantee.epsilon_data_independent, guarantee.gaussian_epsilon, guarantee.gaussian_epsilon_pdp),
        guarantee.failure_probability,
    ]


def flat(values: Any) -> list[float]:
    """All numbers, in order."""
    if isinstance(values, list | tuple):
        return [number for value in values for number in flat(value)]
    return [float(number) for number in torch.as_tensor(values).reshape(-1).tolist()]


ORDERS = vector(1.1, 1.5, 2, 3, 8, 32, 256, 2048)


def laws() -> list[Mechanism]:
    """Made afresh: a law keeps what it has worked out."""
    return [
        Gaussian(0.5),
        RectifiedGaussian(0.5, bound=1.0),
        TruncatedGaussian(0.5, bound=1.0),
        StochasticSign(0.5),
        QuantizedGaussian(0.5, bound=1.0, levels=5),
    ]
