"""Releases that floating point cannot undo: points of a public grid, drawn exactly.

What is released is M(theta) rounded to a grid that is fixed in advance. With F the distribution
function of M(theta) and U a uniform number from a cryptographic stream, it is the point k with

    F(cut before k) <= U < F(cut of k).

Where float64 leaves a doubt, 256 bits of U and 512 bits of F decide.
"""

import math
from functools import partial

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.secure.grid import FARTHEST, Grid, Levels, Steps
from ringfence.mechanisms.secure.inversion import Conditioned, Normal
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics import exact_normal
from ringfence.numerics.blocks import blockwise

_STEPS = {"gaussian", "rectified", "truncated"}  # laws with a density: rounded to steps
_LEVELS = {"sign", "quantized"}  # equally spaced points already
_CONDITIONED = {"truncated"}  # the others send N(theta, sigma^2) to the nearest of their points

_DOUBT = 2.0**-36  # 32 times what F in float64 may be off (docs/security.md)
_DEFAULT = 2.0**-10  # of sigma, or of the width if that is less
_FINEST = 2.0**-20  # the same; with finer steps many draws would leave a doubt

_MORE_WORDS = 3  # of 64 bits of U, where the first 64 leave a doubt
# A draw differs from the ideal one only if U is within 2^-255 of one of at most 2^52 + 1 cuts.
_FAILURE = 2.0**-200


class SecureRelease:
    """How a law is released on a public grid, and what that adds to its account.

    ``step`` is the spacing of the grid, a number or a tensor like sigma. Left out it is the
    largest power of two up to sigma / 1024 and width / 1024. The grid is the multiples of the
    step inside the interval of the law, and its ends; on the side of an infinite end it stops
    after 2^51 steps. The sign and the quantised law have their own points and take no step.

    Guarantee: up to 2^-200 of total variation a coordinate, the release is a fixed function of a
    draw of the law at the same theta. Every divergence, hockey stick and information of the law
    therefore bounds the release's, at the same sensitivity; ``delta`` is what to add to an
    account's delta. The points that can occur are the same for every theta. docs/security.md has
    the proof, and what is not covered: time, for one.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> secure = SecureRelease(TruncatedGaussian(1.0, bound=2.0))
    >>> secure
    SecureRelease(TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0)), step=0.0009765625)
    >>> released = 1024 * secure.draw(torch.full((1000,), 50.0))
    >>> bool((released == released.round()).all()), bool((released <= 2048).all())
    (True, True)
    """

    def __init__(self, law: Mechanism, step: Real | None = None) -> None:
        if law.name not in _STEPS | _LEVELS:
            raise NotImplementedError(f"there is no secure release of the law {law.name!r}")
        if law.name in _LEVELS and step is not None:
            raise ValueError(
                f"step must be None for the law {law.name!r}, got {step!r}: it has its own points"
            )
        # Up to here differences that overflow are differences of very many sigma.
        checks.require("sigma", "must be at most 1e290", law.sigma, law.sigma.double() <= 1e290)
        self.law = law
        self.step = _checked_step(law, step) if law.name in _STEPS else None

    def draw(self, theta: Real, draws: CipherDraws | None = None) -> Tensor:
        """One release of each coordinate: theta's dtype and device.

        Random bits come from AES-256 in counter mode, under a fresh key of the operating system, unless
        ``draws`` are given: those of a seed can be repeated by whoever knows it. Drawing twice is two
        releases, each to be paid for. The work is done on the CPU.
        """
        bits = Noise().at("secure release") if draws is None else draws
        theta = checks.finite("theta", theta)
        columns = {"theta": theta, **self._columns()}
        checks.broadcast(list(columns), list(columns.values()))
        points = blockwise(
            partial(self._points, bits), *(column.cpu().double() for column in columns.values())
        )
        if bool(torch.isnan(points).any()):
            raise FloatingPointError(f"{self!r} cannot be represented at these arguments")
        # Rounded to theta's dtype, and clamped to what it holds: a function of the point.
        largest = torch.finfo(theta.dtype).max
        return points.clamp(-largest, largest).to(theta)

    def delta(self, coordinates: int, epsilon: float) -> float:
        """What releasing this many numbers adds to the delta of an account, at this epsilon.

        If the laws are (epsilon, delta)-close, what is within t of them is
        (epsilon, delta + (1 + e^epsilon) t)-close.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> SecureRelease(Gaussian(1.0)).delta(10**9, epsilon=20.0) < 1e-40
        True
        """
        checks.count("coordinates", coordinates, at_least=0)
        size = checks.number("epsilon", epsilon, checks.not_negative)
        return min(1.0, coordinates * _FAILURE * (1 + math.exp(min(size, 700.0))) * (1 + 1e-12))

    @property
    def statement(self) -> str:
        """What is released and what it costs, in plain words."""
        grid = "its own points" if self.step is None else f"a public grid of step {_shown(self.step)}"
        return (
            f"{self.law!r} rounded to {grid}, with randomness from the operating system. "
            "It costs what the law costs at the same theta and sensitivity; total variation of "
            "2^-200 a coordinate is added to delta. Time and memory access are not covered."
        )

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step={_shown(self.step)}"
        return f"SecureRelease({self.law!r}{step})"

    def _columns(self) -> dict[str, Tensor]:
        """sigma, the outermost points, and the step or the number of points."""
        support = self.law.support
        if self.step is not None and support.interval is not None:
            lower, upper = support.interval
            return {"sigma": self.law.sigma, "lower": lower, "upper": upper, "step": self.step}
        lower, upper = support.atoms[0], support.atoms[-1]
        count = torch.tensor(float(len(support.atoms)), dtype=torch.float64)
        return {"sigma": self.law.sigma, "lower": lower, "upper": upper, "count": count}

    def _points(
        self, bits: CipherDraws, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, last: Tensor
    ) -> Tensor:
        conditioned = self.law.name in _CONDITIONED
        law = Conditioned(theta, sigma, lower, upper) if conditioned else Normal(theta, sigma)
        grid = Levels(lower, upper, last) if self.step is None else Steps(lower, upper, last)
        shape = torch.broadcast_shapes(*(column.shape for column in (theta, sigma, lower, upper, last)))
        return grid.point(_numbers(law, grid, bits, shape.numel()))


