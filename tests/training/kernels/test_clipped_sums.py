"""Clamped sums of outer products, of convolutions and of rows, against single gradients in float64."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ringfence.training.kernels import clipped_sums
from ringfence.training.kernels.clipped_sums import (
    POINT,
    Contribution,
    Products,
    Rows,
    Window,
    Words,
    clipped_outer_sum,
    plain_outer_sum,
)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
on_every_device = pytest.mark.parametrize("device", DEVICES)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def outer(residuals: Tensor, features: Tensor, clip: float) -> Tensor:
    """The definition of ``clipped_outer_sum``."""
    products = residuals.double().unsqueeze(2) * features.double().unsqueeze(1)
    return products.clamp(-clip, clip).sum(dim=0)


@on_every_device
@pytest.mark.parametrize("count", [1, 5, 1023, 2050])
@pytest.mark.parametrize(("classes", "width"), [(1, 1), (3, 17), (17, 300)])
def test_outer_sums_of_any_shape(device: str, count: int, classes: int, width: int) -> None:
    residuals, features = draw(classes, count).T, draw(count, width, seed=1)  # one is not contiguous
    for clip in (1e-3, 0.5, 100.0):
        got = clipped_outer_sum(residuals.to(device), features.to(device), clip).cpu()
        exact = outer(residuals, features, clip)
        scale = min(clip, float(residuals.abs().max() * features.abs().max()))
        assert got.dtype == torch.float32
        assert float((got - exact).abs().max()) <= 3e-6 * scale * count**0.5 + 1e-6 * float(exact.abs().max())


@on_every_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_clip_for_each_column(device: str, dtype: torch.dtype) -> None:
    residuals, features = draw(1500, 37).to(dtype), draw(1500, 270, seed=1).to(dtype)
    clips = torch.logspace(-3, 2, 37)
    got = clipped_outer_sum(residuals.to(device), features.to(device), clips.to(device)).cpu()
    assert got.dtype == dtype
    for column, clip in enumerate(clips.tolist()):
        alone = outer(residuals[:, column : column + 1], features, clip)
        assert float((got[column] - alone).abs().max()) <= 3e-4 * min(clip, 10.0), clip


@on_every_device
def test_many_equal_examples_keep_their_digits(device: str) -> None:
    residuals, features = torch.full((200_000, 2), 0.7), torch.full((200_000, 3), 0.1)
    got = clipped_outer_sum(residuals.to(device), features.to(device), 0.05)
    assert float(got.max()) == pytest.approx(200_000 * 0.05, rel=1e-5)


def test_extreme_entries_are_clamped_and_not_lost_and_nothing_sums_to_zero() -> None:
    values = [0.0, 1e-30, 1.0, 1e10, -1e10]
    for r, x in itertools.product(values, values):
        got = float(clipped_outer_sum(torch.tensor([[r]]), torch.tensor([[x]]), 0.25))
        assert got == pytest.approx(max(-0.25, min(0.25, r * x)), abs=1e-7)
    assert torch.equal(clipped_outer_sum(torch.zeros(0, 2), torch.zeros(0, 3), 1.0), torch.zeros(2, 3))
    clip = float(torch.tensor(0.1))
    alone = clipped_outer_sum(draw(1, 300), 1e6 * draw(1, 300, seed=1), clip).abs()
    assert clip * (1 - 2.0**-20) < float(alone.max()) <= clip  # however its product is rounded


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


CONVOLUTIONS = {
    "2d": (Window((3, 3), (1, 1), (1, 1), (1, 1)), 4, 6, (7, 5)),
    "2d, stride": (Window((3, 2), (2, 1), (1, 0), (1, 1)), 3, 5, (8, 6)),
    "2d, groups and dilation": (Window((3, 3), (1, 2), (2, 1), (2, 1), 2), 4, 6, (9, 7)),
    "2d, depthwise": (Window((2, 2), (1, 1), (0, 0), (1, 1), 4), 4, 8, (5, 5)),
    "2d, wide groups": (Window((3, 3), (1, 1), (1, 1), (1, 1), 2), 32, 48, (6, 6)),
    "2d, shortcut": (Window((1, 1), (2, 2), (0, 0), (1, 1)), 5, 3, (6, 6)),
    "2d, point": (Window((1, 1), (1, 1), (0, 0), (1, 1)), 5, 3, (4, 3)),
    "2d, one place": (Window((4, 4), (1, 1), (0, 0), (1, 1)), 3, 5, (4, 4)),
    "1d": (Window((4,), (2,), (3,), (2,)), 3, 5, (17,)),
    "3d": (Window((2, 3, 1), (1, 2, 1), (1, 0, 0), (1, 1, 2)), 2, 4, (4, 5, 3)),
    "matrix": (POINT, 6, 4, (7,)),
    "matrix, by Gram matrices": (POINT, 60, 50, (2,)),
    "matrix, one place": (POINT, 4, 6, (1,)),
}


def convolution(name: str, dtype: torch.dtype = torch.float32, count: int = 5) -> tuple[Products, Tensor]:
    """The factors in a dtype, and each example's exact weight gradient by autograd."""
    window, channels, outputs, size = CONVOLUTIONS[name]
    x = draw(count, channels, *size).to(dtype)
    gradient = draw(count, outputs, *window.positions(size), seed=1).to(dtype)
    apply: Any = (functional.conv1d, functional.conv2d, functional.conv3d)[len(window.kernel) - 1]
    settings = (None, window.stride, window.padding, window.dilation, window.groups)
    shape, rows = (outputs, channels // window.groups, *window.kernel), []
    for slope, example in zip(gradient.double(), x.double(), strict=True):
        weight = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        output = apply(example.unsqueeze(0), weight, *settings)
        rows.append(torch.autograd.grad(output, weight, slope.unsqueeze(0))[0])
    return Products(gradient, x, window), torch.stack(rows)


def on(device: str, products: Products) -> Products:
    return Products(products.left.to(device), products.right.to(device), products.window)


@on_every_device
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_sums_and_squares_of_convolutions(device: str, dtype: torch.dtype, name: str) -> None:
    products, each = convolution(name, dtype)
    products = on(device, products)
    weights = torch.tensor([1.0, 0.0, 0.5, 2.0, 0.1])
    accuracy = 1e-12 if dtype == torch.float64 else 2.0**-16
    size = len(each) * float(each.abs().max()) * accuracy
    for limit, given in ((0.5, None), (None, None), (0.5, weights), (None, weights), (1e-3, weights)):
        scaled = each if given is None else each * given.double().view(-1, *(1,) * (each.dim() - 1))
        wanted = (scaled if limit is None else scaled.clamp(-limit, limit)).sum(dim=0)
        got = products.sum(limit, None if given is None else given.to(device)).cpu()
        assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert got.shape == wanted.shape
        assert float((got - wanted).abs().max()) <= size, (limit, given)
    squares, exact = products.squares().cpu(), each.flatten(1).square().sum(dim=1)
    assert squares.dtype == torch.float64
    assert torch.allclose(squares, exact, rtol=1e-3)
    if device == "cpu":
        assert bool((squares >= exact).all())
    for i in range(len(each)):
        pair = products.left[i : i + 1], products.right[i : i + 1]
        alone = Products(*pair, products.window).sum(None).cpu()
        assert float(squares[i]) * (1 + 2.0**-22) >= float(alone.double().square().sum())  # one rounding


ROWS = draw(5, 4, 3)
PLACES = torch.randint(0, 4, (5, 4), generator=torch.Generator().manual_seed(6)).sort(dim=1).values
FIRST = torch.stack([torch.cat([torch.ones(1), (p[1:] != p[:-1]).float()]) for p in PLACES]).unsqueeze(2)
TABLES = torch.stack(
    [torch.zeros(4, 3).index_add(0, p, row) for p, row in zip(PLACES, ROWS * FIRST, strict=True)]
)
CASES: dict[str, tuple[Contribution, Tensor]] = {
    "rows": (Rows(ROWS), ROWS),
    "words": (Words(ROWS * FIRST, PLACES, 4), TABLES),
    **{name: convolution(name) for name in ("2d, groups and dilation", "1d", "3d", "matrix")},
}


@pytest.mark.parametrize(("contribution", "formed"), CASES.values(), ids=CASES)
def test_every_kind_of_contribution(contribution: Contribution, formed: Tensor) -> None:
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0])
    scaled = formed * weights.view(-1, *(1,) * (formed.dim() - 1))
    for each in (contribution, contribution.held()):
        for got, wanted in (
            (each.sum(None), formed.sum(dim=0)),
            (each.sum(0.7), formed.clamp(-0.7, 0.7).sum(dim=0)),
            (each.sum(0.7, weights), scaled.clamp(-0.7, 0.7).sum(dim=0)),
            (each.rows(), formed),
            (each.rows(slice(1, 4)), formed[1:4]),
        ):
            assert torch.allclose(got.reshape(wanted.shape), wanted.to(got), atol=1e-4)
        exact = formed.double().flatten(1).square().sum(dim=1)
        squares = each.squares()
        assert squares.dtype == torch.float64
        assert torch.all(squares >= exact)
        assert torch.allclose(squares, exact, rtol=3e-4)


