"""The fused kernels against the plain version and against the definition in float64."""

import itertools

import pytest
import torch

from ringfence.training.kernels.outer_sum import clipped_outer_sum, plain_outer_sum

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def definition(residuals: torch.Tensor, features: torch.Tensor, clip: float) -> torch.Tensor:
    products = residuals.double().unsqueeze(2) * features.double().unsqueeze(1)
    return products.clamp(-clip, clip).sum(dim=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 3, 4, 5, 1023, 1029, 2050])
@pytest.mark.parametrize(("classes", "width"), [(1, 1), (3, 17), (10, 40), (17, 300)])
def test_any_shape(device: str, count: int, classes: int, width: int) -> None:
    residuals, features = draw(count, classes), draw(count, width, seed=1)
    for clip in (1e-3, 0.5, 100.0):
        got = clipped_outer_sum(residuals.to(device), features.to(device), clip).cpu()
        exact = definition(residuals, features, clip)
        scale = min(clip, float(residuals.abs().max() * features.abs().max()))
        assert got.dtype == torch.float32
        assert float((got - exact).abs().max()) <= 3e-6 * scale * count**0.5 + 1e-6 * float(exact.abs().max())


@pytest.mark.parametrize("device", DEVICES)
def test_many_equal_examples_keep_their_digits(device: str) -> None:
    residuals, features = torch.full((200_000, 2), 0.7), torch.full((200_000, 3), 0.1)
    got = clipped_outer_sum(residuals.to(device), features.to(device), 0.05)
    assert float(got.max()) == pytest.approx(200_000 * 0.05, rel=1e-5)


def test_the_result_does_not_depend_on_the_threads_which_are_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("numba")
    from ringfence.training.kernels import outer_sum_cpu

    residuals, features = draw(3000, 5), draw(3000, 333, seed=1)
    tiles: list[int] = []
    threads: list[int] = []
    add = outer_sum_cpu._add
    monkeypatch.setattr(outer_sum_cpu, "_add", lambda *given: (tiles.append(given[3]), add(*given)))
    monkeypatch.setattr(outer_sum_cpu.numba, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for library in (outer_sum_cpu.numba, torch):
        monkeypatch.setattr(library, "set_num_threads", threads.append)
    short = clipped_outer_sum(residuals, features, 0.1)
    assert (tiles, threads) == ([336], [1, 2, 3])  # one thread for all columns; then as many as there were
    monkeypatch.setattr(outer_sum_cpu, "_SHORT", 0)
    assert torch.equal(clipped_outer_sum(residuals, features, 0.1), short)
    assert (tiles, threads) == ([336, 176], [1, 2, 3, 2, 2, 3])


def test_the_plain_version_is_the_definition_and_serves_float64() -> None:
    residuals, features = draw(100, 4).double(), draw(100, 6, seed=1).double()
    assert torch.allclose(plain_outer_sum(residuals, features, 0.2), definition(residuals, features, 0.2))
    assert clipped_outer_sum(residuals, features, 0.2).dtype == torch.float64


def test_no_examples_sum_to_zero() -> None:
    assert torch.equal(clipped_outer_sum(torch.zeros(0, 2), torch.zeros(0, 3), 1.0), torch.zeros(2, 3))


def test_views_that_are_not_contiguous() -> None:
    residuals, features = draw(4, 50).T, draw(9, 50, seed=1).T
    assert torch.allclose(
        clipped_outer_sum(residuals, features, 0.2).double(), definition(residuals, features, 0.2), atol=1e-5
    )


@pytest.mark.parametrize(
    ("residuals", "features", "clip", "message"),
    [
        (torch.zeros(3), torch.zeros(3, 2), 1.0, r"residuals must have two dimensions, got shape \[3\]"),
        (torch.zeros(3, 1), torch.zeros(2, 2), 1.0, "residuals hold 3 examples, features 2"),
        (torch.zeros(3, 1).double(), torch.zeros(3, 2), 1.0, "they must agree"),
        (torch.full((3, 1), torch.nan), torch.zeros(3, 2), 1.0, "residuals must not be NaN"),
        (torch.zeros(3, 1), torch.full((3, 2), torch.inf), 1.0, "features must be finite"),
        (torch.zeros(3, 1), torch.zeros(3, 2), 0.0, r"clip must be > 0, got 0\.0"),
    ],
)
def test_bad_input_is_refused_by_name(
    residuals: torch.Tensor, features: torch.Tensor, clip: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        clipped_outer_sum(residuals, features, clip)


def test_extreme_entries_are_clamped_and_not_lost() -> None:
    values = [0.0, 1e-30, 1.0, 1e10, -1e10]
    for r, x in itertools.product(values, values):
        got = float(clipped_outer_sum(torch.tensor([[r]]), torch.tensor([[x]]), 0.25))
        assert got == pytest.approx(max(-0.25, min(0.25, r * x)), abs=1e-7)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_clip_for_each_column(device: str, dtype: torch.dtype) -> None:
    residuals, features = draw(1500, 37).to(dtype), draw(1500, 270, seed=1).to(dtype)
    clips = torch.logspace(-3, 2, 37)
    got = clipped_outer_sum(residuals.to(device), features.to(device), clips.to(device)).cpu()
    for column, clip in enumerate(clips.tolist()):
        alone = definition(residuals[:, column : column + 1], features, clip)
        assert float((got[column] - alone).abs().max()) <= 3e-4 * min(clip, 10.0), clip


@pytest.mark.parametrize(
    ("clip", "message"),
    [
        (torch.ones(3), r"clip must be a number or 2 of them, got shape \[3\]"),
        (torch.tensor([1.0, 0.0]), r"clip must be > 0, got 0\.0 at index \[1\]"),
    ],
)
def test_a_wrong_clip_for_each_column_is_refused(clip: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clipped_outer_sum(torch.zeros(5, 2), torch.zeros(5, 4), clip)
