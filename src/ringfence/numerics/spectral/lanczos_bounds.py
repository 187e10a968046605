"""Certified bounds of the largest singular values of many matrices, by Lanczos' recurrence.

Let A be one of the matrices, B = A^T A with largest eigenvalue b and unit eigenvector v, and g_1, ..., g_r
independent N(0, 1) vectors, the probes. The lower bound of b is the Rayleigh quotient |A w|^2 / |w|^2 of the
best vector w of the Krylov spaces. The upper bound has three steps.

1. sum_i (v^T g_i)^2 is at least t^2, except with the failure probability. ``chi_threshold`` says which t.
2. From q_1 = g / |g| the recurrence B q_j = beta_(j-1) q_(j-1) + alpha_j q_j + beta_j q_(j+1) makes
   unit vectors q_1, ..., q_(m+1). Let T be the tridiagonal m x m matrix of the alphas and betas,
   s_j = v^T q_j, and e_j what rounding adds to step j. Multiplied by v^T from the left the recurrence says,
   because B v = b v,

       s (b - T) = beta_m s_(m+1) (0, ..., 0, 1) + (v^T e_1, ..., v^T e_m).

   For b above the eigenvalues of T this gives s_1 = v^T g / |g|. As |s_(m+1)| <= 1,

       |v^T g| <= |g| h(b),  h(b) = beta_m [(b - T)^-1]_(1m) + |e| |first column of (b - T)^-1|.

3. The first term of h is prod_j beta_j / det(b - T). Both terms fall with b. So b is at most the least x
   with sum_i |g_i|^2 h_i(x)^2 < t^2.

Only the event of step 1 is random, so work may stop at any m, and the least bound of several m may be taken.
The vectors q_j need not be orthogonal. det(b - T) is the polynomial of degree m that is smallest where the
probe sees the spectrum, so that no interval has to be guessed.

Rounding: a product with B errs by at most (2 e + e^2) b, where e is the operator's ``rounding``. The other
operations of a step, whose numbers are at most 1.3 j b, and those that solve with b - T, move the
recurrence by at most 1e-14 (m + 1) b. As b / (b - y) <= max(1, x / (x - y)) for the eigenvalues y of T and
b >= x, the second term of h is at most
sqrt(m) (2 e + e^2 + 1e-14 (m + 1)) sqrt(1 + x^2 |first column of (x - T)^-1|^2).
"""

import math

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.spectral.batched_operator import (
    BatchedOperator,
    checked_generator,
    require_product,
    standard_normal_probes,
)
from ringfence.numerics.spectral.chebyshev_bounds import (
    checked_product,
    chi_threshold,
    product_slack,
    searched_bounds,
)
from ringfence.numerics.spectral.singular_values import SingularValueBounds

_BISECTIONS, _FEW_BISECTIONS = 60, 20  # the few where the bounds are close already
_TINY = 1e-300
_FARTHEST = 1e15  # the largest upper bound that is looked for, in units of what Gershgorin gives T


