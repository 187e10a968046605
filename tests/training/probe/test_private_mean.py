"""A private mean: what one row can move, that it is noisy, and that the shrinking helps."""

import pytest
import torch

import ringfence as rf
from ringfence.training.probe.input import unit_rows
from ringfence.training.probe.private_mean import PrivateMean

ROWS = unit_rows(torch.randn(400, 8, generator=torch.Generator().manual_seed(0)).double() + 0.5)[0].float()


def mean(rows: torch.Tensor = ROWS, sigma: float = 20.0, **changes: object) -> PrivateMean:
    settings = {"public_size": 400.0, "seed": 0, **changes}
    return PrivateMean.released(rows, rf.Gaussian(sigma), **settings)  # type: ignore[arg-type]


def test_no_row_moves_the_sum_by_more_than_a_length_of_1() -> None:
    long = torch.cat((ROWS, torch.full((1, 8), 1e6)))
    moved = float(torch.linalg.vector_norm(mean(long).theta - mean().theta))
    assert 0.99 < moved <= 1.0
    assert mean().sensitivity == rf.Sensitivity(norm=1.0)


def test_what_is_charged_is_what_was_released() -> None:
    account = rf.PerInstanceAccountant(rf.StochasticSign(1.0), 1e9)  # neither is that of the mean
    mean().charge(account)
    assert account.gaussian_zcdp == pytest.approx(1 / (2 * 20.0**2))
    assert account.steps == 1


def test_the_noise_is_the_laws_and_belongs_to_seed_and_data() -> None:
    drawn = torch.stack([mean(sigma=1e-3, seed=seed).center * 400 - mean().theta for seed in range(200)])
    assert float(drawn.std()) == pytest.approx(1e-3, rel=0.1)
    assert torch.equal(mean().center, mean().center)
    others = mean(ROWS.flip(0))  # the same sum but for rounding, and other noise
    assert not torch.allclose(others.center, mean().center)
    assert not torch.equal(mean(seed=None).center, mean(seed=None).center)


def test_shrinking_is_closer_to_the_mean_where_noise_is_large_and_nothing_where_it_is_small() -> None:
    truth = ROWS.double().mean(dim=0)
    for sigma, most in ((300.0, 0.9), (0.01, 1.0 + 1e-6)):
        errors = []
        for seed in range(40):
            found = mean(sigma=sigma, seed=seed).center
            noise = mean(rows=ROWS * 0, sigma=sigma, seed=seed)  # of these rows all that is left is noise
            assert float(noise.center.norm()) <= 4 * sigma * 8**0.5 / 400
            errors.append(float((found - truth).square().sum()))
        plain = 8 * (sigma / 400) ** 2
        assert sum(errors) / 40 < most * plain * (1 if sigma > 1 else 1.5)


def test_a_secure_mean_lies_on_the_public_grid_and_is_charged_for_rounding() -> None:
    one = mean(seed=None, secure=True, sigma=2.0)
    assert 1.0 < one.sensitivity.norm < 1 + 1e-5  # type: ignore[operator]
    assert not torch.equal(one.center, mean(seed=None, secure=True, sigma=2.0).center)
