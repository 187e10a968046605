"""Between the loader and the optimizer: every example of a step goes into the sum once."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ringfence import checks
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.clipping import Clip
from ringfence.training.engine.sampling import MicroBatch
from ringfence.training.per_example.gradients import ExampleGradients, Inputs


class Loop:
    """Follows a training loop batch by batch, and refuses what would make an example count twice.

    ``note`` hears about every batch that was taken in, ``complete`` receives the sum of a step.
    """

    def __init__(
        self,
        gradients: ExampleGradients,
        clip: Clip,
        loss_reduction: Literal["mean", "sum"],
        note: Callable[[MicroBatch, Any, Inputs, Tensor], None],
        complete: Callable[[Tensor], None],
        dtype: torch.dtype | None = None,
    ) -> None:
        """``dtype`` is that of the sum: the parameters' if None."""
        self._dtype = dtype
        self._gradients, self._clip, self._reduction = gradients, clip, loss_reduction
        self._note, self._complete = note, complete
        self.begin(Noise(0), step=0)

    def begin(self, noise: Noise, step: int) -> None:
        """Goes on with a step. Half a step that was left over from a broken loop is forgotten."""
        self._noise = noise
        self._due = (step, 0)  # the step and the part of it that must be taken in next
        self._sum: Tensor | None = None
        self._batch: tuple[MicroBatch, Any] | None = None  # handed out by the loader
        self._output: tuple[Inputs, Tensor] | None = None  # of the model for that batch

    def announce(self, batch: MicroBatch, values: Any) -> None:
        """The loader hands out a batch."""
        self._batch, self._output = (batch, values), None

    def forward(self, inputs: Inputs) -> Tensor:
        """The model is called in training: outputs that the loss can be taken of."""
        if self._batch is None:
            raise ValueError("the model was called in training outside of the private loader's loop")
        if self._output is not None:
            raise ValueError("the model was called twice for one batch: an example may count only once")
        batch, _ = self._batch
        self._require_due(batch)
        args, kwargs = inputs
        for name, value in (*enumerate(args), *kwargs.items()):
            if len(value) != len(batch.indices):
                raise ValueError(f"argument {name} has {len(value)} rows, the batch {len(batch.indices)}")
            if value.is_floating_point():
                checks.require(f"inputs (argument {name})", "must be finite", value, torch.isfinite(value))
        with self._seeded(batch, inputs):
            outputs = self._gradients.forward(inputs).requires_grad_()
        self._output = (inputs, outputs)
        return outputs

    def finish(self) -> bool:
        """optimizer.step(): takes the batch in. True where the step is complete and was released."""
        if self._batch is None or self._output is None:
            raise ValueError("optimizer.step() needs a batch: call model(inputs) and loss.backward() first")
        (batch, values), (inputs, outputs) = self._batch, self._output
        if outputs.grad is None:
            raise ValueError("optimizer.step() needs a gradient: call loss.backward() first")
        cotangents = outputs.grad * (len(outputs) if self._reduction == "mean" else 1)
        with self._seeded(batch, inputs):
            part = self._gradients.clipped_sum(inputs, cotangents, self._clip, self._dtype)
        self._sum = part if self._sum is None else self._sum + part
        self._note(batch, values, inputs, outputs.detach())
        self._batch = self._output = None
        if batch.last:
            total, self._sum = self._sum, None
            self._complete(total)
        self._due = (batch.step + 1, 0) if batch.last else (batch.step, batch.part + 1)
        return batch.last

    def _require_due(self, batch: MicroBatch) -> None:
        """Every batch in its turn. Two batches summed before one release are another mechanism, and so is a
        step without some of its examples; after a skipped step a sample would be dealt, and released, twice.
        """
        if (batch.step, batch.part) != self._due:
            step, part = self._due
            raise ValueError(
                f"optimizer.step() was not called for every batch of the loader (step {step}, part {part} is "
                f"due, got step {batch.step}, part {batch.part}): call it after every batch, also an empty "
                "one; it moves the parameters when the step is complete"
            )

    def _seeded(self, batch: MicroBatch, inputs: Inputs) -> Any:
        """Forward and backward pass draw the same dropout masks."""
        args, kwargs = inputs
        device = next(iter((*args, *kwargs.values()))).device
        place = ("forward", batch.step, batch.part, distributed.rank())
        return self._noise.global_draws(*place, device=device)
