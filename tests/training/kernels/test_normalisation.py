"""Normalisations against torch's, and their gradients of single examples, by autograd in float64."""

import pytest
import torch
from torch.nn import functional

from ringfence.training.kernels.normalisation import group_norm, group_norm_rows, layer_norm_rows

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-5, torch.float16: 2e-5}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((3, 6, 5, 4), 2), ((2, 8, 7), 8), ((4, 12), 3), ((2, 48, 9, 9), 16), ((2, 64, 17, 16), 4)],
)
def test_groups(device: str, dtype: torch.dtype, last: bool, shape: tuple[int, ...], groups: int) -> None:
    """The output, its derivative by x, and each example's gradients by weight and bias."""
    x, slope = (10 + 3 * draw(*shape)).to(device, dtype), draw(*shape, seed=1).to(device, dtype)
    if last:  # channels last in memory
        x, slope = (part.movedim(1, -1).contiguous().movedim(-1, 1) for part in (x, slope))
    weight, bias = (draw(shape[1], seed=seed).to(device, dtype) for seed in (2, 3))
    rows = group_norm_rows(slope, x, groups, 1e-3)
    assert rows[0].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    leaf = x.clone().requires_grad_()
    output = group_norm(leaf, groups, weight, bias, 1e-3)
    found = [output.detach(), *torch.autograd.grad(output, leaf, slope)]
    assert {part.dtype for part in found} == {dtype}
    near = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    for i in range(len(x)):
        one, *parameters = (part.cpu().double().requires_grad_() for part in (x[i : i + 1], weight, bias))
        exact = functional.group_norm(one, groups, *parameters, 1e-3)
        by_x, *wanted = torch.autograd.grad(exact, [one, *parameters], slope[i : i + 1].cpu().double())
        for got, truth in zip(found, (exact.detach(), by_x), strict=True):
            assert float((got[i].cpu() - truth[0]).abs().max()) <= 2 * near * float(truth.abs().max())
        for got, truth in zip(rows, wanted, strict=True):
            assert float((got[i].cpu() - truth).abs().max()) <= DTYPES[dtype] * 10


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("places", "width"), [(1, 5), (6, 8), (33, 200)])
def test_layers(device: str, dtype: torch.dtype, centred: bool, places: int, width: int) -> None:
    x, slope = (10 + 3 * draw(3, places, width)).to(dtype), draw(3, places, width, seed=1).to(dtype)
    weight, bias = layer_norm_rows(slope.to(device), x.to(device), width, 1e-3, centred=centred)
    for i in range(3):
        parameters = [torch.ones(width, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        row = x[i].double()
        if centred:
            output = functional.layer_norm(row, (width,), *parameters, 1e-3)
        else:
            output = functional.rms_norm(row, (width,), parameters[0], 1e-3) + parameters[1]
        wanted = torch.autograd.grad(output, parameters, slope[i].double())
        for got, exact in zip((weight[i], bias[i]), wanted, strict=True):
            assert float((got.cpu() - exact).abs().max()) <= DTYPES[dtype] * 10


@pytest.mark.parametrize("device", DEVICES)
def test_no_examples_and_nan(device: str) -> None:
    none = torch.zeros(0, 4, 3, device=device)
    assert [part.shape for part in group_norm_rows(none, none, 2, 1e-5)] == [(0, 4), (0, 4)]
    assert [part.shape for part in layer_norm_rows(none, none, 3, 1e-5)] == [(0, 3), (0, 3)]
    bad = torch.ones(2, 4, 3, device=device)
    bad[1, 0, 0] = torch.nan
    good = torch.ones(2, 4, 3, device=device)
    for rows in (group_norm_rows(bad, good, 2, 1e-5), layer_norm_rows(bad, good, 3, 1e-5)):
        assert all(bool(part[1].isnan().any()) and not bool(part[0].isnan().any()) for part in rows)
