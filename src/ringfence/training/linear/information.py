"""Fisher information loss of every example of a softmax regression, without its d x p jacobian.

For one example r = softmax(W x) - e_y, and clip(r_k x_j) is added to what is released. With omega_kj^2
the information of a coordinate, and 0 where the clip is flat, the derivative by x_m is

    J_kj,m = r_k [j = m] + x_j R_km,    R = dr / dx = (diag(s) - s s^T) W,    s = softmax(W x),

so the information is a diagonal and a matrix of low rank, made of the weights, which all examples
share, and of K vectors a_k = r_k omega_k^2 x of the example's own:

    G = J^T diag(omega^2) J = D + sum_k (a_k R_k^T + R_k a_k^T + t_k R_k R_k^T),
    D_m = sum_k omega_km^2 r_k^2,    t_k = sum_j omega_kj^2 x_j^2.

Every sum over features is then a product of matrices. Roundings are charged as in
``numerics/spectral/singular_values.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.fisher.loss import UP, Kind, coordinate_losses
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.spectral.singular_values import gamma
from ringfence.training.clipping import Clamp, Clip, Scale
from ringfence.training.linear.regression import Step, accurate_residuals, relative_error, shares_and_others

_CPU_ENTRIES, _GPU_ENTRIES = 1 << 20, 1 << 25  # (examples, classes, features) held at once
_TOLERANCE = 4e-3  # how far above a lower bound of the largest eigenvalue the next trial is made
_TRIALS = 12
_TINY = 2.0**-1000  # more than underflow takes from any sum here
_SMALL = 1e-250  # an information that is not worth a trial, where squares may underflow


def information_losses(
    mechanism: Mechanism,
    trajectory: Sequence[Step],
    features: Tensor,
    labels: Tensor,
    clip: Clip,
    attributes: Tensor | None = None,
    *,
    kind: Kind = "spectral",
) -> Tensor:
    """eta of every example over a run, n numbers, from above.

    The square root of the sum over steps of ``linear_information``: informations add, and the norm of
    a sum is at most the sum of the norms.

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
    kind: Kind = "spectral",
) -> Tensor:
    """eta^2 of every example's features in one step: the largest eigenvalue of G, n numbers.

    ``theta`` and ``weights`` are (K, p), those of the step; features (n, p), labels (n,).
    ``attributes`` (p,) says how fast each feature moves with the attribute of the record behind it:
    1 / scale where features were divided by a scale, 0 for a feature that is no attribute, such as an
    intercept; 1 if None. ``kind="trace"`` gives trace(G) over the number of attributes.
    Steps compose: eta^2 of a run is at most the sum over its steps.

    Guarantee: an upper bound in float64 whatever the dtypes, up to the information's own rounding,
    which is measured, and to that of exp, taken as 4 units. It is about the features: the label is
    discrete and has no Fisher information. The spectral number ends within 0.5 % of the truth, and
    may be further above where |W| |x| is beyond 1e4 and roundings weigh. Derivatives are those of exact
    arithmetic. Where the clip has a kink they do not exist: ``Clamp`` then counts as not clipping,
    which is the larger; ``Scale`` takes one side, an event of probability 0 for features that have
    a density.

    >>> from ringfence import Clamp, Gaussian
    >>> zero, features, labels = torch.zeros(2, 3), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0])
    >>> information = linear_information(Gaussian(1.0), zero, zero, features, labels, Clamp(1.0))
    >>> round(float(information), 6)  # r = (-1/2, 1/2), of which x_3 = 3 is clipped away
    0.5
    """
    theta, weights = checks.finite("theta", theta), checks.finite("weights", weights).double()
    _check(theta, weights, features, labels)
    if attributes is None:
        attributes = torch.ones_like(weights[0])
    rates = checks.not_negative("attributes", attributes).to(weights)
    if rates.shape != weights.shape[1:]:
        raise ValueError(f"attributes must be {weights.shape[1]} numbers, got shape {list(rates.shape)}")
    if kind not in ("spectral", "trace"):
        raise ValueError(f"kind must be 'spectral' or 'trace', got {kind!r}")
    if not isinstance(clip, Clamp | Scale):
        raise ValueError(f"linear_information is not known for {type(clip).__name__}")
    # the information of each coordinate, raised; it is at most the Gaussian's
    information = coordinate_losses(mechanism, theta, weights.numel()).reshape(weights.shape).square() * UP
    length = max(1, (_GPU_ENTRIES if weights.is_cuda else _CPU_ENTRIES) // weights.numel())
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
) -> tuple["_DiagonalPlusLowRank", Tensor]:
    """G of some examples as floats hold it, and a bound of the norm of what rounding did to it."""
    count, classes = len(features), len(weights)
    every = torch.arange(count, device=features.device)
    shares, others = shares_and_others(weights, features)
    residuals = accurate_residuals(shares, others, labels)
    each = relative_error(weights, torch.linalg.vector_norm(features, dim=1))
    if bool((each > 0.01).any()):
        raise ValueError("features and weights must be smaller: scores have no digits left")

    sizes = residuals.abs()
    if isinstance(clip, Clamp):
        limit = clip.largest / sizes * (1 + 4 * each[:, None])
        inside = (features.abs()[:, None] <= limit[:, :, None]) * information
    else:
        largest, strongest = features.abs().max(dim=1), sizes.max(dim=1)
        factor = (clip.largest / (largest.values * strongest.values)).clamp(max=1)
        inside = factor.square()[:, None, None] * information
    slopes = (inside @ features.square()[:, :, None])[:, :, 0]
    diagonal = (residuals.square()[:, None] @ inside)[:, 0] * rates.square()
    own = inside.mul_(residuals[:, :, None]).mul_((features * rates)[:, None])

    # R = spread [W; unit], and the same with every sign made positive
    spread = -shares[:, :, None] * shares[:, None]
    spread.diagonal(dim1=1, dim2=2).copy_(shares * others)
    absolute = spread.abs()
    norms = torch.linalg.vector_norm(weights * rates, dim=1)
    units = labels.new_zeros(count, 0)
    if isinstance(clip, Scale):
        # f = c / (|r_k| |x_j|) at the largest of both moves too: R loses r dlog|r_k|/dx and r dlog|x_j|/dx
        moving = (factor < 1)[:, None]
        ratio = torch.where(moving, residuals / residuals[every, strongest.indices][:, None], 0.0)[:, :, None]
        moved = torch.where(moving, residuals / features[every, largest.indices][:, None], 0.0)
        moved = (moved * rates[largest.indices][:, None])[:, :, None]
        spread = torch.cat((spread - ratio * spread[every, strongest.indices][:, None], -moved), dim=2)
        absolute = absolute + ratio.abs() * absolute[every, strongest.indices][:, None]
        absolute = torch.cat((absolute, moved.abs()), dim=2)
        units, norms = largest.indices[:, None], torch.cat((norms, norms.new_ones(1)))

    # rows of the low-rank part in order: weights, units, own
    base = spread.shape[2]
    middle = features.new_zeros(count, base + classes, base + classes)
    middle[:, :base, :base] = spread.mT @ (slopes[:, :, None] * spread)
    middle[:, base:, :base], middle[:, :base, base:] = spread, spread.mT
    # |J| entry by entry has the squared norm ``size``; G is made of products of at most 12 factors
    size = 2 * (diagonal.sum(dim=1) + (slopes * (absolute @ norms).square()).sum(dim=1))
    error = torch.expm1(16 * each) * size + _TINY
    flat = (slopes == 0).all(dim=1) & (diagonal == 0).all(dim=1)  # clipped everywhere: exactly 0
    return _DiagonalPlusLowRank(diagonal, weights * rates, units, own, middle), torch.where(flat, 0.0, error)


