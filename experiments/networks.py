"""Image classifiers that are small enough to train privately from scratch, without batch statistics.

An example's output depends on that example alone, and nothing is changed in place, so
``torch.func`` can differentiate them one example at a time.
"""

import torch
from torch import Tensor, nn

from ringfence import checks
from ringfence.training.standardised import StandardisedConv2d

_GROUPS = 16


def wide_resnet_16_4(classes: int = 10, channels: int = 3) -> nn.Module:
    """WRN-16-4 of Zagoruyko and Komodakis 2016 with group normalisation: the paper trains "a WRN".

    Three stages of two pre-activation blocks, 64, 128 and 256 wide, and a mean over the image:
    2,748,890 parameters for CIFAR-10. The paper does not say which WRN; this is the one that De et
    al. 2022 train privately, with their 16 groups in place of batch statistics and without their
    weight standardisation. Images may have any size from 4 x 4 on.
    """
    stages = [_Block(16, 64, 1), _Block(64, 64, 1)]
    stages += [_Block(64, 128, 2), _Block(128, 128, 1)]
    stages += [_Block(128, 256, 2), _Block(256, 256, 1)]
    first = _convolution(checks.count("channels", channels, at_least=1), 16)
    last = nn.Linear(256, checks.count("classes", classes, at_least=1))
    return nn.Sequential(first, *stages, nn.GroupNorm(_GROUPS, 256), nn.ReLU(), _ImageMean(), last)


def standardised_wide_resnet(depth: int = 16, width: int = 4, classes: int = 10) -> nn.Module:
    """The wide residual network that De et al. 2022 train privately on CIFAR-10: weights are standardised.

    ReLU comes before the normalisation, and projections have one of their own.
    """
    if (depth - 4) % 6:
        raise ValueError(f"depth must be 4 plus a multiple of 6, got {depth}")
    layers: list[nn.Module] = [StandardisedConv2d(3, 16, 3, padding=1)]
    wide = 16
    for stage in range(3):
        for block in range((depth - 4) // 6):
            wider = 16 * width * 2**stage
            layers.append(
                _StandardisedBlock(wide, wider, stride=2 if stage and not block else 1, first=not block)
            )
            wide = wider
    return nn.Sequential(
        *layers, nn.ReLU(), nn.GroupNorm(_GROUPS, wide), _ImageMean(), nn.Linear(wide, classes)
    )


def small_cnn(classes: int = 10, channels: int = 1, size: int = 8) -> nn.Module:
    """A convolution of four filters, tanh, a mean over 2 x 2 pixels and a linear layer, for images of digits.

    >>> sum(parameter.numel() for parameter in small_cnn().parameters())
    690
    """
    convolution = nn.Conv2d(channels, 4, 3, padding=1)
    return nn.Sequential(
        convolution, nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * (size // 2) ** 2, classes)
    )


class _Block(nn.Module):
    """x + convolution(relu(norm(convolution(relu(norm(x)))))), with x projected where its shape changes."""

    def __init__(self, wide: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(_GROUPS, wide)
        self.first = _convolution(wide, wider, stride)
        self.second_norm = nn.GroupNorm(_GROUPS, wider)
        self.second = _convolution(wider, wider)
        self.shortcut = None if wide == wider else nn.Conv2d(wide, wider, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        active = torch.relu(self.first_norm(images))
        inner = torch.relu(self.second_norm(self.first(active)))
        straight = images if self.shortcut is None else self.shortcut(active)
        total: Tensor = straight + self.second(inner)
        return total


class _StandardisedBlock(nn.Module):
    """x + branch(x), with x projected in the ``first`` block of a stage."""

    def __init__(self, wide: int, wider: int, stride: int, first: bool) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.ReLU(),
            nn.GroupNorm(_GROUPS, wide),
            StandardisedConv2d(wide, wider, 3, stride, padding=1),
            nn.ReLU(),
            nn.GroupNorm(_GROUPS, wider),
            StandardisedConv2d(wider, wider, 3, padding=1),
        )
        self.shortcut = nn.Sequential(
            nn.ReLU(), nn.GroupNorm(_GROUPS, wide), StandardisedConv2d(wide, wider, 1, stride)
        )
        if not first:
            self.shortcut = nn.Sequential()

    def forward(self, images: Tensor) -> Tensor:
        total: Tensor = self.shortcut(images) + self.branch(images)
        return total


class _ImageMean(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


def _convolution(wide: int, wider: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(wide, wider, 3, stride, padding=1, bias=False)
