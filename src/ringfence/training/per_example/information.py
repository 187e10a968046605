"""Fisher information loss of single examples under any torch model, without their jacobians."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ringfence import checks
from ringfence.accounting.fisher import LOWER, InformationNorm, checked_norm, coordinate_losses
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.operators import probable_bounds_of_many, probable_traces
from ringfence.numerics.precision import refuse_tf32
from ringfence.numerics.rounding import UP
from ringfence.training.clipping import Clip
from ringfence.training.per_example.jacobian_operator import Loss, MixedDerivatives, jacobian_operator
from ringfence.training.per_example.recorded_jacobian import (
    is_recordable,
    recorded_bytes_per_example,
    recorded_operator,
)

# The premise of the bounds, relative to norm times norm. Measured on this package's networks: 2e-15 and 7e-7.
_ROUNDING = {torch.float64: 1e-13, torch.float32: 2e-6}
_TRACE_PROBES, _AT_ONCE = 64, 4


@dataclass(frozen=True)
class ExampleInformation:
    """lower <= eta^2 <= upper of each example: all hold at once, except with ``failure_probability``.

    ``estimate`` is the mean over the probes of a trace, with no margin for chance, as the paper estimates
    eta^2 with 50 probes: half of such numbers are too small. It is None for the spectral norm.

    >>> information = ExampleInformation(torch.tensor([4.0]), torch.tensor([4.84]), 1e-6)
    >>> round(float(information.gap), 6), round(float(information.fisher_information_loss), 6)
    (0.21, 2.2)
    """

    lower: Tensor
    upper: Tensor
    failure_probability: float
    estimate: Tensor | None = None

    @property
    def gap(self) -> Tensor:
        """upper / lower - 1, a gap of eta^2."""
        return torch.where(self.upper > 0, self.upper / self.lower - 1, 0.0)

    @property
    def fisher_information_loss(self) -> Tensor:
        """An upper bound of eta."""
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
    memory: int | None = None,
) -> ExampleInformation:
    """eta^2 of each of n examples at one step: the largest eigenvalue of J^T diag(eta_j^2) J.

    J = d g / d x (d x p) is the derivative of the example's clipped gradient
    g = clip(grad_w loss(model(x), y)) by its p features x, and eta_j^2 the information of coordinate
    j of ``theta``, the flat sum of clipped gradients that the mechanism is applied to, in the order
    of those ``model.named_parameters()`` that require a gradient. The target is not part of the
    record. ``kind="trace"`` gives trace(J^T diag(eta_j^2) J) / p instead (Maeng et al. 2023).

    ``inputs`` is (n, ...), ``targets`` (n, ...); ``loss(output, target)`` takes a batch of one, as
    ``torch.nn.functional.cross_entropy`` does. J is never formed: J v is a directional derivative of
    grad_w by x, and J^T u is one of grad_x by w. Every example has ``probes`` random vectors of its own:
    by default as few as rounding allows (1 in float64, 2 for very many examples, 4 to 8 in float32), or 64
    for the trace, which is exact with p vectors or more. Work stops at a gap of eta of ``tolerance``, or
    after ``maximum_degree`` products per vector.

    As many examples are taken at a time as fit into ``memory`` bytes, by default 1 GiB, or half of the free
    memory of a GPU. Where every weight is used by a layer of ``output_with_example_weights`` they go through
    the model as one batch, which two of them must confirm; else through ``torch.func``, several times slower.
    float64 needs fewer products than float32, and on a GPU with fast products in float64 (A100, H100, H200)
    less time.

    Guarantee: all n upper bounds hold at once except with ``failure_probability`` over the generator's
    draw, and each one alone except with ``failure_probability`` / n. Lower bounds always hold, except for
    those of an estimated trace, which share that probability. The proofs are at
    ``probable_bounds_of_many`` and ``probable_traces``. The bounds are about J as the network has it in
    ``dtype``, to which parameters and inputs are cast: what rounding does to the gradient itself is not
    charged, nor on which side of the clip rounding puts it; relatively that is large where the loss is as
    small as ``dtype``'s precision. ``rounding`` is a premise that is not proved: a product errs by at most
    that fraction of norm times norm. By default it is 1e-13 in float64 and 2e-6 in float32, 50 and 3
    times the largest error measured. TF32 is refused. Where the loss has no second derivative (ReLU,
    clipping), autograd's is taken. The bounds hold for this dataset and this step, and are themselves
    sensitive.

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
    if memory is None:
        memory = torch.cuda.mem_get_info(inputs.device)[0] // 2 if inputs.is_cuda else 1 << 30
    checks.count("memory", memory, at_least=1)
    if probes is None and kind == "trace":
        probes = _TRACE_PROBES
    if probes is not None:
        checks.count("probes", probes, at_least=1)
    inputs = checks.finite("inputs", inputs).to(dtype)
    if inputs.ndim < 2 or not inputs.numel():
        raise ValueError(f"inputs must be (n, ...) and not empty, got shape {list(inputs.shape)}")
    if targets.ndim < 1 or len(targets) != len(inputs):
        raise ValueError(f"targets must have {len(inputs)} examples, got shape {list(targets.shape)}")
    refuse_tf32(inputs, convolutions=True)
    derivatives = MixedDerivatives(model, loss, dtype)
    if theta.numel() != derivatives.size:
        raise ValueError(
            f"theta must have a coordinate for each of the model's {derivatives.size} trainable parameters, "
            f"got {theta.numel()}"
        )
    weights = coordinate_losses(mechanism, theta, derivatives.size).to(inputs.device)
    largest = float(weights.max())  # everything is divided by it, so that squares do not underflow
    count, width = len(inputs), inputs[0].numel()
    error = _ROUNDING[dtype] if rounding is None else rounding
    recorded = is_recordable(derivatives, inputs[:2], targets[:2])
    if recorded:
        each = recorded_bytes_per_example(derivatives, inputs, targets)
    else:
        each = derivatives.bytes_per_example(
            inputs[:1], probes if kind == "spectral" and probes else _AT_ONCE
        )
    make = recorded_operator if recorded else jacobian_operator

    def measured(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        operator = make(derivatives, clip, x, y, weights / largest, error)
        share = failure_probability * len(x) / count
        if kind == "trace":
            assert probes is not None
            return probable_traces(
                operator, generator=generator, failure_probability=share, probes=probes, at_once=_AT_ONCE
            )
        bounds = probable_bounds_of_many(
            operator,
            generator=generator,
            failure_probability=share,
            probes=probes,
            tolerance=tolerance,
            maximum_degree=maximum_degree,
        )
        return bounds.lower.square(), bounds.upper.square(), bounds.lower

    some = math.ceil(count / math.ceil(count / max(1, memory // each)))  # chunks of one size
    parts = [measured(x, y) for x, y in zip(inputs.split(some), targets.split(some), strict=True)]
    scale = largest * largest / (width if kind == "trace" else 1)
    lower, upper, estimate = (torch.cat(each) * scale for each in zip(*parts, strict=True))
    return ExampleInformation(
        lower * LOWER**2 / UP,
        upper * UP,
        0.0 if kind == "trace" and probes is not None and probes >= width else failure_probability,
        estimate if kind == "trace" else None,
    )
