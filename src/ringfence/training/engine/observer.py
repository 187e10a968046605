"""What the user sees of each step besides the release: the loss of its batch, and the cost so far."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.training.engine.auxiliary import cotangents_of, each_loss, targets_of
from ringfence.training.engine.sampling import MicroBatch
from ringfence.training.information import FisherTracking
from ringfence.training.jacobian import Loss
from ringfence.training.per_example.inputs import Inputs

_ROUNDING = 1e-3  # of the largest gradient: a loss that mixes examples is off by far more


@dataclass(frozen=True)
class StepReport:
    """What is reported after a release: the number of releases, the loss of the batch, and the cost of all.

    ``loss`` is None unless the engine knows the loss. The loss comes from private data: do not publish it.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=0.1)
    >>> account.step(0.0)
    >>> report = StepReport(account.steps, None, account.guarantee)
    >>> report.steps, round(report.guarantee(1e-5).epsilon, 3)
    (1, 0.341)
    """

    steps: int
    loss: float | None
    guarantee: Callable[[float], Guarantee]


class Observer:
    """Collects the losses of a step for ``on_step``, and the examples whose information ``fisher`` measures.

    >>> told = []
    >>> observer = Observer(None, None, told.append)
    >>> observer.report(1, guarantee=lambda delta: ...)
    >>> told[0].steps, told[0].loss
    (1, None)
    """

    def __init__(
        self, loss: Loss | None, fisher: FisherTracking | None, on_step: Callable[[StepReport], None] | None
    ) -> None:
        self.fisher = fisher
        self._loss, self._on_step = loss, on_step
        self._losses: list[tuple[float, int]] = []  # mean loss and number of examples of each micro-batch

    def begin(self) -> None:
        """Forgets what was seen of a step that was broken off."""
        self._losses = []
        if self.fisher is not None:
            self.fisher.forget()

    def note(self, batch: MicroBatch, values: Any, inputs: Inputs, outputs: Any, cotangents: Any) -> None:
        """Looks at a micro-batch that goes into the sum; its gradients must be those of examples apart."""
        if self._loss is None or not batch.indices:
            return
        if not isinstance(outputs, Tensor):
            raise ValueError(f"with loss, the model must return one tensor, got {type(outputs).__name__}")
        targets = targets_of(values).to(outputs.device)
        apart = cotangents_of(self._loss, outputs, targets)
        if not bool((cotangents - apart).abs().max() <= _ROUNDING * apart.abs().max()):
            raise ValueError(
                "the loss in the loop is not the engine's loss of each example by itself, reduced as "
                "loss_reduction says: nothing was released. Take a loss that treats examples apart"
            )
        if self._on_step is not None:
            self._losses.append((float(each_loss(self._loss, outputs, targets).mean()), len(targets)))
        if self.fisher is not None and self.fisher.wants(batch.step):
            self.fisher.keep(batch.indices, inputs, targets)

    def report(self, steps: int, guarantee: Callable[[float], Guarantee]) -> None:
        """Tells ``on_step`` that a step was released."""
        losses, self._losses = self._losses, []
        if self._on_step is not None:
            count = sum(number for _, number in losses)
            mean = sum(value * number for value, number in losses) / count if count else None
            self._on_step(StepReport(steps, mean, guarantee))
