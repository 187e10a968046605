"""A copy of an Opacus model that nobody listens to, on which gradients are measured beside the training."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.numerics.lengths import row_lengths
from ringfence.opacus.parts import Parts
from ringfence.training.clipping import Clip
from ringfence.training.engine.auxiliary import cotangents_of, targets_of
from ringfence.training.engine.sampling import Examples
from ringfence.training.per_example.fisher_tracking import FisherTracking
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.inputs import Inputs
from ringfence.training.per_example.jacobian_operator import Loss

_AT_ONCE = 256  # examples whose lengths are measured together


class Twin:
    """The model at the parameters that it has now. Nothing that is measured here changes the model or torch's
    random numbers.
    """

    def __init__(self, parts: Parts, loss: Loss) -> None:
        self.module, self.loss = _without_hooks(parts.module), loss
        self._original = parts.module
        self._gradients = ExampleGradients(self.module)
        # the user's own collate function: that of Opacus remembers what it saw
        self._examples = Examples(DataLoader(parts.loader.dataset, collate_fn=parts.collate))
        self._count = parts.sampler.num_samples
        self._noise = Noise(None)  # of random probes, and of nothing that is released

    def lengths(self) -> Tensor:
        """The lengths of all examples' gradients, before they are clipped."""
        device, found = self._follow(), []
        for start in range(0, self._count, _AT_ONCE):
            with torch.random.fork_rng(devices=[]):
                values = self._examples.batch(tuple(range(start, min(start + _AT_ONCE, self._count))))
            inputs: Inputs = ((values[0].to(device),), {})
            outputs = self._gradients.forward(inputs)
            cotangents = cotangents_of(self.loss, outputs, targets_of(values).to(device))
            found += [
                row_lengths(rows).cpu()
                for rows in self._gradients.each(inputs, cotangents, self._gradients.parameters)
            ]
        return torch.cat(found)

    def measure(
        self,
        tracking: FisherTracking,
        mechanism: Mechanism,
        clip: Clip,
        indices: list[int],
        batch: Any,
        *,
        step: int,
    ) -> None:
        """Adds the information that a release gives about the examples of its batch."""
        if batch is None:
            raise ValueError("fisher_every needs whole batches: it does not go with BatchMemoryManager")
        device = self._follow()
        if indices:
            inputs: Inputs = ((batch[0].to(device),), {})
            tracking.keep(tuple(indices), inputs, targets_of(batch).to(device))
        theta = torch.zeros(
            self._gradients.size, device=device
        )  # Gaussian noise gives the same away anywhere
        memory = self._gradients.memory_budget
        tracking.measure(self.module, mechanism, clip, theta, noise=self._noise, step=step, memory=memory)

    def _follow(self) -> torch.device:
        """Takes over the present parameters; returns where they are."""
        self.module.load_state_dict(self._original.state_dict())
        return next(self.module.parameters()).device


def _without_hooks(module: nn.Module) -> nn.Module:
    """A copy of the module without its hooks: those of Opacus hold on to its gradients."""
    hooks = [
        held
        for layer in module.modules()
        for name, held in vars(layer).items()
        if name.endswith("_hooks") and held is not None
    ]
    twin = copy.deepcopy(module, {id(held): type(held)() for held in hooks})
    for layer in twin.modules():
        vars(layer).pop("activations", None)
    return twin
