"""eta of some examples over a whole run, measured at a few of its steps.

Information adds up over steps, so eta^2 of a run of T steps is at most the sum of the steps' eta^2. A step
whose Poisson batch stays unknown is a mixture: with probability q the example is in the batch, else the
release does not depend on it. Fisher information is convex, so the step has at most q times the information
that it has, on average over the other examples of the batch, when the example is surely in it. That average
is replaced by the one batch that was drawn, and the sum over steps by T times the mean over measured ones:

    eta^2 of the run = q T mean over measured steps of eta^2 of the step as if the example were in its batch.

Each measured eta^2 is an upper bound; the two replacements are estimates. The information of a coordinate is
taken at the theta of the batch that was drawn, also for an example that was not in it: theta would move by at
most the clip. For the Gaussian, whose information does not depend on theta, that changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from ringfence import checks
from ringfence.accounting.fisher import InformationNorm
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clip
from ringfence.training.information import example_information

_BLOCK = 1000  # how many examples are measured between two pauses
_FAILURE = 1e-6  # with which an upper bound of a run may fail, over the probes


@dataclass(frozen=True)
class Moment:
    """A step that is measured: the parameters before it, and the sum of clipped gradients at them."""

    weights: dict[str, Tensor]
    theta: Tensor


@dataclass(frozen=True)
class RunEtas:
    """The largest and the median eta over examples: by the definition, by the trace, and as the paper does.

    >>> RunEtas.of(torch.tensor([4.0, 9.0]), torch.ones(2), torch.ones(2)).spectral_max
    3.0
    """

    spectral_max: float
    spectral_median: float
    trace_max: float
    trace_median: float
    estimate_max: float
    estimate_median: float

    @classmethod
    def of(cls, *squares: Tensor) -> "RunEtas":
        """From eta^2 of every example: spectral, trace, and the paper's estimate of the trace."""
        numbers: list[float] = []
        for each in squares:
            values = checks.not_negative("eta^2", each).double().sqrt().cpu().numpy()
            numbers += [float(values.max()), float(np.quantile(values, 0.5, method="higher"))]
        return cls(*numbers)


def run_etas(
    model: nn.Module,
    law: Mechanism,
    clip: Clip,
    moments: Sequence[Moment],
    inputs: Tensor,
    targets: Tensor,
    *,
    sampling_rate: float,
    steps: int,
    probes: int,
    generator: torch.Generator,
    pause: Callable[[], None] = lambda: None,
) -> RunEtas:
    """eta of every example over a run of ``steps`` steps. The model is left with the weights of a moment.

    ``pause`` is called between two pieces of work, and may raise an error to stop.

    Guarantee: at every measured step, the spectral number and the trace are upper bounds given that the
    example was in the batch, all of them except with probability 1e-6 over the probes, on the
    premise of ``example_information``. Their scaling to the run is an estimate, and so is the paper's
    number, which is the trace as the mean over ``probes`` random directions, without a margin.
    """
    total = torch.zeros(3, len(inputs), dtype=torch.float64, device=inputs.device)
    blocks = torch.arange(len(inputs), device=inputs.device).split(_BLOCK)
    for moment, block in product(moments, blocks):
        model.load_state_dict(moment.weights)
        found = []
        for kind, number in _asked(probes):
            pause()
            found.append(
                example_information(
                    *(model, exact_cross_entropy, inputs[block], targets[block]),
                    clip=clip,
                    mechanism=law,
                    theta=moment.theta,
                    kind=kind,
                    failure_probability=_FAILURE / (2 * len(moments) * len(blocks)),
                    probes=number,
                    generator=generator,
                    dtype=torch.float64,
                    tolerance=0.1,
                    memory=_memory(inputs),
                )
            )
        spectral, trace = found
        assert trace.estimate is not None
        parts = (spectral.upper, trace.upper, trace.estimate)
        total[:, block] += torch.stack(parts).to(total)
    return RunEtas.of(*(total * (sampling_rate * steps / len(moments))))


def exact_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy, as log(1 + sum over other classes j of exp(z_j - z_y)).

    torch's own has the gradient softmax - 1 at the right class y, of which rounding leaves little where the
    network is sure of y. Its derivatives are then too rough to be bounded.

    >>> float(exact_cross_entropy(torch.tensor([[80.0, 0.0]], dtype=torch.float64), torch.tensor([0]))) > 0
    True
    """
    right = torch.arange(outputs.shape[1], device=outputs.device) == targets[:, None]
    ahead = outputs - torch.where(right, outputs, 0.0).sum(1, keepdim=True)
    others = torch.where(right, -torch.inf, ahead).logsumexp(1)
    return nn.functional.softplus(others, threshold=40).mean()


def _asked(probes: int) -> tuple[tuple[InformationNorm, int | None], ...]:
    """What is measured, and with how many probes; None leaves that to ``example_information``."""
    return ("spectral", None), ("trace", probes)


def _memory(inputs: Tensor) -> int:
    """How many bytes may be held: on a GPU a third of what is free, as others may use it too."""
    return torch.cuda.mem_get_info(inputs.device)[0] // 3 if inputs.is_cuda else 1 << 30
