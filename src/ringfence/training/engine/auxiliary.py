"""Sums over batches that are drawn to estimate a cost and are never released."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.clipping import Clip
from ringfence.training.engine.sampling import PoissonBatches, PrivateLoader
from ringfence.training.per_example.gradients import ExampleGradients, Inputs
from ringfence.training.per_example.jacobian_operator import Loss


class AuxiliarySums:
    """Poisson samples of the dataset at the present parameters, as ``SampledAccountant`` needs them."""

    def __init__(
        self,
        gradients: ExampleGradients,
        clip: Clip,
        loss: Loss,
        batches: PoissonBatches,
        loader: PrivateLoader,
        device: torch.device,
    ) -> None:
        self._gradients, self._clip, self._loss = gradients, clip, loss
        self._batches, self._loader, self._device = batches, loader, device

    def sums(self, number: int, noise: Noise, step: int) -> Iterator[Tensor]:
        """So many independent ones."""
        for one in range(number):
            indices = self._batches.draw(noise, "auxiliary", step, one)
            values = self._loader.fetch(indices)
            targets = targets_of(values).to(self._device)
            inputs: Inputs = ((values[0].to(self._device),), {})
            place = ("auxiliary forward", step, one, distributed.rank())
            with noise.global_draws(*place, device=self._device):
                outputs = self._gradients.forward(inputs)
            cotangents = _cotangents(self._loss, outputs, targets) if indices else outputs
            with noise.global_draws(*place, device=self._device):
                part = self._gradients.clipped_sum(inputs, cotangents, self._clip)
            yield distributed.summed(part)


def each_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of every example alone.

    >>> each_loss(torch.nn.functional.mse_loss, torch.zeros(2, 3), torch.tensor([[1.0] * 3, [2.0] * 3]))
    tensor([1., 4.])
    """
    return vmap(lambda output, target: loss(output.unsqueeze(0), target.unsqueeze(0)))(outputs, targets)


def targets_of(values: Any) -> Tensor:
    """The second half of what the loader gives."""
    if not isinstance(values, list | tuple) or len(values) != 2 or not isinstance(values[1], Tensor):
        raise ValueError(
            f"with loss, the loader must give pairs (inputs, targets), got {type(values).__name__}"
        )
    return values[1]


def _cotangents(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    result: Tensor = grad(lambda out: each_loss(loss, out, targets).sum())(outputs)
    return result
