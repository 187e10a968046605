"""Matrices known by their products, and their largest singular value from random probes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.singular_values import UNIT, SingularValueBounds, gamma


@dataclass(frozen=True)
class LinearOperator:
    """A (d, p) matrix known by what it does: ``apply`` takes (p, r) to (d, r), its transpose back.

    ``rounding`` is a premise of every bound: an application errs by at most ``rounding`` times the
    operator's norm times the vector's. Work in float64.

    >>> twice = LinearOperator((3, 3), lambda block: 2 * block, lambda block: 2 * block)
    >>> bounds = probable_bounds(twice, generator=torch.Generator().manual_seed(0))
    >>> bool(bounds.lower <= 2 <= bounds.upper <= 2.03)
    True
    """

    shape: tuple[int, int]
    apply: Callable[[Tensor], Tensor]
    apply_transpose: Callable[[Tensor], Tensor]
    rounding: float = 1e-12

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise ValueError(f"shape must be two positive numbers, got {self.shape!r}")
        if not 0 <= self.rounding < 1:
            raise ValueError(f"rounding must be in [0, 1), got {self.rounding!r}")

    @staticmethod
    def of(matrix: Tensor) -> "LinearOperator":
        """A dense matrix; |A| |v| <= sqrt(min(d, p)) ||A|| ||v|| turns gamma into ``rounding``."""
        matrix = matrix.double()
        rounding = gamma(max(matrix.shape)) * math.sqrt(min(matrix.shape))
        shape = (matrix.shape[0], matrix.shape[1])
        return LinearOperator(shape, lambda block: matrix @ block, lambda block: matrix.mT @ block, rounding)

    def weighted(self, weights: Tensor) -> "LinearOperator":
        """diag(weights) A."""
        scale = weights[:, None]
        return LinearOperator(
            self.shape,
            lambda block: scale * self.apply(block),
            lambda block: self.apply_transpose(scale * block),
            self.rounding + 2 * UNIT,
        )

    @staticmethod
    def stacked(operators: Sequence["LinearOperator"]) -> "LinearOperator":
        """One above the other, so that the Gram matrices add."""
        heights = [operator.shape[0] for operator in operators]

        def back(block: Tensor) -> Tensor:
            parts = block.split(heights)
            total = operators[0].apply_transpose(parts[0])
            for operator, part in zip(operators[1:], parts[1:], strict=True):
                total = total + operator.apply_transpose(part)
            return total

        # sum_t e |A_t| |v_t| <= e sqrt(T) |A| |v|, and T additions
        rounding = math.sqrt(len(operators)) * max(one.rounding for one in operators)
        return LinearOperator(
            (sum(heights), operators[0].shape[1]),
            lambda block: torch.cat([operator.apply(block) for operator in operators]),
            back,
            rounding + len(operators) * UNIT,
        )


def probable_bounds(
    operator: LinearOperator,
    *,
    generator: torch.Generator | None,
    failure_probability: float = 1e-6,
    probes: int = 4,
    tolerance: float = 0.01,
    maximum_degree: int = 256,
) -> SingularValueBounds:
    """Both ends of the largest singular value from products alone.

    The lower end is |A w| / |w|. The upper: let B = A^T A, top eigenvalue b, unit eigenvector v,
    and G a (p, r) block of independent N(0, 1).

    1. |v^T G|^2 is chi-squared with r degrees of freedom; its density is at most
       y^(r/2-1) / (2^(r/2) Gamma(r/2)), so it is below t^2 with probability at most
       (t^2 / 2)^(r/2) / Gamma(r/2 + 1): this is ``failure_probability`` and fixes t.
    2. For every polynomial f, |f(b)| |v^T G| = |v^T f(B) G| <= |f(B) G|_F.
    3. With f(y) = T_k(2 y / c - 1), a Chebyshev polynomial, and any c > 0: either b <= c, or
       T_k(x) <= |f(B) G|_F / t at x = 2 b / c - 1 > 1, hence
       b <= c (1 + cosh(arccosh(|f(B) G|_F / t) / k)) / 2.

    Only the event of 1 is random, so c and k may depend on G and the least bound over all of them
    is taken. It does not depend on the spectrum, hardly on p, and closes like 1 / k^2. Rounding:
    an application errs by e = ``rounding``, the recurrence carries an error made at step j by
    U_(k-j)(x) <= (k - j + 1) T_(k-j)(x), and T_i T_j <= T_(i+j); altogether t falls by
    20 (e + u) k^2 |G|_F.

    >>> bounds = probable_bounds(LinearOperator.of(torch.eye(9)), generator=torch.Generator().manual_seed(1))
    >>> bool(bounds.lower <= 1 <= bounds.upper), bounds.failure_probability
    (True, 1e-06)
    """
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    failure_probability = checks.probability("failure_probability", failure_probability)
    checks.count("probes", probes, at_least=1)
    log_square = math.log(2) + 2 / probes * (math.log(failure_probability) + math.lgamma(probes / 2 + 1))
    start = torch.randn(
        (operator.shape[1], probes), generator=generator, dtype=torch.float64, device=generator.device
    )
    slack = 1 + 1e-12 + gamma(start.numel())
    size = float(start.norm()) * slack
    lower, back = _product(operator, start)
    upper = math.inf
    degree = 8
    while lower > 0 and degree <= maximum_degree:
        cut = lower * lower
        previous, current = start, 2 / cut * back - start
        for step in range(1, degree + 1):
            sure = math.exp(log_square / 2) - 20 * (operator.rounding + UNIT) * step**2 * size
            norm = float(current.norm()) * slack
            if sure <= 0 or norm > 1e100:
                break
            angle = math.acosh(max(1.0, norm / sure)) / step
            upper = min(upper, math.sqrt(cut * (1 + math.cosh(angle)) / 2) * (1 + 1e-12))
            if step < degree:
                better, image = _product(operator, current)
                lower = max(lower, better)
                previous, current = current, 2 * (2 / cut * image - current) - previous
        degree = degree * 2 if upper > lower * (1 + tolerance) else maximum_degree + 1
    if upper < lower:
        # The event of 1 is seen to have failed. Starting afresh then only lowers the chance that the
        # answer is one of its failures.
        return probable_bounds(
            operator,
            generator=generator,
            failure_probability=failure_probability,
            probes=probes,
            tolerance=tolerance,
            maximum_degree=maximum_degree,
        )
    if upper == math.inf and lower > 0:
        raise ValueError(f"failure_probability {failure_probability!r} is below what rounding allows")
    ends = torch.tensor([lower, upper if lower > 0 else 0.0], dtype=torch.float64, device=start.device)
    return SingularValueBounds(ends[0], ends[1], failure_probability)


def _product(operator: LinearOperator, block: Tensor) -> tuple[float, Tensor]:
    """(a lower bound of the norm, A^T A block), with what the callables return checked."""
    image = operator.apply(block)
    back = operator.apply_transpose(image)
    for name, value, height in (("apply", image, 0), ("apply_transpose", back, 1)):
        expected = (operator.shape[height], block.shape[1])
        if value.shape != expected:
            raise ValueError(f"{name} must return shape {list(expected)}, got {list(value.shape)}")
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} must return finite numbers, got NaN or infinity")
    here, there = image.double().square().sum(0), (block * back.double()).sum(0)
    allowed = max(1e-9, 100 * operator.rounding) * (here + block.norm(dim=0) * back.double().norm(dim=0))
    if bool(((here - there).abs() > allowed).any()):
        raise ValueError("apply_transpose must be the transpose of apply: the inner products differ")
    norm = float((image.double().norm(dim=0) / block.norm(dim=0)).max())
    slack = operator.rounding + 1e-12 + gamma(sum(operator.shape))
    return norm / (1 + slack), back.double()
