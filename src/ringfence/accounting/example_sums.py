"""Sums of the divergences of single examples, bounded by products of matrices.

Example i contributes g_i to theta. Its neighbours are theta - g_i (left out) and theta + g_i (there
twice), so its Rényi sums over coordinates are, order by order,

    remove, forward   sum_j D(theta_j || theta_j - g_ij)     add, forward   sum_j D(theta_j || theta_j + g_ij)
    remove, backward  sum_j D(theta_j - g_ij || theta_j)     add, backward  sum_j D(theta_j + g_ij || theta_j)

n d divergences at 60 orders are too many to evaluate. Each D is therefore bounded by a sum of products of a
power of g_ij with a number that depends on j alone, and the sums over j are matrix products.

*Exponential families* (the Gaussian and the truncated law), proved: D(t || t + s) = (alpha s^2 / 2)
E I(t + s U), where I is the information and U is triangular on [1 - alpha, 1] with its mode at 0;
D(t + s || t) is the same with U on [0, alpha] and its mode at 1 (docs/notation.md). A polynomial
P_t(y) >= I(t + y) on |y| <= 2.05 gives

    sum_j D <= (alpha / 2) sum_k E[U^k] sum_j s_j^(k + 2) p_k(t_j),

so that eight products of the gradients with a vector serve all orders and all four sums.

*Other laws*, checked numerically: D / s^2 <= w_alpha(t) + v_alpha(t) |s| for all four variants and all shifts
up to an example's largest, in units of sigma, from tables over theta (``ShiftTable``). The sums are two
products with a d x orders matrix. The equivalent information, one number in place of w and v, would be proved
but is 5 to 8 % looser for laws with few atoms.

Neither bound is ever above what holds for every theta.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.coordinates import Setting, distinct, pushes, split_by_setting
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW, square_is_representable

VARIANTS = ("remove_forward", "remove_backward", "add_forward", "add_backward")

EXACT_BLOCK = 1 << 16  # entries evaluated at a time: their divergences need far more room than they do
_BLOCK = {"cpu": 1 << 18}  # entries converted to float64 at a time: a few MB, which the cache nearly holds
_BLOCK_ELSEWHERE = 1 << 24

# A bound is a function from a block of gradients, (m, d), to the four sums, (4, m, orders), on the CPU.
Bound = Callable[[Tensor], Tensor]

# polynomials above the information
_REACH = 2.05  # covers shifts of 1e-3 sigma at order 2,048
_DEGREE = 7
_ANCHORS_PER_SIGMA = 8  # polynomials are made at these points and moved to the coordinates
_HALF_WIDTH = _REACH + 0.5 / _ANCHORS_PER_SIGMA
_FIT_POINTS = 541  # 128 per sigma
_ANCHORS_AT_ONCE = 2048

# tables over theta and the size of the shift
_NODES_PER_SIGMA = 16
_PAGE = 8  # cells tabulated at a time: few, so that a short theta needs few nodes
_READ_TOGETHER = 1 << 14  # coordinates
# Enough if D'' >= -1.5 D in units of sigma. The least D'' / D ever found is -0.73; what docs/curvature.md
# proves is weaker, and these tables also assume what no theorem says about the shifts between theirs.
_ABOVE_CHORD = 1 / (1 - 1 / (4 * _NODES_PER_SIGMA**2))
_SHIFTS_PER_OCTAVE = 4
_SMALL = 1 / 16  # alpha s below which D / s^2 hardly bends within an octave of s
# Margins for what lies between two shifts of the table, times min(1, alpha s). Far out D is about
# (a s - b)+ / (alpha - 1), where D / s^2 and D / s^3 peak with curvatures -2 and -6 in log s: between two
# shifts a quarter of an octave apart they rise 0.8 % and 2.3 % above the larger end. Random searches found
# that the first needs 1.2 % and the second more than 2 %; with these margins none fell short.
_MARGINS = (0.02, 0.05)
_LARGEST_OCTAVE = 1  # shifts above 2 sigma get the Gaussian's bound
_SETTINGS = 64  # distinct parameters that get a table each; with more, the Gaussian's bound


def fits(law: Mechanism, theta: Tensor) -> None:
    """Raises an error unless theta is a vector that the law and the accounts of examples can handle.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> fits(Gaussian(1.0), torch.zeros(2, 2))
    Traceback (most recent call last):
    ValueError: theta must have shape (d,) with d > 0, got [2, 2]
    """
    if theta.dim() != 1 or theta.numel() == 0:
        raise ValueError(f"theta must have shape (d,) with d > 0, got {list(theta.shape)}")
    parameters = law.parameters()
    checks.require(
        "sigma",
        "must be in [1e-140, 1e140] for single examples",
        law.sigma,
        square_is_representable(law.sigma),
    )
    shape = checks.broadcast(("theta", *parameters), (theta, *parameters.values()))
    if shape != theta.shape:
        raise ValueError(f"theta has shape {list(theta.shape)}, but with the parameters {list(shape)}")
    near = (theta.double() / law.sigma.to(theta.device)).abs() <= 1e100
    checks.require("theta", "must be within 1e100 sigma of 0 for single examples", theta, near)


def checked_blocks(gradients: Tensor | Iterable[Tensor], width: int, length: int | None) -> Iterator[Tensor]:
    """The rows of all chunks, checked, in float64 and a limited number at a time.

    They are float64 because sums over many coordinates in float32 would lose digits and could round down.

    >>> [list(block.shape) for block in checked_blocks(torch.zeros(5, 2), width=2, length=4)]
    [[2, 2], [2, 2], [1, 2]]
    """
    if not isinstance(gradients, Iterable):
        raise TypeError(f"gradients must be a tensor or an iterable of tensors, got {gradients!r}")
    one = hasattr(gradients, "shape") or (isinstance(gradients, list | tuple) and not _chunks(gradients))
    for chunk in [gradients] if one else gradients:
        tensor = checks.finite("gradients", chunk)
        if tensor.dim() != 2 or tensor.shape[1] != width:
            raise ValueError(f"gradients must have shape (m, {width}), got {list(tensor.shape)}")
        entries = length or _BLOCK.get(tensor.device.type, _BLOCK_ELSEWHERE)
        for block in tensor.split(at_once(entries, each=width)):
            yield block.double()


def _chunks(gradients: Sequence[object]) -> bool:
    """Whether a list has chunks of rows, and is not one chunk written as a list of rows."""
    return all(hasattr(chunk, "shape") for chunk in gradients)


def exact_bound(law: Mechanism, theta: Tensor, orders: Tensor) -> Bound:
    """The four sums with every entry evaluated at every order.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> sums = exact_bound(Gaussian(1.0), torch.zeros(2).double(), torch.tensor([2.0]).double())
    >>> round(float(sums(torch.ones(1, 2).double())[0]), 6)
    2.0
    """

    def sums(block: Tensor) -> Tensor:
        (add, remove), (add_backward, remove_backward) = pushes(theta.to(block.device), block)
        variants = (remove, remove_backward, add, add_backward)
        columns = [
            torch.stack([law.renyi_divergence(*pair, alpha).sum(dim=1) for pair in variants])
            for alpha in orders.tolist()
        ]
        present = (block != 0).any(dim=1).unsqueeze(1)
        result = torch.stack(columns, dim=2)
        return torch.where(present, result * (1 + ROUNDING) + block.shape[1] * UNDERFLOW, result).cpu()

    return sums


class InUnits:
    """Units of sigma, and the upper bound of D over all theta: (alpha / 2) sum_j s_j^2 c_j.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> units = InUnits(Gaussian(2.0), torch.zeros(3).double())
    >>> units.per_sigma.tolist(), units.ceiling.tolist()
    ([0.5, 0.5, 0.5], [1.0, 1.0, 1.0])
    """

    def __init__(self, law: Mechanism, theta: Tensor) -> None:
        sigma = law.sigma.double().cpu().expand(theta.shape)
        ceiling = torch.minimum(law.information_bound().cpu() * sigma * sigma, torch.ones_like(sigma))
        self.per_sigma, self.ceiling = 1 / sigma, ceiling.expand(theta.shape)
        # the relative rounding of a sum of d products in float64, each with a few roundings of its own
        self.rounding = (theta.numel() + 64) * 2.0**-52

    def capped(self, bounds: Tensor, ceilings: Tensor, largest: Tensor, orders: Tensor) -> Tensor:
        """The smaller of ``bounds``, (4, m, orders), and the upper bound over all theta."""
        highest = (0.5 * (1 + ROUNDING + self.rounding)) * ceilings.unsqueeze(1) * orders
        if not bool(torch.isfinite(highest).all()):
            most = float(largest.amax())
            raise FloatingPointError(f"gradients of {most:.3g} sigma are too large to be accounted for")
        lost = (largest > 0).double() * (len(self.ceiling) * UNDERFLOW)
        return torch.minimum(bounds, highest) + lost.unsqueeze(1)


def polynomial_bound(law: Mechanism, theta: Tensor, orders: Tensor) -> Bound:
    """The four sums from eight products of powers of the block with a vector."""
    units = InUnits(law, theta)
    coefficients, condition = upper_polynomials(law, theta)
    vectors = torch.cat((units.ceiling.unsqueeze(0), coefficients))
    moments = torch.stack([hat_moments(orders, variant) for variant in VARIANTS])
    moments *= 0.5 * orders * (1 + ROUNDING + condition * units.rounding)

    def sums(block: Tensor) -> Tensor:
        weights, per_sigma = vectors.to(block.device), units.per_sigma.to(block.device)
        shifts = block * per_sigma
        largest = shifts.abs().amax(dim=1)
        power = shifts * shifts
        columns = [power @ weights[0], power @ weights[1]]
        for weight in weights[2:]:
            power.mul_(shifts)
            columns.append(power @ weight)
        largest, ceilings, *powers = (column.cpu() for column in (largest, *columns))
        result = torch.stack(powers, dim=1) @ moments
        within = largest.unsqueeze(1) * orders <= _REACH
        return units.capped(torch.where(within, result, torch.inf), ceilings, largest, orders)

    return sums


def hat_moments(orders: Tensor, variant: str) -> Tensor:
    """E U^k for k = 0.._DEGREE, one column per order, with the sign of (-1)^k where s = -g.

    The triangular law with corners a, b, c has E U^k = 2 h_k(a, b, c) / ((k + 1)(k + 2)), where h_k is the
    complete homogeneous symmetric polynomial (U is the Peano kernel of a second divided difference). Here
    one corner is 0, which leaves h_k(a, b) = sum_i a^i b^(k - i).

    >>> hat_moments(torch.tensor([3.0]), "add_forward")[:3, 0].tolist()  # on [-2, 1] with its mode at 0
    [1.0, -0.3333333432674408, 0.5]
    """
    one = torch.ones_like(orders)
    a, b = (one, 1 - orders) if variant.endswith("forward") else (one, orders)
    rows = []
    for k in range(_DEGREE + 1):
        polynomial = torch.stack([a**i * b ** (k - i) for i in range(k + 1)]).sum(dim=0)
        sign = (-1) ** k if variant.startswith("remove") else 1
        rows.append(sign * 2 / ((k + 1) * (k + 2)) * polynomial)
    return torch.stack(rows)


def upper_polynomials(law: Mechanism, theta: Tensor) -> tuple[Tensor, float]:
    """Coefficients p_k(t_j), (degree + 1, d), and how much rounding they may amplify.

    They are made at anchors, 8 per sigma, and moved to the coordinates. That loses nothing: the window at an
    anchor is wider by as much as a coordinate may be away from it.
    """
    parameters = {name: value.double().cpu() for name, value in law.parameters().items()}
    varying = [name for name, value in parameters.items() if value.numel() > 1]
    sigma = parameters["sigma"].expand(theta.shape)
    node = torch.round(theta / sigma * _ANCHORS_PER_SIGMA)
    anchors, index = distinct(*(parameters[name] for name in varying), node)

    made, amplified = [], []
    for part in anchors.split(_ANCHORS_AT_ONCE):
        chosen = {name: value.reshape(-1, 1) for name, value in parameters.items()}
        chosen |= {name: part[:, i : i + 1] for i, name in enumerate(varying)}
        local = law.with_parameters(chosen)
        window = (part[:, -1:] / _ANCHORS_PER_SIGMA + _fit()[0]) * chosen["sigma"]
        information = local.fisher_information(window) * chosen["sigma"].square()
        fitted, lowest = _fit_above(information, law)
        made.append(fitted)
        amplified.append(lowest)
    coefficients = torch.cat(made)[index].T.contiguous()
    lowest = torch.cat(amplified)[index]

    offset = (theta - node / _ANCHORS_PER_SIGMA * sigma) / sigma
    for start in range(_DEGREE):  # P(y + offset), by repeated synthetic division
        for k in range(_DEGREE - 1, start - 1, -1):
            coefficients[k] += offset * coefficients[k + 1]
    size = torch.zeros_like(offset)
    for row in coefficients.flip(0):
        size = size * _REACH + row.abs()
    return coefficients, float((size / lowest).amax())


@cache
def _fit() -> tuple[Tensor, Tensor, Tensor]:
    """The points y of a window, their powers, and the matrix from values to a least-squares fit.

    The points are evenly spaced, where Chebyshev's would crowd at the ends; weights make up for that.
    """
    unit = torch.linspace(-1, 1, _FIT_POINTS, dtype=torch.float64)
    degrees = torch.arange(_DEGREE + 1, dtype=torch.float64)
    weights = (1 - 0.998 * unit * unit) ** -0.25
    inverse = torch.linalg.pinv(weights.unsqueeze(1) * unit.unsqueeze(1) ** degrees) * weights
    points = _HALF_WIDTH * unit
    return points, points.unsqueeze(1) ** degrees, inverse.T * _HALF_WIDTH**-degrees


def _fit_above(information: Tensor, law: Mechanism) -> tuple[Tensor, Tensor]:
    """Polynomials nowhere below the information in their windows, and the smallest value of each.

    A least-squares fit Q is raised by a factor until at every point it is above I by as much as both can
    change between two points, which are h apart. Between them Q is at least its chord less
    h^2 max|Q''| / 8. And I'' = mu_4 - 3 mu_2^2 >= -2 I^2 >= -2 I, because mu_4 >= mu_2^2 and I = mu_2 <= 1.
    I is therefore at most its chord plus h^2 M / 4, where M is the largest I in the cell, which is itself at
    most the larger end plus h^2 M / 4.
    """
    points, powers, fit = _fit()
    square = float(points[1] - points[0]) ** 2
    coefficients = information @ fit
    values = coefficients @ powers.T
    degrees = torch.arange(_DEGREE + 1, dtype=torch.float64)
    bend = coefficients.abs() @ (degrees * (degrees - 1) * _HALF_WIDTH ** (degrees - 2))
    least = values - square / 8 * bend.unsqueeze(1)
    if not bool((least > 0).all()):
        raise FloatingPointError(f"the information of {law!r} is not smooth enough for a polynomial bound")
    around = torch.nn.functional.max_pool1d(information.unsqueeze(1), 3, stride=1, padding=1).squeeze(1)
    most = information + square / 4 / (1 - square / 4) * around
    factor = (most / least).amax(dim=1, keepdim=True)
    return factor * coefficients, (factor * least).amin(dim=1)


def table_bound(law: Mechanism, theta: Tensor, orders: Tensor, kept: "dict[Setting, ShiftTable]") -> Bound:
    """All four sums at once, from squares and cubes of the block times two matrices.

    The two matrices depend on the octave of an example's largest shift, so that one large example does not
    loosen the bounds of the others. ``kept`` holds the tables of the settings seen last.
    """
    units = InUnits(law, theta)
    # each law with single numbers, and the coordinates that have it; none if there are too many
    settings = list(split_by_setting(law, torch.arange(len(theta)), torch.zeros(()), _SETTINGS) or ())
    smallest = _smallest_octave(orders)
    made: dict[int, Tensor] = {}

    def matrices(octave: int) -> Tensor:
        if octave not in made:
            weights = torch.empty(2, len(theta), len(orders), dtype=torch.float64)
            for setting, chosen in settings:
                table = kept.setdefault(setting, ShiftTable(setting.mechanism, orders))
                weights[:, chosen] = table.weights(theta[chosen], octave)
            while len(kept) > _SETTINGS:
                del kept[next(iter(kept))]
            made[octave] = weights * (1 + ROUNDING + units.rounding)
        return made[octave]

    def sums(block: Tensor) -> Tensor:
        size = (block * units.per_sigma.to(block.device)).abs_()
        squares = size * size
        largest, cubes = size.amax(dim=1).cpu(), size.mul_(squares)
        ceilings = (squares @ units.ceiling.to(block.device)).cpu()
        result = torch.full((len(block), len(orders)), torch.inf, dtype=torch.float64)
        mantissa, octaves = torch.frexp(largest)  # largest <= 2^octave
        octaves = (octaves - (mantissa == 0.5).to(octaves.dtype)).clamp(min=smallest)
        for octave in torch.unique(octaves).tolist() if settings else ():
            if octave <= _LARGEST_OCTAVE:
                flat, slope = matrices(octave).to(block.device)
                rows = (octaves == octave).to(block.device)
                result[rows.cpu()] = (squares[rows] @ flat + cubes[rows] @ slope).cpu()
        return units.capped(result.expand(len(VARIANTS), -1, -1), ceilings, largest, orders)

    return sums


def _smallest_octave(orders: Tensor) -> int:
    return math.floor(math.log2(_SMALL / float(orders.amax())))


class ShiftTable:
    """Two weights: D / s^2 <= w_alpha(t) + v_alpha(t) |s| for |s| <= 2^octave, in units of sigma.

    They come from the worst of the four variants at the shift with alpha s = 1 / 16 and at four shifts per
    octave above it, with a margin for the shifts in between. Either w is the limit alpha I / 2 at s = 0 and
    v the steepest chord from there, or w is the largest D / s^2 and v is 0: whichever bound is smaller at
    half the largest shift. Pages of nodes are filled as theta needs them and kept.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> order, theta = torch.tensor([2.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    >>> flat, slope = ShiftTable(StochasticSign(1.0), order).weights(theta, octave=0)
    >>> bound = float(flat + slope * 0.5) * 0.5**2  # of a shift of sigma / 2
    >>> bound > float(StochasticSign(1.0).renyi_divergence(theta, 0.5, 2.0))
    True
    """

    def __init__(self, law: Mechanism, orders: Tensor) -> None:
        self.law, self.orders = law, orders
        self.sigma = float(law.sigma)
        self.smallest = _smallest_octave(orders)
        # by octave, then page, (3, nodes, orders): the limit of D / s^2 at 0, the largest D / s^2 of all
        # shifts up to 2^octave, and the steepest chord of D / s^2 from the limit to one of them
        self._pages: dict[int, dict[int, Tensor]] = {}

    def weights(self, theta: Tensor, octave: int) -> Tensor:
        """w and v: one row per coordinate, one column per order."""
        position = theta / self.sigma * _NODES_PER_SIGMA
        cell = torch.floor(position)
        page = torch.floor(cell / _PAGE)
        inside, fraction = (cell - page * _PAGE).long(), (position - cell).unsqueeze(1)
        numbers, rank = torch.unique(page, return_inverse=True)
        limit, largest, steepest = torch.stack(self._pages_of(numbers.long().tolist(), octave), dim=1)
        rising = limit + steepest * 2.0 ** (octave - 1) < largest
        nodes = torch.stack((torch.where(rising, limit, largest), torch.where(rising, steepest, 0.0)))
        result = torch.empty(2, len(theta), len(self.orders), dtype=torch.float64)
        for some in torch.arange(len(theta)).split(_READ_TOGETHER):
            left = rank[some], inside[some]
            right = rank[some], inside[some] + 1
            result[:, some] = torch.lerp(nodes[:, *left], nodes[:, *right], fraction[some])
        reach = (self.orders * 2.0**octave).clamp(_SMALL, 1)
        margins = torch.stack([1 + margin * reach for margin in _MARGINS])
        return result * (_ABOVE_CHORD * margins.unsqueeze(1))

    def _pages_of(self, numbers: list[int], octave: int) -> list[Tensor]:
        """These pages, for shifts up to 2^octave."""
        kept = self._pages.setdefault(octave, {})
        missing = [number for number in numbers if number not in kept]
        if missing:
            found = self._filled(missing, octave)
            kept |= dict(zip(missing, found.split(_PAGE + 1, dim=1), strict=True))
        return [kept[number] for number in numbers]

    def _filled(self, numbers: list[int], octave: int) -> Tensor:
        """New pages, one after the other: those of the octave below, raised by the shifts of this one."""
        index = torch.arange(_PAGE + 1) + torch.tensor(numbers).unsqueeze(1) * _PAGE
        theta = index.reshape(-1, 1).double() * (self.sigma / _NODES_PER_SIGMA)
        if octave <= self.smallest:
            return self._of_small_shifts(theta)
        found = torch.cat(self._pages_of(numbers, octave - 1), dim=1)
        for k in range(_SHIFTS_PER_OCTAVE):
            shift = torch.tensor(2.0 ** (octave - k / _SHIFTS_PER_OCTAVE), dtype=torch.float64)
            # an order with alpha s <= 1 / 16 has this shift among its small ones
            self._raise(found, theta, shift, self.orders * shift > _SMALL)
        return found

    def _of_small_shifts(self, theta: Tensor) -> Tensor:
        """Pages for shifts with alpha s <= 1 / 16: the limit at s = 0 and the shift at the end."""
        limit = 0.5 * self.orders * self.law.fisher_information(theta) * self.sigma**2
        found = torch.stack((limit, limit, torch.zeros_like(limit)))
        self._raise(found, theta, _SMALL / self.orders, self.orders > 1)
        return found

    def _raise(self, found: Tensor, theta: Tensor, shift: Tensor, chosen: Tensor) -> None:
        """Raises the largest D / s^2 and the steepest chord to those of this shift, at the chosen orders."""
        if bool(chosen.any()):
            shift = shift.expand_as(self.orders)[chosen]
            value = self.worst(theta, shift * self.sigma, self.orders[chosen]) / shift.square()
            limit, largest, steepest = found[..., chosen]
            largest = torch.maximum(largest, value)
            steepest = torch.maximum(steepest, (value - limit) / shift)
            found[..., chosen] = torch.stack((limit, largest, steepest))

    def worst(self, theta: Tensor, shift: Tensor, orders: Tensor) -> Tensor:
        """The largest of the four divergences between theta and theta +- shift."""
        forward, backward = pushes(*torch.broadcast_tensors(theta, shift))
        there, moves = (torch.stack(values) for values in zip(*forward, *backward, strict=True))
        return self.law.renyi_divergence(there, moves, orders).amax(dim=0)
