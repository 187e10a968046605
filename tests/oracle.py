"""The laws by definition, in multi-precision: densities, atoms and integrals, no closed forms.

Nothing here shares a line with the package. An oracle is slow and is trusted because it is plain. The oracle
of a law may also stand beside its test (docs/adding_a_mechanism.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import TypeVar

from mpmath import mp, mpf

mp.dps = 30  # integrals, which are compared to 12 digits

# Sums over atoms: an atom that holds nearly all the mass is 1 minus the others, and two laws differ only
# in the others. A divergence of such a sum has 12 digits if it is above the smallest one told from 0.
_DIGITS_OF_ATOMS = 100
SMALLEST_DIVERGENCE_OF_ATOMS = 1e-85

Number = float | mpf
Answer = TypeVar("Answer")


def phi(x: mpf) -> mpf:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def below(x: mpf) -> mpf:
    """P(N(0, 1) <= x)."""
    return mp.erfc(-x / mp.sqrt(2)) / 2


def between(low: mpf, high: mpf) -> mpf:
    """P(low <= N(0, 1) <= high) from whichever tail is smaller."""
    return below(high) - below(low) if high < 0 else below(-low) - below(-high)


@dataclass(frozen=True)
class Law:
    """One value of theta: points with mass, and a density on (low, high) if there is one."""

    atoms: dict[mpf, mpf]
    density: Callable[[mpf], mpf] | None = None
    low: mpf | None = None
    high: mpf | None = None
    scale: mpf | None = None
    kinks: bool = False  # whether its derivatives in theta differ from side to side, the larger one counting


Family = Callable[[Number], Law]


def with_enough_digits(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """The function of a family, evaluated with more digits where its laws have no density."""

    @wraps(function)
    def evaluated(family: Family, *arguments: Number) -> Answer:
        with mp.workdps(mp.dps if family(arguments[0]).density else max(mp.dps, _DIGITS_OF_ATOMS)):
            return function(family, *arguments)

    return evaluated


def gaussian(sigma: Number) -> Family:
    sigma = mpf(sigma)

    def law(theta: Number) -> Law:
        theta = mpf(theta)
        return Law({}, lambda x: phi((x - theta) / sigma) / sigma, -mp.inf, mp.inf, sigma)

    return law


def rectified(sigma: Number, low: Number, high: Number) -> Family:
    sigma, low, high = mpf(sigma), mpf(low), mpf(high)

    def law(theta: Number) -> Law:
        theta = mpf(theta)
        atoms = {low: below((low - theta) / sigma), high: below((theta - high) / sigma)}
        return Law(atoms, lambda x: phi((x - theta) / sigma) / sigma, low, high, sigma)

    return law


def truncated(sigma: Number, low: Number, high: Number) -> Family:
    sigma, low, high = mpf(sigma), mpf(low), mpf(high)

    def law(theta: Number) -> Law:
        theta = mpf(theta)
        mass = between((low - theta) / sigma, (high - theta) / sigma)
        return Law({}, lambda x: phi((x - theta) / sigma) / sigma / mass, low, high, sigma)

    return law


def sign(sigma: Number) -> Family:
    def law(theta: Number) -> Law:
        t = mpf(theta) / mpf(sigma)
        return Law({mpf(-1): below(-t), mpf(1): below(t)})

    return law


def quantized(sigma: Number, low: Number, high: Number, levels: int) -> Family:
    sigma, low, high = mpf(sigma), mpf(low), mpf(high)
    step = (high - low) / (levels - 1)
    points = [low + i * step for i in range(levels)]

    def law(theta: Number) -> Law:
        cuts = [-mp.inf, *((p + step / 2 - mpf(theta)) / sigma for p in points[:-1]), mp.inf]
        cells = zip(points, cuts[:-1], cuts[1:], strict=True)
        return Law({point: between(left, right) for point, left, right in cells})

    return law


def mass(family: Family, theta: Number) -> mpf:
    law = family(theta)
    return _integral(law.density, law, [theta]) + sum(law.atoms.values())


@with_enough_digits
def renyi(family: Family, theta: Number, shift: Number, alpha: Number) -> mpf:
    """log of the integral of p^alpha q^(1 - alpha), over alpha - 1."""
    alpha, shift = mpf(alpha), mpf(shift)
    p, q = family(theta), family(mpf(theta) + shift)
    total = sum(m**alpha * q.atoms[x] ** (1 - alpha) for x, m in p.atoms.items())
    if p.density is not None:
        peak = mpf(theta) - (alpha - 1) * shift
        total += _integral(lambda x: p.density(x) ** alpha * q.density(x) ** (1 - alpha), p, [theta, peak])
    return mp.log(total) / (alpha - 1)


@with_enough_digits
def fisher(family: Family, theta: Number) -> mpf:
    """E[(d/dtheta log p)^2], the derivative by central differences in high precision."""
    if family(theta).kinks:
        return max(_one_sided_fisher(family, mpf(theta), side * mpf(10) ** -40) for side in (1, -1))
    step = mpf(10) ** -12
    plus, here, minus = family(mpf(theta) + step), family(theta), family(mpf(theta) - step)

    def squared(up: mpf, down: mpf, value: mpf) -> mpf:
        return ((up - down) / (2 * step)) ** 2 / value if value else mpf(0)

    total = sum(squared(plus.atoms[x], minus.atoms[x], m) for x, m in here.atoms.items())
    if here.density is not None:
        total += _integral(
            lambda x: squared(plus.density(x), minus.density(x), here.density(x)), here, [theta]
        )
    return total


def _one_sided_fisher(family: Family, theta: mpf, step: mpf) -> mpf:
    near, here = family(theta + step), family(theta)
    return sum(((near.atoms[x] - m) / step) ** 2 / m for x, m in here.atoms.items() if m)


@with_enough_digits
def hockey_stick(family: Family, theta: Number, shift: Number, epsilon: Number) -> mpf:
    """The integral of the positive part of p - e^epsilon q."""
    p, q = family(theta), family(mpf(theta) + mpf(shift))
    scale = mp.exp(mpf(epsilon))
    total = sum(max(m - scale * q.atoms[x], mpf(0)) for x, m in p.atoms.items())
    if p.density is not None:
        # The log ratio is linear in x: the two points below fix where it crosses epsilon.
        left = mpf(0) if mp.isinf(p.low) else p.low
        right = mpf(1) if mp.isinf(p.high) else p.high
        ratio = [mp.log(p.density(x) / q.density(x)) for x in (left, right)]
        slope = (ratio[1] - ratio[0]) / (right - left)
        crossing = left + (mpf(epsilon) - ratio[0]) / slope
        total += _integral(lambda x: max(p.density(x) - scale * q.density(x), mpf(0)), p, [theta, crossing])
    return total


@with_enough_digits
def loss_moments(family: Family, theta: Number, shift: Number) -> list[mpf]:
    """Central moments 2, 3 and 4 of log p/q under p."""
    p, q = family(theta), family(mpf(theta) + mpf(shift))

    def expectation(function: Callable[[mpf], mpf]) -> mpf:
        total = sum(m * function(mp.log(m / q.atoms[x])) for x, m in p.atoms.items() if m)
        if p.density is None:
            return total
        # shifted to stay positive: mpmath compares sizes to choose its accuracy
        return (
            total
            + _integral(
                lambda x: p.density(x) * (function(mp.log(p.density(x) / q.density(x))) + 1000), p, [theta]
            )
            - 1000 * _integral(p.density, p, [theta])
        )

    mean = expectation(lambda loss: loss)
    return [expectation(lambda loss, k=k: (loss - mean) ** k) for k in (2, 3, 4)]


def _integral(function: Callable[[mpf], mpf] | None, law: Law, peaks: list[Number]) -> mpf:
    """Gauss-Legendre on panels that follow each peak; an infinite end is cut 30 scales out."""
    if function is None:
        return mpf(0)
    steps = [mpf(0), *(sign * k for k in (mpf(1) / 16, 1, 4, 10, 30) for sign in (1, -1))]
    points = [mpf(peak) + step * law.scale for peak in peaks for step in steps]
    low = min(points) if mp.isinf(law.low) else law.low
    high = max(points) if mp.isinf(law.high) else law.high
    panels = [low, *sorted({point for point in points if low < point < high}), high]
    # mpmath stops at an absolute error: bring the integrand to the size of 1 first.
    size = max(function((a + b) / 2) for a, b in pairwise(panels))
    if size == 0:
        return mpf(0)
    return size * mp.quad(lambda x: function(x) / size, panels, method="gauss-legendre")
