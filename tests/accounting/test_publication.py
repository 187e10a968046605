"""A number that may be published: too small rarely enough."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.publication import PublishableEpsilon, noise_for, upper_bound
from ringfence.mechanisms.secure import SecureRelease
from tests.tensors import float64, seeded_releases


def test_above_the_private_number_as_often_as_promised() -> None:
    noise = SecureRelease(rf.Gaussian(0.1))
    for failure, tries, least, most in ((0.5, 200, 75, 125), (0.1, 400, 22, 58), (1e-6, 50, 0, 0)):
        with seeded_releases():
            below = sum(upper_bound(noise, 0.7, failure) < 0.7 for _ in range(tries))
        assert least <= below <= most


def test_the_public_grid_reaches_every_share() -> None:
    """It ends some deviations out; a share beyond would come out too small."""
    assert float(noise_for(1e-30, 1.0).draw(1.0)) == pytest.approx(1.0, rel=1e-10)


def test_an_upper_bound_is_raised_by_the_quantile_and_by_half_a_step_of_the_grid() -> None:
    class Still(SecureRelease):
        def draw(self, theta: float) -> torch.Tensor:  # type: ignore[override]
            return float64(theta)

    noise = Still(rf.Gaussian(2.0))
    quantile = -float(torch.special.ndtri(float64(1e-3)))
    assert upper_bound(noise, 0.7, 1e-3) == pytest.approx(0.7 + 2 * (quantile + 2.0**-11), rel=1e-12)


def test_a_margin_below_what_randomness_carries_is_refused() -> None:
    with pytest.raises(ValueError, match="failure_probability must be above 2"):
        upper_bound(noise_for(0.1, 0.1), 0.5, 1e-70)


def test_the_statement_says_that_it_may_be_published_and_how_sure_it_is() -> None:
    text = PublishableEpsilon(1.2, 0.7, 0.9, 40.0, 1e-5, 1e-2, 1e-4).statement
    assert "The releases and this number together satisfy" in text
    assert "Except with probability 0.01 over the noise in this number" in text
    assert text.endswith("These numbers were released with noise and may be published.")
