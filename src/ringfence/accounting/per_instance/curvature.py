"""How far a divergence can rise above its chord between two values of theta.

    D'' >= -K D,    K = 4 + max(0, 2 - alpha) s^2 / 4,

with theta and the shift s in units of sigma. docs/curvature.md proves it for every law of the package, every
shift and every order. Over a cell of width h a positive function with this property lies below its chord
times h sqrt(K) / sin(h sqrt(K)), which is at most 1 / (1 - K h^2 / 6).
"""

from torch import Tensor


def curvature(orders: Tensor, shift: Tensor) -> Tensor:
    """The K of D'' >= -K D, for a shift in units of sigma.

    >>> import torch
    >>> curvature(torch.tensor([1.5, 2.0, 8.0]), torch.tensor(4.0))
    tensor([6., 4., 4.])
    """
    return 4 + (2 - orders).clamp(min=0) * shift.square() / 4


def above_chord(orders: Tensor, shift: Tensor, spacing: float) -> Tensor:
    """The factor by which D may exceed its chord between two nodes ``spacing`` sigma apart.

    Guarantee: valid where K spacing^2 < 6; callers evaluate larger shifts one by one.

    >>> import torch
    >>> above_chord(torch.tensor([2.0, 8.0]), torch.tensor(1.0), spacing=0.1)
    tensor([1.0067, 1.0067])
    """
    return 1 / (1 - curvature(orders, shift) * spacing**2 / 6)
