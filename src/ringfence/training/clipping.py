"""How much one example may contribute: how far each coordinate of its gradient goes, or how long it is."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.training.kernels.outer_sum import finite_outer_sum

_SHORTER = 1 - 2.0**-20


class Clip(ABC):
    """A rule that bounds an example's gradient, and depends on that example alone.

    The mechanism is applied to the **sum** of clipped gradients, which one example moves by at most
    ``sensitivity``: a number for the largest move of each coordinate, or a ``Sensitivity``. Whatever divides
    the sum afterwards must be public.

    >>> import ringfence as rf
    >>> [(type(clip).__name__, clip.sensitivity) for clip in (rf.Clamp(0.5), rf.Scale(0.5))]
    [('Clamp', 0.5), ('Scale', 0.5)]
    """

    sensitivity: float | Sensitivity
    largest: float  # the largest float32 number that a coordinate may be

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


class Norm(Clip):
    """Scales the whole gradient down where it is longer than C: the L2 clip that most others use.

    With ``each`` every coordinate is clamped to [-each, each] afterwards, which makes no gradient longer.

    Guarantee: a function of the example alone, of L2 length at most C as computed, and within [-each, each].

    >>> Norm(1.0)(torch.tensor([[3.0, 4.0], [0.3, 0.4]])).round(decimals=4).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.30000001192092896, 0.4000000059604645]]
    >>> Norm(1.0, each=0.5).sensitivity
    Sensitivity(each=0.5, norm=1.0)
    """

    def __init__(self, norm: float, each: float | None = None) -> None:
        self.norm = checks.number("norm", norm, checks.positive)
        self.each = None if each is None else checks.number("each", each, checks.positive)
        self.largest = _float32_at_most(self.norm if self.each is None else min(self.norm, self.each))

    @property
    def sensitivity(self) -> Sensitivity:  # type: ignore[override]
        """What one example can move: ``norm``, and ``each`` where it is given."""
        return Sensitivity(each=self.each, norm=self.norm)

    def __call__(self, gradients: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(gradients.flatten(1), dim=1, dtype=torch.float64)
        scaled = gradients * self._factor(length).to(gradients).view(-1, *(1,) * (gradients.dim() - 1))
        return scaled if self.each is None else scaled.clamp(-self.largest, self.largest)

    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        """One matrix product: the length of an outer product is the product of both lengths."""
        lengths = [
            torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in (residuals, features)
        ]
        scaled = residuals * self._factor(lengths[0] * lengths[1]).to(residuals).unsqueeze(1)
        if self.each is None:
            return scaled.T @ features
        return finite_outer_sum(checks.finite("residuals", scaled), features, self.largest)

    def _factor(self, length: Tensor) -> Tensor:
        # slightly smaller, so that rounding the factor and the products makes nothing longer than C
        return (self.norm / length * _SHORTER).clamp(max=1)

    def __repr__(self) -> str:
        return f"Norm({self.norm!r})" if self.each is None else f"Norm({self.norm!r}, each={self.each!r})"

    def __hash__(self) -> int:
        return hash((type(self), self.norm, self.each))


def _float32_at_most(value: float) -> float:
    single = torch.tensor(value, dtype=torch.float32)
    if float(single) > value:
        single = torch.nextafter(single, torch.zeros_like(single))
    return float(checks.positive("clip (as torch.float32)", single))
