"""Values, gradients, J^T u and J v of the parts of layers: as torch's own functions give them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ringfence.training.kernels.window import Window
from ringfence.training.per_example.recorded_functions import normalised, patches, product
from tests.accounting.drawing import draw

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WINDOW = Window((3, 2), (2, 1), (1, 2), (1, 2))
CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "patches": (
        lambda x: patches(x.sin(), WINDOW),
        lambda x: functional.unfold(x.sin(), (3, 2), (1, 2), (1, 2), (2, 1)),
        ((2, 3, 6, 5),),
    ),
    "product": (lambda x, w: product(w, x.sin()), lambda x, w: w @ x.sin(), ((2, 4, 3), (2, 5, 4))),
    "normalised": (
        lambda x, w: normalised(x.sin(), 0.1) * w,
        lambda x, w: functional.layer_norm(x.sin(), (7,), eps=0.1) * w,
        ((4, 7), (4, 7)),
    ),
    "normalised twice": (
        lambda x, w: normalised(normalised(x, 0.1) * w, 0.2),
        lambda x, w: functional.layer_norm(functional.layer_norm(x, (7,), eps=0.1) * w, (7,), eps=0.2),
        ((4, 7), (4, 7)),
    ),
}


def walks(
    function: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...], device: str = "cpu"
) -> list[Tensor]:
    """The value, the gradient by the last argument, and products with that gradient's derivative by x."""

    def made(*shape: int, seed: int) -> Tensor:
        return draw(*shape, seed=seed).to(device)

    x, *rest = (made(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes))
    value = function(x, *rest)
    weight = rest[-1] if rest else x
    (gradient,) = torch.autograd.grad(value.pow(3).sum(), weight, create_graph=True)
    u = torch.zeros_like(gradient).requires_grad_()
    (pulled,) = torch.autograd.grad(gradient, x, u, create_graph=True)
    results = [value, gradient]
    for seed in (5, 6):  # a walk may be repeated
        results += torch.autograd.grad(gradient, x, made(*gradient.shape, seed=seed), retain_graph=True)
        results += torch.autograd.grad(pulled, u, made(*x.shape, seed=seed), retain_graph=True)
    return results


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_every_walk_is_that_of_torch(name: str, device: str) -> None:
    ours, theirs, shapes = CASES[name]
    for found, truth in zip(walks(ours, shapes, device), walks(theirs, shapes), strict=True):
        torch.testing.assert_close(found.cpu(), truth, rtol=1e-11, atol=1e-12)


def test_what_was_made_for_one_direction_refuses_another_derivative() -> None:
    """Else it would be silently without the terms that are left out."""
    x, w = draw(1, 3, 2).requires_grad_(), draw(1, 2, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(product(w, x).pow(3).sum(), w, create_graph=True)
    u = torch.zeros_like(gradient).requires_grad_()
    (pulled,) = torch.autograd.grad(gradient, x, u, create_graph=True)
    (image,) = torch.autograd.grad(pulled, u, draw(1, 3, 2), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        image.sum().backward()
