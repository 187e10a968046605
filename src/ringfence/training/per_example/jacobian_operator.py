"""The derivative of examples' clipped gradients by their features, as an operator: never as a matrix."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap

from ringfence.numerics.operators import BatchedOperator
from ringfence.training.clipping import Clip
from ringfence.training.per_example.gradients import bytes_kept

Loss = Callable[[Tensor, Tensor], Tensor]


class MixedDerivatives:
    """The flat gradient grad_w of one example's loss, and the mixed second derivatives of that loss.

    Parameters, buffers and inputs are cast to ``dtype``.

    >>> derivatives = MixedDerivatives(nn.Linear(2, 1, bias=False), lambda output, y: output, torch.float64)
    >>> derivatives.flat(torch.tensor([3.0, 4.0]).double(), torch.zeros(())).tolist()  # of w . x
    [3.0, 4.0]
    """

    def __init__(self, model: nn.Module, loss: Loss, dtype: torch.dtype) -> None:
        def cast(tensor: Tensor) -> Tensor:
            # a copy: a layer may write to its buffers
            return tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)

        parameters = dict(model.named_parameters())
        self.model, self.loss = model, loss
        self.trained = {name: cast(value) for name, value in parameters.items() if value.requires_grad}
        self.fixed = {name: cast(value) for name, value in parameters.items() if not value.requires_grad}
        self.fixed |= {name: cast(value) for name, value in model.named_buffers()}
        self.size = sum(value.numel() for value in self.trained.values())
        if not self.size:
            raise ValueError("model must have a parameter that requires a gradient, got none")

    def value(self, trained: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """The loss of one example."""
        output = functional_call(self.model, {**trained, **self.fixed}, (x[None],))
        return self.loss(output, y[None]).sum()

    def flat(self, x: Tensor, y: Tensor) -> Tensor:
        """grad_w of the loss, (d,)."""
        parts = grad(self.value)(self.trained, x, y)
        return torch.cat([part.reshape(-1) for part in parts.values()])

    def forward(self, x: Tensor, y: Tensor, direction: Tensor) -> Tensor:
        """J v: how grad_w changes when x moves along ``direction``, (p,) to (d,)."""
        tangent: Tensor = jvp(lambda x: self.flat(x, y), (x,), (direction.reshape(x.shape),))[1]
        return tangent

    def backward(self, x: Tensor, y: Tensor, direction: Tensor) -> Tensor:
        """J^T u: how grad_x changes when w moves along ``direction``, (d,) to (p,)."""
        pieces = direction.split([value.numel() for value in self.trained.values()])
        moved = {
            name: piece.reshape(value.shape)
            for (name, value), piece in zip(self.trained.items(), pieces, strict=True)
        }
        by_input = grad(self.value, argnums=1)
        tangent: Tensor = jvp(lambda w: by_input(w, x, y), (self.trained,), (moved,))[1]
        return tangent.reshape(-1)

    def bytes_per_example(self, x: Tensor, probes: int) -> int:
        """Memory that one example takes, roughly: what a gradient keeps, twice for every tangent."""
        trained = {name: value.clone().requires_grad_() for name, value in self.trained.items()}
        kept = bytes_kept(lambda: functional_call(self.model, {**trained, **self.fixed}, (x,)))
        return (probes + 1) * (2 * kept + 16 * self.size)


def jacobian_operator(
    derivatives: MixedDerivatives, clip: Clip, x: Tensor, y: Tensor, weights: Tensor, rounding: float
) -> BatchedOperator:
    """diag(weights) d clip(gradient) / d x of a few examples, one matrix per example."""
    at = vmap(derivatives.flat)(x, y)
    if not bool(torch.isfinite(at).all()):
        raise ValueError("model and loss must give finite gradients, got NaN or infinity")
    forward, backward = (
        vmap(vmap(direction, in_dims=(None, None, 0)))
        for direction in (derivatives.forward, derivatives.backward)
    )

    def image(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(|v|, diag(weights) J v / |v|): unit vectors cannot leave the range of float32."""
        norm = block.norm(dim=2, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        moved = forward(x[rows], y[rows], (block / norm).to(x.dtype))
        clipped = vmap(lambda t: jvp(clip, (at[rows],), (t,))[1], in_dims=1, out_dims=1)(moved)
        return norm, clipped.double() * weights

    def squares(block: Tensor, rows: Tensor) -> Tensor:
        norm, seen = image(block, rows)
        result: Tensor = (seen.norm(dim=2) * norm[:, :, 0]).square()
        return result

    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        norm, seen = image(block, rows)
        size = seen.norm(dim=2, keepdim=True)
        unit = (seen * weights / size.clamp(min=torch.finfo(torch.float64).tiny)).to(x.dtype)
        unclipped = vmap(vjp(clip, at[rows])[1], in_dims=1, out_dims=1)(unit)[0]
        back = backward(x[rows], y[rows], unclipped).double() * (size * norm)
        return (size * norm).square()[:, :, 0], back

    shape = (derivatives.size, math.prod(x.shape[1:]))
    return BatchedOperator(len(x), shape, squares, gram, rounding, x.device)
