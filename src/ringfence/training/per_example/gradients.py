"""The gradients of single examples, clipped and summed, by torch.func and within a memory budget."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from ringfence import checks
from ringfence.training.clipping import Clip

Inputs = tuple[tuple[Tensor, ...], dict[str, Tensor]]  # positional and named; dimension 0 counts examples


class ExampleGradients:
    """A model that is applied to one example at a time, whatever the batch.

    Nothing is stored on the model: no hooks, no gradients. ``forward`` and ``clipped_sum`` go through
    the batch in the same chunks, so that dropout draws the same masks under the same random seed.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> gradients = ExampleGradients(layer)
    >>> inputs = ((torch.tensor([[1.0, 2.0], [3.0, -4.0]]),), {})
    >>> from ringfence.training.clipping import Clamp
    >>> gradients.clipped_sum(inputs, torch.ones(2, 1), Clamp(1.0))
    tensor([2., 0.])
    """

    def __init__(self, model: nn.Module, memory_budget: int | None = None) -> None:
        """``memory_budget`` is how many bytes the gradients and activations of a chunk may take."""
        self.model = model
        self._given = (
            None if memory_budget is None else checks.count("memory_budget", memory_budget, at_least=1)
        )
        self._chunk: int | None = None
        self._autocast: tuple[str, torch.dtype, bool] | None = None  # that of the last forward pass

    @cached_property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained, by name, in the model's order; they stay the same from now on."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @property
    def memory_budget(self) -> int:
        """The budget as given; by default 1 GiB, or a quarter of the free memory of the model's GPU."""
        if self._given is not None:
            return self._given
        device = next(self.model.parameters()).device
        return torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else 1 << 30

    @cached_property
    def size(self) -> int:
        """How many numbers the trained parameters hold."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    def forward(self, inputs: Inputs) -> Tensor:
        """The model's outputs, without a graph; dimension 0 counts examples."""
        self._remember_autocast(inputs)
        trained, fixed = self._state(set(self.parameters))
        call = vmap(lambda some: self._one(trained, fixed, some), randomness="different")
        args, kwargs = inputs
        with torch.no_grad():
            if not example_count(inputs):
                outputs: Tensor = self.model(*args, **kwargs)
                return outputs
            return torch.cat([call(some) for some in self._chunks(inputs)])

    def clipped_sum(
        self, inputs: Inputs, cotangents: Tensor, clip: Clip, dtype: torch.dtype | None = None
    ) -> Tensor:
        """sum_i clip(J_i^T cotangent_i), flat, with J_i the derivative of output i by the parameters.

        ``dtype`` is the dtype of the sum; None stands for that of the parameters.
        """
        total = self.nothing(dtype)
        for rows in self.each(inputs, cotangents, self.parameters):
            total += clip(rows).sum(dim=0, dtype=total.dtype)
        return total

    def each(self, inputs: Inputs, cotangents: Tensor, names: Iterable[str]) -> Iterator[Tensor]:
        """Yields the flat gradients of examples by the named parameters, a chunk of examples at a time."""
        trained, fixed = self._state(set(names))

        def gradient(some: Inputs, cotangent: Tensor) -> Tensor:
            pull = vjp(lambda values: self._one(values, fixed, some), trained)[1]
            (each,) = pull(cotangent)
            return torch.cat([each[name].reshape(-1) for name in trained])

        every = vmap(gradient, randomness="different")
        start = 0
        for some in self._chunks(inputs):
            stop = start + example_count(some)
            with self._autocasting():
                rows = every(some, cotangents[start:stop])
            yield rows
            start = stop

    def nothing(self, dtype: torch.dtype | None = None) -> Tensor:
        """A flat vector of zeros, one for each trained number; ``dtype`` None stands for the parameters'."""
        first = next(iter(self.parameters.values()))
        return torch.zeros(self.size, dtype=dtype or first.dtype, device=first.device)

    def split(self, flat: Tensor, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Cuts a flat vector into tensors of the shapes of the parameters, or of the named ones, by name."""
        chosen = set(self.parameters if names is None else names)
        parameters = {name: p for name, p in self.parameters.items() if name in chosen}
        parts = flat.split([p.numel() for p in parameters.values()])
        return {name: part.view_as(p) for (name, p), part in zip(parameters.items(), parts, strict=True)}

    def _state(self, names: set[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        trained = {name: p.detach() for name, p in self.parameters.items() if name in names}
        everything = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return trained, {name: value.detach() for name, value in everything.items() if name not in trained}

    def _one(self, trained: dict[str, Tensor], fixed: dict[str, Tensor], inputs: Inputs) -> Tensor:
        args, kwargs = mapped(lambda tensor: tensor.unsqueeze(0), inputs)
        output = functional_call(self.model, {**trained, **fixed}, args, kwargs)
        if not isinstance(output, Tensor):
            raise TypeError(f"the model must return one tensor, got {type(output).__name__}")
        return output.squeeze(0)

    def _remember_autocast(self, inputs: Inputs) -> None:
        """Keeps the precision that the user's loop asks for, because the way back comes after it."""
        kind = device_of(inputs).type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    def _autocasting(self) -> AbstractContextManager[object]:
        """The precision of the last forward pass."""
        return nullcontext() if self._autocast is None else torch.autocast(*self._autocast)

    def _chunks(self, inputs: Inputs) -> list[Inputs]:
        count = example_count(inputs)
        if count and self._chunk is None:
            self._chunk = max(1, self.memory_budget // self._bytes_per_example(inputs))
        step = self._chunk or 1
        return [
            mapped(lambda tensor, at=at: tensor[at : at + step], inputs)  # type: ignore[misc]
            for at in range(0, count, step)
        ]

    def _bytes_per_example(self, inputs: Inputs) -> int:
        """Three copies of the gradient (itself, flat, clipped), and twice what a backward pass keeps."""
        args, kwargs = mapped(lambda tensor: tensor[:1], inputs)
        random = [torch.cuda.current_device()] if args and args[0].is_cuda else []
        with torch.random.fork_rng(random):
            kept = bytes_kept(lambda: self.model(*args, **kwargs))
        gradient = sum(p.numel() * p.element_size() for p in self.parameters.values())
        return 3 * gradient + 2 * kept


def bytes_kept(call: Callable[[], object]) -> int:
    """How many bytes autograd keeps for the backward pass of ``call``.

    >>> x = torch.ones(10, requires_grad=True)
    >>> bytes_kept(lambda: x.exp())
    40
    """
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        call()
    return kept


def mapped(change: Callable[[Tensor], Tensor], inputs: Inputs) -> Any:
    """The inputs with every tensor changed.

    >>> mapped(torch.numel, ((torch.ones(2, 3),), {"mask": torch.ones(2)}))
    ((6,), {'mask': 2})
    """
    args, kwargs = inputs
    return tuple(map(change, args)), {name: change(value) for name, value in kwargs.items()}


def example_count(inputs: Inputs) -> int:
    """How many examples the inputs hold.

    >>> example_count(((torch.ones(2, 3),), {}))
    2
    """
    args, kwargs = inputs
    return len(next(iter((*args, *kwargs.values()))))


def device_of(inputs: Inputs) -> torch.device:
    """Where the inputs are.

    >>> device_of(((torch.ones(2, 3),), {}))
    device(type='cpu')
    """
    args, kwargs = inputs
    return next(iter((*args, *kwargs.values()))).device
