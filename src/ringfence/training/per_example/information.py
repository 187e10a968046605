"""Fisher information loss of examples under any torch model, many at once, without their jacobians."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ringfence import checks
from ringfence.accounting.fisher.loss import LOWER, InformationNorm, checked_norm, coordinate_losses
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import UP
from ringfence.numerics.spectral.batched_operator import probable_bounds_of_many
from ringfence.numerics.spectral.operator_trace import probable_traces
from ringfence.training.clipping import Clip
from ringfence.training.per_example.jacobian_operator import Loss, MixedDerivatives, jacobian_operator

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
    checked_norm(kind)
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
    derivatives = MixedDerivatives(model, loss, dtype)
    if theta.numel() != derivatives.size:
        raise ValueError(
            f"theta must have a coordinate for each of the model's {derivatives.size} trainable parameters, "
            f"got {theta.numel()}"
        )
    weights = coordinate_losses(mechanism, theta, derivatives.size).to(inputs.device)
    largest = float(weights.max())  # worked with in units of it, so that squares do not underflow
    count, width, lower, upper = len(inputs), inputs[0].numel(), [], []
    at_once = _AT_ONCE if kind == "trace" else probes
    some = max(1, memory // derivatives.bytes_per_example(inputs[:1], at_once))
    for x, y in zip(inputs.split(some), targets.split(some), strict=True):
        error = _ROUNDING[dtype] if rounding is None else rounding
        operator = jacobian_operator(derivatives, clip, x, y, weights / largest, error)
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
