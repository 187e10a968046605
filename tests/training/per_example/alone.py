"""What the tests of the fused pass compare with: ordinary autograd, one example after the other."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

import ringfence as rf
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.isolation import Inputs


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A model with the same weights every time, none of which is left at 0 or 1."""
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        model = make()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def words(*shape: int, below: int = 5) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(6))


def gradients_alone(model: nn.Module, inputs: Inputs, cotangents: list[Tensor]) -> Tensor:
    """The flat gradients of single examples."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for i in range(len(tree_leaves(inputs)[0])):
        args, kwargs = tree_map(lambda value: value[i : i + 1], inputs)  # noqa: B023
        outputs = tree_leaves(model(*args, **kwargs))
        slopes = [value[i : i + 1] for value in cotangents]
        each = torch.autograd.grad(outputs, trained, slopes, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.reshape(-1) for gradient in each]))
    return torch.stack(rows)


def agree(make: Callable[[], nn.Module], *args: Tensor, **kwargs: Any) -> ExampleGradients:
    """Asserts that fused sums are those of examples alone, in float64, and that no example adds too much.

    With slopes a million times as steep every example is clipped. Rows of one unit, all of them
    or two each, are clipped as one.
    """
    model = seeded(make).double()
    inputs: Inputs = tree_map(lambda x: x.double() if x.is_floating_point() else x, (args, kwargs))
    gradients = ExampleGradients(model)
    outputs = tree_leaves(gradients.forward(inputs))
    assert gradients.fallback_reason is None, gradients.fallback_reason
    cotangents = [drawn(*output.shape).double() for output in outputs]
    alone = gradients_alone(model, inputs, cotangents)
    scale = float(alone.abs().max())
    norms = rf.Norm(0.5 * scale), rf.Norm(0.5 * scale, each=0.1 * scale)
    for clip in (rf.Clamp(0.1 * scale), *norms):
        for factor in (1.0, 1e6):
            gradients.forward(inputs)
            ours = gradients.clipped_sum(inputs, [factor * each for each in cotangents], clip)
            theirs = clip(factor * alone).sum(dim=0)
            error = float((ours - theirs).abs().max())
            assert error <= (1e-5 if isinstance(clip, rf.Norm) else 1e-6) * clip.largest, (clip, factor)
    for count, per_unit in {(len(alone), len(alone)), (len(alone) // 2 * 2, 2)} - {(0, 2)}:
        some, slopes = tree_map(lambda x: x[:count], inputs), [each[:count] for each in cotangents]  # noqa: B023
        together = alone[:count].unflatten(0, (-1, per_unit)).sum(dim=1)
        units = ExampleGradients(model, per_unit=per_unit)
        for clip in (rf.Clamp(0.1 * scale), norms[0]):
            units.forward(some)
            ours, theirs = units.clipped_sum(some, slopes, clip), clip(together).sum(dim=0)
            assert float((ours - theirs).abs().max()) <= 1e-5 * clip.largest, (clip, per_unit)
    bounded(seeded(make), *args, **kwargs)
    return gradients


def bounded(model: nn.Module, *args: Tensor, **kwargs: Tensor) -> ExampleGradients:
    """Asserts that one example of enormous gradients adds at most c to each coordinate, in float32."""
    inputs: Inputs = tree_map(lambda x: x[:1], (args, kwargs))
    gradients, clip = ExampleGradients(model), rf.Clamp(0.1)
    outputs = tree_leaves(gradients.forward(inputs))
    assert gradients.fallback_reason is None, gradients.fallback_reason
    total = gradients.clipped_sum(inputs, [1e10 * drawn(*output.shape) for output in outputs], clip)
    assert float(total.abs().max()) <= clip.largest
    assert float(total.abs().max()) >= 0.999 * clip.largest
    return gradients
