"""The gradients of single examples, clipped and summed, one by one and within a memory budget."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_leaves, tree_map

from ringfence import checks
from ringfence.training.clipping import Clip
from ringfence.training.per_example.inputs import Inputs, device_of, example_count, joined, mapped, same_draws
from ringfence.training.per_example.model_state import KeptError, nothing_kept, refuse_changed


class ExampleGradients:
    """A model that is applied to one example at a time, whatever the batch.

    torch.func does it, for many examples at once. Where a model is beyond it, because what it computes next
    depends on its data, or because of a recurrent layer, each example goes through a fresh copy of the model,
    and ``loop_because`` says why. This is decided when the first examples come.

    The model returns tensors with one row for each example: one, or several in any tree.

    Guarantee: what is computed for an example depends on that example alone, and nothing of it stays on the
    model: a pass sees one example under vmap, or spoils a copy that is thrown away. ``forward`` and
    ``clipped_sum`` go through the batch in the same chunks, so that dropout draws the same masks under the
    same random seed.

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
        self.loop_because: str | None = None
        self._is_tried = False
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

    def forward(self, inputs: Inputs) -> Any:
        """The model's outputs, without a graph; dimension 0 counts examples."""
        self._remember_autocast(inputs)
        with torch.no_grad():
            if not example_count(inputs):  # not every model takes no rows: one of zeros, which is dropped
                args, kwargs = mapped(lambda value: value.new_zeros(1, *value.shape[1:]), inputs)
                return tree_map(lambda output: output[:0], deepcopy(self.model)(*args, **kwargs))
            self._try(inputs)
            trained, fixed = self._state(set(self.parameters))
            call = self._mapped(lambda some: self._one(trained, fixed, some)[0])
            return joined([call(some) for some in self._chunks(inputs)])

    def clipped_sum(
        self, inputs: Inputs, cotangents: Any, clip: Clip, dtype: torch.dtype | None = None
    ) -> Tensor:
        """sum_i clip(J_i^T cotangent_i), flat, with J_i the derivative of output i by the parameters.

        ``cotangents`` are the gradients of the loss by the outputs, in the same order. ``dtype`` is the dtype
        of the sum; None stands for that of the parameters.
        """
        total = self.nothing(dtype)
        for rows in self.each(inputs, cotangents, self.parameters):
            total += clip(rows).sum(dim=0, dtype=total.dtype)
        return total

    def each(self, inputs: Inputs, cotangents: Any, names: Iterable[str]) -> Iterator[Tensor]:
        """Yields the flat gradients of examples by the named parameters, a chunk of examples at a time."""
        if example_count(inputs):
            self._try(inputs)
        every = self._mapped(self._gradient(set(names)))
        leaves, start = tree_leaves(cotangents), 0
        for some in self._chunks(inputs):
            stop = start + example_count(some)
            with self._autocasting():
                rows = every(some, [leaf[start:stop] for leaf in leaves])
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

    def _one(
        self, trained: dict[str, Tensor], fixed: dict[str, Tensor], inputs: Inputs
    ) -> tuple[Any, nn.Module]:
        """The outputs for one example, and the model that made them: a copy where vmap cannot run it."""
        args, kwargs = mapped(lambda tensor: tensor.unsqueeze(0), inputs)
        if self.loop_because is not None:
            model = deepcopy(self.model)
            outputs = model(*args, **kwargs)
        else:
            model = self.model
            with nothing_kept(model):
                outputs = functional_call(model, {**trained, **fixed}, args, kwargs)
        return tree_map(first_row, outputs), model

    def _gradient(self, names: set[str]) -> Callable[[Inputs, list[Tensor]], Tensor]:
        """The flat gradient of one example, of its inputs and the gradients by its outputs."""
        trained, fixed = self._state(names)

        def by_func(inputs: Inputs, cotangents: list[Tensor]) -> Tensor:
            call: Any = vjp(lambda values: tree_leaves(self._one(values, fixed, inputs)[0]), trained)
            outputs, pull = call
            (each,) = pull(
                [slope.to(output.dtype) for slope, output in zip(cotangents, outputs, strict=True)]
            )
            return torch.cat([each[name].reshape(-1) for name in trained])

        def by_autograd(inputs: Inputs, cotangents: list[Tensor]) -> Tensor:
            with torch.enable_grad():
                outputs, copy = self._one(trained, fixed, inputs)
            parameters = [copy.get_parameter(name) for name in trained]
            found = pulled_back(tree_leaves(outputs), cotangents, parameters)
            return torch.cat([gradient.reshape(-1) for gradient in found])

        return by_func if self.loop_because is None else by_autograd

    def _mapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one example, for many."""
        if self.loop_because is None:
            return vmap(function, randomness="different")

        def one_by_one(inputs: Inputs, *others: list[Tensor]) -> Any:
            each = [
                function(mapped(lambda value: value[i], inputs), *tree_map(lambda value: value[i], others))  # noqa: B023
                for i in range(example_count(inputs))
            ]
            return joined(tree_map(lambda value: value.unsqueeze(0), each))

        return one_by_one

    def _try(self, inputs: Inputs) -> None:
        """Decides with one example whether torch.func can do what the model does."""
        if self._is_tried:
            return
        self._is_tried = True
        first = mapped(lambda value: value[:1], inputs)
        trained, fixed = self._state(set(self.parameters))
        with same_draws(inputs):
            try:
                outputs = self._mapped(lambda some: self._one(trained, fixed, some)[0])(first)
                cotangents = [torch.zeros_like(output) for output in tree_leaves(outputs)]
                self._mapped(self._gradient(set(self.parameters)))(first, cotangents)
            except (torch.OutOfMemoryError, KeptError):
                raise
            except Exception as error:  # whatever the user's model does under torch.func
                self.loop_because = f"{type(error).__name__}: {error}"
                refuse_changed(
                    self.model, self._one(trained, fixed, mapped(lambda value: value[0], first))[1]
                )

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
        gradient = sum(p.numel() * p.element_size() for p in self.parameters.values())
        return 3 * gradient + 2 * self._kept_by_one(inputs)

    def _kept_by_one(self, inputs: Inputs) -> int:
        """How many bytes a pass keeps for the way back because of one example more: weights do not count."""
        first = mapped(lambda tensor: tensor[:1], inputs)
        two = mapped(lambda tensor: torch.cat([tensor, tensor]), first)
        copies = deepcopy(self.model), deepcopy(self.model)
        pairs = zip(copies, (first, two), strict=True)
        with same_draws(inputs):
            one, both = (bytes_kept(lambda: model(*each[0], **each[1])) for model, each in pairs)  # noqa: B023
        return max(1, both - one)


def first_row(output: Any) -> Tensor:
    """The output for the only example of a batch; a single number is taken as that of the example.

    >>> first_row(torch.ones(1, 3)).shape
    torch.Size([3])
    """
    if not isinstance(output, Tensor) or output.shape[:1] not in ((), (1,)):
        what = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(f"the model must return tensors with one row for each example, got {what} for one")
    return output.squeeze(0) if output.dim() else output


def pulled_back(
    outputs: list[Tensor], cotangents: list[Tensor], parameters: list[nn.Parameter]
) -> tuple[Tensor, ...]:
    """The gradients by parameters, of the gradients by outputs; zero where nothing depends on a parameter.

    >>> weight = nn.Parameter(torch.tensor([2.0]))
    >>> pulled_back([3 * weight, torch.ones(1)], [torch.ones(1), torch.ones(1)], [weight])
    (tensor([3.]),)
    """
    pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad]
    return torch.autograd.grad(
        [output for output, _ in pairs],
        parameters,
        [cotangent.to(output.dtype) for output, cotangent in pairs],
        allow_unused=True,
        materialize_grads=True,
    )


def bytes_kept(call: Callable[[], object]) -> int:
    """How many bytes autograd keeps for the backward pass of ``call``, each tensor once.

    >>> x = torch.ones(10, requires_grad=True)
    >>> bytes_kept(lambda: x.exp().square())  # both need the same exp(x)
    40
    """
    kept: dict[tuple[int, int], Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr(), tensor.numel()] = tensor
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        call()
    return sum(
        min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
        for tensor in kept.values()
    )
