"""Quantiles of a normal law on an interval invert its distribution function, in either tail."""

import pytest
import torch
from mpmath import mp, mpf

from ringfence.numerics.truncated_normal import quantile_in_tail, quantile_near
from tests import oracle
from tests.tensors import float64

INTERVALS = [
    (low, width)
    for low in (-5.0, -0.3, -2e-4, 0.0, 2.0, 3.999, 4.001, 9.0, 38.0, 1000.0)
    for width in (1e-3, 0.4, 3.0, 60.0)
    if low + width >= -low  # the sampler has reflected the others
]


@pytest.mark.parametrize(("low", "width"), INTERVALS)
def test_truncated_quantile_inverts_the_distribution_function(low: float, width: float) -> None:
    shares = [0.0, 1e-9, 0.02, 0.49, 0.5, 0.9, 1 - 1e-9, 1 - 2**-53]
    uniform = torch.tensor(shares, dtype=torch.float64)
    start, end = torch.full_like(uniform, low), torch.full_like(uniform, low + width)
    if low > 4:
        size = torch.full_like(uniform, width)
        got = [mpf(step) for step in quantile_in_tail(start, end, size, uniform).tolist()]
    else:
        got = [mpf(x) - mpf(low) for x in quantile_near(start, end, uniform).tolist()]
    everything = oracle.between(mpf(low), mpf(low) + mpf(width))
    for step, share in zip(got, shares, strict=True):
        truth = mpf(share) + mpf(2) ** -54
        reached = oracle.between(mpf(low), mpf(low) + step) / everything if step > 0 else mpf(0)
        assert abs(reached - truth) < mpf(10) ** -11 / min(1, mpf(width)), (share, mp.nstr(reached))


def test_the_smallest_and_the_largest_uniform_are_mirrored() -> None:
    """Uniforms are multiples of 2^-53 from 0 on, each moved to the middle of its cell."""
    ends = float64([40.0, 40.0])
    low, high = quantile_near(-ends, ends, float64([0.0, 1 - 2.0**-53]))
    assert float(low) == -float(high) == float(torch.special.ndtri(float64(2.0**-54)))
