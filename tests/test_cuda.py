"""The golden values and the samplers on a GPU, where there is one."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting.divergence_sums import exact_sums
from ringfence.noise import Noise
from tests.mechanisms.cases import CASES, Case
from tests.test_golden import COLUMNS, GOLDEN, computed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize("case", [case for case in CASES if case.golden], ids=lambda case: case.name)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_golden_on_the_gpu(case: Case, dtype: torch.dtype, tolerance: float) -> None:
    rows = [row for row in GOLDEN if row["mechanism"] == case.golden]
    smallest = 1e-290 if dtype == torch.float64 else 1e-30
    for column in COLUMNS:
        values = computed(case, column, rows, dtype, device="cuda")
        truth = torch.tensor([float(row[column]) for row in rows], dtype=torch.float64)
        kept = truth > smallest
        assert values.is_cuda
        error = (values.double().cpu()[kept] / truth[kept] - 1).abs().max()
        assert float(error) < tolerance + 1e-15, column


@pytest.mark.parametrize("theta", [0.3, -12.0, 1000.0])
def test_truncated_draws_on_the_gpu_follow_the_law(theta: float) -> None:
    law = rf.TruncatedGaussian(1.0, 1.0)
    count, generator = 100_000, torch.Generator("cuda").manual_seed(0)
    where = torch.full((count,), theta, dtype=torch.float64, device="cuda")
    draws = law.sample(where, generator=generator).sort().values
    # Kolmogorov and Smirnov against draws of the CPU, whose sampler has its own tests
    other = law.sample(where.cpu(), generator=torch.Generator().manual_seed(1)).sort().values
    rank = torch.searchsorted(other, draws.cpu()) / count
    gap = (rank - torch.arange(count) / count).abs().max()
    assert float(gap) * math.sqrt(count / 2) < 2.2


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(ValueError, match="generator is on cpu, theta on cuda"):
        rf.Gaussian(1.0).sample(torch.zeros(3, device="cuda"), generator=torch.Generator())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_account_on_the_gpu_is_that_of_the_cpu(case: Case) -> None:
    law, orders = case.make(1.0, -2.0, 2.0), [1.5, 8.0, 64.0]
    theta = 2 * torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    exact = exact_sums(law, theta, torch.tensor(1e-3), torch.tensor(orders).double()).amax(dim=0)
    for device in ("cpu", "cuda"):
        bound = rf.per_instance_rdp(law, theta.to(device), 1e-3, orders).worst
        # laws of whole numbers are evaluated, and functions round differently there
        assert bool((bound >= exact * (1 - 1e-12 * law.whole)).all())
        assert bool((bound <= 1.005 * exact).all())


def test_equal_coordinates_beyond_what_float32_counts() -> None:
    law = rf.RectifiedGaussian(1.0, 2.0)
    one = rf.per_instance_rdp(law, 0.3, 1e-3, [8.0]).worst
    many = rf.per_instance_rdp(law, torch.full((40_000_000,), 0.3, device="cuda"), 1e-3, [8.0]).worst
    assert 1 - 1e-6 < float(many / one) / 40_000_000 < 1.005


def test_noise_is_made_on_the_gpu_and_belongs_to_its_place() -> None:
    noise = Noise(seed=7)
    first, again, other = (
        noise.draws("noise", step, device=torch.device("cuda")).normals((1000,)) for step in (0, 0, 1)
    )
    assert first.is_cuda
    assert torch.equal(first, again)
    assert abs(float(torch.corrcoef(torch.stack((first, other)))[0, 1])) < 0.2
    low = Noise(seed=7 + 2**32)
    assert not torch.equal(first, low.draws("noise", 0, device=torch.device("cuda")).normals((1000,)))
