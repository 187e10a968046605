"""Evaluates the kernel of a law on checked arguments of one dtype, in blocks, and refuses NaN."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.law import Law
from ringfence.numerics.blocks import at_once, blockwise

Kernel = Callable[..., Tensor]


def checked_parameters(law: Law, dtype: torch.dtype) -> dict[str, Tensor]:
    """The parameters of the law by name, as this dtype holds them, on the device where they are."""
    parameters = {}
    for name, value in law.parameters().items():
        check = checks.positive if name == "sigma" else checks.real
        parameters[name] = checks.rounded(dtype, name, value, check)
    if "lower" in parameters:
        checks.interval("bound", (parameters["lower"], parameters["upper"]))
    return parameters


def checked_arguments(law: Law, theta: Tensor) -> dict[str, Tensor]:
    """theta and the parameters of the law by name, as theta's dtype and device hold them."""
    parameters = checked_parameters(law, theta.dtype)
    return {"theta": theta} | {name: value.to(theta.device) for name, value in parameters.items()}


def evaluated(
    law: Law, name: str, kernel: Kernel, arguments: dict[str, Tensor], rows: int | None = None
) -> Tensor:
    """The kernel at these arguments, block by block; ``name`` is the public method that asks for it."""
    checks.broadcast(list(arguments), list(arguments.values()))
    values = law.values_per_coordinate() * (rows or 1)
    result = blockwise(kernel, *arguments.values(), values_per_coordinate=values, rows=rows)
    return without_nan(law, name, result)


def without_nan(law: Law, name: str, result: Tensor) -> Tensor:
    """The result, or an error where it holds NaN: no privacy quantity may pass as one."""
    if bool(torch.isnan(result).any()):
        raise FloatingPointError(
            f"{type(law).__name__}.{name} cannot be represented in {result.dtype} at these arguments"
        )
    return result


def at_any_shift_and_epsilon(hockey_stick: Kernel) -> Kernel:
    """The hockey stick at any shift and epsilon, from a kernel that needs shift != 0 and epsilon >= 0.

    P(S) - e^eps Q(S) = 1 - e^eps + e^eps (Q(S') - e^-eps P(S')), where S' is the complement of S.
    """

    def kernel(theta: Tensor, *rest: Tensor) -> Tensor:
        *parameters, shift, epsilon = rest
        turned = epsilon < 0
        start = torch.where(turned, theta + shift, theta)
        still = shift == 0
        moved = torch.where(still, torch.ones_like(shift), torch.where(turned, -shift, shift))
        size = epsilon.abs()
        value = torch.where(still, 0.0, hockey_stick(start, *parameters, moved, size))
        return torch.where(turned, -torch.expm1(-size) + torch.exp(-size) * value, value)

    return kernel


def by_queries(kernel: Kernel, counts: Tensor, move: Tensor, value: Tensor, held: int) -> Tensor:
    """The kernel at (counts, move, value) of decisions, in batches of queries that keep memory small.

    Counts and moves have a last dimension of candidates, which the value and the result do not have. About
    ``held`` numbers, one for each candidate and each entry of the result, are evaluated at once.

    >>> sums = lambda counts, move, value: (counts + move).sum(dim=-1) + value
    >>> by_queries(sums, torch.ones(3, 2), torch.ones(2), torch.zeros(()), held=2).tolist()
    [4.0, 4.0, 4.0]
    """
    queries = np.broadcast_shapes(counts.shape, move.shape)[:-1]
    shape = np.broadcast_shapes(queries, value.shape)
    if not queries:
        return kernel(counts, move, value)
    result = counts.new_empty(shape)
    place = max(range(-len(queries), 0), key=lambda dimension: queries[dimension])
    length = at_once(held * queries[place], each=counts.shape[-1] * result.numel())
    for start in range(0, queries[place] if result.numel() else 0, length):
        stop = min(start + length, queries[place])
        rows = (_part(part, place - 1, start, stop) for part in (counts, move))
        result.narrow(place, start, stop - start).copy_(kernel(*rows, _part(value, place, start, stop)))
    return result


def aligned(value: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
    """Rows whose dimensions after the first broadcast against the value, which may have more of them.

    >>> aligned(torch.zeros(5, 1), torch.zeros(3, 4))[0].shape
    torch.Size([3, 1, 4])
    """
    more = (1,) * (value.ndim + 1 - rows[0].ndim)
    return tuple(row.reshape(len(row), *more, *row.shape[1:]) for row in rows)


def _part(value: Tensor, place: int, start: int, stop: int) -> Tensor:
    """A stretch of one dimension, counted from the last; all of it where it broadcasts."""
    whole = value.ndim < -place or value.shape[place] == 1
    return value if whole else value.narrow(place, start, stop - start)
