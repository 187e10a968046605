"""Clamped sums of products and of convolutions against the gradients of single examples in float64."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from ringfence.training.kernels import product_sum as plain
from ringfence.training.kernels.product_sum import convolution_rows, convolution_squares, convolution_sum
from ringfence.training.kernels.window import POINT, Window

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
CONVOLUTIONS = {
    "2d": (Window((3, 3), (1, 1), (1, 1), (1, 1)), 4, 6, (7, 5)),
    "2d, stride": (Window((3, 2), (2, 1), (1, 0), (1, 1)), 3, 5, (8, 6)),
    "2d, groups and dilation": (Window((3, 3), (1, 2), (2, 1), (2, 1), 2), 4, 6, (9, 7)),
    "2d, depthwise": (Window((2, 2), (1, 1), (0, 0), (1, 1), 4), 4, 8, (5, 5)),
    "2d, wide groups": (Window((3, 3), (1, 1), (1, 1), (1, 1), 2), 32, 48, (6, 6)),
    "2d, shortcut": (Window((1, 1), (2, 2), (0, 0), (1, 1)), 5, 3, (6, 6)),
    "2d, one place": (Window((4, 4), (1, 1), (0, 0), (1, 1)), 3, 5, (4, 4)),
    "1d": (Window((4,), (2,), (3,), (2,)), 3, 5, (17,)),
    "3d": (Window((2, 3, 1), (1, 2, 1), (1, 0, 0), (1, 1, 2)), 2, 4, (4, 5, 3)),
}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product_sum(left: torch.Tensor, right: torch.Tensor, limit: float | None) -> torch.Tensor:
    """The clamped sum of a matrix that is applied at every position of (n, T, p) and (n, T, q)."""
    return convolution_sum(left.mT, right.mT, POINT, limit).squeeze(2)


def product_squares(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return convolution_squares(left.mT, right.mT, POINT)


def convolution(name: str, count: int = 5) -> tuple[torch.Tensor, torch.Tensor, Window, torch.Tensor]:
    """Factors, the window, and each example's exact weight gradient, by autograd."""
    window, channels, outputs, size = CONVOLUTIONS[name]
    x = draw(count, channels, *size)
    gradient = draw(count, outputs, *window.positions(size), seed=1)
    return gradient, x, window, exact(gradient, x, window)


