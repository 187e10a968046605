"""Bounds of |A|_F^2 = trace(A^T A) for many matrices known by their products."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ringfence.numerics.spectral.batched_operator import (
    BatchedOperator,
    checked_generator,
    require_product,
    standard_normal_probes,
)
from ringfence.numerics.spectral.singular_values import gamma


class TraceBounds(NamedTuple):
    """lower <= trace <= upper, and the mean over the probes, which is unbiased but bounds nothing."""

    lower: Tensor
    upper: Tensor
    estimate: Tensor


def probable_traces(
    operator: BatchedOperator,
    *,
    generator: torch.Generator,
    failure_probability: float = 1e-6,
    probes: int = 64,
    at_once: int = 4,
) -> TraceBounds:
    """Lower and upper bounds of |A|_F^2 = trace(A^T A), each matrix with probes of its own.

    With ``probes`` >= p the unit vectors take the place of random ones: the trace is then exact but for
    rounding, and nothing is left to chance. ``at_once`` probes are applied in one product.

    With fewer probes, q = |A G|_F^2 / r over r probes has mean |A|_F^2 = a, but does not bound it. With
    l_i the eigenvalues of A^T A, for s > 0

        E exp(-s r q) = prod_i (1 + 2 s l_i)^(-r/2) <= (1 + 2 s a)^(-r/2),

    and likewise with -s < 0. So both tails of q / a are at most those that Chernoff's bound gives to a
    chi-squared number over r: P(q <= y a) for y < 1, and P(q >= y a) for y > 1, are at most
    (y e^(1-y))^(r/2). Rounding moves |A G|_F by at most e |A|_F |G|_F.

    Guarantee: all bounds hold at once except with ``failure_probability`` over the generator's draw.

    >>> operator = BatchedOperator.of(torch.ones(2, 5, 9))
    >>> lower, upper, _ = probable_traces(operator, generator=torch.Generator().manual_seed(1))
    >>> bool((lower <= 45).all()), bool((upper >= 45).all()), bool((upper < 45.001).all())
    (True, True, True)
    """
    checked_generator(generator, failure_probability, probes)
    count, (height, width) = operator.count, operator.shape
    rows = torch.arange(count, device=operator.device)
    if probes >= width:
        block = torch.eye(width, dtype=torch.float64, device=operator.device).expand(count, width, width)
        smallest, largest = 1.0, 1.0  # of |A G|_F^2 / |A|_F^2
    else:
        block = standard_normal_probes(operator, rows, probes, generator)
        smallest, largest = (probes * tail for tail in _tails(probes, failure_probability / count / 2))
    total = torch.zeros(count, dtype=torch.float64, device=operator.device)
    for some in block.split(at_once, dim=1):
        squares = operator.squares(some, rows)
        require_product("squares", squares, some.shape[:2])
        total += squares.double().sum(1)
    moved = operator.rounding * torch.linalg.vector_norm(block, dim=(1, 2)) * (1 + 1e-9)
    slack = 1 + 1e-12 + 2 * gamma(height + block.shape[1])
    if bool((moved >= math.sqrt(smallest)).any()):
        raise ValueError(f"rounding {operator.rounding!r} leaves nothing of {probes} probes")
    lower = total / (math.sqrt(largest) + moved) ** 2 / slack
    upper = total / (math.sqrt(smallest) - moved) ** 2 * slack
    return TraceBounds(lower, upper, total / (1 if probes >= width else probes))


def _tails(degrees: int, probability: float) -> tuple[float, float]:
    """y below and y above 1 with (y e^(1-y))^(degrees/2) <= probability, by bisection on the safe side."""
    needed = -2 / degrees * math.log(probability) * (1 + 1e-12)

    def is_far_enough(y: float) -> bool:
        return y - 1 - math.log(y) >= needed

    def bisected(outer: float) -> float:
        inner = 1.0
        for _ in range(200):
            middle = (inner + outer) / 2
            inner, outer = (inner, middle) if is_far_enough(middle) else (middle, outer)
        return outer

    return bisected(math.exp(-1 - needed)), bisected(2 + 4 * needed)