def probable_bounds_of_many(
    operator: BatchedOperator,
    *,
    generator: torch.Generator,
    failure_probability: float = 1e-6,
    probes: int | None = None,
    tolerance: float = 0.05,
    maximum_degree: int = 32,
) -> SingularValueBounds:
    """Lower and upper bounds of the largest singular value of every matrix, each with its own probes.

    A matrix is left alone once its two bounds are within ``tolerance``, or after ``maximum_degree``
    products per probe. Neither changes what holds. Fewer probes need fewer products in all, and more probes
    leave more room for rounding. By default they are as few as leave rounding a quarter of t, at most 16.

    Guarantee: all upper bounds hold at once except with ``failure_probability`` over the generator's
    draw, each one alone except with ``failure_probability`` / count; the lower bounds always hold. The
    proof is at the head of this file.

    >>> operator = BatchedOperator.of(torch.ones(2, 5, 9))
    >>> bounds = probable_bounds_of_many(operator, generator=torch.Generator().manual_seed(1))
    >>> bool((bounds.lower**2 <= 45).all()), bool((bounds.upper**2 >= 45).all()), bounds.failure_probability
    (True, True, 1e-06)
    """
    checked_generator(generator, failure_probability, 1 if probes is None else probes)
    number = _fewest_probes(operator, failure_probability / operator.count) if probes is None else probes
    most = checks.count("maximum_degree", maximum_degree, at_least=1)

    def ends(rows: Tensor, start: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
        return _squares(operator, rows, start, threshold, tolerance, most)

    return searched_bounds(
        operator,
        lambda rows: standard_normal_probes(operator, rows, number, generator),
        ends,
        failure_probability,
    )


def _fewest_probes(operator: BatchedOperator, failure_probability: float) -> int:
    for probes in (1, 2, 4, 8):
        size = math.sqrt(probes * operator.shape[1])
        if 4 * size * _charge(operator.rounding, 16) <= chi_threshold(failure_probability, probes):
            return probes
    return 16


def _charge(rounding: float, degree: int) -> float:
    """How much the errors of all steps are at most together, |e| / b."""
    return math.sqrt(degree) * (2 * rounding + rounding**2 + 1e-14 * (degree + 1))


def _squares(
    operator: BatchedOperator, rows: Tensor, start: Tensor, threshold: float, tolerance: float, most: int
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of the largest eigenvalues b of A^T A, from one draw of probes."""
    count, probes, _ = start.shape
    sizes = start.norm(dim=2, keepdim=True)
    current, previous, basis = start / sizes, torch.zeros_like(start), []
    sizes = sizes[:, :, 0].cpu() * (1 + 1e-9)
    diagonal, beside = torch.zeros(2, count, probes, most, dtype=torch.float64)
    steps, going = torch.zeros(count, dtype=torch.int64), torch.arange(count)
    ceiling = torch.full((count,), math.inf, dtype=torch.float64)
    scale = torch.ones(count, dtype=torch.float64, device=start.device)  # B is divided by it
    aim = (1 + tolerance) ** 2 / product_slack(operator)
    for step in range(most):
        basis.append(current.clone())
        here = going.to(start.device)
        block = current[here]
        quotients, back = checked_product(operator, block, rows[here])
        if not step:  # squares of very large or small numbers are not representable
            scale = torch.where(quotients > 0, quotients, scale)
        back = back / scale[here, None, None]
        along = (block * back).sum(2)
        rest = back - along[:, :, None] * block
        if step:
            rest -= beside[going, :, step - 1].to(rest.device)[:, :, None] * previous[here]
        length = rest.norm(dim=2)
        previous[here], current[here] = block, rest / length[:, :, None].clamp(min=_TINY)
        diagonal[going, :, step], beside[going, :, step] = along.cpu(), length.cpu()
        steps[going] = step + 1
        made = diagonal[going, :, : step + 1], beside[going, :, : step + 1]
        top = torch.linalg.eigvalsh(_tridiagonal(*made)).amax((1, 2))
        apart = _reach(*made, sizes[going], operator.rounding, top * aim) >= threshold**2
        ceiling[going] = torch.where(apart, math.inf, top * aim)
        going = going[apart & (top > 0)]
        if not len(going):
            break
    upper = torch.full((count,), math.inf, dtype=torch.float64)
    for degree in range(1, most + 1):
        # where the bounds are not close yet, rounding may have spoilt what fewer products had reached
        those = (steps == degree) | ((steps == most) & (most % degree == 0))
        if bool(those.any()):
            made = diagonal[those, :, :degree], beside[those, :, :degree]
            bound = _upper(*made, sizes[those], operator.rounding, threshold, ceiling[those])
            upper[those] = torch.minimum(upper[those], bound)
    lower = _ritz_quotients(operator, rows, basis, diagonal, beside, steps)
    return lower, torch.where(lower > 0, upper.to(lower.device) * scale, lower)


def _tridiagonal(diagonal: Tensor, beside: Tensor) -> Tensor:
    """The lower triangle of T, (..., m, m), which is what eigensolvers read; its last beta is left out."""
    return torch.diag_embed(diagonal) + torch.diag_embed(beside[..., :-1], -1)


def _reach(diagonal: Tensor, beside: Tensor, sizes: Tensor, rounding: float, x: Tensor) -> Tensor:
    """sum_i |g_i|^2 h_i(x)^2, and infinity where x is not above all eigenvalues of the T_i.

    x - T = L D L^T has the pivots D, all positive above the eigenvalues, and -beta_j / D_j below the
    diagonal of L.
    """
    x, degree = x[:, None], diagonal.shape[2]
    pivots, ratios, products = [x - diagonal[..., 0]], [], [torch.ones_like(diagonal[..., 0])]
    for j in range(degree):
        ratios.append(beside[..., j] / pivots[j])
        products.append(products[j] * ratios[j])
        if j + 1 < degree:
            pivots.append(x - diagonal[..., j + 1] - beside[..., j] * ratios[j])
    column = products[degree - 1] / pivots[degree - 1]
    squares = (x * column).square()
    for j in reversed(range(degree - 1)):
        column = products[j] / pivots[j] + ratios[j] * column
        squares += (x * column).square()
    h = (products[degree] + _charge(rounding, degree) * (1 + squares).sqrt()) * (1 + 1e-9)
    total = (sizes * h).square().sum(1)
    positive = torch.stack(pivots).amin((0, 2)) > 0
    return torch.where(positive, total, math.inf)


def _upper(
    diagonal: Tensor, beside: Tensor, sizes: Tensor, rounding: float, threshold: float, ceiling: Tensor
) -> Tensor:
    """The least x of step 3, from above, by bisection; infinity where there is none below ``ceiling``."""
    before = torch.nn.functional.pad(beside, (1, 0))[..., :-1]
    gershgorin = (diagonal + beside + before).amax((1, 2)).clamp(min=_TINY)
    low = (diagonal.amax((1, 2)).clamp(min=_TINY) / gershgorin).log()
    high = (ceiling / gershgorin).clamp(min=_TINY, max=_FARTHEST).log()
    for _ in range(_BISECTIONS if bool(ceiling.isinf().any()) else _FEW_BISECTIONS):
        middle = (low + high) / 2
        good = _reach(diagonal, beside, sizes, rounding, gershgorin * middle.exp()) < threshold**2
        low, high = torch.where(good, low, middle), torch.where(good, middle, high)
    x = gershgorin * high.exp() * (1 + 1e-12)
    held = _reach(diagonal, beside, sizes, rounding, x) < threshold**2
    return torch.where(held, x, math.inf)


def _ritz_quotients(
    operator: BatchedOperator,
    rows: Tensor,
    basis: list[Tensor],
    diagonal: Tensor,
    beside: Tensor,
    steps: Tensor,
) -> Tensor:
    """|A w|^2 / |w|^2 from below, w being the largest Ritz vector of each matrix's best probe."""
    degree = len(basis)
    inside = torch.arange(degree) < steps[:, None, None]
    diagonal = diagonal[..., :degree].where(inside, -1.0)  # below every eigenvalue: A^T A has none below 0
    beside = beside[..., :degree].where(inside.roll(-1, 2), 0.0)
    values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, beside))
    best, each = values[..., -1].argmax(1), torch.arange(len(steps))
    weights = vectors[each, best, :, -1].to(rows.device)
    chosen = each.to(rows.device), best.to(rows.device)
    ritz = torch.zeros_like(basis[0][:, 0])
    for number, vector in enumerate(basis):
        ritz += weights[:, number, None] * vector[chosen]
    squares = operator.squares(ritz[:, None], rows)[:, 0].double()
    require_product("squares", squares, (len(rows),))
    return squares / ritz.square().sum(1) / product_slack(operator)
