"""Figure 1 of the paper: what each mechanism gives away, as a function of theta."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian


@dataclass(frozen=True)
class MotivationSettings:
    """The paper's: support [-1, 1], sigma 1/2 and 1, sensitivity 1, order 2."""

    sigmas: tuple[float, ...] = (0.5, 1.0)
    bound: float = 1.0
    levels: int = 5
    sensitivity: float = 1.0
    alpha: float = 2.0
    farthest: float = 4.0
    points: int = 401

    def mechanisms(self, sigma: float) -> dict[str, Mechanism]:
        return {
            "Gaussian": Gaussian(sigma),
            "rectified": RectifiedGaussian(sigma, self.bound),
            "truncated": TruncatedGaussian(sigma, self.bound),
            "sign": StochasticSign(sigma),
            f"quantised, {self.levels} levels": QuantizedGaussian(sigma, self.bound, self.levels),
        }


@dataclass(frozen=True)
class MotivationRow:
    """One mechanism at one theta: eta, and the divergence one-sided and at its true worst."""

    mechanism: str
    sigma: float
    theta: float
    fisher_information_loss: float
    renyi_one_sided: float
    renyi_worst: float


def motivation(settings: MotivationSettings) -> Iterator[MotivationRow]:
    """Every mechanism at every sigma and theta.

    >>> rows = list(motivation(MotivationSettings(sigmas=(1.0,), points=3)))
    >>> [row.theta for row in rows if row.mechanism == "sign"]
    [-4.0, 0.0, 4.0]
    """
    theta = torch.linspace(-settings.farthest, settings.farthest, settings.points, dtype=torch.float64)
    for sigma in settings.sigmas:
        for name, law in settings.mechanisms(sigma).items():
            columns = (
                theta,
                law.fisher_information(theta).sqrt(),
                law.renyi_divergence(theta, settings.sensitivity, settings.alpha),
                worst_case_renyi(law, theta, settings.sensitivity, settings.alpha),
            )
            for values in zip(*(column.tolist() for column in columns), strict=True):
                yield MotivationRow(name, sigma, *values)


def worst_case_renyi(law: Mechanism, theta: Tensor, sensitivity: float, alpha: float) -> Tensor:
    """The largest divergence over both signs of the shift and both directions.

    The paper takes D(theta || theta + c) alone and understates the loss (docs/errata.md, A7).
    """
    worst = torch.zeros_like(theta)
    for shift in (sensitivity, -sensitivity):
        forward = law.renyi_divergence(theta, shift, alpha)
        backward = law.renyi_divergence(theta + shift, -shift, alpha)
        worst = torch.maximum(worst, torch.maximum(forward, backward))
    return worst
