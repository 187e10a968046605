"""What a release of a Poisson sample costs where it is known which other records are in the batch."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import checked_orders
from ringfence.accounting.coordinates import recentre, released_shape
from ringfence.accounting.per_instance import DivergenceTables, ceilings
from ringfence.accounting.sampled.few_coordinates import MOST_COORDINATES, log_excess_of_few
from ringfence.accounting.sampled.poisson_mixture import PoissonMixture, chords, highest_moment, knots
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING

_LARGEST_ORDER = 1 << 16  # every moment up to the largest order is needed


class SampledDivergence:
    """Divergences of a release of a Poisson sample, at integer orders, as functions of theta.

    Costs are given as log(E - 1), where E = exp((alpha - 1) D_alpha), for the two directions: forward has
    the law without the record first, backward the law with it.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> release = SampledDivergence(Gaussian(1.0), 0.1, 0.5, checked_integer_orders([2]))
    >>> round(float(release.gaussian(torch.zeros(4))), 6)  # log(1 + q^2 (e^(4 * 0.1^2) - 1))
    0.010151
    """

    def __init__(
        self,
        mechanism: Mechanism,
        sensitivity: Real | Sensitivity,
        sampling_rate: float,
        orders: Tensor,
        tables: DivergenceTables | None = None,
    ) -> None:
        self.mechanism, self.orders = mechanism, orders
        self.sensitivity = Sensitivity.of(sensitivity)
        self.sampling_rate = checks.rate("sampling_rate", sampling_rate)
        self._tables = DivergenceTables(knots(orders)) if tables is None else tables
        self._mixture = PoissonMixture(self.sampling_rate, orders)
        self._knots = knots(orders)
        self._k = torch.arange(2, highest_moment(orders) + 1, dtype=torch.float64)

    def log_excess(self, theta: Tensor, exact: bool) -> Tensor:
        """The cost for one known batch: (added or removed, forward or backward, orders).

        For a record that is added P = M(theta) and Q = M(theta + v), and the moments of Q/P are the
        backward sums of ``per_instance_rdp``. A record that is removed is in theta: P = M(theta - v) and
        Q = M(theta), and the moments are the forward sums.
        """
        sums = self._tables.sums(self.mechanism, theta, self.sensitivity, exact=exact, few=0)
        most = ceilings(self.mechanism, theta, self.sensitivity)[1] * self._knots
        rows = torch.minimum(sums, most) * (self._knots - 1)
        _, bounded = self._ceiling_moments(theta)
        reverse = torch.minimum(chords(self._knots, rows, self._k), bounded)
        moments = reverse.flip(0)
        third = 2 * self._third_below(theta).flip(0) if self.sampling_rate < 1 else moments[:, 1]
        forward = self._mixture.mixture_second(moments, third, reverse)
        few = 0 < released_shape(self.mechanism, theta, self.sensitivity.farthest).numel() <= MOST_COORDINATES
        if few and self.sampling_rate < 1:  # the box holds every move, whatever else bounds them
            sharper = log_excess_of_few(
                self.mechanism, theta, self.sensitivity.farthest, self.sampling_rate, self.orders
            )
            forward = torch.minimum(forward, sharper)
        both = torch.stack((forward, self._mixture.mixture_first(moments)), dim=1)
        return torch.minimum(both, self.ceilings(theta))

    def either_record(self, added: Tensor, removed: Tensor, worse: Tensor) -> Tensor:
        """Covers a record that is added and one that is removed, from averages over the dataset's batches.

        ``added`` and ``removed`` are averages of the two kinds of ``log_excess``, ``worse`` is the average of
        the larger of the two. An added record costs at most ``added``. A removed record costs A, an average
        over batches of the other records. A batch of the dataset lacks the record with probability 1 - q;
        given that, it is such a batch, and costs at most the added kind. Given that it holds the record, it
        is such a batch once the record is taken out, and costs at most the removed kind. Both conditional
        averages are A, so (1 - q) A <= ``added``, q A <= ``removed`` and A <= ``worse``.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> release = SampledDivergence(Gaussian(1.0), 0.1, 0.2, checked_integer_orders([2]))
        >>> averages = (torch.tensor([x]).double().log() for x in (0.4, 3.0, 3.1))
        >>> release.either_record(*averages).exp()  # 0.4 / (1 - q)
        tensor([0.5000], dtype=torch.float64)
        """
        if self.sampling_rate == 1:
            return worse
        lacking = added - math.log1p(-self.sampling_rate)
        holding = torch.maximum(added, removed - math.log(self.sampling_rate))
        return torch.minimum(worse, torch.minimum(lacking, holding))

    def ceilings(self, theta: Tensor) -> Tensor:
        """Upper bounds of the cost over all theta, of which only the shape counts: forward and backward.

        The Gaussian's pair dominates every pair here in every test (Blackwell), and its mixture dominates
        theirs; the Gaussian's forward direction is below its backward one (Mironov, Talwar, Zhang 2019,
        Theorem 5). A law with a smaller bound of all its divergences has smaller moments.
        """
        gaussian, bounded = self._ceiling_moments(theta)
        # about the third moment it is only known that it is at least 1
        forward = self._mixture.mixture_second(bounded, bounded.new_zeros(()), bounded)
        both = torch.stack((forward, self._mixture.mixture_first(bounded)))
        return torch.minimum(both, self._mixture.mixture_first(gaussian))

    def gaussian(self, theta: Tensor) -> Tensor:
        """The divergence of the sampled Gaussian with the same sigma, in its larger direction."""
        return self.divergence(self._mixture.mixture_first(self._ceiling_moments(theta)[0]))

    def gaussian_mu(self, theta: Tensor) -> float:
        """The shift / sigma of the Gaussian that dominates a release of everything."""
        return math.sqrt(2 * ceilings(self.mechanism, theta, self.sensitivity)[0])

    def divergence(self, log_excess: Tensor) -> Tensor:
        """D = log(1 + excess) / (alpha - 1)."""
        if bool(log_excess.isnan().any()):
            raise FloatingPointError(f"float64 cannot represent what a sample of {self.mechanism!r} costs")
        return torch.logaddexp(log_excess, torch.zeros_like(log_excess)) / (self.orders - 1)

    def _ceiling_moments(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """log M_k of the Gaussian with the same sigma, and the bound that the law itself proves."""
        gaussian, bounded = ceilings(self.mechanism, theta, self.sensitivity)
        return gaussian * self._k * (self._k - 1), bounded * self._k * (self._k - 1)

    def _third_below(self, theta: Tensor) -> Tensor:
        """Sums over coordinates of the smaller sign's divergence of order 3, rows forward and backward.

        No v in {-c, c}^d has less, and no other v matters: E_P f(Q/P) with a convex f grows with every
        |v_j| (monotone likelihood ratio). Coordinates are evaluated, because a table bounds from above only.
        Where not every coordinate may move as far as it can, all that is known is that none is negative.
        """
        size = self.sensitivity
        if not size.binding(released_shape(self.mechanism, theta, size.farthest)).is_plain:
            return torch.zeros(2, dtype=torch.float64)
        law, theta = recentre(self.mechanism, theta.double())
        move = size.farthest.to(theta.device).double()
        signs = (move, -move)
        forward = [law.renyi_divergence(theta, s, 3.0) for s in signs]
        backward = [law.renyi_divergence(theta + s, -s, 3.0) for s in signs]
        smaller = [torch.minimum(*values).sum().cpu() for values in (forward, backward)]
        return torch.stack(smaller) * (1 - ROUNDING)


def checked_integer_orders(orders: Sequence[float] | Tensor) -> Tensor:
    """Orders as a float64 vector: at least one, all of them integers from 2 on.

    >>> checked_integer_orders([2, 8])
    tensor([2., 8.], dtype=torch.float64)
    """
    tensor = checked_orders(orders)
    checks.require(
        "orders", f"must be at most {_LARGEST_ORDER} for sampling", tensor, tensor <= _LARGEST_ORDER
    )
    return checks.require("orders", "must be integers >= 2 for sampling", tensor, tensor == tensor.round())
