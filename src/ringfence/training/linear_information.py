"""Fisher information loss of every example of a softmax regression, without its d x p jacobian.

For one example r = softmax(W x) - e_y, and the matrix clip(r_k x_j) is added to what is released. With
omega_kj^2 the information of a coordinate, and 0 where the clip is flat, the derivative by x_m is

    J_kj,m = r_k [j = m] + x_j R_km,    R = dr / dx = (diag(s) - s s^T) W,    s = softmax(W x),

so the information is a diagonal and a matrix of low rank, made of the weights, which all examples
share, and of the K vectors a_k = r_k omega_k^2 x of the example itself:

    G = J^T diag(omega^2) J = D + sum_k (a_k R_k^T + R_k a_k^T + t_k R_k R_k^T),
    D_m = sum_k omega_km^2 r_k^2,    t_k = sum_j omega_kj^2 x_j^2.

A clip that scales the whole gradient by f = min(1, c / (|r| |x|)) adds f r x^T to what is released. That
multiplies omega by f and replaces R, where f < 1, by R - r dlog|r|/dx - r dlog|x|/dx.

Every sum over features is then a product of matrices.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.fisher import InformationNorm, checked_norm, coordinate_losses
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.diagonal_plus_low_rank import DiagonalPlusLowRank
from ringfence.numerics.rounding import UP
from ringfence.training.clipping import Clip, Norm
from ringfence.training.linear import (
    Step,
    accurate_residuals,
    checked_labels,
    relative_error,
    shares_and_others,
)

_CPU_ENTRIES, _GPU_ENTRIES = 1 << 20, 1 << 25  # (examples, classes, features) held at once
_TINY = 2.0**-1000  # more than underflow takes from any sum here


def information_losses(
    mechanism: Mechanism,
    trajectory: Sequence[Step],
    features: Tensor,
    labels: Tensor,
    clip: Clip,
    attributes: Tensor | None = None,
    *,
    kind: InformationNorm = "spectral",
) -> Tensor:
    """eta of every example over a run, n numbers, from above.

    This is the square root of the sum over steps of ``linear_information``: informations add, and the
    norm of a sum is at most the sum of the norms.

    >>> from ringfence import Clamp, Gaussian
    >>> start = Step(torch.zeros(2, 1), torch.zeros(2, 1))
    >>> examples = torch.ones(1, 1), torch.zeros(1, dtype=torch.int64)
    >>> once, twice = (information_losses(Gaussian(1.0), [start] * n, *examples, Clamp(1.0)) for n in (1, 2))
    >>> round(float(twice / once), 9)
    1.414213562
    """
    total = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    for step in trajectory:
        squares = linear_information(
            mechanism, step.theta, step.weights, features, labels, clip, attributes, kind=kind
        )
        total = (total + squares) * UP
    return total.sqrt() * UP


def linear_information(
    mechanism: Mechanism,
    theta: Tensor,
    weights: Tensor,
    features: Tensor,
    labels: Tensor,
    clip: Clip,
    attributes: Tensor | None = None,
    *,
    kind: InformationNorm = "spectral",
) -> Tensor:
    """eta^2 of every example's features in one step: the largest eigenvalue of G, n numbers.

    ``theta`` and ``weights`` are (K, p), those of the step; ``features`` are (n, p), ``labels`` (n,).
    ``attributes`` (p,) says how fast each feature moves with the attribute of the record behind it:
    1 / scale where features were divided by a scale, 0 for a feature that is no attribute, such as an
    intercept, and 1 if None. ``kind="trace"`` gives trace(G) over the number of attributes.
    Steps compose: eta^2 of a run is at most the sum over its steps.

    Guarantee: an upper bound in float64 whatever the dtypes, up to the information's own rounding,
    which is measured, and to the rounding of exp, taken as 4 units in the last place. It is about the
    features: the label is discrete and has no Fisher information. The spectral number ends within 0.5 %
    of the truth, and may be further above where |W| |x| is beyond 1e4 and roundings weigh. Derivatives
    are those of exact arithmetic. Where the clip has a kink they do not exist: ``Clamp`` then counts as
    not clipping, which is the larger, and so does ``each`` of a ``Norm``. ``Norm`` takes
    one side of its own kink, an event of probability 0 for features that have a density.

    >>> from ringfence import Clamp, Gaussian
    >>> zero, features, labels = torch.zeros(2, 3), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0])
    >>> information = linear_information(Gaussian(1.0), zero, zero, features, labels, Clamp(1.0))
    >>> round(float(information), 6)  # r = (-1/2, 1/2), of which x_3 = 3 is clipped away
    0.5
    """
    theta, weights = checks.finite("theta", theta), checks.finite("weights", weights).double()
    checks.finite("features", features)
    if theta.shape != weights.shape:
        raise ValueError(f"theta must have shape {list(weights.shape)}, got {list(theta.shape)}")
    if weights.dim() != 2 or features.dim() != 2 or features.shape[1] != weights.shape[1]:
        shapes = f"{list(weights.shape)} and {list(features.shape)}"
        raise ValueError(f"weights must be (K, p) and features (n, p), got shapes {shapes}")
    labels = checked_labels(labels, len(features), len(weights))
    if attributes is None:
        attributes = torch.ones_like(weights[0])
    rates = checks.not_negative("attributes", attributes).to(weights)
    if rates.shape != weights.shape[1:]:
        raise ValueError(f"attributes must be {weights.shape[1]} numbers, got shape {list(rates.shape)}")
    checked_norm(kind)
    checks.instance("clip", clip, Clip)
    # the information of each coordinate, raised; it is at most the Gaussian's
    information = coordinate_losses(mechanism, theta, weights.numel()).reshape(weights.shape).square() * UP
    length = at_once(_GPU_ENTRIES if weights.is_cuda else _CPU_ENTRIES, each=weights.numel())
    number = max(1, int((rates > 0).sum()))
    result = []
    for some, theirs in zip(features.split(length), labels.split(length), strict=True):
        matrix, error = _information(information, weights, some.double(), theirs, clip, rates)
        # ``error`` also bounds what rounding did to the trace
        value = matrix.trace() if kind == "trace" else matrix.largest_eigenvalue()
        result.append((value + error) / (number if kind == "trace" else 1) * UP)
    everything = torch.cat(result)
    if not bool(torch.isfinite(everything).all()):
        raise ValueError("features and weights must be smaller: products of them overflow")
    return everything


def _information(
    information: Tensor, weights: Tensor, features: Tensor, labels: Tensor, clip: Clip, rates: Tensor
) -> tuple[DiagonalPlusLowRank, Tensor]:
    """G of some examples as floats hold it, and a bound of the norm of what rounding did to it."""
    shares, others = shares_and_others(weights, features)
    residuals = accurate_residuals(shares, others, labels)
    relative = relative_error(weights, torch.linalg.vector_norm(features, dim=1))
    if bool((relative > 0.01).any()):
        raise ValueError("features and weights must be smaller: scores have no digits left")
    # R = spread W, times the rates; s_k - s_k^2 is s_k times the share of the others, without cancellation
    spread = -shares[:, :, None] * shares[:, None]
    spread.diagonal(dim1=1, dim2=2).copy_(shares * others)
    absolute, norms = spread.abs(), torch.linalg.vector_norm(weights * rates, dim=1)
    direction = None
    if not isinstance(clip, Norm):
        omega_squared = _not_clamped(clip.largest, residuals, features, relative) * information
    else:
        factor, spread, absolute, direction = _scaled(clip, spread, residuals, features)
        direction = (direction * rates)[:, None]
        norms = torch.cat((norms, rates.max()[None] * UP))
        omega_squared = factor.square()[:, None] * information
        if clip.limit is not None:
            omega_squared *= _not_clamped(clip.limit, residuals * factor, features, 2 * relative)

    slopes = (omega_squared @ features.square()[:, :, None])[:, :, 0]  # t_k
    diagonal = (residuals.square()[:, None] @ omega_squared)[:, 0] * rates.square()
    own = omega_squared.mul_(residuals[:, :, None]).mul_((features * rates)[:, None])  # a_k, in place

    # |J| entry by entry has the squared norm ``size``; G is made of products of at most 12 factors, or of 20
    # where the gradient is scaled
    size = 2 * (diagonal.sum(dim=1) + (slopes * (absolute @ norms).square()).sum(dim=1))
    error = torch.expm1((16 if direction is None else 24) * relative) * size + _TINY
    is_flat = (slopes == 0).all(dim=1) & (diagonal == 0).all(dim=1)  # clipped everywhere: exactly 0
    own = own if direction is None else torch.cat((direction, own), dim=1)

    # M of G = D + V^T M V, with the rows of V in the order weights, direction, a_k
    count, classes, base = spread.shape
    middle = spread.new_zeros(count, base + classes, base + classes)
    middle[:, :base, :base] = spread.mT @ (slopes[:, :, None] * spread)
    middle[:, base:, :base], middle[:, :base, base:] = spread, spread.mT
    return DiagonalPlusLowRank(diagonal, weights * rates, own, middle), torch.where(is_flat, 0.0, error)


def _not_clamped(limit: float, residuals: Tensor, features: Tensor, relative: Tensor) -> Tensor:
    """True where |r_k x_j| is within the limit; whatever rounding leaves in doubt counts as within."""
    most = limit / residuals.abs() * (1 + 4 * relative[:, None])
    return features.abs()[:, None] <= most[:, :, None]


def _scaled(
    clip: Norm, spread: Tensor, residuals: Tensor, features: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """f, (n, 1); R of the scaled gradient over [W; d|x|/dx]; the same without signs; and d|x|/dx, (n, p).

    Where f < 1 it moves with x too: R loses (r / |r|) (d|r|/dr)^T R and (r / |x|) (d|x|/dx)^T.

    >>> residuals, features = torch.tensor([[0.6, -0.8]]), torch.tensor([[3.0, 4.0]])
    >>> _scaled(Norm(1.0), torch.eye(2)[None], residuals, features)[0].round(decimals=4)
    tensor([[0.2000]])
    """
    length, width = (torch.linalg.vector_norm(rows, dim=1, keepdim=True) for rows in (residuals, features))
    factor = (clip.aim / (length * width)).clamp(max=1)
    moving = factor < 1
    unit, direction, share = (
        torch.where(moving, part, 0.0) for part in (residuals / length, features / width, residuals / width)
    )
    along, share = unit[:, None], share[:, :, None]
    changed = torch.cat((spread - along.mT * (along @ spread), -share), dim=2)
    absolute = torch.cat((spread.abs() + along.mT.abs() * (along.abs() @ spread.abs()), share.abs()), dim=2)
    return factor, changed, absolute, direction
