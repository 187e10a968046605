"""How the residuals of softmax regression move with the features, also where a clip scales the gradient.

With f the factor of the clip, f r x^T is added to what is released. Its derivative by x is f times what it
would be with R = dr / dx replaced by

    R - r dlog|r|/dx - r dlog|x|/dx    where f < 1.

For ``Norm`` |.| is the L2 length; for ``Scale`` it is the largest entry.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.numerics.rounding import UP
from ringfence.training.clipping import Norm, Scale


@dataclass(frozen=True)
class ResidualDerivative:
    """R = dr / dx of some examples, times the rates, as R = spread [W; unit vectors; own]."""

    spread: Tensor  # (n, K, K + q + l)
    absolute: Tensor  # the same with every sign made positive, for what rounding may have done
    norms: Tensor  # (K + q + l,): at least those of the rows of [W; unit vectors; own]
    units: Tensor  # (n, q): the place of the 1 in each unit vector
    own: Tensor | None = None  # (n, l, p): rows that belong to the example


def score_derivative(shares: Tensor, others: Tensor, weights: Tensor) -> ResidualDerivative:
    """(diag(s) - s s^T) W; s_k - s_k^2 is s_k times the share of the other classes, without cancellation."""
    spread = -shares[:, :, None] * shares[:, None]
    spread.diagonal(dim1=1, dim2=2).copy_(shares * others)
    no_units = torch.zeros(len(shares), 0, dtype=torch.int64, device=shares.device)
    return ResidualDerivative(spread, spread.abs(), torch.linalg.vector_norm(weights, dim=1), no_units)


@dataclass(frozen=True)
class Scaling:
    """What ``Scale`` multiplies each example by: f = min(1, c / (|r_k| |x_j|)) at the largest of both."""

    factor: Tensor  # f, (n,)
    strongest: Tensor  # k, (n,)
    largest: Tensor  # j, (n,)

    @staticmethod
    def of(clip: Scale, residuals: Tensor, features: Tensor) -> "Scaling":
        largest, strongest = features.abs().max(dim=1), residuals.abs().max(dim=1)
        factor = (clip.largest / (largest.values * strongest.values)).clamp(max=1)
        return Scaling(factor, strongest.indices, largest.indices)

    def derivative(
        self, inner: ResidualDerivative, residuals: Tensor, features: Tensor, rates: Tensor
    ) -> ResidualDerivative:
        """Where f < 1 it moves with x too: R loses r dlog|r_k|/dx and r dlog|x_j|/dx."""
        every = torch.arange(len(features), device=features.device)
        moving = (self.factor < 1)[:, None]
        ratio = torch.where(moving, residuals / residuals[every, self.strongest][:, None], 0.0)[:, :, None]
        moved = torch.where(moving, residuals / features[every, self.largest][:, None], 0.0)
        moved = (moved * rates[self.largest][:, None])[:, :, None]
        spread = inner.spread - ratio * inner.spread[every, self.strongest][:, None]
        absolute = inner.absolute + ratio.abs() * inner.absolute[every, self.strongest][:, None]
        return ResidualDerivative(
            torch.cat((spread, -moved), dim=2),
            torch.cat((absolute, moved.abs()), dim=2),
            torch.cat((inner.norms, inner.norms.new_ones(1))),
            self.largest[:, None],
        )


@dataclass(frozen=True)
class Shortening:
    """What ``Norm`` multiplies each example by: f = min(1, C / (|r| |x|))."""

    factor: Tensor  # f, (n,)
    residual_lengths: Tensor  # |r|, (n,)
    feature_lengths: Tensor  # |x|, (n,)

    @staticmethod
    def of(clip: Norm, residuals: Tensor, features: Tensor) -> "Shortening":
        lengths = [torch.linalg.vector_norm(part, dim=1) for part in (residuals, features)]
        return Shortening((clip.aim / (lengths[0] * lengths[1])).clamp(max=1), *lengths)

    def derivative(
        self, inner: ResidualDerivative, residuals: Tensor, features: Tensor, rates: Tensor
    ) -> ResidualDerivative:
        """Where f < 1 it moves with x too: R loses r (r^T R) / |r|^2 and r x^T / |x|^2."""
        moving = (self.factor < 1)[:, None]
        unit = torch.where(moving, residuals / self.residual_lengths[:, None], 0.0)[:, :, None]
        # the last row is x / |x|, times the rates; its norm is at most the largest of them
        direction = torch.where(moving, features / self.feature_lengths[:, None], 0.0) * rates
        share = torch.where(moving, residuals / self.feature_lengths[:, None], 0.0)[:, :, None]
        spread = inner.spread - unit * (unit.mT @ inner.spread)
        absolute = inner.absolute + unit.abs() * (unit.abs().mT @ inner.absolute)
        return ResidualDerivative(
            torch.cat((spread, -share), dim=2),
            torch.cat((absolute, share.abs()), dim=2),
            torch.cat((inner.norms, rates.max()[None] * UP)),
            inner.units,
            direction[:, None],
        )


def scaling_of(clip: Scale | Norm, residuals: Tensor, features: Tensor) -> Scaling | Shortening:
    """What the clip multiplies each example by, and how that moves.

    >>> residuals, features = torch.tensor([[0.6, -0.8]]), torch.tensor([[3.0, 4.0]])
    >>> scaling_of(Norm(1.0), residuals, features).factor.round(decimals=4)
    tensor([0.2000])
    """
    if isinstance(clip, Scale):
        return Scaling.of(clip, residuals, features)
    return Shortening.of(clip, residuals, features)
