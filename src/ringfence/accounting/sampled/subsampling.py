"""Poisson sampling: what one release of a random batch costs, with every possible record covered.

Each record enters the batch with probability q, independently; theta is the sum over the batch.
For any one record the two releases are averages over the rest B of the batch, of P_B = M(theta_B) and of
(1 - q) P_B + q Q_B, where Q_B = M(theta_B + v). exp((alpha - 1) D_alpha) is jointly convex, so it is at most
the average over B of its values for a known B. That average is bounded from batches drawn for the purpose.
"""

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.sampled.divergence import SampledDivergence, checked_integer_orders
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.confidence import upper_confidence_bound

SAMPLED_ORDERS: tuple[int, ...] = (
    *range(2, 33),
    *(36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256),
)

# Shares of the failure probability for three averages: of the cost of a record that is added, of one that is
# removed, and of the larger cost. Where one record moves theta little, the last average is what counts.
_SHARES = (0.01, 0.01, 0.98)
_FEW = 1024  # coordinates of all batches together up to which each is evaluated


@dataclass(frozen=True)
class SubsampledRdp:
    """What one release of a Poisson sample costs at each order, in both directions.

    The numbers cover every record that is added to the dataset or removed from it. They hold except with
    probability ``failure_probability`` over the auxiliary batches.

    >>> import ringfence as rf
    >>> rdp = rf.fixed_batch_rdp(rf.Gaussian(1.0), 0.0, sensitivity=1.0, sampling_rate=0.5, orders=[2, 4])
    >>> rdp.orders.tolist(), [round(cost, 3) for cost in rdp.worst.tolist()], rdp.failure_probability
    ([2.0, 4.0], [0.357, 1.151], 0.0)
    """

    orders: Tensor
    forward: Tensor  # of D(M(without the record) || M(with it))
    backward: Tensor  # of D(M(with the record) || M(without it))
    failure_probability: float

    @property
    def worst(self) -> Tensor:
        """The larger of the two, order by order."""
        return torch.maximum(self.forward, self.backward)


def subsampled_rdp(
    mechanism: Mechanism,
    batches: Tensor | Iterable[Real],
    sensitivity: Real | Sensitivity,
    sampling_rate: float,
    orders: Sequence[float] | Tensor = SAMPLED_ORDERS,
    *,
    failure_probability: float,
) -> SubsampledRdp:
    """Rényi divergences of a release of a Poisson sample, from independent auxiliary batches.

    ``batches`` are the thetas of n >= 2 independent Poisson samples of the dataset, drawn for this
    purpose and never released: a tensor whose first dimension counts them, or an iterable. The
    released batch is not one of them: the bound is an average over batches, and one batch does not
    stand for the dataset. One record moves coordinate j of a theta by at most ``sensitivity``, up or
    down, or theta as a ``Sensitivity`` says. Orders are integers.

    For a known batch the backward direction is exact (by the binomial theorem), up to the 0.5 % of
    ``per_instance_rdp``, up to 0.4 % above order 32, and with the worst v taken moment by moment. It does
    not dominate the forward direction here. That one is nearly exact for up to three coordinates
    (``log_excess_of_few``) and bounded by moments for more (``PoissonMixture.mixture_second``).

    Adding and removing a record are both covered. A record of the dataset may itself be in an auxiliary
    batch: then it is in theta_B, and the pair is M(theta_B - v), M(theta_B) instead of M(theta_B),
    M(theta_B + v). ``SampledDivergence.either_record`` says what both cost together.

    Guarantee: with probability at least 1 - ``failure_probability`` over the batches, all numbers
    are upper bounds, for one release whose theta is the sum over a Poisson sample of contributions
    that depend only on the record and on earlier releases. Never above those of the Poisson-sampled
    Gaussian with the same sigma. With ``sampling_rate`` 1 every batch is the dataset: one will do,
    nothing is estimated, and ``worst`` is that of ``per_instance_rdp``.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> batches = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)).double()
    >>> law = TruncatedGaussian(1.0, bound=2.0)
    >>> rdp = subsampled_rdp(law, batches, 0.01, 0.1, [2, 4], failure_probability=1e-6)
    >>> gaussian = 0.1**2 * 40 * 0.01**2 / 2 * rdp.orders
    >>> (rdp.worst / gaussian).round(decimals=2).tolist()
    [0.71, 0.73]
    """
    release = SampledDivergence(mechanism, sensitivity, sampling_rate, checked_integer_orders(orders))
    return averaged_over(batches, release, failure_probability)[0]


