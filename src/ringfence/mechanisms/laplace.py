"""The Laplace mechanism on the whole numbers, also with a support that ends at a threshold."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ringfence import checks
from ringfence.checks import Bound, Real
from ringfence.mechanisms.base import Mechanism, Support
from ringfence.mechanisms.secure import Steps, entries
from ringfence.noise import Draws
from ringfence.numerics import exact_normal

_SCALE = math.sqrt(math.pi / 2)  # of sigma
_MOST_POINTS = 1 << 16  # between theta and theta + shift, each of which is an outcome


class Laplace(Mechanism):
    """The whole number k with a chance proportional to exp(-|k - theta| / scale), clamped to [lower, upper].

    At a whole theta the noise is the discrete Laplace law, also known as two-sided geometric. ``bound`` is
    that of ``RectifiedGaussian``: all that falls below ``lower`` becomes one atom there. For other units
    than whole numbers, multiply theta. In place of the scale ``sigma`` may be given, by name. It is that of
    the Gaussian that this law is compared with, scale = sigma sqrt(pi / 2), and accounts, saved states and
    the command line speak of it as they do for every law.

    Guarantee: where a record moves theta by at most m whole steps, no outcome becomes more than e^(m / scale)
    times as likely: pure differential privacy, at every theta. The divergences and information are at most
    those of N(theta, scale^2), and every test at most that of N(theta, sigma^2) (docs/guarantees.md). The
    law has kinks at whole theta, where the information is the larger one of the two sides.

    >>> law = Laplace(2.0)
    >>> round(float(law.scale), 9), float(law.pure_epsilon(torch.tensor(1.0)))
    (2.0, 0.5)
    >>> law.release(torch.zeros(1000)).frac().any()
    tensor(False)
    """

    name, label = "laplace", "Laplace"
    atoms_alone = True
    whole = True

    def __init__(
        self, scale: Real | None = None, bound: Bound = math.inf, *, sigma: Real | None = None
    ) -> None:
        if (scale is None) == (sigma is None):
            raise ValueError(
                "scale, or in its place sigma = scale / sqrt(pi / 2), must be given, got "
                f"scale={scale!r} and sigma={sigma!r}"
            )
        own = checks.positive("sigma", sigma) if scale is None else checks.positive("scale", scale) / _SCALE
        self.sigma = own
        self.lower, self.upper = checks.interval("bound", bound)

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        return "sigma", "bound"

    @property
    def scale(self) -> Tensor:
        """The scale of the noise: pure epsilon is 1 / scale for a theta that moves by 1."""
        return self.sigma * _SCALE

    @property
    def support(self) -> Support:
        """The whole numbers inside and the ends as atoms; where there is no end, an interval of them."""
        if not bool(torch.isfinite(self.lower).all() & torch.isfinite(self.upper).all()):
            return Support(interval=(self.lower, self.upper))
        numbers = range(int(self.lower.min().floor()), int(self.upper.max().ceil()) + 1)
        points = (torch.full_like(self.lower, number) for number in numbers)
        return Support(None, tuple(torch.minimum(point.maximum(self.lower), self.upper) for point in points))

    def information_bound(self) -> Tensor:
        return self.scale.double() ** -2

    def pure_epsilon(self, move: Tensor) -> Tensor:
        return torch.minimum(move.ceil(), 2 * move) / self.scale.to(move)

    def outcomes(self, shift: Tensor) -> int:
        """The two sides, and the whole numbers that theta can pass, of which there must be few."""
        longest = float(shift.abs().max()) if shift.numel() else 0.0
        passed = min(longest + 1, float((self.upper.ceil() - self.lower.floor()).max()))
        if not passed <= _MOST_POINTS:
            raise ValueError(
                f"shift must pass at most {_MOST_POINTS} whole numbers, got {longest!r}: measure theta in "
                "larger units"
            )
        return 2 + math.floor(passed)

    def distribution(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> "DiscreteLaplace":
        return DiscreteLaplace(theta, sigma * _SCALE)

    def public_points(self, sigma: Tensor, lower: Tensor, upper: Tensor) -> Steps:
        return Steps(lower, upper, torch.ones_like(lower))

    def _sample(self, draws: Draws, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(theta.shape, sigma.shape, lower.shape, upper.shape)
        drawn = DiscreteLaplace(theta, sigma * _SCALE).guess(draws.uniforms(shape))
        return torch.minimum(torch.maximum(drawn, lower), upper)

    def _log_prob(self, value: Tensor, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        here = _Place(theta, sigma * _SCALE)
        inside = (value == value.round()) & (value > lower) & (value < upper)
        result = torch.where(inside, here.log_mass(value - here.floor), -torch.inf)
        at_lower = here.log_masses(lower.floor() - here.floor)[0]
        at_upper = here.log_masses(upper.ceil() - 1 - here.floor)[1]
        result = torch.where(value == lower, at_lower, result)
        result = torch.where(value == upper, at_upper, result)
        return torch.where(torch.isinf(value), -torch.inf, result)

    def _fisher_information(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        sides = (_Place(theta, sigma * _SCALE, left=left) for left in (False, True))
        return torch.maximum(*(side.information(lower, upper) for side in sides))

    def _masses(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor]:
        """{k <= first}, {k > last}, and each k between: those that theta passes and that no atom holds."""
        down, move = shift < 0, shift.abs()
        here = _Place(torch.where(down, -theta, theta), sigma * _SCALE)
        below = torch.where(down, -upper, lower).floor() - here.floor
        above = torch.where(down, -lower, upper).ceil() - 1 - here.floor
        start = here.part.ceil()
        end = start + torch.floor(move - here.to_next)  # start - 1 where no whole number is passed
        first = torch.minimum(torch.maximum(start - 1, below), above)
        last = torch.maximum(torch.minimum(end, above), below)
        lower_piece, upper_piece = here.cut(first, move), here.cut(last, move)
        more = torch.arange(1, self.outcomes(shift) - 1, dtype=theta.dtype, device=theta.device)
        k = first + more.view(-1, *(1,) * theta.dim())
        away = torch.minimum((k - here.part).clamp(min=0), move)
        whole = _Place(torch.zeros_like(here.part), sigma * _SCALE)
        passed = here.ratio(away, above=True) + whole.ratio(move - away, above=False)
        inside = k <= last
        log_p = torch.where(inside, here.log_mass(k), -torch.inf)
        rho = torch.where(inside, passed, 0.0)
        sides = lower_piece[0], upper_piece[1], lower_piece[2], upper_piece[3]
        log_p, rho, *rows = torch.broadcast_tensors(log_p, rho, *sides)
        low, high, rho_low, rho_high = (row[:1] for row in rows)
        return torch.cat((low, high, log_p)), torch.cat((rho_low, rho_high, rho))


class _Place:
    """The law at theta = floor + part. Whole numbers k and c are seen from ``floor``.

    Between two whole numbers k <= 0 is one side and k > 0 the other. On each side the law is geometric, and
    gamma (1 - 2 part) are the log odds of the sides. Moves go upwards. Every log ratio is a sum of terms of
    one sign: over the rest of the first cell, over whole cells, and over a part of the last one.
    """

    def __init__(self, theta: Tensor, scale: Tensor, *, left: bool = False) -> None:
        self.gamma = 1 / scale
        self.floor = theta.floor()
        if left:  # a whole theta belongs to the cell before it
            self.floor = torch.where(theta == self.floor, self.floor - 1, self.floor)
        self.part = theta - self.floor
        self.odds = self.gamma * (1 - 2 * self.part)
        self.to_next = torch.where(self.part > 0, 1 - self.part, 0.0)

    def log_masses(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """log P(k <= c) and log P(k > c)."""
        away = self.gamma * (c + 0.5 - self.part)
        both = 0.5 * self.odds.abs() + torch.log1p(torch.exp(-self.odds.abs()))  # log of 2 cosh(odds / 2)
        below, above = away - both, -away - both
        return (
            torch.where(c > 0, torch.log1p(-torch.exp(above)), below),
            torch.where(c < 0, torch.log1p(-torch.exp(below)), above),
        )

    def log_mass(self, k: Tensor) -> Tensor:
        """log P(k)."""
        side = torch.where(k > 0, self.log_masses(k - 1)[1], self.log_masses(k)[0])
        return side + torch.log(-torch.expm1(-self.gamma))

    def ratio(self, move: Tensor, *, above: bool) -> Tensor:
        """log P/Q of a k that theta does not pass: up to theta, or from theta + move on if ``above``."""
        sign = -1.0 if above else 1.0
        first = torch.minimum(move, self.to_next)
        cells = torch.floor(move - first)
        last = move - first - cells
        start = _in_cell(self.odds, first, self.gamma, sign)
        end = _in_cell(self.gamma, last, self.gamma, sign)
        return start + sign * self.gamma * cells + end

    def cut(self, c: Tensor, move: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """log P(k <= c), log P(k > c), and the log ratio P/Q of both.

        Up to c the move is on the left of the cut, then in its cell, and beyond c + 1 on its right. The
        smaller side is known directly, and the other one, of at least a half, through what this one gains.
        """
        before = torch.minimum((c - self.part).clamp(min=0), move)
        until = torch.minimum((c + 1 - self.part).clamp(min=0), move)
        below, above = self.log_masses(c)
        gained = self.ratio(before, above=True)
        at = torch.where(c == 0, self.odds, self.gamma)  # a move that comes from before begins at c
        inside = [_in_cell(at, until - before, self.gamma, sign) for sign in (1.0, -1.0)]
        passed = c < 0  # then the move begins on the right, else it comes from c + 1
        whole = _Place(torch.zeros_like(self.part), 1 / self.gamma)
        rest = move - until
        lost = torch.where(passed, self.ratio(rest, above=False), whole.ratio(rest, above=False))
        odds = torch.where(passed, below - above, -self.gamma)
        rho_below = _of_rest(above - below, gained) + inside[0] + lost
        rho_above = gained + inside[1] + _of_rest(odds, lost)
        return below, above, rho_below, rho_above

    def information(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The information where theta varies inside its cell; an atom may hold a part of the other side."""
        left, right = torch.sigmoid(self.odds), torch.sigmoid(-self.odds)
        below, above = lower.floor() - self.floor, upper.ceil() - 1 - self.floor
        low, high = self.log_masses(below), self.log_masses(above)
        result = left * right
        result = torch.where(below > 0, left * left * torch.exp(low[1] - low[0]), result)
        result = torch.where(above < 0, right * right * torch.exp(high[0] - high[1]), result)
        return (2 * self.gamma).square() * result


