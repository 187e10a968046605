"""Certified bounds of the largest singular values of matrices known by their products.

Let A be one of the matrices, B = A^T A with largest eigenvalue b and unit eigenvector v, and G a (p, r)
block of independent N(0, 1) numbers, the r probes. The lower bound of b is a Rayleigh quotient
|A w|^2 / |w|^2. The upper bound has three steps.

1. |v^T G|^2 is chi-squared with r degrees of freedom. Its density is at most
   y^(r/2-1) / (2^(r/2) Gamma(r/2)), so it is below t^2 with probability at most
   (t^2 / 2)^(r/2) / Gamma(r/2 + 1). Setting this to the failure probability fixes t.
2. For every polynomial f, |f(b)| |v^T G| = |v^T f(B) G| <= |f(B) G|_F.
3. Take f(y) = T_k(2 y / c - 1), a Chebyshev polynomial, and any c > 0. Either b <= c, or
   T_k(x) <= |f(B) G|_F / t at x = 2 b / c - 1 > 1, hence
   b <= c (1 + cosh(arccosh(|f(B) G|_F / t) / k)) / 2.

Only the event of step 1 is random. So c and k may depend on G, and the least bound over all of them may
be taken. The bound does not depend on the spectrum, depends hardly on p, and closes like 1 / k^2.
Rounding lowers t: by how much is the ``charge`` of a ``Search``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.spectral.batched_operator import BatchedOperator, require_product
from ringfence.numerics.spectral.singular_values import UNIT, SingularValueBounds, gamma


@dataclass(frozen=True)
class Search:
    """How closely the upper bounds are looked for. Every choice of these numbers gives bounds that hold.

    ``degrees``: the polynomials that are tried, in this order, each with c the best lower bound so far.
    ``tolerance``: a matrix needs no further polynomial once upper <= (1 + tolerance) lower.
    ``tolerance_within``: a polynomial is left before its last degree once upper is that close to lower.
    ``charge(k, |G|_F, t)``: how much rounding may take from t in a polynomial of degree k.
    """

    degrees: tuple[int, ...]
    tolerance: float
    tolerance_within: float
    charge: Callable[[int, Tensor, float], Tensor]


def searched_bounds(
    operator: BatchedOperator,
    draw: Callable[[Tensor], Tensor],
    ends: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]],
    failure_probability: float,
) -> SingularValueBounds:
    """Bounds of all largest singular values; ``draw(rows)`` gives fresh probes, (m, r, p), to those rows.

    ``ends(rows, probes, t)`` gives lower and upper bounds of the largest eigenvalues of those rows' A^T A,
    the upper ones where the probes' components along the eigenvectors have a length of at least t.
    """
    lower = torch.zeros(operator.count, dtype=torch.float64, device=operator.device)
    upper = torch.zeros_like(lower)
    rows = torch.arange(operator.count, device=operator.device)
    while len(rows):
        start = draw(rows)
        threshold = chi_threshold(failure_probability / operator.count, start.shape[1])
        lower[rows], upper[rows] = ends(rows, start, threshold)
        # Where the two bounds have crossed, the event of step 1 is seen to have failed. Starting afresh
        # then only lowers the chance that the answer is one of its failures.
        rows = rows[upper[rows] < lower[rows]]
    if bool(upper.isinf().any()):
        raise ValueError(
            f"failure_probability must be larger, got {failure_probability!r} for {operator.count} matrices: "
            f"rounding {operator.rounding!r} leaves nothing of {start.shape[1]} probes"
        )
    return SingularValueBounds(
        lower.sqrt() * (1 - 2 * UNIT), upper.sqrt() * (1 + 2 * UNIT), failure_probability
    )


def chi_threshold(failure_probability: float, probes: int) -> float:
    """t of step 1: |v^T G| is below it with at most this probability.

    >>> round(chi_threshold(1e-6, 4), 4)
    0.0532
    """
    return math.exp(math.log(2) / 2 + (math.log(failure_probability) + math.lgamma(probes / 2 + 1)) / probes)


def chebyshev_ends(
    operator: BatchedOperator, search: Search, rows: Tensor, start: Tensor, threshold: float
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of the largest eigenvalues b of A^T A, from one draw of probes."""
    lower, back = checked_product(operator, start, rows)
    upper = torch.where(lower > 0, math.inf, lower)
    for degree in search.degrees:
        going = _apart(lower, upper, search.tolerance).nonzero()[:, 0]
        if not len(going):
            break
        ends = lower[going], upper[going]
        lower[going], upper[going] = _by_one_polynomial(
            operator, rows[going], start[going], back[going], ends, threshold, degree, search
        )
    return lower, upper