@dataclass(frozen=True)
class _DiagonalPlusLowRank:
    """diag(D) + V^T M V for n examples, V = [shared; unit vectors; own], D >= 0. No privacy words."""

    diagonal: Tensor  # D, (n, p)
    shared: Tensor  # (K, p)
    units: Tensor  # (n, q), where each unit vector has its 1
    own: Tensor  # (n, K, p)
    middle: Tensor  # M, (n, m, m), m = K + q + K

    def trace(self) -> Tensor:
        """At least the trace."""
        gram = self._gram(torch.ones_like(self.diagonal))
        total = self.diagonal.sum(dim=1) * (1 + gamma(self.own.shape[2])) + (self.middle * gram).sum(
            dim=(1, 2)
        )
        return total + 2 * gamma(self.own.shape[2] + self.middle.shape[1] ** 2 + 8) * self._crude()

    def largest_eigenvalue(self) -> Tensor:
        """At least the largest eigenvalue, and at most 0.5 % more.

        For mu > max D let h be the largest eigenvalue, at least 0, of
        (mu - D)^-1/2 V^T M V (mu - D)^-1/2, which is one of an m x m matrix. Then V^T M V <= h (mu - D),
        so that D + V^T M V is at most max D + h (mu - max D) if h <= 1, and at most h mu otherwise:
        every trial mu proves a bound. The eigenvector's Rayleigh quotient is a lower bound and
        Newton's next trial: 1 / h is concave in mu.

        M has at most as many negative eigenvalues as V has own rows, K, so the largest eigenvalue is at
        least the (K + 1)-th largest of D. Those above it are moved into M, and no trial below max D
        is needed.
        """
        crude, top = self._crude(), self.diagonal.amax(dim=1)
        best = top + crude
        open_ = ((crude > _TOLERANCE / 2 * top) & (best > _SMALL)).nonzero()[:, 0]
        rest = self._part(open_)._flattened()
        peak = floor = rest.diagonal.amax(dim=1)
        # where to begin proves nothing; half of sum_k t_k |R_k|^2 above the peak saves trials
        classes = len(self.shared)
        guess = (rest.middle[:, :classes, :classes] * (self.shared @ self.shared.T)).sum(dim=(1, 2)) / 2
        trial = ((1 + _TOLERANCE) * peak + guess.clamp(min=0)).clamp(min=_SMALL)
        for _ in range(_TRIALS):
            if not len(open_):
                break
            ratio, quotient = rest._trial(trial)
            bound = torch.where(ratio <= 1, peak + ratio * (trial - peak), ratio * trial) * UP
            best[open_] = torch.minimum(best[open_], bound)
            floor = torch.maximum(floor, quotient)
            going = (best[open_] > (1 + 1.1 * _TOLERANCE) * floor).nonzero()[:, 0]
            open_, rest, peak, floor = open_[going], rest._part(going), peak[going], floor[going]
            trial = ((1 + _TOLERANCE) * floor).clamp(min=_SMALL)
        return best

    def _trial(self, trial: Tensor) -> tuple[Tensor, Tensor]:
        """h at mu = ``trial`` from above (inf if not proved), and a Rayleigh quotient, not rounded."""
        inverse = 1 / (trial[:, None] - self.diagonal)
        gram = self._gram(inverse)
        size, width = gram.shape[1], self.diagonal.shape[1]
        # S = V (mu - D)^-1 V^T to unit diagonal: entries err by 2 gamma(p + 8) and 4 roundings. h grows
        # with S, so S is raised: a factor L with L L^T >= S will do, however it was found.
        norms = gram.diagonal(dim1=1, dim2=2).sqrt() + _TINY**0.5
        scale = norms[:, :, None] * norms[:, None]
        raised = 8 * size * gamma(width + size + 16)
        identity = torch.eye(size, dtype=gram.dtype, device=gram.device)
        factor, missing = _cholesky(gram / scale + raised * identity)
        weighted = scale * self.middle
        small = factor.mT @ weighted @ factor
        small = (small + small.mT) / 2
        values, vectors = _eigenvectors(small)  # proposes; the second factorisation proves
        largest = values[:, -1].clamp(min=0)
        slack = gamma(size + 8) * size * torch.linalg.matrix_norm(small) + _TINY
        proposed = largest + 8 * slack
        _, unproved = _cholesky(proposed[:, None, None] * identity - small)
        rounding = 2 * gamma(2 * size + 8) * size * torch.linalg.matrix_norm(weighted)
        ratio = (proposed + unproved + rounding) * UP
        ratio = torch.where(missing <= raised / 2, ratio, torch.inf)

        weights = ((self.middle * norms[:, None]) @ factor @ vectors[:, :, -1:])[:, :, 0]
        vector = self._combined(weights) * inverse
        length = vector.square().sum(dim=1)
        quotient = trial - (1 - largest) * largest.square() / length
        return ratio, torch.where((largest > 0) & (length > 0), quotient, 0.0)

    def _gram(self, weights: Tensor) -> Tensor:
        """V diag(weights) V^T, (n, m, m); the first block of all examples is one product of matrices."""
        classes, width = self.shared.shape
        count, base = len(weights), classes + self.units.shape[1]
        result = torch.empty_like(self.middle)
        pairs = (self.shared[:, None] * self.shared).reshape(classes * classes, width)
        result[:, :classes, :classes] = (weights @ pairs.T).view(count, classes, classes)
        own = self.own * weights[:, None]
        result[:, base:, :classes] = own @ self.shared.T
        result[:, base:, base:] = own @ self.own.mT
        at = weights.gather(1, self.units)[:, :, None]
        result[:, classes:base, :classes] = self.shared.T[self.units] * at
        result[:, classes:base, classes:base] = (self.units[:, :, None] == self.units[:, None]) * at
        result[:, base:, classes:base] = own.gather(2, self.units[:, None].expand(-1, classes, -1))
        return result.tril() + result.tril(-1).mT

    def _combined(self, weights: Tensor) -> Tensor:
        """V^T weights."""
        first, unit, own = weights.split((len(self.shared), self.units.shape[1], self.own.shape[1]), dim=1)
        total: Tensor = first @ self.shared + (own[:, None] @ self.own)[:, 0]
        return total.scatter_add_(1, self.units, unit)

    def _crude(self) -> Tensor:
        """At least the norm of V^T M V: sum_ij |M_ij| |V_i| |V_j|."""
        rows = (
            torch.linalg.vector_norm(self.shared, dim=1).expand(len(self.own), -1),
            torch.ones_like(self.units, dtype=self.own.dtype),
            torch.linalg.vector_norm(self.own, dim=2),
        )
        norms = torch.cat(rows, dim=1)
        total: Tensor = (self.middle.abs() * norms[:, :, None] * norms[:, None]).sum(dim=(1, 2))
        return total * (1 + 4 * gamma(self.own.shape[2] + self.middle.shape[1] ** 2 + 8))

    def _flattened(self) -> "_DiagonalPlusLowRank":
        """The same matrix, the largest entries of D lowered to the (K + 1)-th and the excess moved into M."""
        classes, width = self.shared.shape
        before = classes + self.units.shape[1]
        largest = self.diagonal.topk(min(classes + 1, width), dim=1)
        values = torch.nn.functional.pad(largest.values, (0, 1))[:, : classes + 1]  # after all comes 0
        above = values > (1 + _TOLERANCE / 8) * values[:, -1:]
        moved = int(above.sum(dim=1).amax()) if len(above) else 0
        level = values[:, moved : moved + 1]
        size = self.middle.shape[1] + moved
        kept = [place for place in range(size) if not before <= place < before + moved]
        middle = self.middle.new_zeros(len(self.own), size, size)
        place = torch.tensor(kept, device=middle.device)
        middle[:, place[:, None], place] = self.middle
        inner = middle[:, before : before + moved, before : before + moved]
        inner.copy_(torch.diag_embed(values[:, :moved] - level))
        return replace(
            self,
            diagonal=torch.minimum(self.diagonal, level),
            units=torch.cat((self.units, largest.indices[:, :moved]), dim=1),
            middle=middle,
        )

    def _part(self, which: Tensor) -> "_DiagonalPlusLowRank":
        if len(which) == len(self.own):
            return self
        own = (self.diagonal[which], self.shared, self.units[which], self.own[which], self.middle[which])
        return _DiagonalPlusLowRank(*own)


