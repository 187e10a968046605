"""The stochastic sign: only the sign of the noisy value is released."""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism, Support
from ringfence.mechanisms.secure import Normal, Points
from ringfence.noise import Draws
from ringfence.numerics.normal import density, log_tail, mills_ratio


class StochasticSign(Mechanism):
    """sign(theta + N(0, sigma^2)), in {-1, +1}.

    Guarantee: a function of the Gaussian release, hence never worse than it.

    >>> mechanism = StochasticSign(sigma=1.0)
    >>> round(float(mechanism.fisher_information(0.0)), 12)  # 2 / pi
    0.636619772368
    """

    name = label = "sign"
    atoms_alone = True

    def __init__(self, sigma: Real) -> None:
        self.sigma = checks.positive("sigma", sigma)

    @property
    def support(self) -> Support:
        one = torch.ones_like(self.sigma)
        return Support(interval=None, atoms=(-one, one))

    def turning_points(self) -> tuple[Tensor, ...]:
        return (torch.zeros_like(self.sigma),)

    def distribution(self, theta: Tensor, sigma: Tensor) -> Normal:
        return Normal(theta, sigma)

    def public_points(self, sigma: Tensor) -> Points:
        return Points((-1.0, 1.0), (torch.zeros_like(sigma),))

    def _sample(self, draws: Draws, theta: Tensor, sigma: Tensor) -> Tensor:
        noisy = theta + sigma * draws.normals_like(theta, sigma)
        return torch.where(noisy < 0, -1.0, 1.0).double()

    def _log_prob(self, value: Tensor, theta: Tensor, sigma: Tensor) -> Tensor:
        mass = log_tail(-value * theta / sigma)
        return torch.where(value.abs() == 1, mass, -torch.inf)

    def _fisher_information(self, theta: Tensor, sigma: Tensor) -> Tensor:
        """phi^2 / (Phi(t) Phi(-t)), t = |theta| / sigma (section 4.1)."""
        t = (theta / sigma).abs()
        tail, peak = mills_ratio(t), density(t)
        return peak / (tail * (1 - peak * tail)) / (sigma * sigma)

    def _masses(self, theta: Tensor, sigma: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        edge = -theta / sigma
        return pieces.atoms(edge, edge, shift / sigma)
