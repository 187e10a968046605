"""Clipped sums by one ordinary pass over a batch, forward and back, without gradients of single examples."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.clipping import Clip
from ringfence.training.per_example.buffers import restored_buffers, unchanged_buffers
from ringfence.training.per_example.fused.check import difference, made_up
from ringfence.training.per_example.fused.contributions import Rows
from ringfence.training.per_example.fused.plan import Plan, planned
from ringfence.training.per_example.fused.tape import ALL, Part, Tape, without_gradients
from ringfence.training.per_example.fused.together import joined_parts
from ringfence.training.per_example.fused.watching import watched
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.inputs import Inputs, device_of, example_count, joined, mapped, same_draws


@dataclass(frozen=True)
class Pass:
    """A forward pass over examples of which the first ``count``, the ``inputs``, are real: others fill up."""

    tape: Tape
    inputs: Inputs
    outputs: Any
    count: int

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
            filled.append(torch.cat([cotangent, missing]) if len(missing) else cotangent)
        torch.autograd.backward([output for output, _ in pairs], filled)


class FusedGradients(ExampleGradients):
    """``ExampleGradients`` for layers that are known not to mix examples, at the cost of ordinary training.

    The batch goes through the model as a whole, and every known layer adds up the clipped gradients of its
    own parameters in the backward pass; other layers take torch.func. When the first batch comes, this is
    compared on made-up examples with examples that go through the model alone. Where the two differ,
    everything goes as in ``ExampleGradients``, and ``slow_because`` says why.

    ``rows`` is the size of all passes, so that the GPU sees one shape: a batch is filled up with copies of
    its examples that count zero, and what does not fit takes another pass. None fills nothing up.

    Guarantee: with ``Clamp`` every example adds a number within [-c, c] to every coordinate, whatever the
    precision of the layers. That an example's outputs depend on it alone follows from the layers where they
    are known; of the code between the layers it is checked on made-up inputs, not proved.

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
        self._plan: Plan | None = None
        self._fitting: int | None = None
        self._kept: tuple[Inputs, list[Pass]] | None = None

    def forward(self, inputs: Inputs) -> Any:
        """The model's outputs, without a graph; what it takes to go back is kept where the budget allows."""
        self._kept = None
        if not example_count(inputs) or not self._is_fused(inputs):
            return super().forward(inputs)
        self._remember_autocast(inputs)
        keep = example_count(inputs) <= self._at_once(inputs)
        passes = [self._pass(some, count, keep) for some, count in self._parts(inputs)]
        if keep:
            self._kept = (inputs, passes)
        return joined([one.real_outputs() for one in passes])

    def clipped_sum(
        self, inputs: Inputs, cotangents: Any, clip: Clip, dtype: torch.dtype | None = None
    ) -> Tensor:
        """sum_i clip(J_i^T cotangent_i), flat, for the inputs that ``forward`` had last or for others."""
        kept, self._kept = self._kept, None
        if not example_count(inputs) or not self._is_fused(inputs):
            return super().clipped_sum(inputs, cotangents, clip, dtype)
        total = self.nothing()
        if clip.looks_at == "all" or dtype not in (None, total.dtype):
            raise ValueError(f"the fused pass needs Clamp or Norm and no dtype, got {clip!r} and {dtype}")
        passes: Iterable[Pass] = (self._pass(some, count) for some, count in self._parts(inputs))
        if kept is not None and kept[0] is inputs:
            passes = kept[1]
        leaves, start = tree_leaves(cotangents), 0
        with torch.autocast(total.device.type, enabled=False):
            for one in passes:
                stop = start + one.count
                self._add(total, one, [leaf[start:stop] for leaf in leaves], clip)
                start = stop
        return total

    def _add(self, total: Tensor, one: Pass, cotangents: list[Tensor], clip: Clip) -> None:
        """Adds the clipped sum of one pass to the total."""
        places, several = self.split(total), self.plan.several
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
            for some, others in self._others(one.inputs, cotangents):
                squares[some] += others.squares()
            weights = clip.factors(squares.sqrt(), total.dtype)
        for part in waiting:
            put(part)
        for some, others in self._others(one.inputs, cotangents):
            flat = others.sum(clip.limit, None if weights is None else weights[some])
            for name, value in self.split(flat, self.plan.rest).items():
                places[name] += value

    def _others(self, inputs: Inputs, cotangents: list[Tensor]) -> Iterator[tuple[slice, Rows]]:
        """The gradients by parameters that the plan leaves to torch.func, a few examples at a time."""
        start = 0
        for rows in self.each(inputs, cotangents, self.plan.rest) if self.plan.rest else ():
            yield slice(start, start + len(rows)), Rows(rows)
            start += len(rows)

    @property
    def plan(self) -> Plan:
        """What was decided when the first examples came."""
        assert self._plan is not None
        return self._plan

    @property
    def slower_layers(self) -> dict[str, str]:
        """Layers and parameters that go through torch.func in a fused pass, and why."""
        return {} if self._plan is None or self.slow_because is not None else self._plan.slower

    def _is_fused(self, inputs: Inputs) -> bool:
        """Whether the fused pass is taken, which is decided when the first examples come."""
        if self._plan is None and self.slow_because is None:
            self.slow_because = self._decided(inputs)
            if self.slow_because is not None:
                warnings.warn(f"examples go through the model one by one: {self.slow_because}", stacklevel=3)
        return self.slow_because is None

    def _decided(self, inputs: Inputs) -> str | None:
        """Makes the plan; returns why it cannot be followed, or None."""
        device, self._autocast = device_of(inputs), None
        with same_draws(inputs), restored_buffers(self.model), torch.autocast(device.type, enabled=False):
            torch.manual_seed(0)
            few, more = made_up(inputs, 2), made_up(inputs, 3)
            try:
                self._plan = plan = planned(self.model, few, more)
                if len(plan.rest) == len(self.parameters):
                    return "no layer is known"
                if plan.rest and plan.draws:
                    return f"the model draws at random, and the layer of {min(plan.rest)!r} is not known"
                return difference(
                    self.model, self.parameters, plan.rest, more, lambda given: self._pass(given, 3)
                )
            except Exception as error:  # whatever the user's model does with made-up inputs
                return f"made-up inputs fail with {type(error).__name__}: {error}"

    def _pass(self, inputs: Inputs, count: int, keep: bool = True) -> Pass:
        """The forward pass over examples of which ``count`` are real; without ``keep``, no way back."""
        tape = Tape(example_count(inputs), device_of(inputs))
        args, kwargs = mapped(torch.detach, inputs)
        with (
            torch.set_grad_enabled(keep),
            without_gradients(self.parameters.values()),
            watched(self.plan, tape),
            unchanged_buffers(self.model),
            self._autocasting(),
        ):
            outputs = self.model(*args, **kwargs)
        for output in tree_leaves(outputs):
            if not isinstance(output, Tensor) or output.shape[:1] != (tape.examples,):
                what = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
                raise TypeError(f"the model must return tensors with one row for each example, got {what}")
        return Pass(tape, mapped(lambda value: value[:count], inputs), outputs, count)

    def _parts(self, inputs: Inputs) -> Iterator[tuple[Inputs, int]]:
        """The inputs in parts of one size, filled up to it where ``rows`` is given, and how many are real."""
        count, size = example_count(inputs), self._at_once(inputs)
        size = min(size, count if self.rows is None else self.rows)
        for start in range(0, count, size):
            real = min(size, count - start)
            some = mapped(lambda value: value[start : start + real], inputs)  # noqa: B023
            if self.rows is not None and real < size:
                again = torch.arange(size, device=device_of(inputs)) % real
                some = mapped(lambda value: value[again], some)  # noqa: B023
            yield some, real

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
            self._fitting = max(1, 2 * self.memory_budget // (3 * self._kept_by_one(inputs)))
        return self._fitting
