"""Certified upper bounds of norms and traces of matrices that are known by their products.

Let A be one of the matrices, B = A^T A with largest eigenvalue b and unit eigenvector v, and g_1, ..., g_r
independent N(0, 1) vectors, the probes. The upper bound of b has three steps.

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
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.rounding import UNIT, gamma

_BISECTIONS = 30
_TINY = 1e-300
_FARTHEST = 1e15  # the largest upper bound that is looked for, in units of what Gershgorin gives T


@dataclass(frozen=True)
class BatchedOperator:
    """``count`` matrices A of ``shape`` (d, p), known by what they do to one vector each.

    ``apply`` takes (count, p) to A v, (count, d), and ``apply_transpose`` takes (count, d) back. All is
    float64, and both may overwrite what they are given.

    ``rounding`` is a premise of every bound: applying A or its transpose errs by at most
    ``rounding`` times the norm of A times the norm of the vector.

    >>> twice = BatchedOperator(1, (4, 4), lambda v: 2 * v, lambda v: 2 * v)
    >>> twice.squares(torch.ones(1, 1, 4).double()).tolist()  # |2 v|^2
    [[16.0]]
    """

    count: int
    shape: tuple[int, int]
    apply: Callable[[Tensor], Tensor]
    apply_transpose: Callable[[Tensor], Tensor]
    rounding: float = 1e-12
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        checks.count("count", self.count, at_least=1)
        if not 0 <= self.rounding <= 0.1:
            raise ValueError(f"rounding must be in [0, 0.1], got {self.rounding!r}")

    def squares(self, block: Tensor) -> Tensor:
        """|A v|^2 of (count, r, p) blocks of r vectors, (count, r)."""
        squares = [self.apply(vectors.clone()).square().sum(dim=1) for vectors in block.unbind(1)]
        return _finite(torch.stack(squares, dim=1))

    def gram(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and A^T A v, (count, r, p)."""
        squares, backs = [], []
        for vectors in block.unbind(1):
            image = self.apply(vectors.clone())
            squares.append(image.square().sum(dim=1))
            backs.append(self.apply_transpose(image))
        return _finite(torch.stack(squares, dim=1)), _finite(torch.stack(backs, dim=1))


def _finite(products: Tensor) -> Tensor:
    if not bool(torch.isfinite(products).all()):
        raise ValueError("the products of an operator must be finite numbers, got NaN or infinity")
    return products


def spectral_bounds(
    operator: BatchedOperator,
    *,
    generator: torch.Generator,
    failure_probability: float = 1e-6,
    probes: int | None = None,
    tolerance: float = 0.05,
    maximum_degree: int = 32,
) -> Tensor:
    """Upper bounds of the largest eigenvalue b of A^T A of every matrix, each with its own probes.

    Work ends once the bound of every singular value is within ``tolerance`` of a value of the recurrence,
    or after ``maximum_degree`` products per probe. Neither changes what holds. Fewer probes need fewer
    products in all, and more probes leave more room for rounding. By default there is one, or there are two
    where one would leave rounding less than a quarter of t.

    Guarantee: all bounds hold at once except with ``failure_probability`` over the generator's
    draw, each one alone except with ``failure_probability`` / count. The proof is at the head of this file.

    >>> ones = torch.ones(5, 9).double()
    >>> operator = BatchedOperator(1, (5, 9), lambda v: v @ ones.T, lambda v: v @ ones)
    >>> 45 <= float(spectral_bounds(operator, generator=torch.Generator().manual_seed(1))) <= 45 * 1.05**2
    True
    """
    each = _checked_share(operator, generator, failure_probability)
    number = _fewest_probes(operator, each) if probes is None else checks.count("probes", probes, at_least=1)
    most = checks.count("maximum_degree", maximum_degree, at_least=1)
    start = _standard_normal_probes(operator, number, generator)
    sizes = start.norm(dim=2, keepdim=True)
    current, previous = start / sizes, torch.zeros_like(start)
    sizes = sizes[:, :, 0].cpu() * (1 + 1e-9)
    diagonal, beside = torch.zeros(2, operator.count, number, most, dtype=torch.float64)
    limit, aim = chi_threshold(each, number) ** 2, (1 + tolerance) ** 2
    upper = torch.full((operator.count,), math.inf, dtype=torch.float64)
    # A matrix whose bound is close goes on with the others, but its bound is that of its first products.
    going = torch.arange(operator.count)
    for step in range(most):
        squares, back = operator.gram(current)
        if not step:  # B is divided by a scale: squares of very large or small numbers are not representable
            largest = squares.amax(1)
            scale = torch.where(largest > 0, largest, 1.0)
            upper[(largest == 0).cpu()] = 0.0
        back = back / scale[:, None, None]
        along = (current * back).sum(2)
        rest = back - along[:, :, None] * current
        if step:
            rest -= beside[:, :, step - 1].to(rest.device)[:, :, None] * previous
        length = rest.norm(dim=2)
        previous, current = current, rest / length[:, :, None].clamp(min=_TINY)
        diagonal[:, :, step], beside[:, :, step] = along.cpu(), length.cpu()
        going = going[upper[going].isinf()]
        made = diagonal[going, :, : step + 1], beside[going, :, : step + 1], sizes[going], operator.rounding
        ceiling = torch.linalg.eigvalsh(_tridiagonal(*made[:2])).amax((1, 2)) * aim
        if bool((close := _reach(*made, ceiling) < limit).any()):
            upper[going] = torch.where(close, _least(*made, limit, ceiling), math.inf)
        if bool(close.all()):
            break
    else:  # those that are not close yet
        bound = _least(*made, limit, torch.full_like(ceiling, math.inf))
        upper[going] = torch.minimum(upper[going], bound)
    if bool(upper.isinf().any()):
        raise ValueError(
            f"failure_probability must be larger, got {failure_probability!r} for {operator.count} matrices: "
            f"rounding {operator.rounding!r} leaves nothing of {number} probes"
        )
    return upper.to(scale.device) * scale * (1 + 2 * UNIT)


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
    charge = math.sqrt(operator.shape[1]) * _charge(operator.rounding, 16)
    return 1 if 4 * charge <= chi_threshold(failure_probability, 1) else 2


