"""Single examples: what releases of theta cost each record that is in the data.

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

*Other laws*: D <= (alpha / 2) rho s^2 for all four variants, where rho is the equivalent information of
shifts of about the size of s, from a table over theta. The sums are a few products with d x orders matrices.
That is proved except where alpha s <= 1 / 10 (docs/guarantees.md).

Neither bound is ever above what holds for every theta, which is all that laws of whole numbers get.
"""

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.divergence_sums import (
    FARTHEST,
    DivergenceTable,
    distinct,
    recentre,
    split_by_setting,
)
from ringfence.accounting.equivalent_information import EQUIVALENT_INFORMATION, HALF_OCTAVE_INFORMATION, SMALL
from ringfence.accounting.guarantee import EpsilonKind
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW, square_is_representable

VARIANTS = ("remove_forward", "remove_backward", "add_forward", "add_backward")

_BLOCK = {"cpu": 1 << 18}  # entries converted to float64 at a time: a few MB, which the cache nearly holds
_BLOCK_ELSEWHERE = 1 << 24

# polynomials above the information
_REACH = 2.05  # covers shifts of 1e-3 sigma at order 2,048
_DEGREE = 7
_ANCHORS_PER_SIGMA = 8  # polynomials are made at these points and moved to the coordinates
_HALF_WIDTH = _REACH + 0.5 / _ANCHORS_PER_SIGMA
_FIT_POINTS = 541  # 128 per sigma
_ANCHORS_AT_ONCE = 2048

# tables over theta
_APART = 2  # half octaves of shifts that are charged one by one
_LARGEST = 2  # half octave: shifts above 2 sigma get the Gaussian's bound
_SETTINGS = 64  # distinct parameters that are tabulated; with more, the Gaussian's bound


