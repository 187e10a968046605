"""The geometry of a convolution: which numbers of its input meet which numbers of its output."""

import math
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Window:
    """Kernel, stride, padding with zeros and dilation along each of up to three dimensions, and the groups.

    >>> Window((3, 3), (2, 2), (1, 1), (1, 1)).positions((8, 7))
    (4, 4)
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def __post_init__(self) -> None:
        lengths = {len(self.kernel), len(self.stride), len(self.padding), len(self.dilation)}
        if len(lengths) > 1 or not 1 <= len(self.kernel) <= 3:
            raise ValueError(f"window must have one to three numbers of each kind, got {self}")

    def positions(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """How many places the window takes along each dimension of an input of this size."""
        settings = zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in settings)

    @cached_property
    def is_point(self) -> bool:
        """True where every number of the output sees the numbers of the input at the same place alone."""
        return {*self.kernel, *self.stride} == {1} and {*self.padding} == {0}

    @property
    def overlap(self) -> int:
        """How many places of the window see the same number of the input, at most."""
        # offsets j with h - j d divisible by s repeat every s / gcd(s, d) numbers
        periods = (s // math.gcd(s, d) for s, d in zip(self.stride, self.dilation, strict=True))
        return math.prod(-(-k // period) for k, period in zip(self.kernel, periods, strict=True))

    def patches(self, x: Tensor) -> Tensor:
        """What each place sees of x (n, C, \\*size): (n, groups, C / groups * kernel, places)."""
        count, channels = x.shape[:2]
        places = self.positions(tuple(x.shape[2:]))
        if not self.is_point:
            if any(self.padding):
                x = functional.pad(x, [side for p in reversed(self.padding) for side in (p, p)])
            strides = x.stride()[2:]
            x = x.as_strided(
                (count, channels, *self.kernel, *places),
                (
                    *x.stride()[:2],
                    *(d * s for d, s in zip(self.dilation, strides, strict=True)),
                    *(step * s for step, s in zip(self.stride, strides, strict=True)),
                ),
                x.storage_offset(),
            )
        width = channels // self.groups * math.prod(self.kernel)
        return x.reshape(count, self.groups, width, math.prod(places))


POINT = Window((1,), (1,), (0,), (1,))  # that of a matrix which is applied at every position