def _in_cell(odds: Tensor, move: Tensor, gamma: Tensor, sign: float) -> Tensor:
    """log P/Q of the left side of a cell with these log odds (of the right side if sign is -1).

    With r = 2 gamma move it is log(1 + P(right) (e^r - 1)), or log(1 + P(left) (e^-r - 1)).
    """
    change = sign * 2 * gamma * move
    share = -sign * odds
    near = torch.log1p(torch.sigmoid(share) * torch.expm1(change))
    far = torch.logaddexp(logsigmoid(-share), logsigmoid(share) + change)
    return torch.where(change.abs() < 1, near, far)


def _of_rest(odds: Tensor, rho: Tensor) -> Tensor:
    """log P/Q of the complement of an event that has these log odds and this log P/Q."""
    gain = torch.exp(odds - rho.clamp(max=0)) * torch.expm1(-rho.abs())
    return torch.where(rho == 0, 0.0, -torch.log1p(gain * torch.where(rho > 0, -1.0, 1.0)))


class DiscreteLaplace:
    """The law of k before it is clamped, with the methods of ``ringfence.mechanisms.secure.Normal``."""

    def __init__(self, theta: Tensor, scale: Tensor) -> None:
        self.theta, self.scale = theta, scale
        self.here = _Place(theta, scale)

    def guess(self, uniform: Tensor) -> Tensor:
        left, right = logsigmoid(self.here.odds), logsigmoid(-self.here.odds)
        tail = torch.log1p(-uniform.clamp(max=1 - 2.0**-54))
        down = -torch.floor((left - torch.log(uniform)).clamp(min=0) * self.scale)
        up = 1 + torch.floor((right - tail).clamp(min=0) * self.scale)
        return self.here.floor + torch.where(torch.log(uniform) <= left, down, up)

    def below(self, x: Tensor) -> Tensor:
        """
        >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
        >>> round(float(DiscreteLaplace(zero, one).below(zero + 0.5)), 6)  # 1 / (1 + 1/e)
        0.731059
        """
        return torch.exp(self.here.log_masses(x.floor() - self.here.floor)[0])

    def exactly(self, x: float, place: int, bits: int) -> Any:
        theta, scale = (float(column) for column in entries(place, (self.theta, self.scale)))
        return exact_normal.laplace_cumulative(x, theta, scale, bits)
