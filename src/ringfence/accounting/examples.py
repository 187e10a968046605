"""Single examples: what releases of theta cost each record that is in the data.

Example i contributes g_i to theta. Its neighbours are theta - g_i (left out) and theta + g_i (there
twice), so its Rényi sums over coordinates are, order by order,

    remove, forward   sum_j D(theta_j || theta_j - g_ij)     add, forward   sum_j D(theta_j || theta_j + g_ij)
    remove, backward  sum_j D(theta_j - g_ij || theta_j)     add, backward  sum_j D(theta_j + g_ij || theta_j)

n d divergences at 60 orders are out of reach, so each D is bounded by a sum of products of a power
of g_ij with a number that depends on j alone; the sums over j are then matrix products. In units of
sigma, t = theta / sigma and s the signed shift:

*Exponential families* (proved). D(t || t + s) = (alpha s^2 / 2) E I(t + s U), I the information and
U triangular on [1 - alpha, 1] with its mode at 0; D(t + s || t) is the same with U on [0, alpha] and
its mode at 1 (docs/notation.md). A polynomial P_t(y) >= I(t + y) on |y| <= 2.05 gives

    sum_j D <= (alpha / 2) sum_k E[U^k] sum_j s_j^(k + 2) p_k(t_j):

eight products of the gradients with a vector serve all orders and all four sums. Orders too high
for an example, alpha |s| > 2.05 somewhere, fall back to what holds for every theta.

*Other laws* (checked numerically). D / s^2 <= w_alpha(t) + v_alpha(t) |s| for all four variants and
all shifts up to the example's largest, tabulated over t: two products with a d x orders matrix.

Neither is ever above what holds for every theta.
"""

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism

Kind = Literal["ex_post", "pdp"]
VARIANTS = ("remove_forward", "remove_backward", "add_forward", "add_backward")

_ROUNDING = 1e-11  # of a divergence or an information; the largest error ever measured is 3e-13
_CONVERSION = 1e-11  # relative, as everywhere else in the package
_UNDERFLOW = 1e-290  # a law may return 0 for a divergence below this
_BLOCK = {"cpu": 1 << 18}  # entries converted to float64 at a time: a few MB, near the cache
_BLOCK_ELSEWHERE = 1 << 24
_EXACT_BLOCK = 1 << 16  # the divergences of an entry need far more room than the entry

# Polynomials above the information: |y| <= _REACH covers shifts of 1e-3 sigma at order 2,048.
_REACH = 2.05
_DEGREE = 7
_ANCHORS_PER_SIGMA = 8  # polynomials are made at these points and moved to the coordinates
_HALF_WIDTH = _REACH + 0.5 / _ANCHORS_PER_SIGMA
_FIT_POINTS = 541  # 128 a sigma
_ANCHORS_AT_ONCE = 2048

# Tables of D / s^2 for the other laws.
_NODES_PER_SIGMA = 16
_PAGE = 32  # cells tabulated at a time
# D'' >= -2 D in units of sigma, so D is below its chord between two nodes times this
# (accounting/divergence_sums.py; checked numerically for these laws).
_ABOVE_CHORD = 1 / (1 - 1 / (4 * _NODES_PER_SIGMA**2))
_SHIFTS_PER_OCTAVE = 4
_SMALL = 1 / 16  # alpha s below which D / s^2 hardly bends within an octave of s
# For what lies between two shifts, times min(1, alpha s). Far out D is about (a s - b)+ / (alpha - 1),
# where D / s^2 and D / s^3 peak with curvatures -2 and -6 in log s: between two shifts of a quarter
# octave they rise 0.8 % and 2.3 % above the larger end. Random searches found 1.2 % for the first, and
# the second to need more than 2 %; with these margins none fell short.
_MARGINS = (0.02, 0.05)
_LARGEST_OCTAVE = 1  # shifts above 2 sigma get the Gaussian's bound
_SETTINGS = 64  # distinct parameters that get a table each; beyond, the Gaussian's bound