def exact(gradient: torch.Tensor, x: torch.Tensor, window: Window) -> torch.Tensor:
    apply: Any = (functional.conv1d, functional.conv2d, functional.conv3d)[len(window.kernel) - 1]
    settings = (None, window.stride, window.padding, window.dilation, window.groups)
    rows = []
    for slope, example in zip(gradient.double(), x.double(), strict=True):
        shape = (gradient.shape[1], x.shape[1] // window.groups, *window.kernel)
        weight = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        output = apply(example.unsqueeze(0), weight, *settings)
        rows.append(torch.autograd.grad(output, weight, slope.unsqueeze(0))[0])
    return torch.stack(rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(device: str, dtype: torch.dtype, name: str) -> None:
    gradient, x, window, _ = convolution(name)
    gradient, x = gradient.to(dtype), x.to(dtype)  # what half precision rounds is not at stake
    each = exact(gradient, x, window)
    weights = torch.tensor([1.0, 0.0, 0.5, 2.0, 0.1])
    accuracy = 1e-12 if dtype == torch.float64 else 2.0**-16
    size = len(x) * float(each.abs().max()) * accuracy
    for limit, given in ((0.5, None), (None, None), (0.5, weights), (None, weights), (1e-3, weights)):
        scaled = each if given is None else each * given.double().view(-1, *(1,) * (each.dim() - 1))
        wanted = (scaled if limit is None else scaled.clamp(-limit, limit)).sum(dim=0)
        some = None if given is None else given.to(device)
        got = convolution_sum(gradient.to(device), x.to(device), window, limit, some).cpu()
        assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert got.shape == wanted.shape
        assert float((got - wanted).abs().max()) <= size, (limit, given)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_rows_that_are_held(name: str) -> None:
    gradient, x, window, each = convolution(name)
    assert torch.allclose(convolution_rows(gradient, x, window).double(), each, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_squares_are_from_above_and_close(device: str, dtype: torch.dtype, name: str) -> None:
    gradient, x, window, _ = convolution(name)
    gradient, x = gradient.to(dtype), x.to(dtype)
    squares = exact(gradient, x, window).flatten(1).square().sum(dim=1)
    gradient, x = gradient.to(device), x.to(device)
    got = convolution_squares(gradient, x, window).cpu()
    assert got.dtype == torch.float64
    assert torch.allclose(got, squares, rtol=1e-3)
    if device == "cpu":
        assert bool((got >= squares).all())
    for i in range(len(x)):
        alone = convolution_sum(gradient[i : i + 1], x[i : i + 1], window, None).cpu()
        assert float(got[i]) * (1 + 2.0**-22) >= float(alone.double().square().sum())  # one rounding


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("places", "left", "right"), [(1, 4, 6), (7, 20, 33), (40, 3, 2), (2, 50, 60)])
def test_products(device: str, places: int, left: int, right: int) -> None:
    a, b = draw(300, places, left), draw(300, places, right, seed=1)
    each = a.double().mT @ b.double()
    got = product_sum(a.to(device), b.to(device), 0.3).cpu()
    assert torch.allclose(got.double(), each.clamp(-0.3, 0.3).sum(dim=0), atol=300 * 2e-6)
    squares, got = each.square().sum(dim=(1, 2)), product_squares(a.to(device), b.to(device)).cpu()
    assert torch.allclose(got, squares, rtol=1e-3)
    if device == "cpu" or places == 1:
        assert bool((got >= squares * (1 - 2.0**-22)).all())


def test_squares_hold_where_everything_cancels() -> None:
    """An exact 0 that is computed as rounding errors, and a small number that is computed as 0."""
    a = torch.tensor([1.0, 1e8, -1e8]).repeat(2, 1).unsqueeze(2).expand(2, 3, 4).clone()
    b = torch.ones(2, 3, 5)
    a[1, 0] = 0.0
    squares = (a.double().mT @ b.double()).square().sum(dim=(1, 2))
    assert squares.tolist() == [20.0, 0.0]
    assert bool((product_squares(a, b) >= squares).all())
    wide = torch.ones(2, 3, 40), a[:, :, :1].expand(2, 3, 40)  # by Gram matrices
    assert float(product_squares(*wide)[0]) >= 1600


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("places", [1, 3])
def test_every_example_stays_within_the_limit(device: str, places: int) -> None:
    """One example at a time and exactly, though its product overflows float32 or hardly exceeds the limit."""
    limit = float(torch.tensor(0.1))
    for size in (1e30, 1.0, 0.1 * (1 + 1e-7) / places):
        left = torch.full((1, places, 2), size, device=device)
        for sign in (1.0, -1.0):
            right = torch.full((1, places, 3), sign, device=device)
            got = product_sum(left, right, limit)
            assert float(got.abs().max()) <= limit
            assert float(got.abs().min()) >= limit * (1 - 2.0**-16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_is_not_clamped_away(device: str, places: int, bad: float) -> None:
    left, right = torch.zeros(4, places, 2), torch.ones(4, places, 3)
    right[1, 0, 1] = bad  # infinity times 0 is NaN
    assert bool(product_sum(left.to(device), right.to(device), 1.0).isnan().any())
    assert bool(product_sum(left.to(device), right.to(device), None).isnan().any())
    assert not bool(torch.isfinite(product_squares(left.to(device), right.to(device))).all())


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient, x, window, _ = convolution("2d, groups and dilation", 7)
    whole = convolution_sum(gradient, x, window, 0.5), convolution_squares(gradient, x, window)
    monkeypatch.setattr(plain, "_CHUNK_ENTRIES", 1)
    parts = convolution_sum(gradient, x, window, 0.5), convolution_squares(gradient, x, window)
    for one, other in zip(whole, parts, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_no_examples_and_repeated_calls(device: str) -> None:
    none = torch.zeros(0, 3, 2, device=device), torch.zeros(0, 3, 4, device=device)
    assert torch.equal(product_sum(*none, 1.0).cpu(), torch.zeros(2, 4))
    assert product_squares(*none).shape == (0,)
    gradient, x, window, _ = convolution("2d", 64)
    gradient, x = gradient.to(device), x.to(device)
    first = convolution_sum(gradient, x, window, 0.5)
    assert all(torch.equal(convolution_sum(gradient, x, window, 0.5), first) for _ in range(3))
    last = (part.contiguous(memory_format=torch.channels_last) for part in (gradient, x))
    assert torch.allclose(convolution_sum(*last, window, 0.5), first, atol=1e-4)


def test_every_tile_fits() -> None:
    """Powers of two, wide enough for tensor cores, no larger than what fits."""
    pytest.importorskip("triton")
    from ringfence.training.kernels.product_sum_cuda import bytes_held, choose_tile

    sizes = (1, 3, 16, 27, 64, 100, 384, 2304)
    for rows, columns, places in itertools.product(sizes, sizes, (2, 64, 197, 1024)):
        for split, point in itertools.product((False, True), repeat=2):
            tile = choose_tile(rows, columns, places, split=split, point=point)
            assert all(16 <= side == side & -side for side in tile[:3])
            assert tile.rows < 2 * max(16, rows)
            assert tile.columns < 2 * max(16, columns)
            for shared in (227, 163, 99, 64):  # KiB, from an H200 to a T4
                smaller = choose_tile(rows, columns, places, split=split, point=point, shared=shared * 1024)
                assert bytes_held(smaller, split=split) <= shared * 1024
                assert smaller.places >= 16
            # registers for the product and its sum
            assert 2 * tile.rows * tile.columns <= 128 * 32 * tile.warps


def test_patches_are_those_of_torch() -> None:
    x = torch.arange(2 * 4 * 7 * 9, dtype=torch.float32).view(2, 4, 7, 9)
    window = Window((3, 2), (2, 3), (1, 0), (2, 1), 2)
    patches = window.patches(x.contiguous(memory_format=torch.channels_last))
    wanted = functional.unfold(x, window.kernel, window.dilation, window.padding, window.stride)
    assert torch.equal(patches.flatten(1, 2), wanted)
    assert patches.shape[1] == 2


def test_the_overlap_is_the_largest_number_of_places_that_see_one_number() -> None:
    for kernel, stride, dilation in itertools.product(range(1, 6), repeat=3):
        window = Window((kernel,), (stride,), (0,), (dilation,))
        marks = torch.arange(1.0, 101.0).view(1, 1, 100)
        seen = window.patches(marks).flatten().unique(return_counts=True)[1]
        assert int(seen.max()) == window.overlap, window


def test_a_window_without_one_length_is_refused() -> None:
    with pytest.raises(ValueError, match="window must have one to three numbers of each kind"):
        Window((3, 3), (1,), (0, 0), (1, 1))
