"""The private model, optimizer and loader, with which a training loop stays as it was."""

from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, Sampler

from ringfence.noise import Noise
from ringfence.training.engine.batches import Examples, FullBatches, MicroBatch, PoissonBatches
from ringfence.training.engine.run import TrainingRun
from ringfence.training.per_example.layers import is_frozen
from ringfence.training.per_example.model_checks import refuse_layers, refuse_other_parameters


class PrivateModule(nn.Module):
    """The user's model; what it computes in training goes through the run, which makes the private step.

    The outputs in training are leaves of the graph: ``loss.backward()`` stops there, and the parameters
    get no gradient but the released one. Evaluation, and anything under ``torch.no_grad``, goes to the
    model directly, or to a copy while it is in training mode. A normalisation that was frozen (in eval mode)
    stays frozen under ``train()``. The set of trained parameters stays as it was: any change is refused.
    """

    def __init__(self, module: nn.Module, run: TrainingRun) -> None:
        super().__init__()
        self.module = module
        self._run_forward = torch.compiler.disable(run.forward)  # layers are watched one by one
        self.training = module.training
        self._frozen = [layer for layer in module.modules() if is_frozen(layer)]
        self._trained = run.gradients.parameters

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of all layers but the frozen ones."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return self.module(*args, **kwargs)
        if not torch.is_grad_enabled():  # a pass in training mode may write to the model
            refuse_layers(self.module)
            refuse_other_parameters(self.module, self._trained)
            return deepcopy(self.module)(*args, **kwargs)
        for name, value in (*enumerate(args), *kwargs.items()):
            if not isinstance(value, Tensor) or not value.dim():
                raise TypeError(
                    "in training the model takes tensors with one row for each example, got "
                    f"{type(value).__name__} as input {name}"
                )
        return self._run_forward((args, kwargs))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class PrivateOptimizer(Optimizer):
    """The user's optimizer, which moves the parameters when a gradient was released.

    Everything else (param_groups, state, schedulers) is the user's optimizer itself.
    """

    def __init__(self, optimizer: Optimizer, run: TrainingRun) -> None:
        # Optimizer.__init__ is not called, because groups and state are those of the optimizer inside.
        self.optimizer = optimizer
        self._run = run

    def release(self) -> bool:
        """Adds the batch to the sum; returns whether the step is complete and its gradient was released.

        ``step`` does this itself. It is for trainers that call the step of the optimizer inside.
        """
        return self._run.finish()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Adds the batch to the sum, and moves the parameters if it was the last part of its step."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        if self.release():
            self.optimizer.step()
        return value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients, which are the last released ones."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises a ValueError: a release has a place for each parameter that the engine began with."""
        raise ValueError("parameters cannot be added to a private optimizer: make a new engine")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["optimizer"], name)

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self.optimizer!r})"


class PrivateLoader:
    """Iterates like a DataLoader over the rest of the epoch that the run is in."""

    def __init__(self, loader: DataLoader[Any], run: TrainingRun) -> None:
        self.dataset: Dataset[Any] = loader.dataset
        self._run, self._examples = run, Examples(loader)
        self._options = {
            "num_workers": loader.num_workers,
            "pin_memory": loader.pin_memory,
            "timeout": loader.timeout,
            "worker_init_fn": loader.worker_init_fn,
            "prefetch_factor": loader.prefetch_factor,
        }

    @property
    def batches_a_step(self) -> int:
        """The number of micro-batches that make one step."""
        return len(self._run.plan.batches.of_step(0, Noise(0)))

    def __len__(self) -> int:
        """Returns the number of micro-batches in a whole epoch."""
        return self._run.plan.batches.steps_an_epoch * self.batches_a_step

    def __iter__(self) -> Iterator[Any]:
        batches, (start, noise) = self._run.plan.batches, self._run.begin()
        epoch = batches.steps_an_epoch
        sampler = _Remembering(batches, range(start, (start // epoch + 1) * epoch), noise)
        loader = DataLoader(
            self.dataset,
            batch_sampler=sampler,
            collate_fn=self._examples.collated,
            generator=torch.Generator(),  # so that iterating draws nothing from torch's global generator
            **self._options,  # type: ignore[arg-type]
        )
        for batch in loader:
            self._run.announce(sampler.handed_out.popleft(), batch)
            yield batch
            if self._run.noise is not noise:  # the step begins again with a new sample
                yield from self
                return


class _Remembering(Sampler[list[int]]):
    """Keeps the micro-batches that workers asked for ahead of time until they are handed out."""

    def __init__(self, batches: FullBatches | PoissonBatches, steps: range, noise: Noise) -> None:
        self.batches, self.steps, self.noise = batches, steps, noise
        self.handed_out: deque[MicroBatch] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        for step in self.steps:
            for batch in self.batches.of_step(step, self.noise):
                self.handed_out.append(batch)
                yield list(batch.indices)
