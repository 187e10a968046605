"""How far one record can move theta: each coordinate, how many coordinates, and in all.

A record moves theta by a vector v with |v_j| <= each, at most ``at_most`` entries other than 0, and an L2
norm of at most ``norm``. Accounts look for the worst such move: ``longest_square`` says how long it is in
units that differ by coordinate, and ``filled`` what it costs where each coordinate has a price (a knapsack of
fractions).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism

_SMALLEST_INFORMATION = 1e-290  # what a law says of its information below this may have lost digits

ONE = torch.ones((), dtype=torch.float64)
_ROUNDING = 2.0**-52  # relative, of one addition


@dataclass(frozen=True)
class Sensitivity:
    """How far the contribution of one record can move theta.

    ``each`` is the largest move of a coordinate (a number, or a tensor that broadcasts against theta),
    ``at_most`` how many coordinates one record moves (one cell of a table, ten questions of a survey), and
    ``norm`` the L2 norm of the whole move (the usual clip of gradients). What is not given is not
    bounded, but ``each`` or ``norm`` must be. Wherever ``sensitivity=`` is asked for, a number stands for
    ``Sensitivity(each=number)``.

    Guarantee: every account holds for every move v with |v_j| <= each, at most ``at_most`` coordinates
    other than 0, and |v|_2 <= norm. That no record moves theta farther is the caller's to ensure.

    >>> import ringfence as rf
    >>> rf.Sensitivity(each=1.0, at_most=1)
    Sensitivity(each=1.0, at_most=1)
    >>> cell = rf.Sensitivity(each=1.0, at_most=1)
    >>> rdp = rf.per_instance_rdp(rf.Gaussian(4.0), torch.zeros(240), cell, orders=[2])
    >>> round(float(rdp.worst), 6)  # one cell: alpha c^2 / (2 sigma^2), not 240 times that
    0.0625
    """

    each: Tensor | None
    at_most: int | None
    norm: float | None

    def __init__(
        self, each: Real | None = None, at_most: int | None = None, norm: float | None = None
    ) -> None:
        if each is None and norm is None:
            raise ValueError(
                "sensitivity must bound the move of one record: each or norm must be given, got neither"
            )
        own = {
            "each": None if each is None else checks.not_negative("each", each),
            "at_most": None if at_most is None else checks.count("at_most", at_most, at_least=1),
            "norm": None if norm is None else checks.number("norm", norm, checks.not_negative),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, value: "Real | Sensitivity") -> "Sensitivity":
        """The value of an argument ``sensitivity=``: itself, or a number that stands for ``each``.

        >>> Sensitivity.of(0.5)
        Sensitivity(each=0.5)
        """
        return value if isinstance(value, cls) else cls(each=checks.not_negative("sensitivity", value))

    @property
    def farthest(self) -> Tensor:
        """How far one coordinate can move.

        >>> Sensitivity(each=[0.5, 2.0], norm=1.0).farthest.tolist()
        [0.5, 1.0]
        """
        if self.each is None:
            return torch.tensor(self.norm, dtype=torch.float64)
        return self.each if self.norm is None else self.each.clamp(max=self.norm)

    @property
    def is_plain(self) -> bool:
        """Whether only the moves of single coordinates are bounded, so that all may move at once."""
        return self.at_most is None and self.norm is None

    def binding(self, shape: torch.Size) -> "Sensitivity":
        """The same moves of a theta of this shape, without the bounds that others imply.

        >>> Sensitivity(each=1.0, at_most=4, norm=2.0).binding(torch.Size([9]))
        Sensitivity(each=1.0, at_most=4)
        >>> Sensitivity(each=1.0, at_most=4, norm=2.0).binding(torch.Size([3]))
        Sensitivity(each=1.0)
        >>> Sensitivity(norm=2.0).binding(torch.Size([3]))
        Sensitivity(each=2.0, norm=2.0)
        """
        if self.is_plain:
            return self
        count, farthest = shape.numel(), self.farthest
        moving = count if self.at_most is None else min(self.at_most, count)
        at_most = moving if moving < count else None
        without = Sensitivity(farthest, at_most)
        if self.norm is None or math.sqrt(without.longest_square(ONE, shape)) <= self.norm:
            return without
        # where every coordinate can move equally far, the longest moves have no more than at_most coordinates
        return Sensitivity(farthest, None if farthest.numel() == 1 else at_most, self.norm)

    def longest_square(self, unit: Tensor, shape: torch.Size) -> float:
        """An upper bound of sum_j (v_j / unit_j)^2 over all moves v of a theta of this shape.

        It is attained unless ``at_most`` and ``norm`` both bind and the coordinates differ.

        >>> unit = torch.tensor([1.0, 0.5, 1.0, 0.25, 1.0])
        >>> round(Sensitivity(each=1.0, norm=2.0).longest_square(unit, torch.Size([5])), 9)
        22.0
        """
        if shape.numel() == 0:
            return 0.0
        size = self.binding(shape)
        unit, farthest = unit.double().cpu(), size.farthest.double().cpu()
        # quotients before squares: the square of a small number is 0, and 0 times infinity is NaN
        terms = (farthest / unit).square()
        if size.is_plain:  # broadcasting repeats every entry equally often
            return float(terms.sum()) * shape.numel() / max(1, terms.numel())
        bounds = []
        if size.at_most is not None:
            alike = terms.numel() == 1
            most = terms * size.at_most if alike else filled(_spread(terms, shape), ONE, size.at_most)
            bounds.append(float(most))
        if size.norm is not None:
            least, share = unit.min(), 1.0
            if unit.numel() > 1:
                room = _spread((farthest / size.norm).square(), shape)
                share = min(1.0, float(filled(_spread((least / unit).square(), shape), room, 1.0)))
            longest = size.norm / float(least)
            bounds.append(longest * longest * share)  # which is infinite where a power raises an error
        return min(bounds)

    def times(self, factor: float) -> "Sensitivity":
        """Moves that are ``factor`` times as long, of as many coordinates.

        >>> Sensitivity(each=1.0, norm=2.0).times(1.5)
        Sensitivity(each=1.5, norm=3.0)
        """
        each, norm = (None if value is None else value * factor for value in (self.each, self.norm))
        return Sensitivity(each, self.at_most, norm)  # type: ignore[arg-type]

    @property
    def statement(self) -> str:
        """In plain English: how far one record can move theta.

        >>> Sensitivity(each=1.0, at_most=1).statement
        'One record moves at most 1 coordinate, by at most 1.0.'
        >>> Sensitivity(each=0.1, norm=2.0).statement
        'One record moves every coordinate by at most 0.1 and by an L2 norm of at most 2.0 in all.'
        """
        moved = "theta " if self.each is None else "every coordinate "
        if self.at_most is not None:
            moved = f"at most {self.at_most} coordinate{'s' if self.at_most > 1 else ''}, "
        limits = [] if self.each is None else [f"by at most {float(self.each.max())!r}"]
        limits += [] if self.norm is None else [f"by an L2 norm of at most {self.norm!r} in all"]
        return f"One record moves {moved}{' and '.join(limits)}."

    def state(self) -> Any:
        """Plain data, which JSON keeps and ``from_state`` reads.

        It is a dict, or ``each`` alone, a number or a list, where nothing else is given.

        >>> Sensitivity(0.5).state(), Sensitivity(norm=1.0).state()
        (0.5, {'each': None, 'at_most': None, 'norm': 1.0})
        """
        each = None if self.each is None else self.each.double().tolist()
        return each if self.is_plain else {"each": each, "at_most": self.at_most, "norm": self.norm}

    @classmethod
    def from_state(cls, state: Any) -> "Sensitivity":
        """The sensitivity that a ``state`` describes.

        >>> Sensitivity.from_state(Sensitivity(each=1.0, at_most=3).state())
        Sensitivity(each=1.0, at_most=3)
        """
        if not isinstance(state, dict):
            return cls.of(state)
        checks.keys("sensitivity", state, {"each", "at_most", "norm"})
        return cls(**state)

    def __repr__(self) -> str:
        given = {
            "each": None if self.each is None else self.each.tolist(),
            "at_most": self.at_most,
            "norm": self.norm,
        }
        words = (f"{name}={value!r}" for name, value in given.items() if value is not None)
        return f"Sensitivity({', '.join(words)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sensitivity) and self.state() == other.state()

    def __hash__(self) -> int:
        return hash(repr(self.state()))


def filled(values: Tensor, room: Tensor, budget: float) -> Tensor:
    """max of sum_j values_j x_j over 0 <= x_j <= room_j with sum_j x_j <= budget, along the last dimension.

    The largest values are filled first, and no more are sorted than can be filled. ``values`` are not
    negative. ``room`` broadcasts against them.

    Guarantee: not below the maximum, up to the rounding of the products: the budget is raised by what the
    running sum of ``room`` may have lost.

    >>> filled(torch.tensor([1.0, 3.0, 2.0]), torch.tensor(1.0), 1.5)
    tensor(4.)
    """
    room, count = room.to(values), values.shape[-1]
    budget = budget * (1 + _ROUNDING * count)
    least = float(room.min()) if room.numel() else 0.0
    needed = min(count, math.ceil(budget / least) + 1) if budget < count * least else count
    best, order = values.topk(needed, dim=-1) if needed < count else values.sort(dim=-1, descending=True)
    own = room.expand_as(values).gather(-1, order)
    before = own.cumsum(dim=-1) - own
    taken = torch.minimum((budget - before).clamp(min=0), own)
    # an infinite value that is not taken counts 0
    return torch.where(taken > 0, best * taken, 0.0).sum(dim=-1)


def _spread(values: Tensor, shape: torch.Size) -> Tensor:
    """One number for each coordinate."""
    return values.expand(shape).reshape(-1)


def released_shape(law: Mechanism, theta: Tensor, sensitivity: Tensor) -> torch.Size:
    """The shape of what is released: theta's, after broadcasting with sensitivity and parameters.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> released_shape(Gaussian(1.0), torch.zeros(2, 1), torch.ones(3))
    torch.Size([2, 3])
    """
    values = {"theta": theta, "sensitivity": sensitivity, **law.parameters()}
    return checks.broadcast(tuple(values), tuple(values.values()))


def natural_unit(mechanism: Mechanism) -> Tensor:
    """u = information_bound^(-1/2), at least sigma: 2 D <= alpha (s / u)^2 for every theta and every move s.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> natural_unit(TruncatedGaussian(1.0, bound=0.01)).round()  # sqrt(3) sigma^2 / b
    tensor(173., dtype=torch.float64)
    """
    sigma, bound = mechanism.sigma.double(), mechanism.information_bound().double()
    known = torch.isfinite(bound) & (bound > _SMALLEST_INFORMATION)
    return torch.where(known, torch.maximum(bound.rsqrt(), sigma), sigma)


def ceilings(mechanism: Mechanism, theta: Tensor, sensitivity: Real | Sensitivity) -> tuple[float, float]:
    """Upper bounds on D / alpha of one release over all theta: the Gaussian's, and this law's.

    Of ``theta`` only the shape counts.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law = TruncatedGaussian(1.0, bound=1.0)
    >>> [round(bound, 4) for bound in ceilings(law, torch.zeros(2), 1.0)]
    [1.0, 0.2911]
    >>> [round(bound, 4) for bound in ceilings(law, torch.zeros(2), Sensitivity(norm=1.0))]
    [0.5, 0.1456]
    """
    # each coordinate with a parameter of its own counts, whatever shape theta has by itself
    size = Sensitivity.of(sensitivity)
    shape = released_shape(checked_mechanism(mechanism), theta, size.farthest)
    units = (mechanism.sigma.double(), natural_unit(mechanism))
    gaussian, bounded = (0.5 * size.longest_square(unit, shape) * (1 + 1e-12) for unit in units)
    return gaussian, min(gaussian, bounded)
