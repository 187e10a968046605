"""Certified bounds of largest singular values and of traces of matrices that are known by their products.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.rounding import UNIT, gamma
from ringfence.numerics.singular_values import SingularValueBounds

_BISECTIONS, _FEW_BISECTIONS = 60, 20  # the few where the bounds are close already
_TINY = 1e-300
_FARTHEST = 1e15  # the largest upper bound that is looked for, in units of what Gershgorin gives T


@dataclass(frozen=True)
class BatchedOperator:
    """``count`` matrices A of ``shape`` (d, p), known by what they do to (count, r, p) blocks of r vectors.

    ``squares(block)`` returns |A v|^2, of shape (count, r). ``gram(block)`` returns the same and A^T A v, of
    shape (count, r, p). All is float64.

    ``rounding`` is a premise of every bound: applying A or its transpose errs by at most
    ``rounding`` times the norm of A times the norm of the vector.

    >>> def gram(block):
    ...     return 4 * block.square().sum(2), 4 * block
    >>> twice = BatchedOperator(1, (3, 3), lambda block: gram(block)[0], gram)
    >>> twice.squares(torch.ones(1, 1, 3).double()).tolist()  # |2 v|^2
    [[12.0]]
    """

    count: int
    shape: tuple[int, int]
    squares: Callable[[Tensor], Tensor]
    gram: Callable[[Tensor], tuple[Tensor, Tensor]]
    rounding: float = 1e-12
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        checks.count("count", self.count, at_least=1)
        _check_operator(self.shape, self.rounding)


@dataclass(frozen=True)
class LinearOperator:
    """A (d, p) matrix known by what it does: ``apply`` takes a (p, r) block to (d, r), the transpose back.

    ``rounding`` is a premise of every bound: an application errs by at most ``rounding`` times the
    operator's norm times the vector's norm. Work in float64.

    >>> twice = LinearOperator((3, 3), lambda block: 2 * block, lambda block: 2 * block)
    >>> bounds = probable_bounds_of_many(twice.batch_of_one(), generator=torch.Generator().manual_seed(0))
    >>> bool(bounds.lower <= 2 <= bounds.upper <= 2.1)
    True
    """

    shape: tuple[int, int]
    apply: Callable[[Tensor], Tensor]
    apply_transpose: Callable[[Tensor], Tensor]
    rounding: float = 1e-12

    def __post_init__(self) -> None:
        _check_operator(self.shape, self.rounding)

    @staticmethod
    def of(matrix: Tensor) -> "LinearOperator":
        """The operator of a dense (d, p) matrix: | |A| |v| | <= sqrt(min(d, p)) ||A|| ||v||, times gamma.

        >>> LinearOperator.of(torch.eye(2)).apply(torch.ones(2, 1).double()).flatten().tolist()
        [1.0, 1.0]
        """
        matrix = checks.finite("matrix", matrix).double()
        if matrix.ndim != 2 or not matrix.numel():
            raise ValueError(f"matrix must be (d, p) and not empty, got shape {list(matrix.shape)}")
        height, width = matrix.shape
        return LinearOperator(
            (height, width),
            lambda block: matrix @ block,
            lambda block: matrix.mT @ block,
            gamma(max(height, width)) * math.sqrt(min(height, width)),
        )

    def weighted(self, weights: Tensor) -> "LinearOperator":
        """The operator diag(weights) A.

        >>> double = LinearOperator.of(torch.eye(2)).weighted(torch.tensor([2.0, 2.0]).double())
        >>> double.apply(torch.ones(2, 1).double()).flatten().tolist()
        [2.0, 2.0]
        """
        scale = weights[:, None]
        return LinearOperator(
            self.shape,
            lambda block: scale * self.apply(block),
            lambda block: self.apply_transpose(scale * block),
            self.rounding + 2 * UNIT,
        )

    @staticmethod
    def stacked(operators: Sequence["LinearOperator"]) -> "LinearOperator":
        """The operators one above the other, so that their Gram matrices add.

        >>> LinearOperator.stacked([LinearOperator.of(torch.eye(2))] * 3).shape
        (6, 2)
        """
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

    def batch_of_one(self, device: torch.device | str = "cpu") -> BatchedOperator:
        """This matrix as a batch of one."""

        def gram(block: Tensor) -> tuple[Tensor, Tensor]:
            columns = block[0].mT.contiguous()
            image = self.apply(columns)
            back = self.apply_transpose(image)
            _require_product("apply", image, (self.shape[0], columns.shape[1]))
            _require_product("apply_transpose", back, columns.shape)
            return image.double().square().sum(0)[None], back.double().mT[None]

        return BatchedOperator(1, self.shape, lambda block: gram(block)[0], gram, self.rounding, device)


def _check_operator(shape: tuple[int, int], rounding: float) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise ValueError(f"shape must be two positive numbers, got {shape!r}")
    if not 0 <= rounding <= 0.1:
        raise ValueError(f"rounding must be in [0, 0.1], got {rounding!r}")


def probable_bounds_of_many(
    operator: BatchedOperator,
    *,
    generator: torch.Generator | None,
    failure_probability: float = 1e-6,
    probes: int | None = None,
    tolerance: float = 0.05,
    maximum_degree: int = 32,
) -> SingularValueBounds:
    """Lower and upper bounds of the largest singular value of every matrix, each with its own probes.

    Work ends once the two bounds of every matrix are within ``tolerance``, or after ``maximum_degree``
    products per probe. Neither changes what holds. Fewer probes need fewer products in all, and more probes
    leave more room for rounding. By default they are as few as leave rounding a quarter of t, at most 16.

    Guarantee: all upper bounds hold at once except with ``failure_probability`` over the generator's
    draw, each one alone except with ``failure_probability`` / count; the lower bounds always hold. The
    proof is at the head of this file.

    >>> operator = LinearOperator.of(torch.ones(5, 9)).batch_of_one()
    >>> bounds = probable_bounds_of_many(operator, generator=torch.Generator().manual_seed(1))
    >>> bool(bounds.lower**2 <= 45), bool(bounds.upper**2 >= 45), bounds.failure_probability
    (True, True, 1e-06)
    """
    source = _checked_generator(generator, failure_probability, 1 if probes is None else probes)
    number = _fewest_probes(operator, failure_probability / operator.count) if probes is None else probes
    most = checks.count("maximum_degree", maximum_degree, at_least=1)
    threshold = chi_threshold(failure_probability / operator.count, number)
    lower = torch.ones(operator.count, dtype=torch.float64, device=operator.device)
    upper = torch.zeros_like(lower)
    # Where the two bounds have crossed, the event of step 1 is seen to have failed. Starting afresh then only
    # lowers the chance that the answer is one of its failures.
    while bool((crossed := upper < lower).any()):
        start = _standard_normal_probes(operator, number, source)
        below, above = _squares(operator, start, threshold, tolerance, most)
        lower, upper = torch.where(crossed, below, lower), torch.where(crossed, above, upper)
    if bool(upper.isinf().any()):
        raise ValueError(
            f"failure_probability must be larger, got {failure_probability!r} for {operator.count} matrices: "
            f"rounding {operator.rounding!r} leaves nothing of {number} probes"
        )
    return SingularValueBounds(
        lower.sqrt() * (1 - 2 * UNIT), upper.sqrt() * (1 + 2 * UNIT), failure_probability
    )


def chi_threshold(failure_probability: float, probes: int) -> float:
    """t of step 1: the probes' components along v have a norm below it with at most this probability.

    The square is chi-squared with r = ``probes`` degrees of freedom. Its density is at most
    y^(r/2-1) / (2^(r/2) Gamma(r/2)), so it is below t^2 with probability at most
    (t^2 / 2)^(r/2) / Gamma(r/2 + 1).

    >>> round(chi_threshold(1e-6, 4), 4)
    0.0532
    """
    return math.exp(math.log(2) / 2 + (math.log(failure_probability) + math.lgamma(probes / 2 + 1)) / probes)


def _fewest_probes(operator: BatchedOperator, failure_probability: float) -> int:
    for probes in (1, 2, 4, 8):
        size = math.sqrt(probes * operator.shape[1])
        if 4 * size * _charge(operator.rounding, 16) <= chi_threshold(failure_probability, probes):
            return probes
    return 16


def _charge(rounding: float, degree: int) -> float:
    """An upper bound of the errors of all steps together, |e| / b."""
    return math.sqrt(degree) * (2 * rounding + rounding**2 + 1e-14 * (degree + 1))


def _squares(
    operator: BatchedOperator, start: Tensor, threshold: float, tolerance: float, most: int
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of the largest eigenvalues b of A^T A, from one draw of probes."""
    count, probes, _ = start.shape
    sizes = start.norm(dim=2, keepdim=True)
    current, previous = start / sizes, torch.zeros_like(start)
    basis: list[Tensor] = []
    sizes = sizes[:, :, 0].cpu() * (1 + 1e-9)
    diagonal, beside = torch.zeros(2, count, probes, most, dtype=torch.float64)
    ceiling = torch.full((count,), math.inf, dtype=torch.float64)
    scale = torch.ones(count, dtype=torch.float64, device=start.device)  # B is divided by it
    aim = (1 + tolerance) ** 2 / _product_slack(operator)
    # A matrix whose bounds are close goes on with the others, but its bounds do not depend on how long: they
    # are those of its first ``steps`` products.
    steps, going = torch.zeros(count, dtype=torch.int64), torch.arange(count)
    while len(going) and len(basis) < most:
        step = len(basis)
        basis.append(current)
        quotients, back = _checked_product(operator, current)
        if not step:  # squares of very large or small numbers are not representable
            scale = torch.where(quotients > 0, quotients, scale)
        back = back / scale[:, None, None]
        along = (current * back).sum(2)
        rest = back - along[:, :, None] * current
        if step:
            rest -= beside[:, :, step - 1].to(rest.device)[:, :, None] * previous
        length = rest.norm(dim=2)
        previous, current = current, rest / length[:, :, None].clamp(min=_TINY)
        diagonal[:, :, step], beside[:, :, step] = along.cpu(), length.cpu()
        steps[going] = step + 1
        made = diagonal[going, :, : step + 1], beside[going, :, : step + 1]
        top = torch.linalg.eigvalsh(_tridiagonal(*made)).amax((1, 2))
        apart = _reach(*made, sizes[going], operator.rounding, top * aim) >= threshold**2
        ceiling[going] = torch.where(apart, math.inf, top * aim)
        going = going[apart & (top > 0)]
    upper = torch.full_like(ceiling, math.inf)
    for degree in range(1, len(basis) + 1):
        # where the bounds are not close yet, rounding may have spoilt what fewer products had reached
        those = (steps == degree) | ((steps == most) & (most % degree == 0))
        if bool(those.any()):
            made = diagonal[those, :, :degree], beside[those, :, :degree]
            bound = _upper(*made, sizes[those], operator.rounding, threshold, ceiling[those])
            upper[those] = torch.minimum(upper[those], bound)
    lower = _ritz_quotients(operator, basis, diagonal, beside, steps)
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
    operator: BatchedOperator, basis: list[Tensor], diagonal: Tensor, beside: Tensor, steps: Tensor
) -> Tensor:
    """|A w|^2 / |w|^2 from below, w being the largest Ritz vector of each matrix's best probe."""
    inside = torch.arange(len(basis)) < steps[:, None, None]
    # below every eigenvalue: A^T A has none below 0
    diagonal = diagonal[..., : len(basis)].where(inside, -1.0)
    beside = beside[..., : len(basis)].where(inside.roll(-1, 2), 0.0)
    values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, beside))
    best, each = values[..., -1].argmax(1), torch.arange(len(steps))
    weights = vectors[each, best, :, -1].to(basis[0].device)
    chosen = each.to(weights.device), best.to(weights.device)
    ritz = torch.zeros_like(basis[0][:, 0])
    for number, vector in enumerate(basis):
        ritz += weights[:, number, None] * vector[chosen]
    squares = operator.squares(ritz[:, None])[:, 0].double()
    _require_product("squares", squares, (len(ritz),))
    return squares / ritz.square().sum(1) / _product_slack(operator)


