"""Moments and cumulants of the truncated normal against quadrature in multi-precision."""

import math
from collections.abc import Callable
from functools import cache
from itertools import product

import pytest
import torch
from mpmath import mp, mpf

from ringfence.numerics.normal import _PRECISIONS, TruncatedNormal
from ringfence.numerics.truncated_normal import quantile_in_tail, quantile_near
from tests import oracle
from tests.tensors import float64

# lower, width: inside, at 0, in the tail on either side, narrow, wide, half lines cut far out
INTERVALS = [
    (-1.0, 2.0),
    (-0.2, 3.0),
    (0.0, 1.5),
    (-7.0, 5.0),
    (3.0, 9.0),
    (30.0, 2.0),
    (-51.0, 1.0),
    (1000.0, 2.0),
    (12.0, 2e-3),
    (-1e-3, 2e-3),
    (-20.0, 45.0),
    (5.0, 1e5),
]
TILTS = [1e-7, -1e-3, 0.2, -0.21, 0.25, 1.0, -4.0, 30.0, -500.0]


def made(lower: float, width: float, dtype: torch.dtype = torch.float64) -> TruncatedNormal:
    start, size = torch.tensor([lower], dtype=dtype), torch.tensor([width], dtype=dtype)
    return TruncatedNormal(start, start + size, size)


def integral(lower: float, width: float, function: Callable[[mpf], mpf], at: float = 0) -> mpf:
    """Of function(x) exp(-(x^2 - peak^2) / 2): every panel follows the bulk, around ``at``."""
    low, high = mpf(lower), mpf(lower) + mpf(width)
    nearest = min(max(at, low), high)
    slope = max(abs(nearest - at), mpf(1))
    panels = [nearest + sign * k / slope for k in (1, 4, 12, 40, 110) for sign in (-1, 1)]
    inside = sorted({low, nearest, high, *(x for x in panels if low < x < high)})
    return mp.quad(
        lambda x: function(x) * mp.exp(((nearest - at) ** 2 - (x - at) ** 2) / 2),
        inside,
        method="gauss-legendre",
    )


@pytest.mark.parametrize(("dtype", "negligible"), [(torch.float64, 1e-18), (torch.float32, 1e-9)])
def test_a_series_ends_where_its_terms_are_negligible(dtype: torch.dtype, negligible: float) -> None:
    """The first k from which on 2 y^(k - 2) / k! is negligible."""
    for largest in (0.0, 1e-7, 0.01, 0.25, 1.0):
        expected = 2
        while 2 * largest ** (expected - 2) / math.factorial(expected) > negligible:
            expected += 1
        assert _PRECISIONS[dtype].series_order(largest) == expected


@pytest.mark.parametrize(("lower", "width"), INTERVALS)
def test_mass_mean_and_variance(lower: float, width: float) -> None:
    law = made(lower, width)
    with mp.workdps(30):
        total = integral(lower, width, lambda x: mpf(1))
        mean = integral(lower, width, lambda x: x) / total
        variance = integral(lower, width, lambda x: (x - mean) ** 2) / total
        nearest = min(max(mpf(0), mpf(lower)), mpf(lower) + mpf(width))
        log_mass = mp.log(total / mp.sqrt(2 * mp.pi)) - nearest**2 / 2
        log_total, from_edge = mp.log(total), mean - nearest

    assert float(law.variance()) == pytest.approx(float(variance), rel=3e-14, abs=0)
    assert float(law.log_mass()) == pytest.approx(float(log_mass), rel=1e-14, abs=2e-15)
    assert float(law.log_partition()) == pytest.approx(float(log_total), rel=1e-13, abs=1e-14)
    assert float(law.mean_from_edge()) == pytest.approx(float(from_edge), rel=1e-13, abs=1e-16)
    assert float(law.mean()) == pytest.approx(float(mean), rel=3e-12, abs=1e-19)


@cache
def total_and_mean(lower: float, width: float) -> tuple[mpf, mpf]:
    with mp.workdps(60):
        total = integral(lower, width, lambda x: mpf(1))
        return total, integral(lower, width, lambda x: x) / total


@pytest.mark.parametrize(
    ("lower", "width", "tilt"),  # every interval with four or five tilts, every tilt with six intervals
    [(*interval, tilt) for interval, tilt in product(INTERVALS, TILTS)][::2],
)
def test_log_mgf(lower: float, width: float, tilt: float) -> None:
    total, mean = total_and_mean(lower, width)
    with mp.workdps(60):
        # E e^{k X} is the mass of the law moved by k, in units of the two peaks
        moved = integral(lower, width, lambda x: mpf(1), at=mpf(tilt))
        ends = mpf(lower), mpf(lower) + mpf(width)
        peaks = [min(max(at, ends[0]), ends[1]) for at in (mpf(0), mpf(tilt))]
        exponent = peaks[0] ** 2 / 2 - (peaks[1] - mpf(tilt)) ** 2 / 2 + mpf(tilt) ** 2 / 2
        truth = mp.log(moved / total) + exponent - mpf(tilt) * mean
    (got,) = made(lower, width).log_mgf(torch.tensor([tilt], dtype=torch.float64))
    assert float(got) == pytest.approx(float(truth), rel=1e-12, abs=0)


def test_tilts_asked_together_or_alone_agree() -> None:
    lower = torch.linspace(-30, 30, 61, dtype=torch.float64)
    width = torch.full_like(lower, 2.0)
    tilts = [torch.full_like(lower, tilt) for tilt in TILTS]
    together = TruncatedNormal(lower, lower + width, width).log_mgf(*tilts)
    for tilt, value in zip(tilts, together, strict=True):
        (alone,) = TruncatedNormal(lower, lower + width, width).log_mgf(tilt)
        torch.testing.assert_close(value, alone, rtol=3e-13, atol=0)


@pytest.mark.parametrize(
    ("low", "width"),
    [
        (low, width)
        for low in (-5.0, -0.3, -2e-4, 0.0, 2.0, 3.999, 4.001, 9.0, 38.0, 1000.0)
        for width in (1e-3, 0.4, 3.0, 60.0)
        if low + width >= -low  # the sampler has reflected the others
    ],
)
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
