"""The cost of a sampled release where it is known which of the other records are in the batch."""

from collections.abc import Sequence

from torch import Tensor

import ringfence as rf
from ringfence import checks
from ringfence.accounting.subsampling import (
    SAMPLED_ORDERS,
    SampledDivergence,
    SubsampledRdp,
    checked_integer_orders,
)


def fixed_batch_rdp(
    mechanism: rf.Mechanism,
    theta: Tensor | float,
    sensitivity: float | Tensor | rf.Sensitivity,
    sampling_rate: float,
    orders: Sequence[float] = SAMPLED_ORDERS,
    *,
    record: str = "added",
) -> SubsampledRdp:
    """P = M(theta) and Q = M(theta + v) for a record that is added, P = M(theta - v) and Q = M(theta) for one
    that is removed; the release is P without it and (1 - q) P + q Q with it."""
    theta = checks.finite("theta", theta)
    release = SampledDivergence(mechanism, theta, sensitivity, sampling_rate, checked_integer_orders(orders))
    added, removed = release.log_excess(theta)
    forward, backward = release.divergence(added if record == "added" else removed)
    return SubsampledRdp(release.orders, forward, backward, failure_probability=0.0)
