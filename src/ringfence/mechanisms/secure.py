"""Releases that floating point cannot undo: points of a public grid, or a winner, drawn exactly.

What is released is M(theta) rounded to a grid that is fixed in advance. Let F be the distribution
function of the noisy value (``mechanism.distribution``) and U a uniform number from a cryptographic stream.
The release is the point k with

    F(cut before k) <= U < F(cut of k).

Of several noisy values, value_k + scale F^-1(U_k), only the number of the largest is released. In both cases
53 bits of U decide in float64; where that leaves a doubt, further bits of U are drawn, and F is computed to
as many, until there is none. What is released therefore has the law exactly.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.noise import CipherDraws, Noise, uniforms
from ringfence.numerics import exact_normal
from ringfence.numerics.blocks import blockwise
from ringfence.numerics.normal import cumulative, gauss_legendre, mills_ratio
from ringfence.numerics.truncated_normal import TAIL, quantile_in_tail, quantile_near

if TYPE_CHECKING:
    from ringfence.mechanisms.base import Mechanism

_STEP = 2.0**-53  # spacing of the numbers that the first bits of U make
_FARTHEST = 2**51  # the largest number of a point: up to there a number and a half is exact in float64

# A point of a grid.
_DOUBT = 2.0**-36  # 32 times what F in float64 may be off (docs/security.md)
_DEFAULT = 2.0**-10  # of sigma, or of the width if that is less
_FINEST = 2.0**-20  # the same; with finer steps many draws would leave a doubt

# The largest of several values.
_QUANTILE_DOUBT = (
    1e-9  # of the scale times (1 + |z|): a million times what a quantile may be off (docs/security.md)
)
_SUM_DOUBT = 1e-15  # of a value and its noise, when they are added

# Where the log density changes by no more than this over the interval, five nodes integrate the
# density to 1e-16; a difference of distribution functions would lose digits there.
_FLAT = 2.0**-6
_NODES = 5
_NARROWEST = 1e-280  # sigma: distances inside a narrower interval may underflow


class SecureRelease:
    """Releases a law on a public grid, which adds nothing to its account.

    ``step`` is the spacing of the grid, a number or a tensor like sigma. Left out it is the
    largest power of two up to sigma / 1024 and width / 1024. The grid is the multiples of the
    step inside the interval of the law, and its ends; on the side of an infinite end it stops
    after 2^51 steps. A law of atoms (``law.public_points``) has its own points and takes no step.

    Guarantee: the release is a fixed function of a draw of the law at the same theta. A point is
    taken only where bounds of F(cut) say on which side of it all numbers lie that begin with the
    bits of U so far. Until then more bits are drawn, which ends with probability 1, because U equals
    F(cut) with probability 0. Every divergence, hockey stick and information of the law therefore
    bounds the release's, at the same sensitivity. The points that can occur are the same for every
    theta. docs/security.md has the proof, and says what is not covered: time, for one.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> secure = SecureRelease(TruncatedGaussian(1.0, bound=2.0))
    >>> secure
    SecureRelease(TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0)), step=0.0009765625)
    >>> released = 1024 * secure.draw(torch.full((1000,), 50.0))
    >>> bool((released == released.round()).all()), bool((released <= 2048).all())
    (True, True)
    """

    def __init__(self, law: "Mechanism", step: Real | None = None) -> None:
        if not hasattr(law, "public_points"):
            raise TypeError(f"law must be a ringfence mechanism, got {law!r}")
        parameters = [value.double().cpu() for value in law.parameters().values()]
        own_points = law.public_points(*parameters) is not None
        no_grid = not own_points and law.support.interval is None
        if no_grid or law.distribution(parameters[0], *parameters) is None:  # at a theta that broadcasts
            raise NotImplementedError(f"there is no secure release of the law {law.name!r}")
        if own_points and step is not None:
            raise ValueError(
                f"step must be None for the law {law.name!r}, got {step!r}: it has its own points"
            )
        # Up to here differences that overflow are differences of very many sigma.
        checks.require("sigma", "must be at most 1e290", law.sigma, law.sigma.double() <= 1e290)
        self.law = law
        self.step = None if own_points else _checked_step(law, step)

    def draw(self, theta: Real, draws: CipherDraws | None = None) -> Tensor:
        """One release of each coordinate: theta's dtype and device.

        Random bits come from AES-256 in counter mode, under a fresh key of the operating system, unless
        ``draws`` are given: those of a seed can be repeated by anyone who knows it. Drawing twice is two
        releases, each to be paid for. The work is done on the CPU.
        """
        return self.prepared(theta, draws)()

    def prepared(self, theta: Real, draws: CipherDraws | None = None) -> Callable[[], Tensor]:
        """``draw`` with its arguments checked and nothing drawn, to be called once."""
        theta = checks.finite("theta", theta)
        named = {"theta": theta, **self.law.parameters()}
        if draws is not None:
            checks.instance("draws", draws, CipherDraws)
        if self.step is not None:
            named["step"] = self.step
        checks.broadcast(list(named), list(named.values()))
        return partial(self._draw, theta, Noise().at("secure release") if draws is None else draws)

    def _draw(self, theta: Tensor, bits: CipherDraws) -> Tensor:
        # the ends and the step of a grid of steps; nothing where the law has its own points
        steps = () if self.step is None else (*(self.law.support.interval or ()), self.step)
        columns = (theta, *self.law.parameters().values(), *steps)
        points = blockwise(partial(self._drawn, bits), *(column.cpu().double() for column in columns))
        if bool(torch.isnan(points).any()):
            raise FloatingPointError(f"{self!r} cannot be represented at these arguments")
        # Rounded to theta's dtype, and clamped to what it holds: a function of the point.
        most = torch.finfo(theta.dtype).max
        return points.clamp(-most, most).to(theta)

    def __repr__(self) -> str:
        if self.step is None:
            return f"SecureRelease({self.law!r})"
        many = self.step.numel() != 1
        step = f"tensor{list(self.step.shape)}" if many else float(self.step.flatten()[0])
        return f"SecureRelease({self.law!r}, step={step})"

    def _drawn(self, bits: CipherDraws, theta: Tensor, *columns: Tensor) -> Tensor:
        """The points for one block of coordinates, from theta, the parameters of the law and the steps."""
        count = len(self.law.parameters())
        parameters, steps = columns[:count], columns[count:]
        points = Steps(*steps) if steps else self.law.public_points(*parameters)
        distribution = self.law.distribution(theta, *parameters)
        assert points is not None  # the constructor has asked for both
        assert distribution is not None
        shape = np.broadcast_shapes(*(column.shape for column in (theta, *columns)))
        return points.point(numbers(distribution, points, bits, math.prod(shape)))


def _checked_step(law: "Mechanism", step: Real | None) -> Tensor:
    """The step as it is given, or the default one, in float64: a function of public parameters alone."""
    ends = [end.double() for end in law.support.interval or ()]
    width = ends[1] - ends[0]
    scale = torch.minimum(law.sigma.double().to(width.device), width)
    if step is None:
        exponent = torch.frexp(scale).exponent - 1  # 2^exponent <= scale
        spacing = torch.ldexp(torch.full_like(scale, _DEFAULT), exponent)
    else:
        spacing = checks.positive("step", step).double().to(width.device)
    checks.broadcast(("step", "sigma and bound"), (spacing, scale))
    spacing, scale, width, *ends = torch.broadcast_tensors(spacing, scale, width, *ends)
    fine = _FINEST * scale
    checks.require("step", "must be at least 2^-20 of sigma and of the width", spacing, spacing >= fine)
    checks.require("step", "must be at most the width of the interval", spacing, spacing <= width)
    for end in ends:
        steps = torch.where(torch.isfinite(end), end.abs(), 1.0) / spacing
        checks.require("step", "must reach the bound in 2^51 steps", spacing, steps < _FARTHEST)
    return checks.require("step", "is too large", spacing, torch.isfinite(2 * _FARTHEST * spacing))


def numbers(distribution: "Distribution", points: "PublicPoints", bits: CipherDraws, count: int) -> Tensor:
    """The number of the point that U falls on, for each of ``count`` coordinates.

    >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
    >>> numbers(Normal(zero, one), Points((-1.0, 1.0), (zero - 90,)), Noise().at("example"), 3).tolist()
    [1, 1, 1]
    """
    words = bits.words(count)
    uniform = uniforms(words)
    # Whatever the guess is, even NaN: it is checked below.
    guess = points.nearest(distribution.guess(uniform))
    number = torch.maximum(torch.minimum(guess, points.last), points.first)
    before = torch.where(number == points.first, -1.0, distribution.below(points.cut(number - 1)))
    until = torch.where(number == points.last, 2.0, distribution.below(points.cut(number)))
    sure = (uniform - before > _DOUBT) & (until - uniform > _DOUBT)
    for place in (~sure).nonzero().flatten().tolist():
        exact = _Uniform(words[place], bits)
        number[place] = _decided(distribution, points.select(place), exact, place)
    return number


class _Uniform:
    """The bits of U that were drawn so far, as an integer: a word at first, and more where there is doubt."""

    def __init__(self, word: Tensor, draws: CipherDraws) -> None:
        self.draws, self.bits, self.numerator = draws, 64, int(word) % 2**64

    def extend(self) -> None:
        """Draws 64 more bits."""
        self.numerator = (self.numerator << 64) + self.draws.word() % 2**64
        self.bits += 64

    def is_below(self, value: Callable[[int], Any]) -> bool:
        """Whether U < ``value(bits)``, off by less than 2^-(bits + 32); bits are drawn while in doubt.

        Guarantee: the answer is right for every number that begins with the bits of U. It is found with
        probability 1: after n bits there is doubt only if U is within 2^(2 - n) of the value.
        """
        while (known := exact_normal.is_below(self.numerator, self.bits, value(self.bits))) is None:
            self.extend()
        return known


def _decided(distribution: "Distribution", points: "PublicPoints", uniform: _Uniform, place: int) -> int:
    """The number of the point for one coordinate, beyond doubt, from all bits of U."""

    def before_the_cut(number: int) -> bool:
        cut = float(points.cut(torch.tensor(number)))
        return uniform.is_below(lambda bits: distribution.exactly(cut, place, bits))

    first, last = int(points.first), int(points.last)
    return first + bisect_left(range(first, last), True, key=before_the_cut)


def largest(values: Tensor, scale: float, bits: CipherDraws, *, gumbel: bool = False) -> Tensor:
    """The number of the largest of each row of ``values`` (rows, K) plus noise of this scale, on the CPU.

    The noise is normal, or the standard Gumbel law times the scale.

    Guarantee: the law is exactly that of the largest. A candidate wins only where bounds of its noisy value
    and of all others say so, for every number that begins with the bits of each U so far; until then more
    are drawn. That ends with probability 1, because two noisy values are equal with probability 0.

    >>> largest(torch.tensor([[0.0, 90.0], [90.0, 0.0]]).double(), 1.0, Noise().at("example")).tolist()
    [1, 0]
    """
    words = bits.words(values.numel()).view(values.shape)
    uniform = uniforms(words)

    def noisy(share: Tensor, sign: int) -> Tensor:
        """value + scale z, moved outwards by what it may be off."""
        noise: Tensor = scale * (-torch.log(-torch.log(share)) if gumbel else torch.special.ndtri(share))
        off = _QUANTILE_DOUBT * (scale + noise.abs()) + _SUM_DOUBT * (values.abs() + noise.abs())
        return values + noise + sign * off

    low, high = noisy(uniform, -1), noisy(uniform + _STEP, 1)
    best = low.argmax(dim=1, keepdim=True)
    doubted = (high >= low.gather(1, best)).scatter_(1, best, True)  # who may still be the largest
    winner = best.squeeze(1)
    for row in (doubted.sum(dim=1) > 1).nonzero().flatten().tolist():
        rivals = doubted[row].nonzero().flatten().tolist()
        noises = {k: (float(values[row, k]), _Uniform(words[row, k], bits)) for k in rivals}
        winner[row] = _decided_largest(noises, scale, gumbel=gumbel)
    return winner


def _decided_largest(noises: Mapping[int, tuple[float, _Uniform]], scale: float, *, gumbel: bool) -> int:
    """The number of the largest value with noise, beyond doubt, from all bits of each U."""
    rivals = [*noises]
    while True:
        ends = {}
        for k in rivals:
            value, uniform = noises[k]
            ends[k] = exact_normal.noisy_ends(uniform.numerator, uniform.bits, value, scale, gumbel=gumbel)
        least = max(low for low, _ in ends.values())
        rivals = [k for k in rivals if ends[k][1] >= least]
        if len(rivals) == 1:
            return rivals[0]
        for k in rivals:
            noises[k][1].extend()


class Distribution(Protocol):
    """The law of the noisy value whose cell is released."""

    def guess(self, uniform: Tensor) -> Tensor:
        """The quantile, as well as float64 gives it."""

    def below(self, x: Tensor) -> Tensor:
        """P(X <= x) for x in the support: NaN, or off by less than 2^-41."""

    def exactly(self, x: float, place: int, bits: int) -> Any:
        """P(X <= x) of one coordinate, off by less than 2^-(bits + 32)."""


class Normal:
    """N(theta, sigma^2), of which a function is released."""

    def __init__(self, theta: Tensor, sigma: Tensor) -> None:
        self.theta, self.sigma = theta, sigma

    def guess(self, uniform: Tensor) -> Tensor:
        return torch.addcmul(self.theta, self.sigma, torch.special.ndtri(uniform))

    def below(self, x: Tensor) -> Tensor:
        """
        >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
        >>> float(Normal(zero, one).below(zero))
        0.5
        """
        return cumulative((x - self.theta) / self.sigma)

    def exactly(self, x: float, place: int, bits: int) -> Any:
        return exact_normal.cumulative(x, *map(float, entries(place, (self.theta, self.sigma))), bits=bits)


class Conditioned:
    """N(theta, sigma^2) conditioned on [lower, upper], however far theta is, with the methods of ``Normal``.

    With y the distance of x from the end nearer to theta, in units of sigma, and a the distance
    of that end from theta (negative if theta is inside), P(X <= x) or P(X >= x) is G(y) / G(width):

        a >= 0    G(y) = 1 - exp(-a y - y^2 / 2) m(a + y) / m(a),  m the Mills ratio
        a < 0     G(y) = Phi(a + y) - Phi(a)
        flat      G(y) = y sum_i w_i exp(-a y n_i - (y n_i)^2 / 2)
    """

    def __init__(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> None:
        self.theta, self.sigma, self.lower, self.upper = theta, sigma, lower, upper
        low, high, self.width = pieces.standardized(theta, sigma, lower, upper)
        self.turned = low + high < 0
        self.near, self.far = torch.maximum(low, -high), torch.maximum(high, -low)

    def guess(self, uniform: Tensor) -> Tensor:
        return self.quantile(torch.where(self.turned, 1 - uniform, uniform))

    def quantile(self, share: Tensor) -> Tensor:
        """The value with this share of the mass between it and the end of the interval nearer to theta."""
        x = quantile_near(self.near.clamp(max=TAIL), self.far, share)
        x = self.theta + self.sigma * torch.where(self.turned, -x, x)
        tail = self.near > TAIL
        if bool(tail.any()):
            tail = tail.expand_as(x)
            ends = (self.near, self.far, self.width, share)
            distance = torch.zeros_like(x)
            distance[tail] = quantile_in_tail(*(end.expand_as(x)[tail] for end in ends))
            distance *= self.sigma
            from_end = torch.where(self.turned, self.upper - distance, self.lower + distance)
            x = torch.where(tail, from_end, x)
        return x

    def below(self, x: Tensor) -> Tensor:
        """
        >>> number = lambda value: torch.tensor([value], dtype=torch.float64)
        >>> law = Conditioned(number(50.0), number(1.0), number(-1.0), number(1.0))
        >>> round(float(law.below(number(0.98))), 12)  # exp(-49 * 0.02), almost
        0.37508307624
        """
        distance = torch.where(self.turned, self.upper - x, x - self.lower) / self.sigma
        position = torch.where(self.turned, self.theta - x, x - self.theta) / self.sigma
        share = self._mass(distance.clamp(max=pieces.far(x)), position) / self._whole
        return torch.where(self.turned, 1 - share, share)

    def exactly(self, x: float, place: int, bits: int) -> Any:
        own = entries(place, (self.theta, self.sigma, self.lower, self.upper))
        return exact_normal.cumulative(x, *map(float, own), bits=bits)

    @cached_property
    def _whole(self) -> Tensor:
        """G(width), or NaN where float64 cannot hold what is needed."""
        beyond = (self.near >= pieces.far(self.theta)) | (self.width < _NARROWEST)
        return torch.where(beyond, torch.nan, self._mass(self.width, self.far))

    @cached_property
    def _seen(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The distance of theta from the interval, m there, Phi(a), and where the density is flat."""
        outside = self.near.clamp(min=0)
        flat = self.width * (self.near.abs() + 0.5 * self.width) < _FLAT
        return outside, mills_ratio(outside), cumulative(self.near), flat

    def _mass(self, distance: Tensor, position: Tensor) -> Tensor:
        """G at a distance from the nearer end; ``position`` is the same place seen from theta."""
        outside, mills, before, flat = self._seen
        fall = torch.exp(-distance * (outside + 0.5 * distance))
        tail = 1 - fall * mills_ratio(outside + distance) / mills
        mass = torch.where(self.near < 0, cumulative(position) - before, tail)
        return torch.where(flat, self._flat_mass(distance), mass) if bool(flat.any()) else mass

    def _flat_mass(self, distance: Tensor) -> Tensor:
        def density(here: Tensor) -> Tensor:
            return torch.exp(-here * (self.near + 0.5 * here))

        nodes, weights = (part.tolist() for part in gauss_legendre(_NODES, distance))
        pairs = zip(nodes, weights, strict=True)
        mass: Tensor = distance * sum(weight * density(node * distance) for node, weight in pairs)
        return mass


