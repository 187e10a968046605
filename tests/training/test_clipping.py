"""Clips keep every coordinate within c and look at one example alone."""

import math

import pytest
import torch

import ringfence as rf

CLIPS = [rf.Clamp(0.3), rf.Scale(0.3)]
every_clip = pytest.mark.parametrize("clip", CLIPS, ids=repr)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@every_clip
def test_every_coordinate_is_within_c(clip: rf.Clip) -> None:
    clipped = clip(10 * draw(50, 3, 4))
    assert float(clipped.abs().max()) <= clip.sensitivity
    assert float(clipped.abs().max()) > 0.999 * clip.sensitivity


@every_clip
def test_an_example_is_clipped_by_itself(clip: rf.Clip) -> None:
    gradients = draw(6, 5)
    apart = torch.cat([clip(gradient.unsqueeze(0)) for gradient in gradients])
    assert torch.equal(clip(gradients), apart)


@every_clip
def test_small_gradients_stay_as_they_are(clip: rf.Clip) -> None:
    small = 0.01 * draw(6, 5)
    assert torch.equal(clip(small), small)


def test_scale_keeps_the_direction() -> None:
    gradients = 5 * draw(6, 5)
    cosine = torch.nn.functional.cosine_similarity(rf.Scale(0.3)(gradients), gradients)
    assert torch.allclose(cosine, torch.ones(6))


@every_clip
def test_the_outer_sum_is_the_sum_of_clipped_outer_products(clip: rf.Clip) -> None:
    residuals, features = draw(70, 3), draw(70, 9, seed=1)
    each = clip(residuals.unsqueeze(2) * features.unsqueeze(1))
    assert torch.allclose(clip.outer_sum(residuals, features), each.sum(dim=0), atol=1e-5)


@every_clip
def test_one_example_moves_the_outer_sum_by_no_more_than_c(clip: rf.Clip) -> None:
    residuals, features = (10 * draw(30, 3)).double(), draw(30, 9, seed=1).double()
    whole = clip.outer_sum(residuals, features)
    for i in range(30):
        rest = torch.arange(30) != i
        moved = (whole - clip.outer_sum(residuals[rest], features[rest])).abs().max()
        assert float(moved) <= clip.sensitivity * (1 + 1e-12)


def test_a_fused_product_is_never_above_c() -> None:
    residuals, features = 10 * draw(2000, 1), draw(2000, 64, seed=1)
    clip = rf.Clamp(0.3)
    for residual, feature in zip(residuals, features, strict=True):
        single = clip.outer_sum(residual.unsqueeze(0), feature.unsqueeze(0))
        assert float(single.abs().max()) <= clip.sensitivity


def test_residuals_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="residuals must not be NaN"):
        rf.Clamp(0.3).outer_sum(torch.full((2, 1), math.nan), torch.ones(2, 3))


def test_zero_gradients_are_zero() -> None:
    assert torch.equal(rf.Scale(1.0)(torch.zeros(2, 3)), torch.zeros(2, 3))
    assert torch.equal(rf.Scale(1.0).outer_sum(torch.zeros(2, 3), torch.ones(2, 4)), torch.zeros(3, 4))


@pytest.mark.parametrize("make", [rf.Clamp, rf.Scale])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e-60])
def test_a_clip_that_is_no_positive_number_is_refused(make: type[rf.Clip], value: float) -> None:
    with pytest.raises(ValueError, match="clip"):
        make(value)


def test_clips_are_compared_by_value() -> None:
    assert rf.Clamp(0.1) == rf.Clamp(0.1)
    assert rf.Clamp(0.1) != rf.Scale(0.1)
    assert len({rf.Clamp(0.1), rf.Clamp(0.1), rf.Clamp(0.2)}) == 2
    assert repr(rf.Scale(0.1)) == "Scale(0.1)"
