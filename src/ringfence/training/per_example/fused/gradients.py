"""Clipped sums by one ordinary pass over a batch, forward and back, without gradients of single examples."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.clipping import Clip
from ringfence.training.per_example.fused.contributions import Rows
from ringfence.training.per_example.fused.tape import ALL, Part, Tape, without_gradients
from ringfence.training.per_example.fused.together import joined_parts
from ringfence.training.per_example.fused.watching import (
    DisagreementError,
    KnownLayer,
    UnfitError,
    isolated,
    known_layers,
    watched,
)
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.inputs import Inputs, device_of, example_count, joined, mapped, same_draws
from ringfence.training.per_example.model_state import KeptError, nothing_kept, state_of


@dataclass(frozen=True)
class Pass:
    """A forward pass over examples of which the first ``count`` are real: others fill up.

    ``rows`` says which examples of the batch these are.
    """

    tape: Tape
    outputs: Any
    count: int
    rows: slice | Tensor

    def real_outputs(self) -> Any:
        """The outputs of the real examples, without a graph."""
        return tree_map(lambda output: output.detach()[: self.count], self.outputs)

    def backward(self, cotangents: Iterable[Tensor], receive: Callable[[Iterable[Part]], None]) -> None:
        """Goes back from the outputs, whose gradients are given for the real examples.

        ``receive`` is called with what the gradients of each layer are made of.
        """
        self.tape.receive = receive
        pairs = [pair for pair in zip(tree_leaves(self.outputs), cotangents, strict=True) if pair[0].grad_fn]
        filled = []
        for output, cotangent in pairs:
            missing = cotangent.new_zeros(len(output) - len(cotangent), *cotangent.shape[1:])
            whole = torch.cat([cotangent, missing]) if len(missing) else cotangent
            filled.append(whole.to(output.dtype))
        torch.autograd.backward([output for output, _ in pairs], filled)


class FusedGradients(ExampleGradients):
    """``ExampleGradients`` at about the cost of ordinary training, without gradients of single examples.

    The model runs under vmap, and every known layer adds up the clipped gradients of its own parameters in
    the backward pass. Other parameters get a copy for each example, so that autograd gives their gradients.
    Where vmap cannot run a model, everything goes as in ``ExampleGradients``, and ``slow_because`` says why.

    ``rows`` is the size of all passes, so that the GPU sees one shape: a batch is filled up with copies of
    its examples that count zero, and what does not fit takes another pass. None fills nothing up. Examples
    for which the model's code decides differently (``if x.max() > 6``) go in separate passes.

    Guarantee: what the model computes for an example depends on that example alone, because under vmap the
    model's code sees one example, and known layers treat rows apart. A pass writes nothing that it computes
    from its inputs into the model: vmap refuses to, and what Python code keeps in attributes of layers is
    refused by name. With ``Clamp`` every example adds a number within [-c, c] to every coordinate, whatever
    the precision of the layers.

    >>> from ringfence.training.clipping import Clamp
    >>> gradients = FusedGradients(nn.Linear(2, 1, bias=False))
    >>> inputs = ((torch.tensor([[1.0, 2.0], [3.0, -4.0]]),), {})
    >>> gradients.forward(inputs).shape
    torch.Size([2, 1])
    >>> gradients.clipped_sum(inputs, torch.ones(2, 1), Clamp(1.0)).round(decimals=4)
    tensor([2., 0.])
    """

    def __init__(self, model: nn.Module, memory_budget: int | None = None, rows: int | None = None) -> None:
        super().__init__(model, memory_budget)
        self.rows = rows
        self.slow_because: str | None = None
        self._known: dict[str, KnownLayer] = {}
        self._reasons: dict[str, str] = {}  # why layers that have a rule are left out, by parameter
        self._seen: tuple[Any, ...] = ()  # that of the model for which this was decided
        self._asks = False  # whether the model does what vmap needs help with
        self._fitting: int | None = None
        self._kept: tuple[Inputs, list[Pass]] | None = None

    def forward(self, inputs: Inputs) -> Any:
        """The model's outputs, without a graph; what it takes to go back is kept where the budget allows."""
        self._kept = None
        self._remember_autocast(inputs)
        if not example_count(inputs) or not self._is_fused(inputs):
            return super().forward(inputs)
        keep = example_count(inputs) <= self._at_once(inputs)
        passes = list(self._passes(inputs, keep))
        if keep:
            self._kept = (inputs, passes)
        outputs = joined([one.real_outputs() for one in passes])
        if all(isinstance(one.rows, slice) for one in passes):
            return outputs
        places = torch.arange(example_count(inputs))
        order = torch.cat([places[one.rows] for one in passes]).argsort()
        return tree_map(lambda output: output[order], outputs)

    def clipped_sum(
        self, inputs: Inputs, cotangents: Any, clip: Clip, dtype: torch.dtype | None = None
    ) -> Tensor:
        """sum_i clip(J_i^T cotangent_i), flat, for the inputs that ``forward`` had last or for others."""
        kept, self._kept = self._kept, None
        if not example_count(inputs) or (kept is None and not self._is_fused(inputs)):
            return super().clipped_sum(inputs, cotangents, clip, dtype)
        total = self.nothing()
        if clip.looks_at == "all" or dtype not in (None, total.dtype):
            raise ValueError(f"the fused pass needs Clamp or Norm and no dtype, got {clip!r} and {dtype}")
        passes: Iterable[Pass] = self._passes(inputs)
        if kept is not None and kept[0] is inputs:
            passes = kept[1]
        leaves = tree_leaves(cotangents)
        with torch.autocast(total.device.type, enabled=False):
            for one in passes:
                self._add(total, one, [leaf[one.rows] for leaf in leaves], clip)
        return total

    def _add(self, total: Tensor, one: Pass, cotangents: list[Tensor], clip: Clip) -> None:
        """Adds the clipped sum of one pass to the total."""
        places = self.split(total)
        several = frozenset(name for name, uses in one.tape.uses.items() if uses > 1)
        weights: Tensor | None = None
        waiting: list[Part] = []

        def put(part: Part) -> None:
            name, rows, contribution = part
            place = places[name] if rows is ALL else places[name][rows]
            place += contribution.sum(clip.limit, weights)

        def receive(parts: Iterable[Part]) -> None:
            for name, rows, contribution in parts:
                if name in several:  # there is more to come
                    waiting.append((name, rows, contribution))
                elif clip.looks_at == "length":  # it is known when all of the gradient is
                    waiting.append((name, rows, contribution.held()))
                else:  # clipped as soon as it is known
                    put((name, rows, contribution))

        one.backward(cotangents, receive)
        waiting = joined_parts(waiting, several, one.tape.examples)
        if clip.looks_at == "length":
            squares = torch.zeros(one.tape.examples, dtype=torch.float64, device=total.device)
            for _, _, contribution in waiting:
                squares += contribution.squares()
            weights = clip.factors(squares.sqrt(), total.dtype)
        for part in waiting:
            put(part)

    def _is_fused(self, inputs: Inputs) -> bool:
        """Whether the fused pass is taken, which is decided when the first examples come.

        It is decided again when modes, hooks, parameters or the precision of the model change.
        """
        state = (self._autocast, *state_of(self.model))
        if state != self._seen:
            self.slow_because = self._decided(inputs)
            self._seen = state  # where that fails, it is decided again
            if self.slow_because is not None:
                warnings.warn(f"examples go through the model one by one: {self.slow_because}", stacklevel=3)
        return self.slow_because is None

    def _decided(self, inputs: Inputs) -> str | None:
        """Finds the layers that can be watched; returns why vmap cannot run the model, or None."""
        self._known, self._reasons, self._fitting = known_layers(self.model), {}, None
        few = mapped(lambda value: value[:2], inputs)
        with same_draws(inputs), torch.enable_grad():
            try:
                while any(
                    self._leave_out_used(one)
                    for one in self._separate(few, slice(0, example_count(few)), tracing=True)
                ):
                    pass
            except (torch.OutOfMemoryError, KeptError):
                raise
            except Exception as error:  # whatever the user's model does under vmap
                return f"{type(error).__name__}: {error}"
        return None

    def _leave_out_used(self, one: Pass) -> bool:
        """Leaves out layers whose parameters are used elsewhere; returns whether there was one."""
        owned = {name for layer in self._known.values() for name in layer.trained.values()}
        outputs = [output for output in tree_leaves(one.outputs) if output.requires_grad]
        values = [self.parameters[name] for name in owned]
        if not outputs or not values:
            return False
        slopes = [torch.zeros_like(output) for output in outputs]
        found = torch.autograd.grad(outputs, values, slopes, allow_unused=True)
        used = {name for name, gradient in zip(owned, found, strict=True) if gradient is not None}
        layers = [layer.name for layer in self._known.values() if used & set(layer.trained.values())]
        for name in layers:
            self._leave_out(name, "has a parameter that is used elsewhere")
        return bool(layers)

    def _leave_out(self, name: str, reason: str) -> None:
        one = self._known.pop(name)
        reason = f"{type(one.layer).__name__} {reason}"
        self._reasons |= dict.fromkeys(one.trained.values(), reason)

    @property
    def slower_layers(self) -> dict[str, str]:
        """Parameters of which a pass takes a copy for each example, and why; known after the first batch."""
        if self.slow_because is not None or not self._seen:
            return {}
        kinds = {name: type(self.model.get_submodule(name.rpartition(".")[0])) for name in self._copied}
        return {
            name: self._reasons.get(name, f"{kinds[name].__name__} is not known") for name in self._copied
        }

    @property
    def _copied(self) -> list[str]:
        owned = {name for one in self._known.values() for name in one.trained.values()}
        return [name for name in self.parameters if name not in owned]

    def _passes(self, inputs: Inputs, keep: bool = True) -> Iterator[Pass]:
        """The passes over a batch: in parts of one size, filled up to it where ``rows`` is given."""
        count, size = example_count(inputs), self._at_once(inputs)
        size = min(size, count if self.rows is None else self.rows)
        for start in range(0, count, size):
            some = slice(start, min(start + size, count))
            yield from self._separate(mapped(lambda value: value[some], inputs), some, keep, size)  # noqa: B023

    def _separate(
        self, inputs: Inputs, rows: slice | Tensor, keep: bool = True, size: int = 0, *, tracing: bool = False
    ) -> Iterator[Pass]:
        """One pass over all inputs, or several where the model decides differently for some of them."""
        count = example_count(inputs)
        filled = inputs if self.rows is None or count >= size else self._filled(inputs, size)
        try:
            yield self._pass(filled, count, rows, keep, tracing=tracing)
        except DisagreementError as error:
            answers = error.answers[:count]
            places = torch.arange(rows.stop)[rows] if isinstance(rows, slice) else rows
            for some in (answers, ~answers):
                part = mapped(lambda value: value[some], inputs)  # noqa: B023
                yield from self._separate(part, places[some.cpu()], keep, size, tracing=tracing)

    def _filled(self, inputs: Inputs, size: int) -> Inputs:
        """The inputs, filled up with copies of themselves."""
        again = torch.arange(size, device=device_of(inputs)) % example_count(inputs)
        filled: Inputs = mapped(lambda value: value[again], inputs)
        return filled

    def _pass(
        self,
        inputs: Inputs,
        count: int,
        rows: slice | Tensor = ALL,
        keep: bool = True,
        *,
        tracing: bool = False,
    ) -> Pass:
        """The forward pass over examples of which ``count`` are real; without ``keep``, no way back."""
        tape = Tape(example_count(inputs), device_of(inputs))
        asks = tracing or self._asks
        try:
            with (
                torch.set_grad_enabled(keep),
                nullcontext() if tracing else without_gradients(self.parameters.values()),
                watched(self._known.values(), tape, tracing=tracing, asks=asks),
                nothing_kept(self.model, lambda: tape.asked, asks=asks),
                self._autocasting(),
            ):
                copies = {name: self._copies(name, tape) for name in self._copied}
                outputs = isolated(self.model, inputs, copies, tape)
        except UnfitError as error:
            self._leave_out(error.name, error.reason)
            return self._pass(inputs, count, rows, keep, tracing=tracing)
        except RuntimeError as error:
            if asks or "vmap" not in str(error):
                raise
            self._asks = True  # the model's code asks something of an example for the first time
            return self._pass(inputs, count, rows, keep)
        self._asks = tape.helped if tracing else self._asks
        return Pass(tape, outputs, count, rows)

    def _copies(self, name: str, tape: Tape) -> Tensor:
        """A copy of a parameter for each example, which it may spoil."""
        parameter = self.parameters[name].detach()
        copies = parameter.expand(tape.examples, *parameter.shape).clone()
        return tape.watch(copies, (), lambda gradient: [(name, ALL, Rows(gradient))])

    @property
    def memory_budget(self) -> int:
        """The budget as given; by default 1 GiB, or three quarters of the free memory of the model's GPU."""
        device = next(iter(self.parameters.values())).device
        if self._given is not None or device.type != "cuda":
            return super().memory_budget
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch holds it
        return (torch.cuda.mem_get_info(device)[0] + unused) * 3 // 4

    def _at_once(self, inputs: Inputs) -> int:
        """How many examples the memory budget holds: half as much again as a pass keeps, for gradients."""
        if self._fitting is None:
            copied = sum(self.parameters[name].numel() for name in self._copied)
            self._fitting = max(1, 2 * self.memory_budget // (3 * (self._kept_by_one(inputs) + 4 * copied)))
        return self._fitting
