"""Fisher information loss of single examples under any torch model, also while it trains."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ringfence import checks
from ringfence.accounting.fisher import InformationNorm, checked_norm, coordinate_losses
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.numerics.operators import spectral_bounds, trace_bounds
from ringfence.numerics.rounding import UP
from ringfence.training import distributed
from ringfence.training.clipping import Clip
from ringfence.training.jacobian import CastModel, Loss, bytes_per_example, jacobian_operator
from ringfence.training.per_example.isolation import Inputs

_FAILURE = 1e-6  # the probability that a bound of a tracked run does not hold
_MEASURED = 1e-300  # the least eta^2 of an example that was measured: 0 says that it never was


class ExampleInformation(NamedTuple):
    """Upper bounds of eta^2 of each example, and estimates of it.

    ``estimate`` is the mean over the probes of a trace, with no margin for chance, as the paper estimates
    eta^2 with 50 probes: half of such numbers are too small. It is None for the spectral norm.
    """

    upper: Tensor
    estimate: Tensor | None


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
    by default as few as rounding allows (1, or 2 for very many examples), or 64 for the trace, which is exact
    with p vectors or more. Work stops once eta is known to ``tolerance``, or after 32 products per vector.

    As many examples are taken at a time as fit into ``memory`` bytes, by default 1 GiB, or half of the free
    memory of a GPU.

    Guarantee: all n upper bounds hold at once except with ``failure_probability`` over the generator's
    draw, and each one alone except with ``failure_probability`` / n. The proofs are in
    ``numerics/operators.py``. The bounds are about J as the network has it in float64, to which parameters
    and inputs are cast: what rounding does to the gradient itself is not charged, nor on which side of the
    clip rounding puts it; relatively that is large where the loss is as small as 1e-16. That a product errs
    by at most 1e-13 of norm times norm is a premise that is not proved: 50 times the largest error measured.
    Where the loss has no second derivative (ReLU, clipping), autograd's is taken. The bounds hold for this
    dataset and this step, and are themselves sensitive.

    >>> from ringfence import Clamp, Gaussian
    >>> model = nn.Linear(3, 2).double()
    >>> x, y = torch.ones(5, 3).double(), torch.tensor([0, 1, 0, 1, 0])
    >>> information = example_information(model, nn.functional.cross_entropy, x, y, clip=Clamp(1.0),
    ...     mechanism=Gaussian(2.0), theta=torch.zeros(8), generator=torch.Generator().manual_seed(0))
    >>> information.upper.shape
    torch.Size([5])
    """
    checked_norm(kind)
    failure_probability = checks.probability("failure_probability", failure_probability)
    if memory is None:
        memory = torch.cuda.mem_get_info(inputs.device)[0] // 2 if inputs.is_cuda else 1 << 30
    checks.count("memory", memory, at_least=1)
    inputs = checks.finite("inputs", inputs).double()
    if inputs.ndim < 2 or not inputs.numel():
        raise ValueError(f"inputs must be (n, ...) and not empty, got shape {list(inputs.shape)}")
    if targets.ndim < 1 or len(targets) != len(inputs):
        raise ValueError(f"targets must have {len(inputs)} examples, got shape {list(targets.shape)}")
    cast = CastModel(model, loss)
    if theta.numel() != cast.size:
        raise ValueError(
            f"theta must have a coordinate for each of the model's {cast.size} trainable parameters, "
            f"got {theta.numel()}"
        )
    weights = coordinate_losses(mechanism, theta, cast.size).to(inputs.device)
    largest = float(weights.max())  # everything is divided by it, so that squares do not underflow
    count, width = len(inputs), inputs[0].numel()
    each = bytes_per_example(cast, inputs, targets)
    some = math.ceil(count / math.ceil(count / max(1, memory // each)))  # chunks of one size
    options: dict[str, Any] = {"generator": generator} | ({} if probes is None else {"probes": probes})
    uppers, estimates = [], []
    for x, y in zip(inputs.split(some), targets.split(some), strict=True):
        operator = jacobian_operator(cast, clip, x, y, weights / largest)
        options["failure_probability"] = failure_probability * len(x) / count
        if kind == "trace":
            upper, estimate = trace_bounds(operator, **options)
            uppers.append(upper / width)
            estimates.append(estimate / width)
        else:
            uppers.append(spectral_bounds(operator, tolerance=tolerance, **options))
    scale = largest * largest
    return ExampleInformation(
        torch.cat(uppers) * scale * UP**2, torch.cat(estimates) * scale if estimates else None
    )


class FisherTracking:
    """For every example, the sum of eta^2 over the measured steps that it took part in.

    Information adds up over steps: eta^2 of a run is at most the sum of the steps' eta^2. Under Poisson
    sampling the information of a step whose batch stays unknown is at most the average, over batches, of
    the information of a step whose batch is known, because Fisher information is convex. The sum over the
    batches that were drawn is one draw of that average.

    Guarantee: every measured step is bounded from above, except with probability 1e-6 over all
    examples and steps. The sum leaves out steps that were not measured; ``measured`` counts those that were.

    >>> tracking = FisherTracking(nn.functional.cross_entropy, count=3, every=2)
    >>> [tracking.wants(step) for step in range(4)], tracking.fisher_information_loss().tolist()
    ([True, False, True, False], [nan, nan, nan])
    """

    def __init__(self, loss: Loss, count: int, every: int) -> None:
        self.loss, self.every = loss, every
        self.squares = torch.zeros(count, dtype=torch.float64)
        self.measured = 0
        self._kept: list[tuple[tuple[int, ...], Tensor, Tensor]] = []

    def wants(self, step: int) -> bool:
        """Whether this step is measured."""
        return bool(self.every) and step % self.every == 0

    def keep(self, indices: tuple[int, ...], inputs: Inputs, targets: Tensor) -> None:
        """Keeps examples of the present step, to be measured once its sum is known."""
        args, kwargs = inputs
        if len(args) != 1 or kwargs:
            raise ValueError(f"fisher_every needs a model of one input, got {len(args)} and {sorted(kwargs)}")
        self._kept.append((indices, args[0], targets))

    def forget(self) -> None:
        """Drops the kept examples, because the step was broken off."""
        self._kept = []

    def measure(
        self,
        model: nn.Module,
        mechanism: Mechanism,
        clip: Clip,
        theta: Tensor,
        *,
        noise: Noise,
        step: int,
        memory: int,
    ) -> None:
        """Adds the information that the release of theta gives about the kept examples."""
        if not self.wants(step):
            return
        # 6 / (pi k)^2 adds up to 1 over k = 1, 2, ...: the shares suffice however long the run is
        share = _FAILURE * 6 / (torch.pi * (self.measured + 1)) ** 2
        added = torch.zeros(len(self.squares), dtype=torch.float64, device=theta.device)
        total = len(self._kept)
        for number, (indices, inputs, targets) in enumerate(self._kept):
            probes = torch.Generator(theta.device)
            probes.manual_seed(noise.torch_seed("information", step, number, distributed.rank()))
            information = example_information(
                model,
                self.loss,
                inputs,
                targets,
                clip=clip,
                mechanism=mechanism,
                theta=theta,
                memory=memory,
                generator=probes,
                failure_probability=share / (total * distributed.world_size()),
            )
            added[list(indices)] = information.upper.to(added).clamp(min=_MEASURED)
        self.squares = (self.squares + distributed.summed(added).cpu()) * (1 + 1e-15)
        self.measured += 1
        self._kept = []

    def fisher_information_loss(self) -> Tensor:
        """eta of every example, from above, in the order of the dataset; NaN where it was never measured."""
        return torch.where(self.squares > 0, self.squares.sqrt() * (1 + 1e-15), torch.nan)

    def state_dict(self) -> dict[str, Any]:
        """The sums, and how many steps they hold."""
        return {"squares": self.squares, "measured": self.measured}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a ``state_dict``, which may be empty; examples that were kept are dropped."""
        state = state or {"squares": torch.zeros_like(self.squares), "measured": 0}
        if state["squares"].shape != self.squares.shape:
            raise ValueError(f"squares must hold {len(self.squares)} examples, got {len(state['squares'])}")
        self.squares, self.measured = checks.not_negative("squares", state["squares"]), state["measured"]
        self._kept = []
