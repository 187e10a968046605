"""Contribution bounding: how far one example moves each coordinate of a sum, or the sum as a whole."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.numerics.blocks import refuse_tf32, row_lengths
from ringfence.numerics.rounding import float32_at_most, gamma
from ringfence.training.kernels.clipped_sums import clipped_outer_sum

# Norm aims a little below C: the length (2^-22), the factor (2^-24) and the products (2^-24) are rounded.
_SHORTER = 1 - 2.0**-20
_LEAST = 2.0**-100  # the smallest C: below it products have no digits in float32
_DIGITS = 2.0**16  # how far above the smallest normal number a factor has to be
_NO_LENGTH = 2.0**-500


class Clip(ABC):
    """A rule that bounds an example's gradient, and depends on that example alone: a ``Clamp`` or a ``Norm``.

    The mechanism is applied to the **sum** of clipped gradients, which one example moves by at most
    ``sensitivity``: a number for the largest move of each coordinate, or a ``Sensitivity``. Whatever divides
    the sum afterwards must be public.

    >>> import ringfence as rf
    >>> rf.Clamp(0.5).sensitivity, rf.Norm(0.5).sensitivity
    (0.5, Sensitivity(norm=0.5))
    """

    sensitivity: float | Sensitivity
    largest: float  # the largest float32 number that a coordinate may be

    @property
    def limit(self) -> float | None:
        """Where coordinates are clamped, after the gradient was made shorter; None where they are not."""
        return self.largest

    def __init_subclass__(cls) -> None:
        if cls.__module__ != __name__:  # the sums of clipped gradients know two rules
            raise TypeError(f"{cls.__name__} cannot be a Clip: use ringfence.Clamp or ringfence.Norm")

    @abstractmethod
    def __call__(self, gradients: Tensor) -> Tensor:
        """The clipped gradients; the first dimension counts examples."""

    @abstractmethod
    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        """The sum over examples of clipped outer products of residuals (n, K) and features (n, p): (K, p).

        Features must be finite. This is checked where training begins, not at every step.
        """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Clamp(Clip):
    """Clamps each coordinate to [-c, c], as the paper does.

    Guarantee: a function of the example alone, within [-c, c] in every coordinate.

    >>> Clamp(0.5)(torch.tensor([[0.3, -2.0]])).tolist()
    [[0.30000001192092896, -0.5]]
    """

    def __init__(self, sensitivity: float) -> None:
        """``sensitivity`` is the bound c of every coordinate."""
        self.sensitivity = checks.number("clip", sensitivity, checks.positive)
        self.largest = float32_at_most("clip", self.sensitivity)  # gradients are float32

    def __call__(self, gradients: Tensor) -> Tensor:
        return gradients.clamp(-self.largest, self.largest)

    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        return clipped_outer_sum(checks.finite("residuals", residuals), features, self.largest)

    def __repr__(self) -> str:
        return f"Clamp({self.sensitivity!r})"


class Norm(Clip):
    """Scales the whole gradient down where it is longer than C: the L2 clip that most others use.

    With ``each`` every coordinate is clamped to [-each, each] afterwards, which makes no gradient longer.

    Guarantee: a function of the example alone, of L2 norm at most C as computed, and within [-each, each].
    A gradient that is 2^110 times as long as C becomes 0: float32 has no digits for such a factor.

    >>> Norm(1.0)(torch.tensor([[3.0, 4.0], [0.3, 0.4]])).round(decimals=4).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.30000001192092896, 0.4000000059604645]]
    >>> Norm(1.0, each=0.5).sensitivity
    Sensitivity(each=0.5, norm=1.0)
    """

    def __init__(self, norm: float, each: float | None = None) -> None:
        self.norm = checks.number("norm", norm, checks.positive)
        if not _LEAST <= self.norm <= 1 / _LEAST:
            raise ValueError(f"norm must be from {_LEAST:.3g} to {1 / _LEAST:.3g}, got {norm!r}")
        self.each = None if each is None else checks.number("each", each, checks.positive)
        self.largest = float32_at_most("clip", self.norm if self.each is None else min(self.norm, self.each))

    @property
    def limit(self) -> float | None:
        """That of ``each``: None where it is not given."""
        return None if self.each is None else self.largest

    @property
    def sensitivity(self) -> Sensitivity:  # type: ignore[override]
        """The move of one example: ``norm``, and ``each`` where it is given."""
        return Sensitivity(each=self.each, norm=self.norm)

    @property
    def aim(self) -> float:
        """The length that gradients longer than it get: a little below C, since they are rounded."""
        return self.norm * _SHORTER

    def __call__(self, gradients: Tensor) -> Tensor:
        factor = self.factors(row_lengths(gradients.flatten(1)), gradients.dtype)
        scaled = gradients * factor.view(-1, *(1,) * (gradients.dim() - 1))
        return scaled if self.limit is None else scaled.clamp(-self.limit, self.limit)

    def factors(self, lengths: Tensor, dtype: torch.dtype) -> Tensor:
        """The factors for gradients of these L2 norms, of numbers of this dtype."""
        return _shortening(lengths, torch.full_like(lengths, self.aim), dtype)

    def outer_sum(self, residuals: Tensor, features: Tensor) -> Tensor:
        """One matrix product: the length of an outer product is the product of both lengths."""
        return norm_outer_sums([self], residuals.unsqueeze(1), features, row_lengths(features))[0]

    def __repr__(self) -> str:
        return f"Norm({self.norm!r})" if self.each is None else f"Norm({self.norm!r}, each={self.each!r})"


def norm_outer_sums(clips: Sequence[Norm], residuals: Tensor, features: Tensor, lengths: Tensor) -> Tensor:
    """``outer_sum`` of several clips at once: (clips, K, p) for residuals (n, clips, K).

    ``lengths`` are the ``row_lengths`` of the features. One matrix product does it, or, where one of the
    clips has ``each``, one call of the kernel that clamps.

    Guarantee: every example adds a matrix of L2 norm at most C, and within ``each``, up to the rounding of
    the sum. NaN and infinities are refused, and so are matrix products of 10 bits.

    >>> residuals, features = torch.tensor([[[1.0], [1.0]]]), torch.tensor([[3.0, 4.0]])
    >>> sums = norm_outer_sums([Norm(10.0), Norm(1.0)], residuals, features, row_lengths(features))
    >>> sums.round(decimals=4).tolist()
    [[[3.0, 4.0]], [[0.6000000238418579, 0.800000011920929]]]
    """
    refuse_tf32(features)
    own = checks.finite("lengths of residuals", row_lengths(residuals))  # (n, clips)
    norms = torch.tensor([clip.aim for clip in clips], dtype=torch.float64).to(own.device)
    # |r x^T| <= C is |r| <= C / |x|, whatever r is where x is 0
    factor = _shortening(own, norms / lengths.clamp(min=_NO_LENGTH).unsqueeze(1), residuals.dtype)
    scaled = (residuals * factor.unsqueeze(2)).flatten(1)
    if all(clip.each is None for clip in clips):
        sums = scaled.T @ features
    else:
        limits = torch.tensor([clip.largest for clip in clips]).repeat_interleave(residuals.shape[2])
        sums = clipped_outer_sum(scaled, features, limits)
    return sums.view(*residuals.shape[1:], features.shape[1])


def _shortening(length: Tensor, most: Tensor, dtype: torch.dtype) -> Tensor:
    """The factor that makes a vector of this L2 norm, of numbers of this dtype, no longer than ``most``.

    Guarantee: it makes nothing longer than ``most`` / _SHORTER. In float32 a factor below 1 has 24 bits, and
    its products have 24 bits or an error below 2^-150, which is nothing beside ``most``: where the factor
    or ``most`` is too small for that, the factor is 0.
    """
    # no division by 0, and no derivative where nothing is clipped
    factor = most / torch.maximum(length, most)
    vanishing = (factor < 1) & (torch.minimum(factor, most) < _DIGITS * torch.finfo(dtype).tiny)
    return torch.where(vanishing, 0.0, factor).to(dtype)


def secure_sensitivity(
    sensitivity: float | Sensitivity, examples: int, public_size: float, spread: float = 0.0
) -> Sensitivity:
    """Returns the sensitivity of a float64 sum, with the rounding of up to n = 2 ``public_size`` examples.

    A sum of n numbers in float64, in any order, is off by at most n gamma(n) times the largest of them, with
    gamma(n) = n u / (1 - n u) and u = 2^-53 (Higham 2002, section 4.2). So a record that adds at most c moves
    the sum that is stored by at most

        c (1 + 2 n gamma(n) + 2 n spread),

    where c ``spread`` is how far rounding may move the contribution of one record from its exact value. It
    counts twice, since the contributions of other records may be rounded differently with and without that
    record. The same factor holds for the L2 norm of what a record moves: the error of coordinate j of a
    sum of vectors x_i is at most gamma(n) sum_i |x_ij|, so the vector of errors is at most
    gamma(n) sum_i |x_i| long, which is n gamma(n) C where no |x_i| is above C.

    >>> float(secure_sensitivity(1.0, 10**6, public_size=10**6).farthest) < 1 + 2e-3
    True
    """
    count = math.ceil(2 * checks.number("public_size", public_size, checks.positive))
    if examples > count:
        raise ValueError(
            f"public_size must be at least half the number of examples in a secure run, got {public_size!r}"
        )
    count += 1  # the example itself comes on top
    slack = 2 * count * (gamma(count) + spread)
    return Sensitivity.of(sensitivity).times((1 + slack) * (1 + 2.0**-50))
