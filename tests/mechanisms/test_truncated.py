"""What is special to the truncated law: an exponential family without atoms."""

import pytest
import torch

import ringfence as rf


@pytest.mark.parametrize("sigma", [0.5, 3.0])
@pytest.mark.parametrize("bound", [(-torch.inf, 1.0), (1.0, torch.inf), (-torch.inf, torch.inf)])
def test_with_an_open_end_the_bound_is_the_gaussians(sigma: float, bound: tuple[float, float]) -> None:
    """Far inside nothing is cut off, so that nothing less than 1 / sigma^2 holds for every theta."""
    law = rf.TruncatedGaussian(sigma, bound)
    assert float(law.information_bound()) == pytest.approx(sigma**-2, rel=1e-15, abs=0)


@pytest.mark.parametrize("bound", [(-1.0, 3.0), (2.0, 2.5), (-9.0, -8.0)])
def test_the_information_is_largest_at_the_centre_wherever_that_is(bound: tuple[float, float]) -> None:
    law = rf.TruncatedGaussian(0.5, bound)
    theta = torch.linspace(bound[0] - 2, bound[1] + 2, 4001, dtype=torch.float64)
    largest = float(law.fisher_information(theta).max())
    assert float(law.information_bound()) == pytest.approx(largest, rel=1e-9, abs=0)


@pytest.mark.parametrize("theta", [1e17, 1e19, 1e30, -1e60])
def test_as_far_out_as_float64_reaches(theta: float) -> None:
    information = float(rf.TruncatedGaussian(1.0, 1.0).fisher_information(theta))
    assert information == pytest.approx(theta**-2, rel=1e-12, abs=0)
