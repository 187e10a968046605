"""The truncated Gaussian mechanism: the Gaussian law conditioned on an interval.

The laws of all theta form an exponential family, whose information is the variance of the conditioned law.
All divergences are averages of it over a window around theta, which makes this the one law here with a
smaller bound than the Gaussian's for every theta.
"""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Bound, Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism, Support
from ringfence.mechanisms.secure import Conditioned
from ringfence.noise import Draws
from ringfence.numerics.normal import TruncatedNormal


class TruncatedGaussian(Mechanism):
    """N(theta, sigma^2) conditioned on [lower, upper]: a density inside, no atoms.

    ``bound`` is a pair (lower, upper), or b for (-b, b); an end may be infinite. The law is not a
    function of the Gaussian release, and still never worse (Theorem 4.9).

    Guarantee: for every theta, sign, direction and alpha > 1 the divergence is at most
    I(0) alpha c^2 / 2 with I(0) the information at the centre of the interval, an ordinary
    data-independent bound below the Gaussian's.

    >>> mechanism = TruncatedGaussian(sigma=1.0, bound=1.0)
    >>> round(float(mechanism.fisher_information(0.0)), 12)
    0.291125094773
    """

    name = label = "truncated"
    exponential_family = True

    def __init__(self, sigma: Real, bound: Bound) -> None:
        self.sigma = checks.positive("sigma", sigma)
        self.lower, self.upper = checks.interval("bound", bound)

    @property
    def support(self) -> Support:
        return Support(interval=(self.lower, self.upper))

    def distribution(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Conditioned:
        return Conditioned(theta, sigma, lower, upper)

    def _sample(self, draws: Draws, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The inverse of the distribution function at one uniform number for each coordinate."""
        law = Conditioned(theta, sigma, lower, upper)
        value = law.quantile(draws.uniforms(law.near.shape))
        return torch.minimum(torch.maximum(value, lower), upper)

    def _log_prob(self, value: Tensor, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        law = TruncatedNormal(*pieces.standardized(theta, sigma, lower, upper))
        nearest = torch.minimum(torch.maximum(theta, lower), upper)
        # log density relative to that at the point of the support nearest to theta
        fall = (value - nearest) / sigma * ((value - theta) + (nearest - theta)) / sigma
        result = -0.5 * fall - law.log_partition() - torch.log(sigma)
        return torch.where((value < lower) | (value > upper), -torch.inf, result)

    def _fisher_information(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The variance of the law over sigma^4 (exponential family)."""
        law = TruncatedNormal(*pieces.standardized(theta, sigma, lower, upper))
        return law.variance().div_(sigma * sigma)

    def _renyi_divergence(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor, alpha: Tensor
    ) -> Tensor:
        """K(s) + K((1 - alpha) s) / (alpha - 1), K the centred cumulant generating function.

        Equal to the appendix's form of Lemma 4.7; the main text's is wrong (docs/errata.md, A2).
        """
        law = TruncatedNormal(*pieces.standardized(theta, sigma, lower, upper))
        shift = shift / sigma
        toward, away = law.log_mgf(shift, (1 - alpha) * shift)
        return toward + away / (alpha - 1)

    def _loss_moments(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor
    ) -> Tensor:
        lower, upper, width = pieces.standardized(theta, sigma, lower, upper)
        shift = shift / sigma
        second, third, fourth = TruncatedNormal(lower, upper, width).central_moments()
        rows = (shift**2 * second, -(shift**3) * third, shift**4 * fourth, shift.abs() * width)
        return torch.stack(torch.broadcast_tensors(*rows))

    def information_bound(self) -> Tensor:
        """The information at the centre of the interval, where it is largest."""
        finite = torch.isfinite(self.lower) & torch.isfinite(self.upper)
        centre = torch.where(finite, (self.lower + self.upper) / 2, 0.0).double()
        ends = (self.lower.double(), self.upper.double())
        known = TruncatedGaussian(self.sigma.double(), ends).fisher_information(centre)
        return torch.where(finite, known, self.sigma.double() ** -2)

    def _hockey_stick(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor, epsilon: Tensor
    ) -> Tensor:
        lower, upper, width = pieces.standardized(theta, sigma, lower, upper)
        shift, lower, upper = pieces.upward(shift / sigma, lower, upper)
        law = TruncatedNormal(lower, upper, width)
        threshold = law.mean() + (law.log_mgf(shift)[0] - epsilon) / shift
        part, value = pieces.below_threshold(lower, upper, width, shift, threshold)
        fall = 0.5 * (part.edge - law.edge) * (part.edge + law.edge)
        result = torch.exp(part.log_partition() - law.log_partition() - fall) * value
        # With a shift this large, rounding has destroyed threshold - end: return the trivial bound 1.
        lost = (shift * law.window > 0.01 / torch.finfo(shift.dtype).eps) & (epsilon < shift * width)
        return torch.where(lost, 1.0, result)
