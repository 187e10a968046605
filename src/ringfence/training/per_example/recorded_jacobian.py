"""The derivative of examples' clipped gradients by their features, recorded once and applied many times."""

import math
import warnings

import torch
from torch import Tensor
from torch.func import vmap

from ringfence.numerics.spectral.batched_operator import BatchedOperator
from ringfence.training.clipping import Clip
from ringfence.training.per_example.example_weights import UnknownUse, output_with_example_weights
from ringfence.training.per_example.jacobian_operator import MixedDerivatives

_TINY = torch.finfo(torch.float64).tiny
_AGREEMENT = {torch.float64: 1e-8, torch.float32: 1e-3}
_COPIES = 6  # of an example's gradient, in float64, that a product holds


class RecordedJacobian:
    """diag(weights) d clip(gradient) / d x of a few examples, as two graphs of autograd.

    The first graph leads from x to the clipped gradients g, so that walking it backwards gives J^T u. As J^T u
    is linear in u, walking its own graph backwards to u gives J v. Each walk takes four batched products per
    layer, and nothing that does not depend on the direction is computed again.

    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> derivatives = MixedDerivatives(model, lambda output, y: output**2 / 2, torch.float64)
    >>> x = torch.tensor([[1.0, 0.0]]).double()
    >>> one = RecordedJacobian(derivatives, None, x, torch.zeros(1), torch.ones(2).double())
    >>> bool((one.apply(x) @ one.apply(x).mT).sum() - (one.apply_transpose(one.apply(x)) * x).sum() < 1e-12)
    True
    """

    def __init__(
        self, derivatives: MixedDerivatives, clip: Clip | None, x: Tensor, y: Tensor, weights: Tensor
    ) -> None:
        """``clip`` None leaves gradients as they are. Raises ``UnknownUse`` where the model is not known."""
        count = len(x)
        with torch.enable_grad():
            self._x = x.detach().clone().requires_grad_()
            own = {
                name: value.detach().expand(count, *value.shape).requires_grad_()
                for name, value in derivatives.trained.items()
            }
            outputs = output_with_example_weights(derivatives.model, own, derivatives.fixed, self._x)
            losses = vmap(lambda output, y: derivatives.loss(output[None], y[None]).sum())(outputs, y)
            parts = torch.autograd.grad(
                losses.sum(), list(own.values()), create_graph=True, materialize_grads=True
            )
            gradients = torch.cat([part.flatten(1) for part in parts], dim=1)
            clipped = gradients if clip is None else clip(gradients)
            self.gradients = gradients.detach()
            self._image = clipped.double() * weights
            self._direction = torch.zeros_like(self._image).requires_grad_()
            if not self._image.requires_grad:
                raise UnknownUse("gradients that do not depend on the features")
            (self._pulled,) = torch.autograd.grad(
                self._image, self._x, self._direction, create_graph=True, materialize_grads=True
            )
            if not self._pulled.requires_grad:
                raise UnknownUse("gradients that do not depend on the features")

    def apply(self, direction: Tensor) -> Tensor:
        """diag(weights) J v, (n, p) to (n, d)."""
        along = direction.reshape(self._x.shape).to(self._x.dtype)
        (image,) = torch.autograd.grad(self._pulled, self._direction, along, retain_graph=True)
        return image

    def apply_transpose(self, direction: Tensor) -> Tensor:
        """J^T diag(weights) u, (n, d) to (n, p), in float64."""
        (pulled,) = torch.autograd.grad(self._image, self._x, direction, retain_graph=True)
        return pulled.flatten(1).double()


def recorded_operator(
    derivatives: MixedDerivatives, clip: Clip, x: Tensor, y: Tensor, weights: Tensor, rounding: float
) -> BatchedOperator:
    """As ``jacobian_operator``, for models that ``is_recordable``."""
    recorded = RecordedJacobian(derivatives, clip, x, y, weights)
    if not bool(torch.isfinite(recorded.gradients).all()):
        raise ValueError("model and loss must give finite gradients, got NaN or infinity")
    count, width = len(x), math.prod(x.shape[1:])

    def image(vectors: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(|A v|, A v / |A v|) of all examples, 0 for those that are not in ``rows``."""
        norm = vectors.norm(dim=1, keepdim=True).clamp(min=_TINY)
        every = torch.zeros(count, width, dtype=torch.float64, device=x.device)
        every[rows] = vectors / norm  # unit vectors cannot leave the range of float32
        seen = recorded.apply(every)
        size = seen.norm(dim=1, keepdim=True)
        return size[rows] * norm, seen, size

    def squares(block: Tensor, rows: Tensor) -> Tensor:
        return torch.cat([image(vectors, rows)[0] for vectors in block.unbind(1)], dim=1).square()

    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        sizes, backs = [], []
        for vectors in block.unbind(1):
            size, seen, scale = image(vectors, rows)
            backs.append(recorded.apply_transpose(seen.div_(scale.clamp(min=_TINY)))[rows] * size)
            sizes.append(size)
        return torch.cat(sizes, dim=1).square(), torch.stack(backs, dim=1)

    return BatchedOperator(count, (derivatives.size, width), squares, gram, rounding, x.device)


def recorded_bytes_per_example(derivatives: MixedDerivatives, x: Tensor, y: Tensor) -> int:
    """Memory that one example takes, roughly: what the graphs keep, and copies of the gradient."""
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ones = torch.ones((), dtype=torch.float64, device=x.device)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        held = RecordedJacobian(derivatives, None, x[:1], y[:1], ones)
    del held
    return sum(kept.values()) + _COPIES * 8 * derivatives.size


def is_recordable(derivatives: MixedDerivatives, x: Tensor, y: Tensor) -> bool:
    """Whether every use of a weight is known, and these examples have together the derivatives they have alone.

    Warns where they have others: something in the model mixes the examples of a batch.
    """
    ones = torch.ones((), dtype=torch.float64, device=x.device)
    try:
        recorded = RecordedJacobian(derivatives, None, x, y, ones)
    except UnknownUse:
        return False
    direction = torch.linspace(-1, 1, derivatives.size, dtype=torch.float64, device=x.device).cos()
    together = recorded.gradients, recorded.apply_transpose(direction.expand(len(x), -1))
    alone = (
        vmap(derivatives.flat)(x, y),
        vmap(lambda x, y: derivatives.backward(x, y, direction.to(x.dtype)))(x, y),
    )
    for ours, theirs in zip(together, alone, strict=True):
        # a NaN agrees: it is refused later, by name
        if bool(((ours - theirs).norm(dim=1) > _AGREEMENT[x.dtype] * theirs.norm(dim=1)).any()):
            warnings.warn(
                "the model mixes the examples of a batch, or changes: examples go through it alone, which is slower",
                stacklevel=3,
            )
            return False
    return True