def test_squares_hold_where_everything_cancels() -> None:
    """An exact 0 that is computed as rounding errors, and a small number that is computed as 0."""
    a = torch.tensor([1.0, 1e8, -1e8]).repeat(2, 1).unsqueeze(1).expand(2, 4, 3).clone()
    b = torch.ones(2, 5, 3)
    a[1, :, 0] = 0.0
    squares = (a.double() @ b.double().mT).square().sum(dim=(1, 2))
    assert squares.tolist() == [20.0, 0.0]
    assert bool((Products(a, b).squares() >= squares).all())
    wide = Products(torch.ones(2, 40, 3), a[:, :1].expand(2, 40, 3))  # by Gram matrices
    assert float(wide.squares()[0]) >= 1600


@on_every_device
@pytest.mark.parametrize("places", [1, 3])
def test_every_example_stays_within_the_limit(device: str, places: int) -> None:
    """One example at a time and exactly, though its product overflows float32 or hardly exceeds the limit."""
    limit = float(torch.tensor(0.1))
    for size in (1e30, 1.0, 0.1 * (1 + 1e-7) / places):
        left = torch.full((1, 2, places), size, device=device)
        for sign in (1.0, -1.0):
            got = Products(left, torch.full((1, 3, places), sign, device=device)).sum(limit)
            assert float(got.abs().max()) <= limit
            assert float(got.abs().min()) >= limit * (1 - 2.0**-16)


