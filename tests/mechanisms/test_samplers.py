"""Samplers against the law: the right one is accepted, a slightly wrong one rejected.

Laws come from scipy, which works in log space and shares nothing with the package. All seeds are
fixed; with this many tests a right sampler fails once in a thousand reseedings of the file.
"""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from mpmath import mpf
from scipy import special, stats

import ringfence as rf
from tests import oracle
from tests.mechanisms.cases import CASES, Case, every_case
from tests.tensors import float64

ACCEPT, REJECT = 1e-6, 1e-9
THETAS = [0.0, 0.5, -3.0, 8.5, -12.0, 40.0, -1000.0, 1000.0]
BOUNDS = [1e-3, 0.1, 1.0, 5.0]
DTYPES = [torch.float64, torch.float32]
DISCRETE = [case for case in CASES if not case.has_density]


def draws(law: rf.Mechanism, theta: float, count: int, dtype: torch.dtype) -> np.ndarray:
    generator = torch.Generator().manual_seed(20261)
    where = torch.full((count,), theta, dtype=dtype)
    return law.sample(where, generator=generator).double().numpy()


def continuous(values: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """p-value of Kolmogorov and Smirnov's test."""
    return float(stats.kstest(values, cdf, method="asymp").pvalue)


def discrete(counts: list[int], masses: list[float]) -> float:
    """p-value of the chi-squared test, cells expected fewer than 10 times put together."""
    total = sum(counts)
    cells = sorted(zip(masses, counts, strict=True))
    small = [cell for cell in cells if cell[0] * total < 10]
    merged = [cell for cell in cells if cell[0] * total >= 10]
    rest = (sum(mass for mass, _ in small), sum(count for _, count in small))
    if rest[0] * total < 1e-3:  # so rare that a single hit is the surprise
        if rest[1] > 0:
            return rest[0] * total
    else:
        merged.append(rest)
    if len(merged) == 1:
        return 1.0
    expected = np.array([mass for mass, _ in merged])
    observed = np.array([count for _, count in merged])
    return float(stats.chisquare(observed, expected / expected.sum() * observed.sum()).pvalue)


def truncated_cdf(theta: float, sigma: float, low: float, high: float) -> Callable[[np.ndarray], np.ndarray]:
    """Phi(v) - Phi(u) = exp(L(v)) (1 - exp(L(u) - L(v))), L = log Phi: stats.truncnorm, ten times as fast."""
    lower, upper = (low - theta) / sigma, (high - theta) / sigma

    def cdf(x: np.ndarray) -> np.ndarray:
        inner = (x - theta) / sigma
        # Phi loses its digits near 1: an interval that lies above theta is reflected
        ends = (-inner, -lower, -upper, -lower) if lower + upper > 0 else (lower, inner, lower, upper)
        from_u, to_v, first, last = (special.log_ndtr(end) for end in ends)
        return np.exp(to_v - last) * np.expm1(from_u - to_v) / np.expm1(first - last)

    return cdf


# ------------------------------------------------------------------ the right law is accepted


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("theta", THETAS)
def test_truncated(theta: float, dtype: torch.dtype) -> None:
    for bound in BOUNDS:
        values = draws(rf.TruncatedGaussian(1.0, bound), theta, 20_000, dtype)
        assert np.abs(values).max() <= np.float64(torch.tensor(bound, dtype=dtype))
        assert len(np.unique(values)) > 500, "the noise is gone"
        assert continuous(values, truncated_cdf(theta, 1.0, -bound, bound)) > ACCEPT, bound


@pytest.mark.parametrize("case", DISCRETE, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("theta", [0.0, 0.4, -2.0, 5.0, -60.0])
def test_atoms_are_hit_with_their_mass(case: Case, theta: float, dtype: torch.dtype) -> None:
    values = draws(case.make(1.0, -1.5, 2.0), theta, 100_000, dtype)
    atoms = case.oracle(1.0, -1.5, 2.0)(theta).atoms
    points = float64([float(point) for point in atoms]).to(dtype).double().numpy()
    counts = [int(np.isclose(values, point, rtol=1e-6, atol=1e-6).sum()) for point in points]
    assert sum(counts) == len(values)
    assert discrete(counts, [float(mass) for mass in atoms.values()]) > ACCEPT


def test_infinite_ends() -> None:
    """A half line, and the whole line."""
    half = draws(rf.TruncatedGaussian(1.0, (2.0, torch.inf)), -3.0, 20_000, torch.float64)
    assert continuous(half, truncated_cdf(-3.0, 1.0, 2.0, np.inf)) > ACCEPT
    whole = draws(rf.TruncatedGaussian(1.0, torch.inf), 0.7, 20_000, torch.float64)
    assert continuous(whole, stats.norm(0.7, 1.0).cdf) > ACCEPT
    clamped = draws(rf.RectifiedGaussian(1.0, (0.0, torch.inf)), -0.5, 20_000, torch.float64)
    assert (
        discrete(
            [int((clamped == 0).sum()), int((clamped > 0).sum())],
            [float(stats.norm.cdf(0.5)), float(stats.norm.sf(0.5))],
        )
        > ACCEPT
    )


# ------------------------------------------------------------------ a wrong law is rejected

WRONG = {
    "sigma up 4 %": lambda theta, sigma, bound: (theta, 1.04 * sigma, bound),
    "sigma down 4 %": lambda theta, sigma, bound: (theta, 0.96 * sigma, bound),
    "theta off by a tenth": lambda theta, sigma, bound: (1.1 * theta + 0.1, sigma, bound),
}


@pytest.mark.parametrize(("theta", "bound"), list(itertools.product([0.4, -6.0, 12.0, 1000.0], [1, 5])))
def test_a_slightly_wrong_truncated_law_is_rejected(theta: float, bound: float) -> None:
    right_cdf = truncated_cdf(theta, 1.0, -bound, bound)
    values = draws(rf.TruncatedGaussian(1.0, float(bound)), theta, 200_000, torch.float64)
    assert continuous(values, right_cdf) > ACCEPT
    for name, wrong in WRONG.items():
        other = wrong(theta, 1.0, bound)
        wrong_cdf = truncated_cdf(other[0], other[1], -bound, bound)
        if np.abs(right_cdf(values[:2000]) - wrong_cdf(values[:2000])).max() > 0.008:
            assert continuous(values, wrong_cdf) < REJECT, name
        else:  # a support so narrow that sigma does not show
            assert (bound, theta) == (1, 0.4)


@pytest.mark.parametrize("case", DISCRETE, ids=lambda case: case.name)
def test_a_slightly_wrong_mass_is_rejected(case: Case) -> None:
    values = draws(case.make(1.0, -1.5, 2.0), 0.7, 300_000, torch.float64)
    atoms = case.oracle(1.04, -1.5, 2.0)(0.7).atoms
    counts = [int(np.isclose(values, float(point)).sum()) for point in atoms]
    assert discrete(counts, [float(mass) for mass in atoms.values()]) < REJECT


@pytest.mark.parametrize("theta", [12.0, 40.0, -40.0])
def test_noise_lost_to_an_underflowing_cdf_is_rejected(theta: float) -> None:
    """The flaw to beware of: inverting a normal cdf that is exactly 0 (or 1) out there."""
    uniform = torch.rand(20_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    low, high = (torch.special.ndtr(float64(x - theta)) for x in (-1.0, 1.0))
    flawed = (theta + torch.special.ndtri(low + uniform * (high - low))).clamp(-1, 1).numpy()
    assert len(np.unique(flawed)) < 500
    assert continuous(flawed, truncated_cdf(theta, 1.0, -1.0, 1.0)) < REJECT


# ------------------------------------------------------------------ randomness is an argument


@every_case
def test_the_generator_decides(case: Case) -> None:
    law, theta = case.make(1.0, -1.0, 1.0), torch.zeros(200_000, dtype=torch.float64)
    torch.manual_seed(5)
    untouched = torch.get_rng_state()
    first, again, other = (
        law.sample(theta, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[: 1 << 16], first[1 << 16 : 2 << 16])  # blocks differ
    assert torch.equal(torch.get_rng_state(), untouched)
    generator = torch.Generator().manual_seed(1)
    assert not torch.equal(law.sample(theta, generator=generator), law.sample(theta, generator=generator))


@every_case
def test_float32_draws_are_float64_draws_rounded(case: Case) -> None:
    law, theta = case.make(1.0, -1.0, 1.0), torch.linspace(-3, 3, 1000)
    single, double = (
        law.sample(where, generator=torch.Generator().manual_seed(3)) for where in (theta, theta.double())
    )
    assert torch.equal(single, double.float())


@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_functions_of_the_gaussian_release_are_those_functions_of_it(sigma: float) -> None:
    """The guarantee of these laws, draw by draw: one generator, one noise."""
    theta = torch.linspace(-3, 3, 101, dtype=torch.float64)

    def drawn(law: rf.Mechanism) -> torch.Tensor:
        return law.sample(theta, generator=torch.Generator().manual_seed(7))

    noise = torch.randn(101, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    noisy = theta + sigma * noise
    assert torch.allclose(drawn(rf.Gaussian(sigma)), noisy, rtol=1e-15, atol=1e-15)
    assert torch.equal(drawn(rf.RectifiedGaussian(sigma, (-1.0, 2.0))), noisy.clamp(-1, 2))
    assert torch.equal(drawn(rf.StochasticSign(sigma)), noisy.sign())
    levels = torch.round(noisy.clamp(-1, 2) * 2) / 2
    assert torch.equal(drawn(rf.QuantizedGaussian(sigma, (-1.0, 2.0), levels=7)), levels)


@pytest.mark.parametrize("sigma", [0.5, 3.0])
@pytest.mark.parametrize("theta", [0.2, -1.0, 2.0, 3.9, -3.9, 4.1, 30.0, -30.0])
def test_a_truncated_draw_is_the_quantile_of_its_uniform(sigma: float, theta: float) -> None:
    """theta in units of sigma beyond the ends of [-1, 2]: inside, near, and in either tail."""
    low, high = mpf(-1), mpf(2)
    where = theta if -1 <= theta <= 2 else (2 if theta > 0 else -1) + sigma * theta
    law, generator = rf.TruncatedGaussian(sigma, (-1.0, 2.0)), torch.Generator().manual_seed(3)
    values = law.sample(torch.full((20,), where, dtype=torch.float64), generator=generator)
    uniform = torch.rand(20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for value, u in zip(values.tolist(), uniform.tolist(), strict=True):
        ends = [(x - mpf(where)) / sigma for x in (low, mpf(value), high)]
        share = oracle.between(ends[0], ends[1]) / oracle.between(ends[0], ends[2])
        expected = 1 - u if where > 0.5 else u  # reflected where the upper end is the nearer
        assert abs(share - expected) < 1e-12