def _checked_product(operator: BatchedOperator, block: Tensor) -> tuple[Tensor, Tensor]:
    """(the largest Rayleigh quotients from below, A^T A block); refuses what is no such product."""
    squares, back = operator.gram(block)
    _require_product("gram", squares, block.shape[:2])
    _require_product("gram", back, block.shape)
    squares, back = squares.double(), back.double()
    inner, norm = (block * back).sum(2), block.norm(dim=2)
    allowed = max(1e-9, 100 * operator.rounding) * (squares + norm * back.norm(dim=2))
    if bool(((squares - inner).abs() > allowed).any()):
        raise ValueError(
            "gram must be A^T A (apply_transpose must be the transpose of apply): v^T A^T A v differs from "
            "|A v|^2 by more than rounding"
        )
    return (squares / norm.square()).amax(1) / _product_slack(operator), back


def _product_slack(operator: BatchedOperator) -> float:
    """By how much rounding may raise |A w|^2 / |w|^2 above the largest eigenvalue, as a factor."""
    slack: float = (1 + operator.rounding + 1e-12 + gamma(sum(operator.shape))) ** 2
    return slack


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
) -> TraceBounds:
    """Lower and upper bounds of |A|_F^2 = trace(A^T A), each matrix with probes of its own.

    With ``probes`` >= p the unit vectors take the place of random ones: the trace is then exact but for
    rounding, and nothing is left to chance.

    With fewer probes, q = |A G|_F^2 / r over r probes has mean |A|_F^2 = a, but does not bound it. With
    l_i the eigenvalues of A^T A, for s > 0

        E exp(-s r q) = prod_i (1 + 2 s l_i)^(-r/2) <= (1 + 2 s a)^(-r/2),

    and likewise with -s < 0. So both tails of q / a are at most those that Chernoff's bound gives to a
    chi-squared number over r: P(q <= y a) for y < 1, and P(q >= y a) for y > 1, are at most
    (y e^(1-y))^(r/2). Rounding moves |A G|_F by at most e |A|_F |G|_F.

    Guarantee: all bounds hold at once except with ``failure_probability`` over the generator's draw.

    >>> operator = LinearOperator.of(torch.ones(5, 9)).batch_of_one()
    >>> lower, upper, _ = probable_traces(operator, generator=torch.Generator().manual_seed(1))
    >>> bool(lower <= 45), bool(upper >= 45), bool(upper < 45.001)
    (True, True, True)
    """
    _checked_generator(generator, failure_probability, probes)
    count, (height, width) = operator.count, operator.shape
    if probes >= width:
        block = torch.eye(width, dtype=torch.float64, device=operator.device).expand(count, width, width)
        smallest, largest = 1.0, 1.0  # of |A G|_F^2 / |A|_F^2
    else:
        block = _standard_normal_probes(operator, probes, generator)
        smallest, largest = (probes * tail for tail in _tails(probes, failure_probability / count / 2))
    squares = operator.squares(block).double()
    _require_product("squares", squares, block.shape[:2])
    total = squares.sum(1)
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


def _standard_normal_probes(operator: BatchedOperator, probes: int, generator: torch.Generator) -> Tensor:
    """N(0, 1) probes, (count, r, p), drawn matrix by matrix: the size of a batch does not change them."""
    block = torch.empty(
        operator.count, probes, operator.shape[1], dtype=torch.float64, device=generator.device
    )
    for vectors in block:
        vectors.normal_(generator=generator)
    return block.to(operator.device)


def _require_product(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    """Refuses a product of the wrong shape or with a number that is not finite."""
    if value.shape != shape:
        raise ValueError(f"{name} must return shape {list(shape)}, got {list(value.shape)}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must return finite numbers, got NaN or infinity")


def _checked_generator(generator: object, failure_probability: float, probes: int) -> torch.Generator:
    """The generator; refuses arguments that bounds from random probes cannot be made with."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    checks.probability("failure_probability", failure_probability)
    checks.count("probes", probes, at_least=1)
    return generator
