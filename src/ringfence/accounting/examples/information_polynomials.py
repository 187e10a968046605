"""Sums of divergences of an exponential family, from polynomials that lie above its information.

D(t || t + s) = (alpha s^2 / 2) E I(t + s U), where I is the information and U is triangular on
[1 - alpha, 1] with its mode at 0; D(t + s || t) is the same with U on [0, alpha] and its mode at 1
(docs/notation.md). A polynomial P_t(y) >= I(t + y) on |y| <= 2.05 gives

    sum_j D <= (alpha / 2) sum_k E[U^k] sum_j s_j^(k + 2) p_k(t_j),

so that eight products of the gradients with a vector serve all orders and all four sums.
"""

from functools import cache

import torch
from torch import Tensor

from ringfence.accounting.coordinates import distinct
from ringfence.accounting.examples.sums import VARIANTS, Bound, InUnits
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING

_REACH = 2.05  # covers shifts of 1e-3 sigma at order 2,048
_DEGREE = 7
_ANCHORS_PER_SIGMA = 8  # polynomials are made at these points and moved to the coordinates
_HALF_WIDTH = _REACH + 0.5 / _ANCHORS_PER_SIGMA
_FIT_POINTS = 541  # 128 per sigma
_ANCHORS_AT_ONCE = 2048


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