def _charge(rounding: float, degree: int) -> float:
    """An upper bound of the errors of all steps together, |e| / b."""
    return math.sqrt(degree) * (2 * rounding + rounding**2 + 1e-14 * (degree + 1))


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


def _least(
    diagonal: Tensor, beside: Tensor, sizes: Tensor, rounding: float, limit: float, ceiling: Tensor
) -> Tensor:
    """The least x of step 3, from above, by bisection; infinity where there is none below ``ceiling``."""
    before = torch.nn.functional.pad(beside, (1, 0))[..., :-1]
    gershgorin = (diagonal + beside + before).amax((1, 2)).clamp(min=_TINY)
    low = (diagonal.amax((1, 2)).clamp(min=_TINY) / gershgorin).log()
    high = (ceiling / gershgorin).clamp(min=_TINY, max=_FARTHEST).log()
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        good = _reach(diagonal, beside, sizes, rounding, gershgorin * middle.exp()) < limit
        low, high = torch.where(good, low, middle), torch.where(good, middle, high)
    x = gershgorin * high.exp() * (1 + 1e-12)
    return torch.where(_reach(diagonal, beside, sizes, rounding, x) < limit, x, math.inf)


def trace_bounds(
    operator: BatchedOperator,
    *,
    generator: torch.Generator,
    failure_probability: float = 1e-6,
    probes: int = 64,
) -> tuple[Tensor, Tensor]:
    """(upper bounds of |A|_F^2 = trace(A^T A), estimates of it), each matrix with probes of its own.

    With ``probes`` >= p the unit vectors take the place of random ones: the trace is then exact but for
    rounding, and nothing is left to chance.

    With fewer probes, q = |A G|_F^2 / r over r probes has mean |A|_F^2 = a: it is the estimate, and bounds
    nothing. With l_i the eigenvalues of A^T A, for s > 0

        E exp(-s r q) = prod_i (1 + 2 s l_i)^(-r/2) <= (1 + 2 s a)^(-r/2),

    so that P(q <= y a) for y < 1 is at most what Chernoff's bound gives to a chi-squared number over r,
    (y e^(1-y))^(r/2). Rounding moves |A G|_F by at most e |A|_F |G|_F.

    Guarantee: all bounds hold at once except with ``failure_probability`` over the generator's draw.

    >>> ones = torch.ones(5, 9).double()
    >>> operator = BatchedOperator(1, (5, 9), lambda v: v @ ones.T, lambda v: v @ ones)
    >>> upper, _ = trace_bounds(operator, generator=torch.Generator().manual_seed(1))
    >>> 45 <= float(upper) < 45.001
    True
    """
    share = _checked_share(operator, generator, failure_probability)
    checks.count("probes", probes, at_least=1)
    count, (height, width) = operator.count, operator.shape
    if probes >= width:
        block = torch.eye(width, dtype=torch.float64, device=operator.device).expand(count, width, width)
        number, smallest = 1, 1.0  # of |A G|_F^2 / |A|_F^2
    else:
        block = _standard_normal_probes(operator, probes, generator)
        number, smallest = probes, probes * _lower_tail(probes, share)
    total = operator.squares(block).sum(1)
    moved = operator.rounding * torch.linalg.vector_norm(block, dim=(1, 2)) * (1 + 1e-9)
    if bool((moved >= math.sqrt(smallest)).any()):
        raise ValueError(f"rounding {operator.rounding!r} leaves nothing of {probes} probes")
    slack = 1 + 1e-12 + 2 * gamma(height + block.shape[1])
    return total / (math.sqrt(smallest) - moved) ** 2 * slack, total / number


def _lower_tail(degrees: int, probability: float) -> float:
    """y below 1 with (y e^(1-y))^(degrees/2) <= probability.

    Newton's method for log y - y = aim, which is concave: from below it stays below.
    """
    aim = 2 / degrees * math.log(probability) - 1
    y = math.exp(aim)
    for _ in range(100):
        y += (aim + y - math.log(y)) * y / (1 - y)
    return y * (1 - 1e-12)


def _standard_normal_probes(operator: BatchedOperator, probes: int, generator: torch.Generator) -> Tensor:
    """N(0, 1) probes, (count, r, p), drawn matrix by matrix: the size of a batch does not change them."""
    block = torch.empty(
        operator.count, probes, operator.shape[1], dtype=torch.float64, device=generator.device
    )
    for vectors in block:
        vectors.normal_(generator=generator)
    return block.to(operator.device)


def _checked_share(operator: BatchedOperator, generator: object, failure_probability: float) -> float:
    """The failure probability of each matrix; refuses what bounds from random probes cannot be made with."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    return checks.probability("failure_probability", failure_probability) / operator.count
