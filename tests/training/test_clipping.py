"""Clips keep every coordinate within c, or the whole gradient within C, and look at one example alone."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ringfence as rf

CLIPS = [rf.Clamp(0.3), rf.Norm(0.3), rf.Norm(0.5, each=0.2)]
every_clip = pytest.mark.parametrize("clip", CLIPS, ids=repr)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_within(moves: torch.Tensor, clip: rf.Clip, rounding: float = 0.0) -> None:
    """Each of the moves, by its first dimension, is one that the clip's sensitivity allows."""
    allowed, rows = rf.Sensitivity.of(clip.sensitivity), moves.flatten(1).double()
    if allowed.each is not None:
        assert float(rows.abs().max()) <= float(allowed.each) * (1 + rounding)
    if allowed.norm is not None:
        for row in rows.tolist():  # as exact as fsum
            assert math.sqrt(math.fsum(x * x for x in row)) <= allowed.norm * (1 + rounding)


@every_clip
def test_every_gradient_is_within_what_the_clip_says_and_reaches_it(clip: rf.Clip) -> None:
    """Each by itself and, where it is scaled, in its direction; small ones stay as they are."""
    gradients = 10 * draw(50, 3, 4)
    clipped = clip(gradients)
    assert_within(clipped, clip)
    assert torch.equal(clipped, torch.cat([clip(gradient.unsqueeze(0)) for gradient in gradients]))
    assert torch.equal(clip(1e-3 * gradients), 1e-3 * gradients)
    if clip == rf.Norm(0.3):
        cosine = torch.nn.functional.cosine_similarity(clipped.flatten(1), gradients.flatten(1))
        assert torch.allclose(cosine, torch.ones(50))
    with pytest.raises(AssertionError):
        assert_within(1.01 * clipped, clip)


@every_clip
def test_the_outer_sum_is_the_sum_of_clipped_outer_products(clip: rf.Clip) -> None:
    residuals, features = draw(70, 3), draw(70, 9, seed=1)
    each = clip(residuals.unsqueeze(2) * features.unsqueeze(1))
    assert torch.allclose(clip.outer_sum(residuals, features), each.sum(dim=0), atol=1e-5)


@every_clip
def test_one_example_moves_the_outer_sum_by_no_more_than_the_clip_says(clip: rf.Clip) -> None:
    residuals, features = (10 * draw(30, 3)).double(), draw(30, 9, seed=1).double()
    whole = clip.outer_sum(residuals, features)
    for i in range(30):
        rest = torch.arange(30) != i
        assert_within((whole - clip.outer_sum(residuals[rest], features[rest])).unsqueeze(0), clip, 1e-12)


@every_clip
def test_residuals_that_are_not_numbers_are_refused(clip: rf.Clip) -> None:
    with pytest.raises(ValueError, match="residuals must not be NaN"):
        clip.outer_sum(torch.full((2, 1), math.nan), torch.ones(2, 3))


@every_clip
def test_gradients_that_are_not_numbers_stay_so(clip: rf.Clip) -> None:
    assert clip(torch.tensor([[math.nan, 1.0]])).isnan().any()  # and their sum is refused


@every_clip
def test_zero_gradients_are_zero_and_move_as_if_nothing_were_clipped(clip: rf.Clip) -> None:
    zeros, move = torch.zeros(2, 3), draw(2, 3)
    assert torch.equal(clip(zeros), zeros)
    assert torch.equal(clip.outer_sum(zeros, torch.ones(2, 4)), torch.zeros(3, 4))
    assert torch.equal(clip.outer_sum(torch.ones(2, 3), torch.zeros(2, 4)), torch.zeros(3, 4))
    assert torch.equal(torch.func.jvp(clip, (zeros,), (move,))[1], move)
    assert torch.equal(torch.func.vjp(clip, zeros)[1](move)[0], move)


# float32 numbers of every size, subnormal ones and 0 too, and clips of every size
_exponents = st.one_of(st.integers(-149, 126), st.sampled_from([-149, -127, -126, -63, 0, 63, 100, 126]))
_adversarial = {
    "seed": st.integers(0, 2**31),
    "width": st.sampled_from([1, 2, 3, 30, 3000]),
    "sizes": st.tuples(_exponents, _exponents),
    "norm": st.one_of(st.integers(-100, 100), st.just(-100)),
}


def _rows(seed: int, count: int, width: int, exponent: int) -> torch.Tensor:
    """Rows with numbers of about this size, or all alike, or with zeros among them."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(count, width, generator=generator, dtype=torch.float64) + 0.5
    rows[count // 3 :: 3] = rows[count // 3 :: 3, :1]
    rows[count // 2 :: 2] *= torch.rand(rows[count // 2 :: 2].shape, generator=generator) > 0.5
    return (rows * 2.0**exponent).float()


@given(**_adversarial)
def test_no_gradient_is_longer_than_c_as_computed(
    seed: int, width: int, sizes: tuple[int, int], norm: int
) -> None:
    for clip in (rf.Norm(1.5 * 2.0**norm), rf.Norm(1.5 * 2.0**norm, each=2.0 ** (norm - 3))):
        gradients = _rows(seed, 6, width, sizes[0])
        clipped = clip(gradients)
        assert_within(clipped, clip)
        short = gradients.double().norm(dim=1) < 0.99 * 2.0**norm
        if clip.each is None:
            assert torch.equal(clipped[short], gradients[short])
        residuals = _rows(seed + 1, 6, 2, sizes[1])
        for residual, feature in zip(residuals, gradients, strict=True):
            single = clip.outer_sum(residual.unsqueeze(0), feature.unsqueeze(0))
            assert_within(single.unsqueeze(0), clip)


def test_a_long_gradient_ends_just_below_c() -> None:
    for size in (1.0, 1e10, 1e25):
        clipped = rf.Norm(0.3)(size * draw(3, 70_000))
        assert torch.allclose(clipped.double().norm(dim=1), torch.tensor(0.3).double(), rtol=2e-6, atol=0)
        assert_within(clipped, rf.Norm(0.3))


@pytest.mark.parametrize("make", [rf.Clamp, rf.Norm, lambda value: rf.Norm(1.0, each=value)])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e-60])
def test_a_clip_that_is_no_positive_number_is_refused(make: type[rf.Clip], value: float) -> None:
    with pytest.raises(ValueError, match=r"clip|norm must|each must"):
        make(value)


def test_clips_are_compared_by_value() -> None:
    assert rf.Clamp(0.1) == rf.Clamp(0.1)
    assert rf.Clamp(0.1) != rf.Norm(0.1)
    assert len({rf.Clamp(0.1), rf.Clamp(0.1), rf.Clamp(0.2)}) == 2
    assert len({rf.Norm(0.1), rf.Norm(0.1), rf.Norm(0.1, each=0.2), rf.Clamp(0.1)}) == 3
    assert rf.Norm(0.1) != rf.Norm(0.1, each=0.1)
    assert [repr(clip) for clip in CLIPS] == ["Clamp(0.3)", "Norm(0.3)", "Norm(0.5, each=0.2)"]


def test_there_are_two_kinds_of_clips() -> None:
    for kind in (rf.Clip, rf.Clamp):
        with pytest.raises(
            TypeError, match=r"Mine cannot be a Clip: use ringfence\.Clamp or ringfence\.Norm"
        ):
            type("Mine", (kind,), {"__module__": "elsewhere"})
