"""Releases that floating point cannot undo: points of a public grid, drawn exactly.

What is released is M(theta) rounded to a grid that is fixed in advance. Let F be the distribution
function of the noisy value (``law.distribution``) and U a uniform number from a cryptographic stream.
The release is the point k with

    F(cut before k) <= U < F(cut of k).

Where float64 leaves a doubt, 256 bits of U and 512 bits of F decide.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms.law import Distribution, Law, PublicPoints
from ringfence.mechanisms.secure.grid import FARTHEST, Steps
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics import exact_normal
from ringfence.numerics.blocks import blockwise

_DOUBT = 2.0**-36  # 32 times what F in float64 may be off (docs/security.md)
_DEFAULT = 2.0**-10  # of sigma, or of the width if that is less
_FINEST = 2.0**-20  # the same; with finer steps many draws would leave a doubt

_MORE_WORDS = 3  # of 64 bits of U, where the first 64 leave a doubt
# A draw differs from the ideal one only if U is within 2^-255 of one of at most 2^52 + 1 cuts.
_FAILURE = 2.0**-200


class SecureRelease:
    """Releases a law on a public grid, and says what that adds to its account.

    ``step`` is the spacing of the grid, a number or a tensor like sigma. Left out it is the
    largest power of two up to sigma / 1024 and width / 1024. The grid is the multiples of the
    step inside the interval of the law, and its ends; on the side of an infinite end it stops
    after 2^51 steps. A law of atoms (``law.public_points``) has its own points and takes no step.

    Guarantee: up to 2^-200 of total variation per coordinate, the release is a fixed function of a
    draw of the law at the same theta. Every divergence, hockey stick and information of the law
    therefore bounds the release's, at the same sensitivity; ``delta`` is what to add to an
    account's delta. The points that can occur are the same for every theta. docs/security.md has
    the proof, and says what is not covered: time, for one.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> secure = SecureRelease(TruncatedGaussian(1.0, bound=2.0))
    >>> secure
    SecureRelease(TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0)), step=0.0009765625)
    >>> released = 1024 * secure.draw(torch.full((1000,), 50.0))
    >>> bool((released == released.round()).all()), bool((released <= 2048).all())
    (True, True)
    """

    def __init__(self, law: Law, step: Real | None = None) -> None:
        law = checks.instance("law", law, Law)
        parameters = [value.double().cpu() for value in law.parameters().values()]
        own_points = law.public_points(*parameters) is not None
        if not own_points and law.support.interval is None:
            raise NotImplementedError(f"there is no secure release of the law {law.name!r}")
        if own_points and step is not None:
            raise ValueError(
                f"step must be None for the law {law.name!r}, got {step!r}: it has its own points"
            )
        # Up to here differences that overflow are differences of very many sigma.
        checks.require("sigma", "must be at most 1e290", law.sigma, law.sigma.double() <= 1e290)
        self.law = law
        self.step = None if own_points else _checked_step(law, step)
        if law.distribution(parameters[0], *parameters) is None:  # at a theta that broadcasts
            raise NotImplementedError(f"there is no secure release of the law {law.name!r}")

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
        columns = (theta, *self.law.parameters().values(), *self._steps())
        points = blockwise(partial(self._drawn, bits), *(column.cpu().double() for column in columns))
        if bool(torch.isnan(points).any()):
            raise FloatingPointError(f"{self!r} cannot be represented at these arguments")
        # Rounded to theta's dtype, and clamped to what it holds: a function of the point.
        largest = torch.finfo(theta.dtype).max
        return points.clamp(-largest, largest).to(theta)

    @staticmethod
    def delta(coordinates: int, epsilon: float) -> float:
        """The delta that releasing this many numbers adds to an account at this epsilon, for any law.

        If two laws are (epsilon, delta)-close, laws within total variation t of them are
        (epsilon, delta + (1 + e^epsilon) t)-close. A decision counts as one number, a confident one as two.

        >>> SecureRelease.delta(10**9, epsilon=20.0) < 1e-40
        True
        """
        checks.count("coordinates", coordinates, at_least=0)
        size = checks.number("epsilon", epsilon, checks.not_negative)
        return min(1.0, coordinates * _FAILURE * (1 + math.exp(min(size, 700.0))) * (1 + 1e-12))

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step={_shown(self.step)}"
        return f"SecureRelease({self.law!r}{step})"

    def _steps(self) -> tuple[Tensor, ...]:
        """The ends and the step of a grid of steps; nothing where the law has its own points."""
        if self.step is None or self.law.support.interval is None:
            return ()
        return (*self.law.support.interval, self.step)

    def _drawn(self, bits: CipherDraws, theta: Tensor, *columns: Tensor) -> Tensor:
        """The points for one block of coordinates, from theta, the parameters of the law and ``_steps``."""
        count = len(self.law.parameters())
        parameters, steps = columns[:count], columns[count:]
        points = Steps(*steps) if steps else self.law.public_points(*parameters)
        distribution = self.law.distribution(theta, *parameters)
        assert points is not None  # the constructor has asked for both
        assert distribution is not None
        shape = np.broadcast_shapes(*(column.shape for column in (theta, *columns)))
        return points.point(numbers(distribution, points, bits, math.prod(shape)))


def numbers(distribution: Distribution, points: PublicPoints, bits: CipherDraws, count: int) -> Tensor:
    """The number of the point that U falls on, for each of ``count`` coordinates.

    >>> from ringfence.mechanisms.secure.grid import Points
    >>> from ringfence.mechanisms.secure.inversion import Normal
    >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
    >>> numbers(Normal(zero, one), Points((-1.0, 1.0), (zero - 90,)), Noise().at("example"), 3).tolist()
    [1, 1, 1]
    """
    words = bits.words(count)[0]
    uniform = ((words >> 11) & (2**53 - 1)).double() * 2.0**-53  # U rounded down to 53 bits
    # Whatever the guess is, even NaN: it is checked below.
    guess = points.nearest(distribution.guess(uniform))
    number = torch.maximum(torch.minimum(guess, points.last), points.first)
    before = torch.where(number == points.first, -1.0, distribution.below(points.cut(number - 1)))
    until = torch.where(number == points.last, 2.0, distribution.below(points.cut(number)))
    sure = (uniform - before > _DOUBT) & (until - uniform > _DOUBT)
    for place in (~sure).nonzero().flatten().tolist():
        more = [int(words[place]), *bits.words(_MORE_WORDS)[0].tolist()]
        number[place] = _decided(distribution, points.select(place), more, int(number[place]), place)
    return number


def _decided(
    distribution: Distribution, points: PublicPoints, words: list[int], start: int, place: int
) -> int:
    """The number of the point for one coordinate, beyond doubt; ``words`` are the bits of U, 64 in each."""
    uniform = 0
    for word in words:
        uniform = (uniform << 64) + word % 2**64
    bits = 64 * len(words)

    def before_the_cut(number: int) -> bool:
        cut = float(points.cut(torch.tensor(number)))
        return exact_normal.is_below(uniform, bits, distribution.exactly(cut, place))

    return exact_normal.search(before_the_cut, start, int(points.first), int(points.last))


def _checked_step(law: Law, step: Real | None) -> Tensor:
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
        checks.require("step", "must reach the bound in 2^51 steps", spacing, steps < FARTHEST)
    return checks.require("step", "is too large", spacing, torch.isfinite(2 * FARTHEST * spacing))


def _shown(step: Tensor) -> str:
    return repr(float(step.flatten()[0])) if step.numel() == 1 else f"tensor{list(step.shape)}"
