"""The Gaussian mechanism: the law that every other one here is measured against.

It is the only law whose divergences do not depend on theta. Every other law here costs at most as much in
every test, at the same sigma (docs/guarantees.md).
"""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism, Support
from ringfence.mechanisms.secure import Normal
from ringfence.noise import Draws
from ringfence.numerics.normal import LOG_SQRT_TWO_PI


class Gaussian(Mechanism):
    """theta + N(0, sigma^2).

    Guarantee: D_alpha(M(theta) || M(theta + c)) = alpha c^2 / (2 sigma^2) whatever theta
    (Mironov 2017, Proposition 7), and the Fisher information is 1 / sigma^2.

    >>> mechanism = Gaussian(sigma=2.0)
    >>> float(mechanism.renyi_divergence(0.3, shift=0.5, alpha=8.0))
    0.25
    """

    name, label = "gaussian", "Gaussian"
    exponential_family = same_everywhere = True

    def __init__(self, sigma: Real) -> None:
        self.sigma = checks.positive("sigma", sigma)

    @property
    def support(self) -> Support:
        infinity = torch.full_like(self.sigma, torch.inf)
        return Support(interval=(-infinity, infinity))

    def distribution(self, theta: Tensor, sigma: Tensor) -> Normal:
        return Normal(theta, sigma)

    def _sample(self, draws: Draws, theta: Tensor, sigma: Tensor) -> Tensor:
        return theta + sigma * draws.normals_like(theta, sigma)

    def _log_prob(self, value: Tensor, theta: Tensor, sigma: Tensor) -> Tensor:
        return log_density(value, theta, sigma)

    def _fisher_information(self, theta: Tensor, sigma: Tensor) -> Tensor:
        return torch.zeros_like(theta) + (1 / sigma).square()

    def _renyi_divergence(self, theta: Tensor, sigma: Tensor, shift: Tensor, alpha: Tensor) -> Tensor:
        return torch.zeros_like(theta) + 0.5 * alpha * (shift / sigma).square()

    def _loss_moments(self, theta: Tensor, sigma: Tensor, shift: Tensor) -> Tensor:
        variance = torch.zeros_like(theta) + (shift / sigma).square()
        none = torch.zeros_like(variance)
        return torch.stack((variance, none, 3 * variance * variance, torch.full_like(none, torch.inf)))

    def _hockey_stick(self, theta: Tensor, sigma: Tensor, shift: Tensor, epsilon: Tensor) -> Tensor:
        end = torch.full_like(theta, pieces.far(theta))
        shift = (shift / sigma).abs()
        part, value = pieces.below_threshold(-end, end, 2 * end, shift, 0.5 * shift - epsilon / shift)
        return torch.exp(part.log_mass()) * value


def log_density(value: Tensor, theta: Tensor, sigma: Tensor) -> Tensor:
    """The log of the density of N(theta, sigma^2).

    >>> round(float(log_density(*torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64))), 6)  # -log(2 sqrt(2 π))
    -1.612086
    """
    return -0.5 * ((value - theta) / sigma).square() - torch.log(sigma) - LOG_SQRT_TWO_PI