@dataclass(frozen=True)
class PublicPoints(ABC):
    """The points that a secure release may return, numbered by integers, each with a cell of the line.

    The cell of a point lies between the cut of the point before it and its own cut; the first and the last
    cell reach to the ends of the support. Points and cuts depend on public parameters only, dataclass fields
    whose tensors have one entry, or one entry per coordinate.
    """

    @property
    def first(self) -> Tensor:
        """The number of the lowest point, int64: 0 where nothing else is said."""
        return torch.tensor(0)

    @property
    @abstractmethod
    def last(self) -> Tensor:
        """The number of the highest point, int64."""

    @abstractmethod
    def nearest(self, value: Tensor) -> Tensor:
        """The number of the point whose cell holds the value, up to rounding."""

    @abstractmethod
    def point(self, number: Tensor) -> Tensor:
        """The point itself."""

    @abstractmethod
    def cut(self, number: Tensor) -> Tensor:
        """The upper end of the cell of each point but the last."""

    def select(self, place: int) -> Self:
        """The points of one coordinate."""
        columns = (getattr(self, field.name) for field in fields(self))
        return type(self)(*entries(place, columns))


@dataclass(frozen=True)
class Steps(PublicPoints):
    """The multiples of ``step`` inside (lower, upper), and the two ends where they are finite, which hold the
    rest.

    >>> steps = Steps(*(torch.tensor(x, dtype=torch.float64) for x in (-1.1, 0.9, 0.5)))
    >>> steps.point(torch.arange(int(steps.first), int(steps.last) + 1)).tolist()
    [-1.1, -1.0, -0.5, 0.0, 0.5, 0.9]
    """

    lower: Tensor
    upper: Tensor
    step: Tensor

    @property
    def first(self) -> Tensor:
        return _number(torch.floor(self.lower / self.step))

    @property
    def last(self) -> Tensor:
        return _number(torch.ceil(self.upper / self.step))

    def nearest(self, value: Tensor) -> Tensor:
        return _number(torch.round(value / self.step))

    def point(self, number: Tensor) -> Tensor:
        return self._inside(number.double() * self.step)

    def cut(self, number: Tensor) -> Tensor:
        return self._inside((number.double() + 0.5) * self.step)

    def _inside(self, value: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(value, self.lower), self.upper)