@on_every_device
@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_is_not_clamped_away(device: str, places: int, bad: float) -> None:
    left, right = torch.zeros(4, 2, places, device=device), torch.ones(4, 3, places, device=device)
    right[1, 1, 0] = bad  # infinity times 0 is NaN
    products = Products(left, right)
    assert bool(products.sum(1.0).isnan().any())
    assert bool(products.sum(None).isnan().any())
    assert not bool(torch.isfinite(products.squares()).all())


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    products, _ = convolution("2d, groups and dilation", count=7)
    residuals, features = draw(7, 4), draw(7, 6, seed=1)

    def work() -> tuple[Tensor, ...]:
        return products.sum(0.5), products.squares(), plain_outer_sum(residuals, features, 0.2)

    whole = work()
    monkeypatch.setattr(clipped_sums, "_CHUNK_ENTRIES", 1)
    monkeypatch.setattr(clipped_sums, "_FORMED_ENTRIES", 1)
    for one, other in zip(whole, work(), strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-5)
    assert torch.allclose(whole[2].double(), outer(residuals, features, 0.2), atol=1e-6)


@on_every_device
def test_no_examples_repeated_calls_and_channels_last(device: str) -> None:
    none = Products(torch.zeros(0, 2, 3, device=device), torch.zeros(0, 4, 3, device=device))
    assert torch.equal(none.sum(1.0).cpu(), torch.zeros(2, 4, 1))
    assert none.squares().shape == (0,)
    products = on(device, convolution("2d", count=64)[0])
    first = products.sum(0.5)
    assert all(torch.equal(products.sum(0.5), first) for _ in range(3))
    last = (part.contiguous(memory_format=torch.channels_last) for part in (products.left, products.right))
    assert torch.allclose(Products(*last, products.window).sum(0.5), first, atol=1e-4)


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
