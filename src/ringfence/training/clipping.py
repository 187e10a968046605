"""What one example may contribute: every coordinate of its gradient within [-c, c]."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ringfence import checks
from ringfence.training.kernels.outer_sum import finite_outer_sum


class Clip(ABC):
    """A rule that bounds an example's gradient in every coordinate, looking at that example alone.

    The mechanism is applied to the **sum** of clipped gradients, which one example moves by at
    most ``sensitivity`` a coordinate. Whatever divides the sum afterwards must be public.

    >>> import ringfence as rf
    >>> [(type(clip).__name__, clip.sensitivity) for clip in (rf.Clamp(0.5), rf.Scale(0.5))]
    [('Clamp', 0.5), ('Scale', 0.5)]
    """

    def __init__(self, sensitivity: float) -> None:
        """``sensitivity`` is c."""
        value = checks.number("clip", sensitivity, checks.positive)
        # gradients are float32: the largest of them that is not above c
        self.sensitivity = value
        self.largest = _float32_at_most(value)

    @abstractmethod
    def __call__(self, gradients: Tensor) -> Tensor:
        """Clipped gradients: the first dimension counts examples."""

    @abstractmethod
    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        """sum_i of the clipped outer products of (n, K) residuals and (n, p) features: (K, p).

        Features must be finite: they are checked where training begins, not at every step.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sensitivity!r})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.sensitivity))


class Clamp(Clip):
    """Each coordinate into [-c, c], as in the paper.

    Guarantee: a function of the example alone, within [-c, c] in every coordinate.

    >>> Clamp(0.5)(torch.tensor([[0.3, -2.0]])).tolist()
    [[0.30000001192092896, -0.5]]
    """

    def __call__(self, gradients: Tensor) -> Tensor:
        return gradients.clamp(-self.largest, self.largest)

    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        return finite_outer_sum(checks.finite("residuals", residuals), features, self.largest)


class Scale(Clip):
    """The whole gradient scaled down where its largest coordinate is above c; its direction stays.

    Guarantee: a function of the example alone, within [-c, c] in every coordinate.

    >>> Scale(0.5)(torch.tensor([[0.5, -2.0], [0.1, 0.2]])).tolist()
    [[0.125, -0.5], [0.10000000149011612, 0.20000000298023224]]
    """

    def __call__(self, gradients: Tensor) -> Tensor:
        size = gradients.abs().flatten(1).amax(dim=1)
        scaled = gradients * self._factor(size).view(-1, *(1,) * (gradients.dim() - 1))
        return scaled.clamp(-self.largest, self.largest)  # a product may round up

    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        """A matrix product: the largest entry of an outer product is that of its factors."""
        size = residuals.abs().amax(dim=1) * features.abs().amax(dim=1)
        # a little less than 1, so that no rounded product is above c
        factor = self._factor(size) * (1 - 4 * torch.finfo(residuals.dtype).eps)
        return (residuals * factor.unsqueeze(1)).T @ features

    def _factor(self, size: Tensor) -> Tensor:
        return (self.largest / size).clamp(max=1)


def _float32_at_most(value: float) -> float:
    single = torch.tensor(value, dtype=torch.float32)
    if float(single) > value:
        single = torch.nextafter(single, torch.zeros_like(single))
    return float(checks.positive("clip (as torch.float32)", single))
