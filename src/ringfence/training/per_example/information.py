"""Fisher information loss of examples under any torch model, many at once, without their jacobians."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap

from ringfence import checks
from ringfence.accounting.fisher.loss import LOWER, InformationNorm, coordinate_losses
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import UP
from ringfence.numerics.spectral.batched_operator import BatchedOperator, probable_bounds_of_many
from ringfence.numerics.spectral.operator_trace import probable_traces
from ringfence.training.clipping import Clip

Loss = Callable[[Tensor, Tensor], Tensor]

# Measured on this package's networks, of norm times norm: 2e-15 and 7e-7.
_ROUNDING = {torch.float64: 1e-12, torch.float32: 2e-6}
_PROBES = {torch.float64: 4, torch.float32: 16}  # rounding takes from what more probes make sure
_TRACE_PROBES, _AT_ONCE = 64, 4


@dataclass(frozen=True)
class ExampleInformation:
    """lower <= eta^2 <= upper of each example; all at once, except with ``failure_probability``.

    >>> information = ExampleInformation(torch.tensor([4.0]), torch.tensor([4.84]), 1e-6)
    >>> round(float(information.gap), 6), round(float(information.fisher_information_loss), 6)
    (0.21, 2.2)
    """

    lower: Tensor
    upper: Tensor
    failure_probability: float

    @property
    def gap(self) -> Tensor:
        """upper / lower - 1, of eta^2."""
        return torch.where(self.upper > 0, self.upper / self.lower - 1, 0.0)

    @property
    def fisher_information_loss(self) -> Tensor:
        """eta from above."""
        return self.upper.sqrt() * UP


def example_information(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    clip: Clip,
    mechanism: Mechanism,
    theta: Tensor,
    generator: torch.Generator,
    kind: InformationNorm = "spectral",
    failure_probability: float = 1e-6,
    probes: int | None = None,
    tolerance: float = 0.05,
    maximum_degree: int = 32,
    dtype: torch.dtype = torch.float64,
    rounding: float | None = None,
    memory: int = 1 << 30,
) -> ExampleInformation:
    """eta^2 of each of n examples at one step: the largest eigenvalue of J^T diag(eta_j^2) J.

    J = d g / d x (d x p) is the derivative of the example's clipped gradient
    g = clip(grad_w loss(model(x), y)) by its p features x, and eta_j^2 the information of coordinate
    j of ``theta``, the flat sum of clipped gradients that the mechanism is applied to, in the order
    of those ``model.named_parameters()`` that require a gradient. The target is not part of the
    record. ``kind="trace"`` gives trace(J^T diag(eta_j^2) J) / p instead (Maeng et al. 2023).

    ``inputs`` is (n, ...), ``targets`` (n, ...); ``loss(output, target)`` takes a batch of one, as
    ``torch.nn.functional.cross_entropy`` does. J is never formed: J v is a directional derivative by
    x of grad_w, J^T u one by w of grad_x. Every example has ``probes`` random vectors of its own: 4, or
    16 in float32; 64 for the trace, which is exact from p on. Examples are taken a few at a time, so
    that about ``memory`` bytes are held. ``tolerance`` is the gap of eta at which work stops.

    Guarantee: all n upper ends hold at once except with ``failure_probability`` over the generator's
    draw; each alone except with ``failure_probability`` / n. Lower ends always hold, but for those of
    an estimated trace, which share that probability. ``probable_bounds_of_many`` and
    ``probable_traces`` have the proofs. They are about J as the network has it in ``dtype``, to which
    parameters and inputs are cast: what rounding does to the gradient itself is not charged, nor which
    side of the clip it falls on; relatively that is large where the loss is as small as ``dtype``'s
    precision. ``rounding`` is their premise, not proved: a product errs by at most that fraction of
    norm times norm. By default 1e-12 in float64 and 2e-6 in float32, 500 and 3 times the largest
    measured. TF32 is refused. Where the loss has no second derivative (ReLU, clipping), autograd's is
    taken. It holds for this dataset and this step, and is itself sensitive.

    >>> from ringfence import Clamp, Gaussian
    >>> model = nn.Linear(3, 2).double()
    >>> x, y = torch.ones(5, 3).double(), torch.tensor([0, 1, 0, 1, 0])
    >>> information = example_information(model, nn.functional.cross_entropy, x, y, clip=Clamp(1.0),
    ...     mechanism=Gaussian(2.0), theta=torch.zeros(8), generator=torch.Generator().manual_seed(0))
    >>> information.upper.shape, bool((information.gap < 0.11).all())
    (torch.Size([5]), True)
    """
    if kind not in ("spectral", "trace"):
        raise ValueError(f"kind must be 'spectral' or 'trace', got {kind!r}")
    if dtype not in _ROUNDING:
        raise ValueError(f"dtype must be torch.float64 or torch.float32, got {dtype!r}")
    failure_probability = checks.probability("failure_probability", failure_probability)
    checks.count("memory", memory, at_least=1)
    if probes is None:
        probes = _TRACE_PROBES if kind == "trace" else _PROBES[dtype]
    checks.count("probes", probes, at_least=1)
    inputs = checks.finite("inputs", inputs).to(dtype)
    if inputs.ndim < 2 or not inputs.numel():
        raise ValueError(f"inputs must be (n, ...) and not empty, got shape {list(inputs.shape)}")
    if targets.ndim < 1 or len(targets) != len(inputs):
        raise ValueError(f"targets must have {len(inputs)} examples, got shape {list(targets.shape)}")
    _refuse_tf32(inputs)
    gradient = _ExampleGradient(model, loss, dtype)
    if theta.numel() != gradient.size:
        raise ValueError(
            f"theta must have a coordinate for each of the model's {gradient.size} trainable parameters, "
            f"got {theta.numel()}"
        )
    weights = coordinate_losses(mechanism, theta, gradient.size).to(inputs.device)
    largest = float(weights.max())  # worked with in units of it, so that squares do not underflow
    count, width, lower, upper = len(inputs), inputs[0].numel(), [], []
    at_once = _AT_ONCE if kind == "trace" else probes
    some = max(1, memory // gradient.bytes_an_example(inputs[:1], at_once))
    for x, y in zip(inputs.split(some), targets.split(some), strict=True):
        error = _ROUNDING[dtype] if rounding is None else rounding
        operator = _operator(gradient, clip, x, y, weights / largest, error)
        share = failure_probability * len(x) / count
        if kind == "trace":
            ends = probable_traces(
                operator, generator=generator, failure_probability=share, probes=probes, at_once=at_once
            )
            lower.append(ends[0] / width)
            upper.append(ends[1] / width)
        else:
            bounds = probable_bounds_of_many(
                operator,
                generator=generator,
                failure_probability=share,
                probes=probes,
                tolerance=tolerance,
                maximum_degree=maximum_degree,
            )
            lower.append(bounds.lower.square())
            upper.append(bounds.upper.square())
    failing = 0.0 if kind == "trace" and probes >= width else failure_probability
    scale = largest * largest
    return ExampleInformation(
        torch.cat(lower) * scale * LOWER**2 / UP, torch.cat(upper) * scale * UP, failing
    )


class _ExampleGradient:
    """The flat gradient of one example's loss, and the mixed second derivatives of that loss."""

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
        output = functional_call(self.model, {**trained, **self.fixed}, (x[None],))
        return self.loss(output, y[None]).sum()

    def flat(self, x: Tensor, y: Tensor) -> Tensor:
        """grad_w, (d,)."""
        parts = grad(self.value)(self.trained, x, y)
        return torch.cat([part.reshape(-1) for part in parts.values()])

    def forward(self, x: Tensor, y: Tensor, direction: Tensor) -> Tensor:
        """How grad_w changes when x moves: (p,) to (d,)."""
        tangent: Tensor = jvp(lambda x: self.flat(x, y), (x,), (direction.reshape(x.shape),))[1]
        return tangent

    def backward(self, x: Tensor, y: Tensor, direction: Tensor) -> Tensor:
        """Its transpose, how grad_x changes when w moves: (d,) to (p,)."""
        pieces = direction.split([value.numel() for value in self.trained.values()])
        moved = {
            name: piece.reshape(value.shape)
            for (name, value), piece in zip(self.trained.items(), pieces, strict=True)
        }
        by_input = grad(self.value, argnums=1)
        tangent: Tensor = jvp(lambda w: by_input(w, x, y), (self.trained,), (moved,))[1]
        return tangent.reshape(-1)

    def bytes_an_example(self, x: Tensor, probes: int) -> int:
        """Held at once for one example, roughly: what a gradient keeps, twice with every tangent."""
        kept = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            functional_call(
                self.model,
                {
                    **{name: value.clone().requires_grad_() for name, value in self.trained.items()},
                    **self.fixed,
                },
                (x,),
            )
        return (probes + 1) * (2 * kept * x.element_size() + 16 * self.size)


