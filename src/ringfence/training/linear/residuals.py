"""The gradients of softmax regression: residuals, how accurate they are, and clipped gradients."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ringfence.numerics.spectral.singular_values import gamma
from ringfence.training.clipping import Clip

_CHUNK_ENTRIES = 1 << 23  # how many numbers of per-example gradients are held at once


def residuals(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """softmax(W x) - e_y, (n, classes): the gradient of the loss by the scores.

    >>> residuals(torch.zeros(2, 1), torch.ones(1, 1), torch.tensor([0])).tolist()
    [[-0.5, 0.5]]
    """
    result = torch.softmax(features @ weights.T, dim=1)
    result[torch.arange(len(labels), device=labels.device), labels] -= 1
    return result


def accurate_residuals(shares: Tensor, others: Tensor, labels: Tensor) -> Tensor:
    """``residuals`` without the cancellation of s_y - 1: each has the relative error of a share.

    ``shares`` and ``others`` are those of ``shares_and_others``.
    """
    return shares.scatter(1, labels[:, None], -others.gather(1, labels[:, None]))


def shares_and_others(weights: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(W x), and 1 minus it without cancellation: the sum of the other classes' shares.

    >>> shares, others = shares_and_others(torch.zeros(4, 1), torch.ones(1, 1))
    >>> shares[0].tolist(), others[0].tolist()
    ([0.25, 0.25, 0.25, 0.25], [0.75, 0.75, 0.75, 0.75])
    """
    shares = torch.softmax(features @ weights.T, dim=1)
    return shares, shares @ (1 - torch.eye(len(weights), dtype=shares.dtype, device=shares.device))


def relative_error(weights: Tensor, lengths: Tensor) -> Tensor:
    """Upper bounds of the relative error of accurate residuals, for examples with |x| = ``lengths``.

    They hold in float64, in any order of the sums. The absolute error of the scores becomes a relative
    one by exp, and a few roundings are added; exp is taken to be accurate to 4 units in the last place.
    """
    classes, width = weights.shape
    reach = torch.linalg.vector_norm(weights, dim=1).amax() * lengths
    return torch.expm1(2 * gamma(width + 8) * reach) + gamma(width + 4 * classes + 64)


def clipped_gradients(weights: Tensor, features: Tensor, labels: Tensor, clip: Clip) -> Iterator[Tensor]:
    """Yields every example's clipped gradient, flattened, some examples at a time.

    >>> from ringfence import Clamp
    >>> batches = clipped_gradients(torch.zeros(2, 1), torch.ones(3, 1), torch.tensor([0, 1, 1]), Clamp(0.25))
    >>> torch.cat(list(batches)).tolist()
    [[-0.25, 0.25], [0.25, -0.25], [0.25, -0.25]]
    """
    length = max(1, _CHUNK_ENTRIES // weights.numel())
    for some, theirs in zip(features.split(length), labels.split(length), strict=True):
        outer = residuals(weights, some, theirs).unsqueeze(2) * some.unsqueeze(1)
        yield clip(outer).flatten(1)
