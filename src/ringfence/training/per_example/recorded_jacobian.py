"""The derivative of examples' clipped gradients by their features, recorded once and applied many times."""

import math
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from ringfence.numerics.lengths import row_lengths
from ringfence.numerics.operators import BatchedOperator
from ringfence.training.clipping import Clip, Norm
from ringfence.training.per_example.example_weights import UnknownUseError, output_with_example_weights
from ringfence.training.per_example.jacobian_operator import MixedDerivatives

_TINY = torch.finfo(torch.float64).tiny
_AGREEMENT = 1e-8  # relative, in float64
_COPIES = 6  # of an example's gradient, in float64, that a product holds


class RecordedJacobian:
    """J = d gradient / d x of a few examples, as two graphs of autograd.

    The first graph leads from x to the gradients, so that walking it backwards gives J^T u. As J^T u is
    linear in u, walking its own graph backwards to u gives J v. Each walk takes four batched products per
    layer, and nothing that does not depend on the direction is computed again.

    >>> from torch import nn
    >>> derivatives = MixedDerivatives(nn.Linear(2, 1, bias=False), lambda output, y: output, torch.float64)
    >>> one = RecordedJacobian(derivatives, torch.ones(1, 2).double(), torch.zeros(1))
    >>> one.apply(torch.tensor([[3.0, 4.0]])).tolist()  # the gradient of w . x is x
    [[3.0, 4.0]]
    """

    def __init__(self, derivatives: MixedDerivatives, x: Tensor, y: Tensor) -> None:
        """Raises ``UnknownUseError`` where the model uses a weight in a way that is not known."""
        with torch.enable_grad():
            self._x = x.detach().clone().requires_grad_()
            own = {
                name: value.detach().expand(len(x), *value.shape).requires_grad_()
                for name, value in derivatives.trained.items()
            }
            outputs = output_with_example_weights(derivatives.model, own, derivatives.fixed, self._x)
            losses = vmap(lambda output, y: derivatives.loss(output[None], y[None]).sum())(outputs, y)
            parts = torch.autograd.grad(
                losses.sum(), list(own.values()), create_graph=True, materialize_grads=True
            )
            # apart, not as one vector: autograd would fill and add whole vectors for each of the parts
            self._parts = [part for part in parts if part.requires_grad]
            if len(self._parts) < len(parts):
                raise UnknownUseError("a gradient that does not depend on the features")
            self._directions = [torch.zeros_like(part).requires_grad_() for part in parts]
            (self._pulled,) = torch.autograd.grad(self._parts, self._x, self._directions, create_graph=True)

    @property
    def gradients(self) -> Tensor:
        """The gradients of the examples, (n, d)."""
        return _flat(self._parts).detach()

    def apply(self, direction: Tensor) -> Tensor:
        """J v, (n, p) to (n, d)."""
        along = direction.reshape(self._x.shape).to(self._x.dtype)
        return _flat(
            torch.autograd.grad(
                self._pulled, self._directions, along, retain_graph=True, materialize_grads=True
            )
        )

    def apply_transpose(self, direction: Tensor) -> Tensor:
        """J^T u, (n, d) to (n, p), in float64."""
        pieces = direction.to(self._x.dtype).split([part[0].numel() for part in self._parts], dim=1)
        shaped = [piece.view(part.shape) for piece, part in zip(pieces, self._parts, strict=True)]
        (pulled,) = torch.autograd.grad(self._parts, self._x, shaped, retain_graph=True)
        return pulled.flatten(1).double()


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def recorded_operator(
    derivatives: MixedDerivatives, clip: Clip, x: Tensor, y: Tensor, weights: Tensor, rounding: float
) -> BatchedOperator:
    """As ``jacobian_operator``, for models that ``is_recordable``."""
    recorded = RecordedJacobian(derivatives, x, y)
    gradients = recorded.gradients
    if not bool(torch.isfinite(gradients).all()):
        raise ValueError("model and loss must give finite gradients, got NaN or infinity")
    forward, backward = _weighted_clip(clip, gradients, weights)
    count, width = len(x), math.prod(x.shape[1:])

    def image(vectors: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(diag(weights) J v / |v| of all examples, 0 for those not in ``rows``; its length)."""
        every = torch.zeros(count, width, dtype=torch.float64, device=x.device)
        every[rows] = vectors / _lengths(vectors)  # unit vectors cannot leave the range of float32
        seen = forward(recorded.apply(every))
        return seen, _lengths(seen)

    def squares(block: Tensor, rows: Tensor) -> Tensor:
        sizes = [image(vectors, rows)[1][rows] * _lengths(vectors) for vectors in block.unbind(1)]
        return torch.cat(sizes, dim=1).square()

    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        sizes, backs = [], []
        for vectors in block.unbind(1):
            seen, size = image(vectors, rows)
            sizes.append(size[rows] * _lengths(vectors))
            backs.append(recorded.apply_transpose(backward(seen.div_(size)))[rows] * sizes[-1])
        return torch.cat(sizes, dim=1).square(), torch.stack(backs, dim=1)

    return BatchedOperator(count, (derivatives.size, width), squares, gram, rounding, x.device)


def _weighted_clip(
    clip: Clip, gradients: Tensor, weights: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """diag(weights) C and its transpose, where C is the derivative of the clip at these gradients, (n, d)."""
    if isinstance(clip, Norm):
        return _weighted_norm(clip, gradients, weights)
    back = vjp(clip, gradients)[1]
    if clip.looks_at == "coordinate":  # C is a diagonal, and a product with it takes one pass
        diagonal = back(torch.ones_like(gradients))[0] * weights
        return lambda moved: moved * diagonal, lambda seen: seen.mul_(diagonal)
    return (
        lambda moved: jvp(clip, (gradients,), (moved,))[1].double() * weights,
        lambda seen: back(seen.mul_(weights).to(gradients.dtype))[0],
    )


def _weighted_norm(
    clip: Norm, gradients: Tensor, weights: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The same for ``Norm``: of m it leaves f (m - u <u, m>), and 0 where a coordinate is clamped afterwards.

    f is the factor that makes a gradient shorter, and u its direction, or 0 where it is short enough.
    """
    lengths = row_lengths(gradients).unsqueeze(1)
    factors = clip.factors(lengths, gradients.dtype)
    units = (gradients / lengths.clamp(min=_TINY) * (lengths > clip.aim)).to(gradients.dtype)
    scale = factors * weights
    if clip.limit is not None:
        scale = scale * ((gradients * factors).abs() <= clip.limit)

    def across(moved: Tensor) -> Tensor:
        along = (units * moved).sum(1, keepdim=True, dtype=torch.float64).to(moved.dtype)
        return torch.addcmul(moved, units, along, value=-1)

    return lambda moved: across(moved) * scale, lambda seen: across(seen.mul_(scale).to(gradients.dtype))


def _lengths(vectors: Tensor) -> Tensor:
    """(n, 1), and a tiny number in place of 0."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return lengths.clamp(min=_TINY)


def recorded_bytes_per_example(derivatives: MixedDerivatives, x: Tensor, y: Tensor) -> int:
    """Memory that one example takes, roughly: what the graphs keep, and copies of the gradient."""
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        held = RecordedJacobian(derivatives, x[:1], y[:1])
    del held
    return sum(kept.values()) + _COPIES * 8 * derivatives.size


def is_recordable(derivatives: MixedDerivatives, x: Tensor, y: Tensor) -> bool:
    """Whether every use of a weight is known, and examples have the same derivatives together and alone.

    Warns where they have others: something in the model mixes the examples of a batch. This is seen in
    float64, because in float32 rounding may turn a ReLU on or off.
    """
    x, y = x.double(), y.double() if y.is_floating_point() else y
    derivatives = MixedDerivatives(derivatives.model, derivatives.loss, torch.float64)
    try:
        recorded = RecordedJacobian(derivatives, x, y)
    except UnknownUseError:
        return False
    direction = torch.linspace(-1, 1, derivatives.size, dtype=torch.float64, device=x.device).cos()
    together = recorded.gradients, recorded.apply_transpose(direction.expand(len(x), -1))
    alone = (vmap(derivatives.flat)(x, y), vmap(lambda x, y: derivatives.backward(x, y, direction))(x, y))
    for ours, theirs in zip(together, alone, strict=True):
        # a NaN agrees: it is refused later, by name
        if bool(((ours - theirs).norm(dim=1) > _AGREEMENT * theirs.norm(dim=1)).any()):
            warnings.warn(
                "the model mixes the examples of a batch: each goes through it alone, which is slower",
                stacklevel=3,
            )
            return False
    return True
