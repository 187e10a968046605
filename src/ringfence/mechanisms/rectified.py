"""The rectified Gaussian mechanism: noise is added, then the result is clamped to an interval.

The clamp puts the mass beyond either end into an atom there. It is a function of the Gaussian release, so
that every divergence splits into three pieces, two atoms and the stretch between them (``pieces``), and none
is above the Gaussian's.
"""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Bound, Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism, Support
from ringfence.mechanisms.gaussian import log_density
from ringfence.mechanisms.secure import Normal
from ringfence.noise import Draws
from ringfence.numerics.normal import TruncatedNormal, density, log_tail, mills_ratio


class RectifiedGaussian(Mechanism):
    """clamp(theta + N(0, sigma^2)) to [lower, upper]: a density inside, an atom at either end.

    ``bound`` is a pair (lower, upper), or b for (-b, b); an end may be infinite. Other libraries
    call this law truncated; here that word means conditioning.

    Guarantee: a function of the Gaussian release, hence never worse than it, whatever is computed
    (information, every divergence, both signs and directions).

    >>> mechanism = RectifiedGaussian(sigma=1.0, bound=1.0)
    >>> round(float(mechanism.fisher_information(0.0)), 12)
    0.936824218624
    """

    name = label = "rectified"

    def __init__(self, sigma: Real, bound: Bound) -> None:
        self.sigma = checks.positive("sigma", sigma)
        self.lower, self.upper = checks.interval("bound", bound)

    @property
    def support(self) -> Support:
        return Support(interval=(self.lower, self.upper), atoms=(self.lower, self.upper))

    def distribution(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Normal:
        return Normal(theta, sigma)

    def _sample(self, draws: Draws, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        noise = draws.normals_like(theta, sigma, lower, upper)
        return torch.minimum(torch.maximum(theta + sigma * noise, lower), upper)

    def _log_prob(self, value: Tensor, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        result = log_density(value, theta, sigma)
        result = torch.where(value == lower, log_tail((theta - lower) / sigma), result)
        result = torch.where(value == upper, log_tail((upper - theta) / sigma), result)
        outside = (value < lower) | (value > upper) | torch.isinf(value)
        return torch.where(outside, -torch.inf, result)

    def _fisher_information(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """Lemma 4.1 with the sign of its Phi terms corrected (docs/errata.md, A1).

        With near <= far the ends as distances from theta, reflected so that far > 0, and
        G(x) = Phi(-x) + x phi(x), the three parts of the support add up to

            G(near) + phi(near)^2 / Phi(near)  +  phi(far)^2 / Phi(-far) - G(far).
        """
        lower, upper, _ = pieces.standardized(theta, sigma, lower, upper)
        far = torch.maximum(upper, -lower)
        near = torch.maximum(lower, -upper)
        far_mills = mills_ratio(far)
        result = density(far).mul_(far_mills.reciprocal() - far - far_mills)

        size = near.abs()
        near_mills, near_density = mills_ratio(size), density(size)
        beyond = near_density * (near_mills + size)  # G(|near|)
        tail = near_density * near_mills
        outside = beyond + near_density.square() / (1 - tail)
        inside = 1 - beyond + near_density / near_mills
        return result.add_(torch.where(near > 0, outside, inside)).div_(sigma * sigma)

    def _renyi_divergence(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor, alpha: Tensor
    ) -> Tensor:
        """Lemma 4.4 in a form without cancellation: the two atoms, and the stretch between them."""
        lower, upper, width = pieces.standardized(theta, sigma, lower, upper)
        shift = shift / sigma
        middle = TruncatedNormal(lower, upper, width)
        toward, away = middle.log_mgf(shift, (1 - alpha) * shift)
        log_p, rho = pieces.atoms(lower, upper, shift)
        log_p = torch.cat((middle.log_mass().expand_as(rho[:1]), log_p))
        rho = torch.cat(((shift * (0.5 * shift - middle.mean()) - toward).expand_as(rho[:1]), rho))
        inner = (alpha - 1) * toward + away
        return pieces.renyi(log_p, rho, alpha, inner)

    def _hockey_stick(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor, epsilon: Tensor
    ) -> Tensor:
        lower, upper, width = pieces.standardized(theta, sigma, lower, upper)
        shift, lower, upper = pieces.upward(shift / sigma, lower, upper)
        threshold = 0.5 * shift - epsilon / shift
        part, value = pieces.below_threshold(lower, upper, width, shift, threshold)
        log_p, rho = pieces.atoms(lower, upper, shift)
        return pieces.hockey_stick(log_p, rho, epsilon) + torch.exp(part.log_mass()) * value

    def _loss_moments(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor
    ) -> Tensor:
        lower, upper, width = pieces.standardized(theta, sigma, lower, upper)
        shift = shift / sigma
        log_p, rho = pieces.atoms(lower, upper, shift)
        return pieces.loss_moments(log_p, rho, (TruncatedNormal(lower, upper, width), shift))