class ExampleAccountant:
    """Each training example's own privacy loss, from its own clipped contribution to theta.

    Call ``step(theta, gradients)`` once for each release. theta has shape (d,) and is what the mechanism was
    applied to, the sum of the contributions. Row i of ``gradients`` is the contribution of example i, the
    same example at every step. A contribution must depend only on its own record and on earlier releases.
    ``epsilons(delta)`` gives one number for each example.

    There are four running sums for each example and order (``sums``, in the order of ``VARIANTS``), in
    float64: 96 MB for 50,000 examples and the default orders.

    Guarantee: the sums are upper bounds of the exact ones, whatever the gradients, and never above what
    holds for every theta, hence never above the Gaussian's. For exponential families (the Gaussian and the
    truncated law) that is proved up to the rounding of the information; for the other laws it is proved
    except for small shifts, where it is checked numerically (``equivalent_information``). For the truncated
    law the sums were measured to lie within 0.6 % of the exact ones wherever alpha |g| / sigma <= 2.05.
    Orders beyond that are charged what holds for every theta, which matters (up to twice the epsilon) only
    where a handful of coordinates carry all that an example contributes to a single release. ``statement``
    says what an epsilon promises.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> gradients = torch.tensor([[1e-3], [1e-4], [0.0]]).expand(3, 10_240)
    >>> account = ExampleAccountant(TruncatedGaussian(sigma=1.0, bound=2.0))
    >>> for _ in range(10):
    ...     account.step(gradients.sum(dim=0), gradients)
    >>> [round(epsilon, 3) for epsilon in account.epsilons(delta=1e-5).tolist()]
    [1.614, 0.158, 0.0]
    """

    def __init__(self, mechanism: Mechanism, orders: Sequence[float] | Tensor = DEFAULT_ORDERS) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self._orders = checked_orders(orders).clone()
        self.sums = torch.zeros(len(VARIANTS), 0, len(self._orders), dtype=torch.float64)
        self._zcdps = torch.zeros(2, dtype=torch.float64)  # of any example: the Gaussian's, and the law's
        self.steps = 0
        self._tables = informations(self._orders)

    def step(
        self,
        theta: Real,
        gradients: Tensor | Iterable[Tensor],
        *,
        mechanism: Mechanism | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases of theta, with the account's own mechanism unless another is given.

        ``gradients`` has shape (n, d), or is an iterable of (m, d) chunks in the order of the examples; what
        an example is charged does not depend on the chunks. An error leaves the account as it was.
        """
        count = checks.count("count", count, at_least=1)
        law = self.mechanism if mechanism is None else checked_mechanism(mechanism)
        theta = checks.finite("theta", theta)
        _require_fit(law, theta)
        law, theta = recentre(law, theta.double().cpu())
        release: ExampleSums
        if law.same_everywhere or law.whole:  # no table bounds divergences that have kinks
            release = ExampleSums(law, theta, self._orders)
        elif law.exponential_family:
            release = PolynomialSums(law, theta, self._orders)
        else:
            release = TabulatedSums(law, theta, self._orders, self._tables)
        charged = [release.charge(block) for block in _checked_blocks(gradients, theta.numel())]
        if not sum(len(own) for _, own in charged):
            raise ValueError("gradients must hold at least one example, got none")
        sums, zcdps = torch.cat([own for own, _ in charged], dim=1), torch.cat([own for _, own in charged])
        if self.steps and sums.shape[1] != self.examples:
            raise ValueError(f"gradients must hold {self.examples} examples as before, got {sums.shape[1]}")
        self.sums = self.sums + count * sums if self.steps else count * sums
        self._zcdps = self._zcdps + count * zcdps.amax(dim=0) * (1 + ROUNDING)
        self.steps += count

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    @property
    def examples(self) -> int:
        """How many examples there are; 0 before the first step."""
        return self.sums.shape[1]

    @property
    def worst(self) -> Tensor:
        """The largest of the four running sums: one row per example, one column per order."""
        return self.sums.amax(dim=0)

    def epsilons(self, delta: float, kind: EpsilonKind = "ex_post") -> Tensor:
        """Each example's own epsilon at this delta, in float64.

        ``kind="ex_post"`` is the minimum over the K orders of the sum + log(K / delta) / (order - 1), as
        ``conversion.ex_post_epsilon``. ``kind="per_instance"`` converts the sums to (epsilon, delta), as
        ``conversion.epsilon_from_rdp``; no number is above what holds for every dataset of such examples.

        An example whose contribution was 0 throughout gets 0 and not the log(K / delta) term: with and
        without it the releases have the same law, so its loss is 0 whatever comes out.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> account = ExampleAccountant(Gaussian(sigma=1.0))
        >>> account.step(torch.zeros(2), torch.tensor([[0.3, 0.4], [0.0, 0.0]]))
        >>> [round(value, 3) for value in account.epsilons(1e-5, kind="per_instance").tolist()]
        [1.993, 0.0]
        """
        delta = checks.probability("delta", delta)
        checks.one_of("kind", kind, ("ex_post", "per_instance"))
        convert = ex_post_epsilon if kind == "ex_post" else epsilon_from_rdp
        worst = self.worst
        epsilons = convert(self._orders, worst, delta)
        if kind == "per_instance":  # what holds for every theta holds for each example
            gaussian, bounded = self._zcdps.tolist()
            epsilons = epsilons.clamp(max=PrivacyLoss.of_zcdp(gaussian, bounded).epsilon(delta))
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
            "contributes depends on itself and on earlier releases only, and that delta was fixed "
            "beforehand, as the Rényi orders of an account are. The loss is that of everything released "
            "together, not of something that is computed from it afterwards. The probability is for each "
            "example by itself, not for all of them at once.\n\n"
            f"The per-instance (epsilon, delta) number, kind='per_instance', {holds}.\n\n"
            "Neither is differential privacy: they say nothing about records that are not in the data, about "
            "other datasets or about other runs. Each number is computed from its record and, through theta, "
            "from all the others, and is itself sensitive: do not publish it, do not show it to anybody who "
            "may not see the data, and do not stop, go on, leave out examples or change the noise because of "
            "it."
        )

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps; ``from_state_dict`` restores it exactly.

        The sums are base64 of little-endian float64, (4, examples, orders) in C order: as decimal text they
        would be several times as long and slow to read.
        """
        return {
            "kind": type(self).__name__,
            "version": 2,
            "mechanism": self.mechanism.state_dict(),
            "orders": self._orders.tolist(),
            "examples": self.examples,
            "steps": self.steps,
            "zcdps": self._zcdps.tolist(),
            "sums": base64.b64encode(self.sums.numpy().astype("<f8").tobytes()).decode("ascii"),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        if checks.mapping("state", state).get("version") == 1:  # of 0.6, which did not hold them
            state = {**state, "version": 2, "zcdps": [1e300] * 2}
        names = {"mechanism", "orders", "examples", "steps", "sums", "zcdps"}
        checks.state("ExampleAccountant", 2, state, names)
        account = cls(Mechanism.from_state_dict(state["mechanism"]), state["orders"])
        account.steps = checks.count("steps", state["steps"], at_least=0)
        account._zcdps = checks.sums("zcdps", state["zcdps"], 2)
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


def _require_fit(law: Mechanism, theta: Tensor) -> None:
    """Raises an error unless theta is a vector that the law and the accounts of examples can handle."""
    if theta.dim() != 1 or theta.numel() == 0:
        raise ValueError(f"theta must have shape (d,) with d > 0, got {list(theta.shape)}")
    parameters = law.parameters()
    fits = square_is_representable(law.sigma)
    checks.require("sigma", "must be in [1e-140, 1e140] for single examples", law.sigma, fits)
    shape = checks.broadcast(("theta", *parameters), (theta, *parameters.values()))
    if shape != theta.shape:
        raise ValueError(f"theta has shape {list(theta.shape)}, but with the parameters {list(shape)}")
    near = (theta.double() / law.sigma.to(theta.device)).abs() <= 1e100
    checks.require("theta", "must be within 1e100 sigma of 0 for single examples", theta, near)


def _checked_blocks(gradients: Tensor | Iterable[Tensor], width: int) -> Iterator[Tensor]:
    """The rows of all chunks, checked, in float64 and a limited number at a time.

    They are float64 because sums over many coordinates in float32 would lose digits and could round down.
    """
    if not isinstance(gradients, Iterable):
        raise TypeError(f"gradients must be a tensor or an iterable of tensors, got {gradients!r}")
    # a list may hold chunks of rows, or be one chunk written as a list of rows
    listed = isinstance(gradients, list | tuple) and not all(hasattr(chunk, "shape") for chunk in gradients)
    for chunk in [gradients] if listed or hasattr(gradients, "shape") else gradients:
        tensor = checks.finite("gradients", chunk)
        if tensor.dim() != 2 or tensor.shape[1] != width:
            raise ValueError(f"gradients must have shape (m, {width}), got {list(tensor.shape)}")
        entries = _BLOCK.get(tensor.device.type, _BLOCK_ELSEWHERE)
        for block in tensor.split(at_once(entries, each=width)):
            yield block.double()


class ExampleSums:
    """The four sums of each row of contributions to one release of theta: what holds for every theta.

    Subclasses have smaller bounds, from theta.

    ``rounding`` is relative, of a sum of d products in float64, each with a few roundings of its own.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> one, order = torch.ones(1, 2, dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    >>> sums, zcdps = ExampleSums(Gaussian(1.0), torch.zeros(2).double(), order).charge(one)
    >>> sums.flatten().round(decimals=6).tolist(), zcdps.tolist()
    ([2.0, 2.0, 2.0, 2.0], [[1.0, 1.0]])
    """

    def __init__(self, law: Mechanism, theta: Tensor, orders: Tensor) -> None:
        self.law, self.theta, self.orders = law, theta, orders
        sigma = law.sigma.double().cpu().expand(theta.shape)
        # in units of sigma, D <= (alpha / 2) s_j^2 for the Gaussian, and this share of it for the law
        share = torch.minimum(law.information_bound().cpu() * sigma * sigma, torch.ones_like(sigma))
        self._per_sigma, self._shares = 1 / sigma, torch.stack((torch.ones_like(share), share), dim=1)
        self.rounding = (theta.numel() + 64) * 2.0**-52

    def charge(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of each row, (4, m, orders), and D / alpha for every theta, (m, 2): Gaussian's, law's.

        Guarantee: no sum is above what holds for every theta, and none of a row that is not 0 is 0.
        """
        shifts = block * self._per_sigma.to(block.device)
        squares, largest = shifts * shifts, shifts.abs().amax(dim=1).cpu()
        zcdps = 0.5 * (squares @ self._shares.to(block.device)).cpu()
        highest = (1 + ROUNDING + self.rounding) * zcdps[:, 1:] * self.orders
        if not bool(torch.isfinite(highest).all()):
            most = float(largest.amax())
            raise FloatingPointError(f"gradients of {most:.3g} sigma are too large to be accounted for")
        lost = (largest > 0).double() * (len(self.theta) * UNDERFLOW)
        bounds = self._bounds(block, shifts, squares, largest)
        sums = torch.minimum(bounds, highest) + lost.unsqueeze(1)
        return sums.expand(len(VARIANTS), -1, -1), zcdps

    def _bounds(self, block: Tensor, shifts: Tensor, squares: Tensor, largest: Tensor) -> Tensor:
        """(4 or 1, m, orders) on the CPU; ``shifts`` and ``squares``, in units of sigma, may be changed."""
        return torch.full((1, len(block), len(self.orders)), torch.inf, dtype=torch.float64)


class PolynomialSums(ExampleSums):
    """Exponential families: eight products of powers of the shifts with a vector."""

    def __init__(self, law: Mechanism, theta: Tensor, orders: Tensor) -> None:
        super().__init__(law, theta, orders)
        self._coefficients, condition = upper_polynomials(law, theta)
        moments = torch.stack([hat_moments(orders, variant) for variant in VARIANTS])
        self._moments = moments * (0.5 * orders * (1 + ROUNDING + condition * self.rounding))

    def _bounds(self, block: Tensor, shifts: Tensor, squares: Tensor, largest: Tensor) -> Tensor:
        first, *others = self._coefficients.to(block.device)
        columns = [squares @ first]
        for coefficients in others:
            columns.append(squares.mul_(shifts) @ coefficients)
        result = torch.stack(columns, dim=1).cpu() @ self._moments
        within = largest.unsqueeze(1) * self.orders <= _REACH
        return torch.where(within, result, torch.inf)


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


def informations(orders: Tensor) -> tuple[DivergenceTable, DivergenceTable]:
    """Tables of the equivalent information of one half octave of shifts, and of all up to it."""
    return DivergenceTable(orders, HALF_OCTAVE_INFORMATION), DivergenceTable(orders, EQUIVALENT_INFORMATION)


class TabulatedSums(ExampleSums):
    """Other laws: squares of the shifts times equivalent informations, one bound for all four sums.

    Shifts that are more than half of an example's largest are charged the largest 2 D / (alpha s^2) of
    their half octave, so that large entries do not loosen the bounds of the others. Smaller shifts are
    charged the largest of all below. ``tables``, one for each of the two, may have been filled by earlier
    releases.
    """

    def __init__(
        self, law: Mechanism, theta: Tensor, orders: Tensor, tables: Sequence[DivergenceTable]
    ) -> None:
        super().__init__(law, theta, orders)
        self._tables = tables
        self._smallest = math.floor(2 * math.log2(SMALL / float(orders.amax())))
        # each law with single numbers, and the coordinates that have it; none if there are too many
        coordinates = torch.arange(len(theta))
        self._parts = list(split_by_setting(law, coordinates, torch.zeros(()), _SETTINGS) or ())
        self._known: dict[tuple[int, bool], Tensor] = {}

    def _bounds(self, block: Tensor, shifts: Tensor, squares: Tensor, largest: Tensor) -> Tensor:
        result = torch.full((1, len(block), len(self.orders)), torch.inf, dtype=torch.float64)
        numbers = torch.ceil(2 * torch.log2(largest)).clamp(min=self._smallest)
        for number in torch.unique(numbers).tolist() if self._parts else ():
            if number > _LARGEST:
                continue
            rows = numbers == number
            left = squares if bool(rows.all()) else squares[rows.to(block.device)]
            last = max(int(number) - _APART, self._smallest)
            total = torch.zeros(len(left), len(self.orders), dtype=torch.float64)
            highest = left.amax(dim=0)
            for one in range(int(number), last, -1):
                least = _end(one - 1) ** 2
                used = (highest > least).nonzero().squeeze(1)  # few coordinates, unless all shifts are alike
                part = left[:, used]
                there = part > least
                total += (part.where(there, 0.0) @ self._charges(one).to(block.device)[used]).cpu()
                left[:, used] = part.masked_fill_(there, 0.0)
            result[0, rows] = total + (left @ self._charges(last, and_below=True).to(block.device)).cpu()
        return result

    def _charges(self, number: int, *, and_below: bool = False) -> Tensor:
        """At least D / s^2 of each coordinate and order, for shifts in this half octave, or all up to it."""
        if (number, and_below) not in self._known:
            found = torch.empty(len(self.theta), len(self.orders), dtype=torch.float64)
            table = self._tables[and_below]
            for setting, chosen in self._parts:
                theta, sized = self.theta[chosen], replace(setting, sensitivity=setting.sigma * _end(number))
                far = theta.abs() > FARTHEST * setting.sigma  # which get the Gaussian's bound
                values = table.at(sized, theta.masked_fill(far, 0.0), worst=True)[0] * setting.sigma**2
                found[chosen] = values.T.masked_fill(far.unsqueeze(1), 1.0)
            charged = 0.5 * self.orders * (1 + ROUNDING + self.rounding)
            self._known[number, and_below] = found * charged
        return self._known[number, and_below]


def _end(number: int) -> float:
    """The longest shift of a half octave, in units of sigma; logarithms that say which one may be rounded."""
    return math.exp2(number / 2) * (1 + 1e-12)