def _eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors. GPU libraries give up on some matrices that LAPACK solves."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = (part.to(matrix.device) for part in torch.linalg.eigh(matrix.cpu()))
    return values, vectors


def _cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """L, and a bound of the norm of matrix - L L^T, inf where L was not found: checked, not trusted."""
    size = matrix.shape[-1]
    factor, failed = torch.linalg.cholesky_ex(matrix)
    factor = torch.where((failed == 0)[:, None, None], factor, 0.0)
    rounding = 2 * gamma(size + 4) * (factor.square().sum(dim=(1, 2)) + _TINY)
    missing: Tensor = torch.linalg.matrix_norm(matrix - factor @ factor.mT) * UP + rounding
    return factor, torch.where(failed == 0, missing, torch.inf)


def _check(theta: Tensor, weights: Tensor, features: Tensor, labels: Tensor) -> None:
    checks.finite("features", features)
    if theta.shape != weights.shape:
        raise ValueError(f"theta must have shape {list(weights.shape)}, got {list(theta.shape)}")
    if weights.dim() != 2 or features.dim() != 2 or features.shape[1] != weights.shape[1]:
        shapes = f"{list(weights.shape)} and {list(features.shape)}"
        raise ValueError(f"weights must be (K, p) and features (n, p), got shapes {shapes}")
    if labels.shape != features.shape[:1] or labels.dtype != torch.int64:
        got = f"{labels.dtype} of shape {list(labels.shape)}"
        raise ValueError(f"labels must be {len(features)} int64 numbers, got {got}")
    outside = (labels < 0) | (labels >= len(weights))
    if bool(outside.any()):
        first = int(outside.nonzero()[0])
        raise ValueError(
            f"labels must be in 0 .. {len(weights) - 1}, got {int(labels[first])} at index {first}"
        )
