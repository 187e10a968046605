"""The Fisher information loss of training examples, measured while a model trains."""

from typing import Any

import torch
from torch import Tensor, nn

from ringfence import checks
from ringfence.accounting.fisher import InformationNorm
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.clipping import Clip
from ringfence.training.per_example.information import example_information
from ringfence.training.per_example.inputs import Inputs
from ringfence.training.per_example.jacobian_operator import Loss

_MEASURED = 1e-300  # the least eta^2 of an example that was measured: 0 says that it never was


class FisherTracking:
    """For every example, the sum of eta^2 over the measured steps that it took part in.

    Information adds up over steps: eta^2 of a run is at most the sum of the steps' eta^2. Under Poisson
    sampling the information of a step whose batch stays unknown is at most the average, over batches, of
    the information of a step whose batch is known, because Fisher information is convex. The sum over the
    batches that were drawn is one draw of that average.

    Guarantee: every measured step is bounded from above, except with ``failure_probability`` over all
    examples and steps. The sum leaves out steps that were not measured; ``measured`` counts those that were.

    >>> tracking = FisherTracking(nn.functional.cross_entropy, count=3, every=2)
    >>> [tracking.wants(step) for step in range(4)], tracking.fisher_information_loss().tolist()
    ([True, False, True, False], [nan, nan, nan])
    """

    def __init__(
        self,
        loss: Loss,
        count: int,
        every: int,
        kind: InformationNorm = "spectral",
        failure_probability: float = 1e-6,
    ) -> None:
        self.loss, self.every, self.kind = loss, every, kind
        self.failure_probability = checks.probability("failure_probability", failure_probability)
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
        share = self.failure_probability * 6 / (torch.pi * (self.measured + 1)) ** 2
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
                kind=self.kind,
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
        """Continues from a ``state_dict``; examples that were kept are dropped."""
        if state["squares"].shape != self.squares.shape:
            raise ValueError(f"squares must hold {len(self.squares)} examples, got {len(state['squares'])}")
        self.squares, self.measured = checks.not_negative("squares", state["squares"]), state["measured"]
        self._kept = []