class ExampleAccountant:
    """Each training example's own privacy loss, from its own clipped contribution to theta.

    ``step(theta, gradients)`` once for each release: theta, of shape (d,), is what the mechanism was
    applied to, the sum of the contributions; row i of ``gradients`` is the contribution of example
    i, the same example at every step. A contribution must depend only on its own record and on
    earlier releases. ``epsilons(delta)`` is one number for each example.

    Four running sums for each example and order (``sums``, in the order of ``VARIANTS``), in
    float64: 96 MB for 50,000 examples and the default orders.

    Guarantee: the sums are upper bounds of the exact ones, whatever the gradients, and never above
    what holds for every theta, hence never above the Gaussian's. For exponential families (the
    Gaussian and the truncated law) that is proved up to the rounding of the information; for the
    others it is checked numerically. Measured: within 0.6 % of the exact sums for the truncated law
    wherever alpha |g| / sigma <= 2.05; orders beyond that are charged what holds for every theta,
    which shows (up to twice the epsilon) only where a handful of coordinates carry all that an
    example contributes to a single release. What an epsilon promises is in ``statement``.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> gradients = torch.tensor([[1e-3], [1e-4], [0.0]]).expand(3, 10_240)
    >>> account = ExampleAccountant(TruncatedGaussian(sigma=1.0, bound=2.0))
    >>> for _ in range(10):
    ...     account.step(gradients.sum(dim=0), gradients)
    >>> [round(epsilon, 3) for epsilon in account.epsilons(delta=1e-5).tolist()]
    [1.614, 0.158, 0.0]
    """

    def __init__(self, mechanism: Mechanism, orders: Sequence[float] | Tensor = DEFAULT_ORDERS) -> None:
        self.mechanism = mechanism
        self.orders = checked_orders(orders)
        self.sums = torch.zeros(len(VARIANTS), 0, len(self.orders), dtype=torch.float64)
        self.steps = 0
        self._tables: dict[str, _ShiftTable] = {}

    def step(
        self,
        theta: Real,
        gradients: Tensor | Iterable[Tensor],
        *,
        mechanism: Mechanism | None = None,
        count: int = 1,
        exact: bool = False,
    ) -> None:
        """One release of theta (``count`` of them), with the account's mechanism unless given.

        ``gradients`` is (n, d), or an iterable of (m, d) chunks in the order of the examples; what
        an example is charged does not depend on the chunks. ``exact=True`` evaluates every entry
        at every order: for tests and small data. An error leaves the account as it was.
        """
        checks.count("count", count, at_least=1)
        law = self.mechanism if mechanism is None else mechanism
        theta = checks.finite("theta", theta)
        _fits(law, theta)
        theta = theta.double().cpu()
        if exact:
            length, bound = _EXACT_BLOCK, _exact(law, theta, self.orders)
        elif law.exponential_family:
            length, bound = None, _by_polynomials(law, theta, self.orders)
        else:
            length, bound = None, _by_tables(law, theta, self.orders, self._tables)
        parts = [bound(block) for block in _blocks(gradients, theta.numel(), length)]
        total = sum(part.shape[1] for part in parts)
        if total == 0:
            raise ValueError("gradients must hold at least one example, got none")
        if self.steps and total != self.examples:
            raise ValueError(f"gradients must hold {self.examples} examples as before, got {total}")
        if not self.steps:
            self.sums = torch.zeros(len(VARIANTS), total, len(self.orders), dtype=torch.float64)
        at = 0
        for part in parts:
            self.sums[:, at : at + part.shape[1]] += count * part
            at += part.shape[1]
        self.steps += count

    @property
    def examples(self) -> int:
        """How many examples there are; 0 before the first step."""
        return self.sums.shape[1]

    @property
    def worst(self) -> Tensor:
        """The largest of the four running sums: a row an example, a column an order."""
        return self.sums.amax(dim=0)

    def epsilons(self, delta: float, kind: Kind = "ex_post") -> Tensor:
        """Each example's own epsilon at this delta, in float64.

        ``kind="ex_post"``: min over orders of the sum + log(K / delta) / (order - 1), K orders, as
        ``conversion.ex_post_epsilon``. ``kind="pdp"``: the realised sums converted to
        (epsilon, delta) by dp-accounting's formula (Canonne, Kamath and Steinke 2020, Proposition
        12), written out here because dp-accounting converts one curve at a time.

        An example whose contribution was 0 throughout gets 0 and not the log(K / delta) term: with
        and without it the releases have the same law, so its loss is 0 whatever comes out.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> account = ExampleAccountant(Gaussian(sigma=1.0))
        >>> account.step(torch.zeros(2), torch.tensor([[0.3, 0.4], [0.0, 0.0]]))
        >>> [round(value, 3) for value in account.epsilons(1e-5, kind="pdp").tolist()]
        [2.168, 0.0]
        """
        checks.probability("delta", delta)
        if kind not in ("ex_post", "pdp"):
            raise ValueError(f"kind must be 'ex_post' or 'pdp', got {kind!r}")
        convert = _ex_post if kind == "ex_post" else _pdp
        worst = self.worst
        epsilons = convert(self.orders, worst, delta) * (1 + _CONVERSION)
        return torch.where((worst == 0).all(dim=1), 0.0, epsilons)

    @property
    def statement(self) -> str:
        """In plain English: what an example's epsilon promises, what it does not, who may see it."""
        releases = "the release" if self.steps == 1 else f"the {self.steps} releases"
        holds = (
            "is a guarantee for the one release it is about"
            if self.steps <= 1
            else "is a guarantee only if theta at every release was fixed in advance; where theta depends on "
            "earlier releases, as in training, it is an estimate and not a guarantee"
        )
        return (
            "Per example, this dataset and this trajectory: each epsilon is about one record that is in the "
            "data, compared with leaving that record out and with having it twice. Ex-post: except with "
            f"probability delta over the run, the realised privacy loss of {releases} about that record is "
            "at most its epsilon, also when theta depends on earlier releases, provided what the record "
            "contributes depends on itself and on earlier releases only. The probability is for each example "
            "by itself, not for all of them at once.\n\n"
            f"The per-instance (epsilon, delta) number, kind='pdp', {holds}.\n\n"
            "Neither is differential privacy: they say nothing about records that are not in the data, about "
            "other datasets or about other runs. Each number is computed from its record and, through theta, "
            "from all the others, and is itself sensitive: do not publish it, do not show it to whoever may "
            "not see the data, and do not stop, go on, leave out examples or change the noise because of it."
        )

    def state_dict(self) -> dict[str, Any]:
        """Plain data, fit for JSON; ``from_state_dict`` gives back the same account exactly.

        The sums are base64 of little-endian float64, (4, examples, orders) in C order: as text
        they would be several times as long and slow to read.
        """
        return {
            "kind": type(self).__name__,
            "version": 1,
            "mechanism": self.mechanism.state_dict(),
            "orders": self.orders.tolist(),
            "examples": self.examples,
            "steps": self.steps,
            "sums": base64.b64encode(self.sums.numpy().astype("<f8").tobytes()).decode("ascii"),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account a ``state_dict`` describes; refuses what it does not understand."""
        checks.state("ExampleAccountant", 1, state, {"mechanism", "orders", "examples", "steps", "sums"})
        account = cls(Mechanism.from_state_dict(state["mechanism"]), state["orders"])
        account.steps = checks.count("steps", state["steps"], at_least=0)
        examples = checks.count("examples", state["examples"], at_least=1 if account.steps else 0)
        shape = (len(VARIANTS), examples, len(account.orders))
        try:
            data = bytearray(base64.b64decode(state["sums"], validate=True))
        except (TypeError, ValueError):
            raise ValueError(f"sums must be base64 text, got {str(state['sums'])[:20]!r}") from None
        if len(data) != 8 * math.prod(shape):
            raise ValueError(f"sums must hold {8 * math.prod(shape)} bytes, got {len(data)}")
        if data:
            sums = torch.frombuffer(data, dtype=torch.float64).reshape(shape)
            account.sums = checks.not_negative("sums", sums).clone()
        return account

    def __repr__(self) -> str:
        return f"ExampleAccountant({self.mechanism!r}, examples={self.examples}, steps={self.steps})"


# ------------------------------------------------------------------ from sums to epsilons


def _ex_post(orders: Tensor, rdp: Tensor, delta: float) -> Tensor:
    return (rdp + math.log(len(orders) / delta) / (orders - 1)).amin(dim=1)


def _pdp(orders: Tensor, rdp: Tensor, delta: float) -> Tensor:
    """dp_accounting.rdp.compute_epsilon, a row a curve."""
    epsilons = rdp + torch.log1p(-1 / orders) - torch.log(delta * orders) / (orders - 1)
    # their threshold: the formula is not stable near order 1, nor useful there
    epsilons = torch.where(orders > 1.01, epsilons, torch.inf)
    # delta <= sqrt(1 - exp(-KL)), and KL is at most any of the divergences
    epsilons = torch.where(delta**2 + torch.expm1(-rdp) > 0, 0.0, epsilons)
    return epsilons.amin(dim=1).clamp(min=0)


# ------------------------------------------------------------------ gradients, block by block

# A bound takes a block of gradients (m, d) and gives the four sums, (4, m, orders), on the CPU.
_Bound = Callable[[Tensor], Tensor]


def _fits(law: Mechanism, theta: Tensor) -> None:
    if theta.dim() != 1 or theta.numel() == 0:
        raise ValueError(f"theta must have shape (d,) with d > 0, got {list(theta.shape)}")
    parameters = law.parameters()
    shape = checks.broadcast(("theta", *parameters), (theta, *parameters.values()))
    if shape != theta.shape:
        raise ValueError(f"theta has shape {list(theta.shape)}, but with the parameters {list(shape)}")


def _blocks(gradients: Tensor | Iterable[Tensor], width: int, length: int | None) -> Iterator[Tensor]:
    """The rows of all chunks, checked, some at a time and in float64.

    float64 because sums over many coordinates in float32 would lose digits, and could round down.
    """
    for chunk in [gradients] if hasattr(gradients, "shape") else gradients:
        tensor = checks.finite("gradients", chunk)
        if tensor.dim() != 2 or tensor.shape[1] != width:
            raise ValueError(f"gradients must have shape (m, {width}), got {list(tensor.shape)}")
        entries = length or _BLOCK.get(tensor.device.type, _BLOCK_ELSEWHERE)
        for block in tensor.split(max(1, entries // max(1, width))):
            yield block.double()


def _exact(law: Mechanism, theta: Tensor, orders: Tensor) -> _Bound:
    """Every entry at every order."""

    def sums(block: Tensor) -> Tensor:
        where = theta.to(block.device)
        columns = []
        for alpha in orders.tolist():
            variants = (
                law.renyi_divergence(where, -block, alpha),
                law.renyi_divergence(where - block, block, alpha),
                law.renyi_divergence(where, block, alpha),
                law.renyi_divergence(where + block, -block, alpha),
            )
            columns.append(torch.stack([values.sum(dim=1) for values in variants]))
        present = (block != 0).any(dim=1).unsqueeze(1)
        result = torch.stack(columns, dim=2)
        return torch.where(present, result * (1 + _ROUNDING) + block.shape[1] * _UNDERFLOW, result).cpu()

    return sums


class _InUnits:
    """Blocks in units of sigma, and what bounds D whatever theta: (alpha / 2) sum_j s_j^2 c_j."""

    def __init__(self, law: Mechanism, theta: Tensor) -> None:
        sigma = law.sigma.double().cpu().expand(theta.shape)
        ceiling = torch.minimum(law.information_bound().cpu() * sigma * sigma, torch.ones_like(sigma))
        self.per_sigma, self.ceiling = 1 / sigma, ceiling.expand(theta.shape)
        # relative rounding of a sum of d products, each with a few more, in float64
        self.rounding = (theta.numel() + 64) * 2.0**-52

    def capped(self, bounds: Tensor, ceilings: Tensor, largest: Tensor, orders: Tensor) -> Tensor:
        """``bounds`` (4, m, orders) or what holds for every theta, whichever is smaller."""
        highest = (0.5 * (1 + _ROUNDING + self.rounding)) * ceilings.unsqueeze(1) * orders
        if not bool(torch.isfinite(highest).all()):
            most = float(largest.amax())
            raise FloatingPointError(f"gradients of {most:.3g} sigma are too large to be accounted for")
        lost = (largest > 0).double() * (len(self.ceiling) * _UNDERFLOW)
        return torch.minimum(bounds, highest) + lost.unsqueeze(1)


# ------------------------------------------------------------------ exponential families: proved


def _by_polynomials(law: Mechanism, theta: Tensor, orders: Tensor) -> _Bound:
    """The four sums from eight products of powers of the block with a vector."""
    units = _InUnits(law, theta)
    coefficients, condition = _upper_polynomials(law, theta)
    vectors = torch.cat((units.ceiling.unsqueeze(0), coefficients))
    moments = torch.stack([_hat_moments(orders, variant) for variant in VARIANTS])
    moments *= 0.5 * orders * (1 + _ROUNDING + condition * units.rounding)

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


def _hat_moments(orders: Tensor, variant: str) -> Tensor:
    """E U^k for k = 0.._DEGREE, a column an order, with the sign that s = -g has in it.

    Of the triangular law with corners a, b, c: 2 h_k(a, b, c) / ((k + 1)(k + 2)), h_k the complete
    homogeneous symmetric polynomial (the Peano kernel of a second divided difference). Here one
    corner is 0, which leaves h_k(a, b) = sum_i a^i b^(k - i).
    """
    one = torch.ones_like(orders)
    a, b = (one, 1 - orders) if variant.endswith("forward") else (one, orders)
    rows = []
    for k in range(_DEGREE + 1):
        polynomial = torch.stack([a**i * b ** (k - i) for i in range(k + 1)]).sum(dim=0)
        sign = (-1) ** k if variant.startswith("remove") else 1
        rows.append(sign * 2 / ((k + 1) * (k + 2)) * polynomial)
    return torch.stack(rows)


def _upper_polynomials(law: Mechanism, theta: Tensor) -> tuple[Tensor, float]:
    """Coefficients p_k(t_j), (degree + 1, d), and how much rounding they may amplify.

    Made at anchors a few to the sigma and moved to the coordinates, which changes nothing: the
    window at an anchor is wider by as much as a coordinate is away.
    """
    parameters = {name: value.double().cpu() for name, value in law.parameters().items()}
    varying = [name for name, value in parameters.items() if value.numel() > 1]
    sigma = parameters["sigma"].expand(theta.shape)
    node = torch.round(theta / sigma * _ANCHORS_PER_SIGMA)
    columns = [*(parameters[name].expand(theta.shape) for name in varying), node]
    anchors, index = torch.unique(torch.stack(columns, dim=1), dim=0, return_inverse=True)

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
    """Points y of a window, their powers, and the matrix from values to a least-squares fit.

    The weights make up for evenly spaced points where Chebyshev's crowd at the ends.
    """
    unit = torch.linspace(-1, 1, _FIT_POINTS, dtype=torch.float64)
    degrees = torch.arange(_DEGREE + 1, dtype=torch.float64)
    weights = (1 - 0.998 * unit * unit) ** -0.25
    inverse = torch.linalg.pinv(weights.unsqueeze(1) * unit.unsqueeze(1) ** degrees) * weights
    points = _HALF_WIDTH * unit
    return points, points.unsqueeze(1) ** degrees, inverse.T * _HALF_WIDTH**-degrees


def _fit_above(information: Tensor, law: Mechanism) -> tuple[Tensor, Tensor]:
    """Polynomials nowhere below the information in their windows, and the least each is.

    A least-squares fit Q is raised by a factor until it is above I at every point by what both can
    do between two points, h apart. There Q is at least its chord less h^2 max|Q''| / 8. And
    I'' = mu_4 - 3 mu_2^2 >= -2 I^2 >= -2 I (mu_4 >= mu_2^2, I = mu_2 <= 1), so that I is at most
    its chord plus h^2 M / 4, M the largest I in the cell, itself at most the larger end plus h^2 M / 4.
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


# ------------------------------------------------------------------ other laws: checked numerically


def _by_tables(law: Mechanism, theta: Tensor, orders: Tensor, kept: "dict[str, _ShiftTable]") -> _Bound:
    """All four sums at once, from squares and cubes of the block times two matrices.

    Which two depends on the octave of an example's largest shift, so that one large example does
    not loosen the bounds of the others.
    """
    units = _InUnits(law, theta)
    settings = list(_settings(law, theta))
    smallest = _smallest_octave(orders)
    made: dict[int, Tensor] = {}

    def matrices(octave: int) -> Tensor:
        if octave not in made:
            weights = torch.empty(2, len(theta), len(orders), dtype=torch.float64)
            for single, chosen in settings:
                table = kept.setdefault(repr(single.state_dict()), _ShiftTable(single, orders))
                weights[:, chosen] = table.weights(theta[chosen], octave)
            while len(kept) > _SETTINGS:
                del kept[next(iter(kept))]
            made[octave] = weights * (1 + _ROUNDING + units.rounding)
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


def _settings(law: Mechanism, theta: Tensor) -> Iterator[tuple[Mechanism, Tensor]]:
    """The law with single numbers for parameters, and which coordinates have them; none if many."""
    parameters = law.parameters()
    columns = [value.double().cpu().expand(theta.shape) for value in parameters.values()]
    if all(value.numel() == 1 for value in parameters.values()):
        distinct = torch.stack([column[:1] for column in columns], dim=1)
        index = torch.zeros(len(theta), dtype=torch.int64)
    else:
        distinct, index = torch.unique(torch.stack(columns, dim=1), dim=0, return_inverse=True)
    if len(distinct) <= _SETTINGS:
        for i, row in enumerate(distinct):
            single = law.with_parameters(dict(zip(parameters, row.unbind(), strict=True)))
            yield single, (index == i).nonzero().squeeze(1)


def _smallest_octave(orders: Tensor) -> int:
    return math.floor(math.log2(_SMALL / float(orders.amax())))


class _ShiftTable:
    """Two weights: D / s^2 <= w_alpha(t) + v_alpha(t) |s| for |s| <= 2^octave, in units of sigma.

    From the worst of the four variants at the shifts with alpha s = 1 / 16 and at four an octave
    above, with a margin for those between. Either w is the limit alpha I / 2 at s = 0 and v the
    steepest chord from there, or w is the largest D / s^2 and v is 0: whichever is the smaller at
    half the largest shift. Pages of nodes are filled as theta needs them and kept.
    """

    def __init__(self, law: Mechanism, orders: Tensor) -> None:
        self.law, self.orders = law, orders
        self.sigma = float(law.sigma)
        self.smallest = _smallest_octave(orders)
        # by octave, then page: the limit, the largest D / s^2 and the steepest chord, (3, nodes, orders)
        self._pages: dict[int, dict[int, Tensor]] = {}

    def weights(self, theta: Tensor, octave: int) -> Tensor:
        """w and v: a row a coordinate, a column an order."""
        position = theta / self.sigma * _NODES_PER_SIGMA
        cell = torch.floor(position)
        page = torch.floor(cell / _PAGE)
        inside, fraction = (cell - page * _PAGE).long(), (position - cell).unsqueeze(1)
        result = torch.empty(2, len(theta), len(self.orders), dtype=torch.float64)
        numbers = [int(number) for number in torch.unique(page)]
        for number, (limit, largest, steepest) in zip(numbers, self._filled(numbers, octave), strict=True):
            rising = limit + steepest * 2.0 ** (octave - 1) < largest
            pair = torch.where(rising, limit, largest), torch.where(rising, steepest, 0.0)
            here = page == number
            left, nodes = inside[here], torch.stack(pair)
            result[:, here] = torch.lerp(nodes[:, left], nodes[:, left + 1], fraction[here])
        reach = (self.orders * 2.0**octave).clamp(_SMALL, 1)
        margins = torch.stack([1 + margin * reach for margin in _MARGINS])
        return result * (_ABOVE_CHORD * margins.unsqueeze(1))

    def _filled(self, numbers: list[int], octave: int) -> list[Tensor]:
        """These pages, for shifts up to 2^octave."""
        kept = self._pages.setdefault(octave, {})
        missing = [number for number in numbers if number not in kept]
        if missing:
            index = torch.arange(_PAGE + 1) + torch.tensor(missing).unsqueeze(1) * _PAGE
            theta = index.reshape(-1, 1).double() * (self.sigma / _NODES_PER_SIGMA)
            if octave > self.smallest:
                found = torch.cat(self._filled(missing, octave - 1), dim=1)
                for k in range(_SHIFTS_PER_OCTAVE):
                    shift = torch.tensor(2.0 ** (octave - k / _SHIFTS_PER_OCTAVE), dtype=torch.float64)
                    self._raise(found, theta, shift, self.orders * shift > _SMALL)
            else:
                limit = 0.5 * self.orders * self.law.fisher_information(theta) * self.sigma**2
                found = torch.stack((limit, limit, torch.zeros_like(limit)))
                self._raise(found, theta, _SMALL / self.orders, self.orders > 1)
            kept |= dict(zip(missing, found.split(_PAGE + 1, dim=1), strict=True))
        return [kept[number] for number in numbers]

    def _raise(self, found: Tensor, theta: Tensor, shift: Tensor, chosen: Tensor) -> None:
        """Takes the shift into account, at the orders chosen."""
        if bool(chosen.any()):
            shift = shift.expand_as(self.orders)[chosen]
            value = self.worst(theta, shift * self.sigma, self.orders[chosen]) / shift.square()
            limit, largest, steepest = found[..., chosen]
            largest = torch.maximum(largest, value)
            steepest = torch.maximum(steepest, (value - limit) / shift)
            found[..., chosen] = torch.stack((limit, largest, steepest))

    def worst(self, theta: Tensor, shift: Tensor, orders: Tensor) -> Tensor:
        """The largest of the four divergences between theta and theta +- shift."""
        there = torch.stack((theta + 0 * shift, theta + 0 * shift, theta + shift, theta - shift))
        moves = torch.stack((shift, -shift, -shift, shift)).unsqueeze(1)
        return self.law.renyi_divergence(there, moves, orders).amax(dim=0)