def _numbers(law: Normal | Conditioned, grid: Grid, bits: CipherDraws, count: int) -> Tensor:
    """The number of the point that U falls on, for each coordinate."""
    words = bits.words(count)[0]
    uniform = ((words >> 11) & (2**53 - 1)).double() * 2.0**-53  # U rounded down to 53 bits
    # Whatever the guess is, even NaN: it is checked below.
    number = torch.maximum(torch.minimum(grid.nearest(law.guess(uniform)), grid.last), grid.first)
    before = torch.where(number == grid.first, -1.0, law.below(grid.cut(number - 1)))
    until = torch.where(number == grid.last, 2.0, law.below(grid.cut(number)))
    sure = (uniform - before > _DOUBT) & (until - uniform > _DOUBT)
    for place in (~sure).nonzero().flatten().tolist():
        more = [int(words[place]), *bits.words(_MORE_WORDS)[0].tolist()]
        number[place] = _decided(law, grid.select(place), more, int(number[place]), place)
    return number


def _decided(law: Normal | Conditioned, grid: Grid, words: list[int], start: int, place: int) -> int:
    """The number of the point for one coordinate, beyond doubt; ``words`` are the bits of U, 64 in each."""
    uniform = 0
    for word in words:
        uniform = (uniform << 64) + word % 2**64
    bits = 64 * len(words)

    def before_the_cut(number: int) -> bool:
        cut = float(grid.cut(torch.tensor(number)))
        return exact_normal.is_below(uniform, bits, law.exactly(cut, place))

    return exact_normal.search(before_the_cut, start, int(grid.first), int(grid.last))


def _checked_step(law: Mechanism, step: Real | None) -> Tensor:
    """The step as given or by default, in float64: a function of public parameters alone."""
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
