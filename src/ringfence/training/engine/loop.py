"""The loop between the loader and the optimizer: every example of a step goes into the sum exactly once."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ringfence import checks
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.clipping import Clip
from ringfence.training.engine.sampling import MicroBatch
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.inputs import Inputs


class Loop:
    """Follows a training loop batch by batch, and refuses what would make an example count twice.

    ``note`` is called with every batch that is added to the sum, ``complete`` with the sum of a step.
    ``largest`` is the largest batch that a mean loss is charged for. ``dtype`` is that of the sum; None means
    that of the parameters.
    """

    def __init__(
        self,
        gradients: ExampleGradients,
        clip: Clip,
        loss_reduction: Literal["mean", "sum"],
        note: Callable[[MicroBatch, Any, Inputs, Any, Any], None],
        complete: Callable[[Tensor], None],
        largest: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._dtype, self._largest = dtype, largest
        self._gradients, self._clip, self._reduction = gradients, clip, loss_reduction
        self._note, self._complete = note, complete
        self.begin(Noise(0), step=0)

    def begin(self, noise: Noise, step: int) -> None:
        """Begins with a step. Half a step that a broken loop left over is forgotten."""
        self._noise = noise
        self._due = (step, 0)  # the step, and the part of it, that must be added next
        self._sum: Tensor | None = None
        self._batch: tuple[MicroBatch, Any] | None = None  # what the loader handed out last
        self._output: tuple[Inputs, Any] | None = None  # what the model made of that batch

    def announce(self, batch: MicroBatch, values: Any) -> None:
        """Takes note of a batch that the loader hands out."""
        self._batch, self._output = (batch, values), None

    def forward(self, inputs: Inputs) -> Any:
        """Returns the outputs of the model in training, of which the user's loop takes the loss."""
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
            outputs = tree_map(_in_float32, self._gradients.forward(inputs))
        for output in tree_leaves(outputs):
            if output.is_floating_point():
                output.requires_grad_()
        self._output = (inputs, outputs)
        return outputs

    def finish(self) -> bool:
        """Adds the batch to the sum at ``optimizer.step()``; True if the step was complete and released."""
        if self._batch is None or self._output is None:
            raise ValueError("optimizer.step() needs a batch: call model(inputs) and loss.backward() first")
        (batch, values), (inputs, outputs) = self._batch, self._output
        if all(output.grad is None for output in tree_leaves(outputs)):
            raise ValueError("optimizer.step() needs a gradient: call loss.backward() first")
        factor = len(batch.indices) if self._reduction == "mean" else 1
        if factor > self._largest:
            raise ValueError(f"a mean over {factor} examples is not charged for: use loss_reduction='sum'")
        cotangents = tree_map(lambda output: _gradient(output) * factor, outputs)
        self._note(batch, values, inputs, tree_map(torch.detach, outputs), cotangents)
        with self._seeded(batch, inputs):
            part = self._gradients.clipped_sum(inputs, cotangents, self._clip, self._dtype)
        self._sum = part if self._sum is None else self._sum + part
        self._batch = self._output = None
        if batch.last:
            total, self._sum = self._sum, None
            self._complete(total)
        self._due = (batch.step + 1, 0) if batch.last else (batch.step, batch.part + 1)
        return batch.last

    def _require_due(self, batch: MicroBatch) -> None:
        """Refuses a batch that is not the next one.

        Two batches that are summed before one release are another mechanism, and so is a step that lacks some
        of its examples. After a skipped step, a sample would be handed out, and released, twice.
        """
        if (batch.step, batch.part) != self._due:
            step, part = self._due
            raise ValueError(
                f"optimizer.step() was not called for every batch of the loader (step {step}, part {part} is "
                f"due, got step {batch.step}, part {batch.part}): call it after every batch, also an empty "
                "one; it moves the parameters when the step is complete"
            )

    def _seeded(self, batch: MicroBatch, inputs: Inputs) -> Any:
        """Makes the forward and the backward pass of a batch draw the same dropout masks."""
        args, kwargs = inputs
        device = next(iter((*args, *kwargs.values()))).device
        place = ("forward", batch.step, batch.part, distributed.rank())
        return self._noise.global_draws(*place, device=device)


def _in_float32(output: Tensor) -> Tensor:
    """An output of which a mean loss may be taken: in half precision the rounding of 1/n would show n."""
    return output.float() if output.dtype in (torch.bfloat16, torch.float16) else output


def _gradient(output: Tensor) -> Tensor:
    """The gradient of the loss by an output; zero where the loss does not depend on it."""
    return torch.zeros_like(output) if output.grad is None else output.grad