@dataclass(frozen=True)
class Levels(PublicPoints):
    """``count`` equally spaced points from ``lower`` to ``upper``; cells end half way between two of them.

    >>> levels = Levels(*(torch.tensor(x, dtype=torch.float64) for x in (-1.0, 1.0)), 5)
    >>> levels.point(levels.nearest(torch.tensor([-7.0, 0.3], dtype=torch.float64))).tolist()
    [-1.0, 0.5]
    """

    lower: Tensor
    upper: Tensor
    count: int

    @property
    def last(self) -> Tensor:
        return torch.tensor(self.count - 1)

    def nearest(self, value: Tensor) -> Tensor:
        steps = (value - self.lower) / (self.upper - self.lower) * (self.count - 1)
        return torch.round(steps).clamp(0, self.count - 1).long()

    def point(self, number: Tensor) -> Tensor:
        return torch.where(number == self.count - 1, self.upper, self._at(number, 0.0))

    def cut(self, number: Tensor) -> Tensor:
        return self._at(number, 0.5)

    def _at(self, number: Tensor, more: float) -> Tensor:
        share = (number.to(self.lower.dtype) + more) / (self.count - 1)
        return self.lower + (self.upper - self.lower) * share


@dataclass(frozen=True)
class Points(PublicPoints):
    """A few points, the same for every coordinate, in ascending order, and the cuts between their cells.

    >>> points = Points((-1.0, 0.0, 5.0), (torch.tensor([-2.0]), torch.tensor([2.0])))
    >>> points.point(points.nearest(torch.tensor([-3.0, 1.0, 2.0, 2.5]))).tolist()
    [-1.0, 0.0, 0.0, 5.0]
    """

    values: tuple[float, ...]
    cuts: tuple[Tensor, ...]  # one fewer than the points

    @property
    def last(self) -> Tensor:
        return torch.tensor(len(self.values) - 1)

    def nearest(self, value: Tensor) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*(value > cut for cut in self.cuts))).sum(dim=0)

    def point(self, number: Tensor) -> Tensor:
        return torch.tensor(self.values, dtype=torch.float64)[number]

    def cut(self, number: Tensor) -> Tensor:
        result = self.cuts[-1]
        for before, cut in reversed(list(enumerate(self.cuts[:-1]))):
            result = torch.where(number <= before, cut, result)
        return result


def _number(value: Tensor) -> Tensor:
    return value.clamp(-_FARTHEST, _FARTHEST).long()


def entries(place: int, columns: Iterable[Any]) -> list[Any]:
    """Entries of one coordinate, from tensors of one entry or of one a coordinate, and tuples of them.

    >>> entries(1, (torch.tensor([2.0]), torch.tensor([3.0, 4.0])))
    [tensor(2.), tensor(4.)]
    """

    def entry(column: Any) -> Any:
        if isinstance(column, tuple):
            return tuple(entries(place, column))
        if isinstance(column, Tensor):
            return column.reshape(-1)[0 if column.numel() == 1 else place]
        return column

    return [entry(column) for column in columns]
