"""A convolution with standardised weights, which trains well without batch statistics."""

from typing import Any

import torch
from torch import Tensor, nn


class StandardisedConv2d(nn.Conv2d):
    """``nn.Conv2d`` whose filters have mean 0 and length 1 (Qiao et al. 2019), times a ``gain`` for each.

    The weight that is trained is any; what is used is (w - mean) / sqrt(|w - mean|^2 + ``eps``) of each
    filter, times its gain. The arguments are those of ``nn.Conv2d``. In private training it costs about as
    much as ``nn.Conv2d``.

    >>> layer = StandardisedConv2d(3, 8, 3, padding=1)
    >>> layer(torch.ones(2, 3, 4, 4)).shape, round(layer.directions()[0][0].norm().item(), 3)
    (torch.Size([2, 8, 4, 4]), 1.0)
    """

    def __init__(self, *args: Any, eps: float = 1e-4, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.eps = eps
        self.gain = nn.Parameter(torch.ones_like(self.weight[:, 0, 0, 0]))

    def directions(self) -> tuple[Tensor, Tensor]:
        """The standardised filters, without their gain, and what the centred ones were multiplied by."""
        centred = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        rate = (centred.square().sum(dim=(1, 2, 3), keepdim=True) + self.eps).rsqrt()
        return centred * rate, rate.flatten()

    def forward(self, x: Tensor) -> Tensor:
        directions, _ = self.directions()
        output: Tensor = self._conv_forward(x, directions * self.gain.view(-1, 1, 1, 1), self.bias)
        return output