def fixed_batch_rdp(
    mechanism: Mechanism,
    theta: Real,
    sensitivity: Real | Sensitivity,
    sampling_rate: float,
    orders: Sequence[float] | Tensor = SAMPLED_ORDERS,
    *,
    record: Literal["added", "removed"] = "added",
) -> SubsampledRdp:
    """``subsampled_rdp`` where it is known which of the other records are in the batch.

    P = M(theta) and Q = M(theta + v) for a record that is added, P = M(theta - v) and Q = M(theta)
    for one that is removed; the release is P without it and (1 - q) P + q Q with it.

    Guarantee: upper bounds for every v within ``sensitivity``. Not a statement about a sampled
    release, whose batch is not known: that takes the average over batches of ``subsampled_rdp``.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> rdp = fixed_batch_rdp(TruncatedGaussian(1.0, bound=1.0), 2.0, 1.0, 0.5, [2])
    >>> round(float(rdp.forward), 4), round(float(rdp.backward), 4)
    (0.0494, 0.068)
    """
    checks.one_of("record", record, ("added", "removed"))
    theta = checks.finite("theta", theta)
    release = SampledDivergence(mechanism, sensitivity, sampling_rate, checked_integer_orders(orders))
    added, removed = release.log_excess(theta, exact=theta.numel() <= _FEW)
    forward, backward = release.divergence(added if record == "added" else removed)
    return SubsampledRdp(release.orders, forward, backward, failure_probability=0.0)


def averaged_over(
    batches: Tensor | Iterable[Real], release: SampledDivergence, failure_probability: float
) -> tuple[SubsampledRdp, Tensor]:
    """``subsampled_rdp`` of a release, and the first batch, whose shape is that of all batches."""
    failure_probability = checks.probability("failure_probability", failure_probability)
    values: list[Tensor] = []
    first: Tensor | None = None
    for theta in _thetas(batches):
        first = theta if first is None else first
        if theta.shape != first.shape:
            raise ValueError(
                f"batches must all have one shape, got {list(first.shape)} and {list(theta.shape)}"
            )
        exact = isinstance(batches, Sized) and len(batches) * theta.numel() <= _FEW
        added, removed = release.log_excess(theta, exact)
        values.append(torch.stack((added, removed, torch.maximum(added, removed))))
    whole = release.sampling_rate == 1
    if first is None or len(values) < (1 if whole else 2):
        raise ValueError(
            "batches must hold at least 2 independent auxiliary batches, drawn for the purpose and never "
            f"released, got {len(values)}: the released batch does not stand for the dataset"
        )
    if whole:
        averages, failure_probability = torch.stack(values).amax(dim=0), 0.0
    else:
        share = failure_probability / values[0][0].numel()  # two directions, every order
        averages = torch.stack(
            [
                upper_confidence_bound(kind, release.ceilings(first), share * part)
                for kind, part in zip(torch.stack(values, dim=1), _SHARES, strict=True)
            ]
        )
    forward, backward = release.divergence(release.either_record(*averages))
    return SubsampledRdp(release.orders, forward, backward, failure_probability), first


def _thetas(batches: object) -> Iterator[Tensor]:
    single = getattr(batches, "ndim", 1) == 0
    if single or isinstance(batches, str | bytes | dict) or not isinstance(batches, Iterable):
        raise TypeError(f"batches must be a tensor or an iterable of thetas, one a batch, got {batches!r}")
    rows = (
        batches if isinstance(batches, Tensor) or not hasattr(batches, "__array__") else np.asarray(batches)
    )
    for theta in rows:
        yield checks.finite("batches", theta)
