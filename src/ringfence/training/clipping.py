"""How much one example may contribute: every coordinate of its gradient stays within [-c, c]."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ringfence import checks
from ringfence.training.kernels.outer_sum import finite_outer_sum


class Clip(ABC):
    """A rule that bounds every coordinate of an example's gradient, and depends on that example alone.

    The mechanism is applied to the **sum** of clipped gradients, of which one example moves each
    coordinate by at most ``sensitivity``. Whatever divides the sum afterwards must be public.

    >>> import ringfence as rf
    >>> [(type(clip).__name__, clip.sensitivity) for clip in (rf.Clamp(0.5), rf.Scale(0.5))]
    [('Clamp', 0.5), ('Scale', 0.5)]
    """

    def __init__(self, sensitivity: float) -> None:
        """``sensitivity`` is the bound c of every coordinate."""
        value = checks.number("clip", sensitivity, checks.positive)
        # gradients are float32: ``largest`` is the largest float32 number that is not above c
        self.sensitivity = value
        self.largest = _float32_at_most(value)

    @abstractmethod
    def __call__(self, gradients: Tensor) -> Tensor:
        """The clipped gradients; the first dimension counts examples."""

    @abstractmethod
    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        """The sum over examples of clipped outer products of residuals (n, K) and features (n, p): (K, p).

        Features must be finite. This is checked where training begins, not at every step.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sensitivity!r})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.sensitivity))


class Clamp(Clip):
    """Clamps each coordinate to [-c, c], as the paper does.

    Guarantee: a function of the example alone, within [-c, c] in every coordinate.

    >>> Clamp(0.5)(torch.tensor([[0.3, -2.0]])).tolist()
    [[0.30000001192092896, -0.5]]
    """

    def __call__(self, gradients: Tensor) -> Tensor:
        return gradients.clamp(-self.largest, self.largest)

    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        return finite_outer_sum(checks.finite("residuals", residuals), features, self.largest)


class Scale(Clip):
    """Scales the whole gradient down where its largest coordinate is above c, and keeps its direction.

    Guarantee: a function of the example alone, within [-c, c] in every coordinate.

    >>> Scale(0.5)(torch.tensor([[0.5, -2.0], [0.1, 0.2]])).tolist()
    [[0.125, -0.5], [0.10000000149011612, 0.20000000298023224]]
    """

    def __call__(self, gradients: Tensor) -> Tensor:
        size = gradients.abs().flatten(1).amax(dim=1)
        scaled = gradients * self._factor(size).view(-1, *(1,) * (gradients.dim() - 1))
        return scaled.clamp(-self.largest, self.largest)  # a product may round up

    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        """One matrix product: the largest entry of an outer product is the product of both largest."""
        size = residuals.abs().amax(dim=1) * features.abs().amax(dim=1)
        # slightly smaller, so that no rounded product is above c
        factor = self._factor(size) * (1 - 4 * torch.finfo(residuals.dtype).eps)
        return (residuals * factor.unsqueeze(1)).T @ features

    def _factor(self, size: Tensor) -> Tensor:
        return (self.largest / size).clamp(max=1)


def _float32_at_most(value: float) -> float:
    single = torch.tensor(value, dtype=torch.float32)
    if float(single) > value:
        single = torch.nextafter(single, torch.zeros_like(single))
    return float(checks.positive("clip (as torch.float32)", single))