def _by_one_polynomial(
    operator: BatchedOperator,
    rows: Tensor,
    start: Tensor,
    back: Tensor,
    ends: tuple[Tensor, Tensor],
    threshold: float,
    degree: int,
    search: Search,
) -> tuple[Tensor, Tensor]:
    """``ends`` (lower, upper) improved by T_1, ..., T_degree of 2 B / c - 1 applied to G = ``start``.

    ``back`` is B G. With c = lower, T_k(2 B / c - 1) G obeys P_(k+1) = 2 (2 B / c - 1) P_k - P_(k-1).
    """
    lower, upper = ends
    size, cut, factor = _norms(start), lower.clone(), 2 / lower[:, None, None]
    going: slice | Tensor = slice(None)  # the matrices that are still worked on
    previous, current = start, factor * back - start
    for step in range(1, degree + 1):
        sure = threshold - search.charge(step, size[going], threshold)
        bound, usable = _upper_bound(cut[going], current, sure, step)
        upper[going] = torch.minimum(upper[going], bound)
        kept = usable & _apart(lower[going], upper[going], search.tolerance_within)
        left = int(kept.sum())
        if step == degree or not left:
            break
        if left < len(kept):
            going = torch.arange(len(rows), device=rows.device)[going][kept]
            previous, current = previous[kept], current[kept]
        quotients, image = checked_product(operator, current, rows[going])
        lower[going] = torch.maximum(lower[going], quotients)
        previous, current = current, 2 * (factor[going] * image - current) - previous
    return lower, upper


def _upper_bound(cut: Tensor, polynomial: Tensor, sure: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """The bound of step 3 with t = ``sure`` (infinite where it proves nothing), and where it proves one."""
    norm = _norms(polynomial)
    angle = torch.acosh((norm / sure).clamp(min=1)) / degree
    bound = cut * (1 + torch.cosh(angle)) / 2 * (1 + 1e-12)
    usable = (sure > 0) & (norm < 1e100)
    return torch.where(usable, bound, math.inf), usable


def _norms(blocks: Tensor) -> Tensor:
    """At least the Frobenius norm of each block."""
    norms: Tensor = blocks.flatten(1).norm(dim=1) * (1 + 1e-12 + gamma(blocks[0].numel()))
    return norms


def _apart(lower: Tensor, upper: Tensor, tolerance: float) -> Tensor:
    """True where the singular values' bounds, the roots of these, differ by more than ``tolerance``."""
    return upper > lower * (1 + tolerance) ** 2


def checked_product(operator: BatchedOperator, block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(the largest Rayleigh quotients from below, A^T A block); refuses what is no such product."""
    squares, back = operator.gram(block, rows)
    require_product("gram", squares, block.shape[:2])
    require_product("gram", back, block.shape)
    squares, back = squares.double(), back.double()
    inner, norm = (block * back).sum(2), block.norm(dim=2)
    allowed = max(1e-9, 100 * operator.rounding) * (squares + norm * back.norm(dim=2))
    if bool(((squares - inner).abs() > allowed).any()):
        raise ValueError(
            "gram must be A^T A (apply_transpose must be the transpose of apply): v^T A^T A v differs from "
            "|A v|^2 by more than rounding"
        )
    return (squares / norm.square()).amax(1) / product_slack(operator), back


def product_slack(operator: BatchedOperator) -> float:
    """By how much rounding may raise |A w|^2 / |w|^2 above the largest eigenvalue, as a factor."""
    slack: float = (1 + operator.rounding + 1e-12 + gamma(sum(operator.shape))) ** 2
    return slack


def rising_degrees(first: int, factor: int, maximum_degree: int) -> tuple[int, ...]:
    """Degrees that grow by ``factor`` and end at ``maximum_degree``.

    >>> rising_degrees(4, 4, 40)
    (4, 16, 40)
    """
    degrees, most = [first], checks.count("maximum_degree", maximum_degree, at_least=1)
    while degrees[-1] < most:
        degrees.append(degrees[-1] * factor)
    return (*degrees[:-1], most)