def _operator(
    gradient: _ExampleGradient, clip: Clip, x: Tensor, y: Tensor, weights: Tensor, rounding: float
) -> BatchedOperator:
    """diag(weights) d clip(gradient) / d x of a few examples."""
    at = vmap(gradient.flat)(x, y)
    if not bool(torch.isfinite(at).all()):
        raise ValueError("model and loss must give finite gradients, got NaN or infinity")
    # Scale divides by the gradient's size. Where that is 0 no clip acts, as it does not at c / 2.
    at = torch.where((at == 0).all(1, keepdim=True), clip.largest / 2, at)
    forward, backward = (
        vmap(vmap(direction, in_dims=(None, None, 0))) for direction in (gradient.forward, gradient.backward)
    )

    def image(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(|v|, diag(weights) J v / |v|): unit vectors cannot leave the range of float32."""
        norm = block.norm(dim=2, keepdim=True)
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

    shape = (gradient.size, math.prod(x.shape[1:]))
    return BatchedOperator(len(x), shape, squares, gram, rounding, x.device)


def _refuse_tf32(inputs: Tensor) -> None:
    if inputs.is_cuda and inputs.dtype == torch.float32:
        for name, allowed in (
            ("torch.backends.cudnn.allow_tf32", torch.backends.cudnn.allow_tf32),
            ("torch.backends.cuda.matmul.allow_tf32", torch.backends.cuda.matmul.allow_tf32),
        ):
            if allowed:
                raise ValueError(
                    f"{name} must be False in float32: its products have 3 digits, got {allowed}"
                )
