"""Sums over batches that are drawn to estimate a cost and are never released."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.func import grad, vmap

from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.clipping import Clip
from ringfence.training.engine.sampling import Examples, PoissonBatches
from ringfence.training.jacobian import Loss
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.inputs import Inputs


class AuxiliarySums:
    """Sums over Poisson samples of the dataset at the present parameters, for ``SampledAccountant``."""

    def __init__(
        self,
        gradients: ExampleGradients,
        clip: Clip,
        loss: Loss,
        batches: PoissonBatches,
        examples: Examples,
        number: int,
    ) -> None:
        self._gradients, self._clip, self._loss = gradients, clip, loss
        self._batches, self._examples, self._number = batches, examples, number

    def sums(self, noise: Noise, step: int) -> Iterator[Tensor]:
        """Yields ``number`` independent sums of clipped gradients, each over all processes."""
        device = next(iter(self._gradients.parameters.values())).device
        for one in range(self._number):
            indices = self._batches.draw(noise, "auxiliary", step, one)
            values = self._examples.batch(indices)
            targets = targets_of(values).to(device)
            inputs: Inputs = ((values[0].to(device),), {})
            place = ("auxiliary forward", step, one, distributed.rank())
            with noise.global_draws(*place, device=device):
                outputs = self._gradients.forward(inputs)
            cotangents = cotangents_of(self._loss, outputs, targets) if indices else outputs
            with noise.global_draws(*place, device=device):
                part = self._gradients.clipped_sum(inputs, cotangents, self._clip)
            yield distributed.summed(part)


def each_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the loss of every example by itself.

    >>> import torch
    >>> each_loss(torch.nn.functional.mse_loss, torch.zeros(2, 3), torch.tensor([[1.0] * 3, [2.0] * 3]))
    tensor([1., 4.])
    """
    return vmap(lambda output, target: loss(output.unsqueeze(0), target.unsqueeze(0)))(outputs, targets)


def targets_of(values: Any) -> Tensor:
    """Returns the targets of a batch, which is a pair of inputs and targets.

    >>> import torch
    >>> targets_of([torch.zeros(2, 3), torch.tensor([0, 1])])
    tensor([0, 1])
    """
    if not isinstance(values, list | tuple) or len(values) != 2 or not isinstance(values[1], Tensor):
        raise ValueError(
            f"with loss, the loader must give pairs (inputs, targets), got {type(values).__name__}"
        )
    return values[1]


def cotangents_of(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the gradient of every example's own loss by its output.

    >>> import torch
    >>> cotangents_of(torch.nn.functional.mse_loss, torch.zeros(2, 1), torch.tensor([[1.0], [2.0]]))
    tensor([[-2.],
            [-4.]])
    """
    result: Tensor = grad(lambda out: each_loss(loss, out, targets).sum())(outputs)
    return result
