"""Many matrices of one shape known by their products: largest singular values and squared norms."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.singular_values import UNIT, SingularValueBounds, gamma

_FIRST_DEGREE = 4  # enough to find where the spectrum ends; the next polynomial then bounds it


@dataclass(frozen=True)
class BatchedOperator:
    """``count`` matrices A of ``shape`` (d, p), known by what they do to (m, r, p) blocks of r vectors.

    ``squares(block, rows)`` gives |A v|^2, (m, r), for the m matrices with those numbers, and
    ``gram(block, rows)`` the same and A^T A v, (m, r, p); all in float64.

    ``rounding`` is a premise of every bound: applying A or its transpose errs by at most
    ``rounding`` times the norm of A times that of the vector.

    >>> matrices = torch.eye(3).double() * torch.tensor([1.0, 2.0]).double()[:, None, None]
    >>> operator = BatchedOperator.of(matrices)
    >>> bounds = probable_bounds_of_many(operator, generator=torch.Generator().manual_seed(0))
    >>> bool((bounds.lower <= torch.tensor([1.0, 2.0])).all()), bool((bounds.upper < 2.1).all())
    (True, True)
    """

    count: int
    shape: tuple[int, int]
    squares: Callable[[Tensor, Tensor], Tensor]
    gram: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    rounding: float = 1e-12
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        checks.count("count", self.count, at_least=1)
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise ValueError(f"shape must be two positive numbers, got {self.shape!r}")
        if not 0 <= self.rounding <= 0.1:
            raise ValueError(f"rounding must be in [0, 0.1], got {self.rounding!r}")

    @staticmethod
    def of(matrices: Tensor) -> "BatchedOperator":
        """Dense ones, (n, d, p)."""
        matrices = matrices.double()

        def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            image = block @ matrices[rows].mT
            return image.square().sum(2), image @ matrices[rows]

        count, height, width = matrices.shape
        rounding = gamma(max(height, width)) * math.sqrt(min(height, width))
        return BatchedOperator(
            count,
            (height, width),
            lambda block, rows: gram(block, rows)[0],
            gram,
            rounding,
            device=matrices.device,
        )


def probable_bounds_of_many(
    operator: BatchedOperator,
    *,
    generator: torch.Generator,
    failure_probability: float = 1e-6,
    probes: int = 4,
    tolerance: float = 0.05,
    maximum_degree: int = 32,
) -> SingularValueBounds:
    """``probable_bounds`` for every matrix at once, each with probes and polynomials of its own.

    All upper ends hold at once except with ``failure_probability``, each one alone except with
    ``failure_probability`` / count; the lower ends always hold. The proof is that of
    ``probable_bounds``; only its last line, what rounding takes from t, is sharper, because few
    digits are left in float32. With x = 2 b / c - 1 >= 1 and u = 2^-53, step j + 1 of the
    recurrence errs by at most 5 (e + 5 u) (x + 1) |P_j|, which U_(k-1-j)(x) <= (k - j) T_(k-1-j)(x)
    carries to the end. As (x + 1) T_j <= 2 T_(j+1) and T_i T_j <= T_(i+j), and as long as all of it
    is below t, t falls by 5 (e + 5 u) k (k + 1) (|G|_F + t).

    Matrices whose ends are within ``tolerance`` are left alone; the others go on to polynomials of
    four times the degree, up to ``maximum_degree``. Neither changes what holds.

    >>> operator = BatchedOperator.of(torch.ones(2, 5, 9))
    >>> bounds = probable_bounds_of_many(operator, generator=torch.Generator().manual_seed(1))
    >>> bool((bounds.lower**2 <= 45).all()), bool((bounds.upper**2 >= 45).all()), bounds.failure_probability
    (True, True, 1e-06)
    """
    _checked(generator, failure_probability, probes)
    checks.count("maximum_degree", maximum_degree, at_least=1)
    share = failure_probability / operator.count
    threshold = math.exp(math.log(2) / 2 + (math.log(share) + math.lgamma(probes / 2 + 1)) / probes)
    lower = torch.zeros(operator.count, dtype=torch.float64, device=operator.device)
    upper = torch.zeros_like(lower)
    rows = torch.arange(operator.count, device=operator.device)
    while len(rows):
        start = _draw(operator, rows, probes, generator)
        lower[rows], upper[rows] = _squares(operator, rows, start, threshold, tolerance, maximum_degree)
        # Where the ends have crossed, the event behind the upper one is seen to have failed. Starting
        # afresh then only lowers the chance that the answer is one of its failures.
        rows = rows[upper[rows] < lower[rows]]
    if bool(upper.isinf().any()):
        raise ValueError(
            f"failure_probability {failure_probability!r} of {operator.count} matrices is below what "
            f"rounding {operator.rounding!r} allows with {probes} probes"
        )
    return SingularValueBounds(
        lower.sqrt() * (1 - 2 * UNIT), upper.sqrt() * (1 + 2 * UNIT), failure_probability
    )


def _squares(
    operator: BatchedOperator,
    rows: Tensor,
    start: Tensor,
    threshold: float,
    tolerance: float,
    maximum_degree: int,
) -> tuple[Tensor, Tensor]:
    """Both ends of the squares, from one draw."""
    slack = 1 + 1e-12 + gamma(start[0].numel())
    size = start.flatten(1).norm(dim=1) * slack
    lower, back = _product(operator, start, rows)
    upper = torch.where(lower > 0, math.inf, lower)
    degree = min(_FIRST_DEGREE, maximum_degree)
    while len(todo := (upper > lower * (1 + tolerance) ** 2).nonzero()[:, 0]):
        cut, previous = lower[todo, None, None], start[todo]
        current = 2 / cut * back[todo] - previous
        for step in range(1, degree + 1):
            lost = 5 * (operator.rounding + 5 * UNIT) * step * (step + 1)
            sure = threshold - lost * (size[todo] + threshold)
            norm = current.flatten(1).norm(dim=1) * slack
            angle = torch.acosh((norm / sure).clamp(min=1)) / step
            bound = cut[:, 0, 0] * (1 + torch.cosh(angle)) / 2 * (1 + 1e-12)
            usable = (sure > 0) & (norm < 1e100)
            upper[todo] = torch.minimum(upper[todo], torch.where(usable, bound, math.inf))
            on = usable & (upper[todo] > lower[todo] * (1 + tolerance) ** 2)
            if step == degree or not bool(on.any()):
                break
            todo, cut, previous, current = todo[on], cut[on], previous[on], current[on]
            better, image = _product(operator, current, rows[todo])
            lower[todo] = torch.maximum(lower[todo], better)
            previous, current = current, 2 * (2 / cut * image - current) - previous
        if degree == maximum_degree:
            break
        degree = min(4 * degree, maximum_degree)
    return lower, upper


def probable_traces(
    operator: BatchedOperator,
    *,
    generator: torch.Generator,
    failure_probability: float = 1e-6,
    probes: int = 64,
    at_once: int = 4,
) -> tuple[Tensor, Tensor]:
    """Both ends of |A|_F^2 = trace(A^T A), each matrix with probes of its own.

    With ``probes`` >= p the unit vectors take their place: exact but for rounding, no chance. Below,
    q = |A G|_F^2 / r over r probes has mean |A|_F^2 = a, but is no bound of it. With l_i the
    eigenvalues of A^T A, for s > 0

        E exp(-s r q) = prod_i (1 + 2 s l_i)^(-r/2) <= (1 + 2 s a)^(-r/2),

    and likewise with -s < 0, so both tails are at most those that Chernoff gives a (chi-squared
    / r): P(q <= y a), y < 1, and P(q >= y a), y > 1, are at most (y e^(1-y))^(r/2). All ends hold at
    once except with ``failure_probability``. Rounding moves |A G|_F by at most e |A|_F |G|_F.

    >>> operator = BatchedOperator.of(torch.ones(2, 5, 9))
    >>> lower, upper = probable_traces(operator, generator=torch.Generator().manual_seed(1))
    >>> bool((lower <= 45).all()), bool((upper >= 45).all()), bool((upper < 45.001).all())
    (True, True, True)
    """
    _checked(generator, failure_probability, probes)
    count, (height, width) = operator.count, operator.shape
    exact, used = probes >= width, min(probes, width)
    rows = torch.arange(count, device=operator.device)
    total = torch.zeros(count, dtype=torch.float64, device=operator.device)
    if exact:
        block = torch.eye(width, dtype=torch.float64, device=operator.device).expand(count, width, width)
    else:
        block = _draw(operator, rows, probes, generator)
    for some in block.split(at_once, dim=1):
        squares = operator.squares(some, rows)
        _finite("squares", squares, some.shape[:2])
        total += squares.double().sum(1)
    smallest, largest = (1.0, 1.0) if exact else _tails(used, failure_probability / count / 2)
    ends = [math.sqrt(1.0 if exact else used * tail) for tail in (largest, smallest)]
    moved = operator.rounding * torch.linalg.vector_norm(block, dim=(1, 2)) * (1 + 1e-9)
    slack = 1 + 1e-12 + 2 * gamma(height + used)
    if bool((moved >= ends[1]).any()):
        raise ValueError(f"rounding {operator.rounding!r} leaves nothing of {probes} probes")
    return total / (ends[0] + moved) ** 2 / slack, total / (ends[1] - moved) ** 2 * slack


def _tails(degrees: int, probability: float) -> tuple[float, float]:
    """y below and above 1 with (y e^(1-y))^(degrees/2) <= probability, by bisection on the safe side."""
    needed = -2 / degrees * math.log(probability) * (1 + 1e-12)

    def far(y: float) -> bool:
        return y - 1 - math.log(y) >= needed

    ends = []
    for outer in (math.exp(-1 - needed), 2 + 4 * needed):
        inner = 1.0
        for _ in range(200):
            middle = (inner + outer) / 2
            inner, outer = (inner, middle) if far(middle) else (middle, outer)
        ends.append(outer)
    return ends[0], ends[1]


def _draw(operator: BatchedOperator, rows: Tensor, probes: int, generator: torch.Generator) -> Tensor:
    """N(0, 1), fresh for every matrix; matrix by matrix, so that it does not matter how many there are."""
    each = [
        torch.randn(
            (probes, operator.shape[1]), generator=generator, dtype=torch.float64, device=generator.device
        )
        for _ in rows
    ]
    return torch.stack(each).to(operator.device)


def _product(operator: BatchedOperator, block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(lower bounds of the squared norms, A^T A block), with what the callable returns checked."""
    squares, back = operator.gram(block, rows)
    _finite("gram", squares, block.shape[:2])
    _finite("gram", back, block.shape)
    squares, back = squares.double(), back.double()
    inner, norm = (block * back).sum(2), block.norm(dim=2)
    allowed = max(1e-9, 100 * operator.rounding) * (squares + norm * back.norm(dim=2))
    if bool(((squares - inner).abs() > allowed).any()):
        raise ValueError("gram must be A^T A: its inner products differ from squares by more than rounding")
    slack = 1 + operator.rounding + 1e-12 + gamma(sum(operator.shape))
    return (squares / norm.square()).amax(1) / slack**2, back


def _finite(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        raise ValueError(f"{name} must return shape {list(shape)}, got {list(value.shape)}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must return finite numbers, got NaN or infinity")


def _checked(generator: object, failure_probability: float, probes: int) -> None:
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    checks.probability("failure_probability", failure_probability)
    checks.count("probes", probes, at_least=1)
