"""Clipped sums of the gradients of single examples, by one pass forward and back over a batch."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten

from ringfence.training.clipping import Clip, Norm
from ringfence.training.kernels.clipped_sums import ALL, Contribution, Part, add_uses
from ringfence.training.per_example.isolation import (
    DisagreementError,
    Inputs,
    KeptError,
    Pass,
    Rule,
    Tape,
    UnfitError,
    first_row,
    nothing_kept,
    refuse_changed,
    state_of,
    watched,
    without_gradients,
)
from ringfence.training.per_example.layers import known_layers, refuse_layers, refuse_other_parameters

_CACHED = 1 << 20  # how many numbers of formed gradients a CPU handles at a time


class ExampleGradients:
    """The gradients of single examples, clipped and summed, at about the cost of ordinary training.

    Known layers add up the clipped gradients of their parameters in the backward pass. Other parameters get a
    copy for each example, so that autograd gives their gradients. A ``dtype`` other than that of the
    parameters needs the gradients themselves, which are formed a few examples at a time. Where vmap cannot
    run a model, each example goes through a fresh copy of it, and ``fallback_reason`` says why. This
    is decided when the first examples come, and again when modes, hooks, parameters or precision change.

    The model returns tensors with one row for each example: one, or several in any tree.

    ``memory_budget`` is how many bytes a pass may take. ``rows`` is the size of all passes, so that the GPU
    sees one shape: a batch is filled up with copies of its examples that count zero, and what does not fit
    takes another pass. None fills nothing up. Examples for which the model's code decides differently
    (``if x.max() > 6``) go in separate passes. With ``per_unit`` above 1, that many inputs after one another
    are the rows of one unit: the model sees each alone, and what is clipped is the sum of their gradients.

    Guarantee: what the model computes for an example depends on that example alone, because under vmap the
    model's code sees one example, and known layers treat rows apart; or because a copy sees one example. A
    pass writes nothing that it computes from its inputs into the model: vmap refuses to, copies are thrown
    away, and what Python code assigns to attributes of layers is taken back. With ``Clamp`` every example
    adds a number within [-c, c] to every coordinate, whatever the precision of the layers. ``forward`` and
    ``clipped_sum`` go through the batch in the same passes, so that dropout draws the same masks under the
    same random seed.

    >>> from ringfence.training.clipping import Clamp
    >>> gradients = ExampleGradients(nn.Linear(2, 1, bias=False))
    >>> inputs = ((torch.tensor([[1.0, 2.0], [3.0, -4.0]]),), {})
    >>> gradients.forward(inputs).shape
    torch.Size([2, 1])
    >>> gradients.clipped_sum(inputs, torch.ones(2, 1), Clamp(1.0)).round(decimals=4)
    tensor([2., 0.])
    """

    _place: Callable[[Tensor], int] = staticmethod(id)  # tells one tensor of the model from another

    def __init__(
        self, model: nn.Module, memory_budget: int | None = None, rows: int | None = None, per_unit: int = 1
    ) -> None:
        self.model, self.rows, self.per_unit = model, rows, per_unit
        self._given = memory_budget
        self.fallback_reason: str | None = None
        self._known: dict[str, Rule] = {}
        self._reasons: dict[str, str] = {}  # why layers that have a rule are left out, by parameter
        self._layers: dict[str, nn.Module] = {}
        self._seen: tuple[Any, ...] = ()  # the state of the model for which this was decided
        self._autocast = ("cpu", torch.bfloat16, False)  # that of the last forward pass
        self._fitting: int | None = None
        self._kept: tuple[Inputs, list[Pass]] | None = None

    @cached_property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained, by name, in the model's order; they stay the same from now on."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @cached_property
    def size(self) -> int:
        """How many numbers the trained parameters hold."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    @property
    def memory_budget(self) -> int:
        """The budget as given; by default 1 GiB, or three quarters of the free memory of the model's GPU."""
        device = next(self.model.parameters()).device
        if self._given is not None or device.type != "cuda":
            return self._given or 1 << 30
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch holds it
        return (torch.cuda.mem_get_info(device)[0] + unused) * 3 // 4

    @property
    def slower_layers(self) -> dict[str, str]:
        """Parameters of which a pass takes a copy for each example, and why; known after the first batch."""
        if self.fallback_reason is not None or not self._seen:
            return {}
        kinds = {name: type(self.model.get_submodule(name.rpartition(".")[0])) for name in self._copied}
        return {
            name: self._reasons.get(name, f"{kind.__name__} is not known") for name, kind in kinds.items()
        }

    def zeros(self, dtype: torch.dtype | None = None) -> Tensor:
        """A flat vector of zeros, one for each trained number; ``dtype`` None stands for the parameters'."""
        first = next(iter(self.parameters.values()))
        return torch.zeros(self.size, dtype=dtype or first.dtype, device=first.device)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Cuts a flat vector (..., size) into tensors of the shapes of the parameters, by name."""
        parts = flat.split([parameter.numel() for parameter in self.parameters.values()], dim=-1)
        pairs = zip(self.parameters.items(), parts, strict=True)
        return {name: part.view((*flat.shape[:-1], *parameter.shape)) for (name, parameter), part in pairs}

    def forward(self, inputs: Inputs) -> Any:
        """The model's outputs, without a graph; what it takes to go back is kept where the budget allows."""
        self._kept = None
        self._remember_autocast(inputs)
        count = len(tree_leaves(inputs)[0])
        if not count or self._falls_back(inputs):
            with torch.no_grad():
                if count:
                    return _joined([self._alone(inputs, i)[0] for i in range(count)])
                # not every model takes no rows: one of zeros, which is dropped
                zeros = tree_map(lambda value: value.new_zeros(1, *value.shape[1:]), inputs)
                return tree_map(lambda output: output[:0], self._alone(zeros, 0)[0])
        keep = count <= self._at_once(inputs)
        passes = list(self._passes(inputs, keep))
        if keep:
            self._kept = (inputs, passes)
        real = [tree_map(lambda output: output.detach()[: one.count], one.outputs) for one in passes]  # noqa: B023
        outputs = _joined(real)
        if all(isinstance(one.rows, slice) for one in passes):
            return outputs
        places = torch.arange(count)
        order = torch.cat([places[one.rows] for one in passes]).argsort()
        return tree_map(lambda output: output[order], outputs)

    def clipped_sum(
        self, inputs: Inputs, cotangents: Any, clip: Clip, dtype: torch.dtype | None = None
    ) -> Tensor:
        """sum_i clip(J_i^T cotangent_i), flat, with J_i the derivative of the outputs of unit i.

        ``cotangents`` are the gradients of the loss by the outputs, in the same order. ``dtype`` is the dtype
        of the sum; None stands for that of the parameters. The inputs are those that ``forward`` had last, or
        others.
        """
        total = self.zeros()
        if dtype not in (None, total.dtype) or not self._is_passable(inputs):
            total = self.zeros(dtype)
            for rows in self.each(inputs, cotangents):
                total += clip(rows).sum(dim=0, dtype=total.dtype)
            return total
        leaves = tree_leaves(cotangents)
        for one in self._passes_again(inputs):
            if len(one.tapes) > 1:
                total += clip(next(self._formed(one, leaves)))[0]
                continue
            self._add(total, one, [leaf[one.rows] for leaf in leaves], clip)
        return total

    def each(self, inputs: Inputs, cotangents: Any) -> Iterator[Tensor]:
        """Yields the flat gradients of units, a few units at a time."""
        leaves = tree_leaves(cotangents)
        if not self._is_passable(inputs):
            for start in range(0, len(tree_leaves(inputs)[0]), self.per_unit):
                rows = range(start, start + self.per_unit)
                yield torch.cat([self._gradient_alone(inputs, leaves, i) for i in rows]).sum(0, keepdim=True)
            return
        for one in self._passes_again(inputs):
            yield from self._formed(one, leaves)

    def _formed(self, one: Pass, cotangents: list[Tensor]) -> Iterator[Tensor]:
        """Yields the flat gradients of the units of a pass, a few units at a time."""
        parts: list[Part] = []
        with self._plain_precision():
            one.backward([leaf[one.rows] for leaf in cotangents], parts.extend)
        first = next(iter(self.parameters.values()))
        length = max(1, self.memory_budget // (12 * self.size * first.element_size()))  # a quarter of it
        if first.is_cpu:  # what fits into the cache takes a fraction of the time
            length = min(length, max(1, _CACHED // self.size))
        units = one.count // self.per_unit
        for start in range(0, units, length):
            some = slice(start, min(start + length, units))
            rows = first.new_zeros(some.stop - start, self.size)
            places = self.split(rows)
            with self._plain_precision():
                for name, own, contribution in parts:
                    place = places[name] if own is ALL else places[name][:, own]
                    place += contribution.rows(some).reshape(place.shape)
            yield rows

    def _gradient_alone(self, inputs: Inputs, cotangents: list[Tensor], i: int) -> Tensor:
        """The flat gradient of row i, which goes through a copy of the model."""
        with torch.enable_grad():
            outputs, copy = self._alone(inputs, i)
        pairs = zip(tree_leaves(outputs), cotangents, strict=True)
        moving = [(output, leaf[i : i + 1].to(output)) for output, leaf in pairs if output.requires_grad]
        found = torch.autograd.grad(
            [output for output, _ in moving],
            [copy.get_parameter(name) for name in self.parameters],
            [cotangent for _, cotangent in moving],
            allow_unused=True,
            materialize_grads=True,
        )
        return torch.cat([gradient.reshape(1, -1) for gradient in found], dim=1)

    def _add(self, total: Tensor, one: Pass, cotangents: list[Tensor], clip: Clip) -> None:
        """Adds the clipped sum of one pass to the total."""
        places = self.split(total)
        again: defaultdict[str, list[Contribution]] = defaultdict(list)  # summed when all are known
        waiting: list[Part] = []
        weights: Tensor | None = None

        def put(name: str, rows: slice, contribution: Contribution) -> None:
            place = places[name] if rows is ALL else places[name][rows]
            place += contribution.sum(clip.limit, weights).reshape(place.shape)

        def receive(parts: Iterable[Part]) -> None:
            for name, rows, contribution in parts:
                if one.tapes[0].uses[name] > 1:
                    again[name].append(contribution)
                elif isinstance(clip, Norm):
                    waiting.append((name, rows, contribution.held()))
                else:
                    put(name, rows, contribution)

        with self._plain_precision():
            one.backward(cotangents, receive)
            for name, uses in again.items():
                waiting.append((name, ALL, add_uses(uses, one.tapes[0].units, places[name].shape)))
            if isinstance(clip, Norm):
                squares = torch.zeros(one.tapes[0].units, dtype=torch.float64, device=total.device)
                for _, _, contribution in waiting:
                    squares += contribution.squares()
                weights = clip.factors(squares.sqrt(), total.dtype)
            for part in waiting:
                put(*part)

    # -- which way the examples go

    def _is_passable(self, inputs: Inputs) -> bool:
        """Whether there are examples, and vmap takes them."""
        return bool(len(tree_leaves(inputs)[0])) and (self._kept is not None or not self._falls_back(inputs))

    def _falls_back(self, inputs: Inputs) -> bool:
        """Whether each example goes through a copy of the model, because vmap cannot run it."""
        state = (self._autocast, *state_of(self.model, self._place))
        if state != self._seen:
            self.fallback_reason = self._reason_to_fall_back(inputs)
            self._seen = state  # where that fails, it is decided again
            if self.fallback_reason is not None:
                warnings.warn(
                    f"examples go through the model one by one: {self.fallback_reason}", stacklevel=4
                )
        return self.fallback_reason is not None

    def _reason_to_fall_back(self, inputs: Inputs) -> str | None:
        """Finds the layers that can be watched; returns why vmap cannot run the model, or None.

        Layers that cannot be trained privately are refused by name, and so is another set of trained
        parameters: the user may have changed the model since.
        """
        refuse_layers(self.model)
        refuse_other_parameters(self.model, self.parameters)
        self._known, self._reasons, self._fitting = known_layers(self.model), {}, None
        self._layers = dict(self.model.named_modules())
        first = tree_map(lambda value: value[:1], inputs)
        with _same_draws(inputs), torch.enable_grad():
            try:
                while self._leave_out_used(self._pass(first, 1, one_unit=True, tracing=True)):
                    pass
            except (torch.OutOfMemoryError, KeptError):
                raise
            except Exception as error:  # whatever the user's model does under vmap
                refuse_changed(self.model, self._alone(inputs, 0)[1])
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
        left_out = [layer.name for layer in self._known.values() if used & set(layer.trained.values())]
        for name in left_out:
            self._leave_out(name, "has a parameter that is used elsewhere")
        return bool(left_out)

    def _leave_out(self, name: str, reason: str) -> None:
        rule = self._known.pop(name)
        self._reasons |= dict.fromkeys(rule.trained.values(), f"{type(rule.layer).__name__} {reason}")

    @property
    def _copied(self) -> list[str]:
        owned = {name for one in self._known.values() for name in one.trained.values()}
        return [name for name in self.parameters if name not in owned]

    def _alone(self, inputs: Inputs, i: int) -> tuple[Any, nn.Module]:
        """The outputs for example i by itself, in a row, and the copy of the model that made them."""
        args, kwargs = tree_map(lambda value: value[i : i + 1], inputs)
        copy = deepcopy(self.model)
        with torch.autocast(*self._autocast):
            outputs = copy(*args, **kwargs)
        return tree_map(lambda output: first_row(output).unsqueeze(0), outputs), copy

    def _remember_autocast(self, inputs: Inputs) -> None:
        """Keeps the precision that the user's loop asks for, because the way back comes after it."""
        kind = tree_leaves(inputs)[0].device.type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    @contextmanager
    def _plain_precision(self) -> Iterator[None]:
        """Sums are taken in the precision that they ask for, and nothing of them is differentiated."""
        device = next(iter(self.parameters.values())).device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield

    def _at_once(self, inputs: Inputs) -> int:
        """How many examples the memory budget holds: half as much again as a pass keeps, for gradients."""
        if self._fitting is None:
            copied = sum(self.parameters[name].numel() for name in self._copied)

            def kept(rows: int) -> int:
                args, kwargs = tree_map(lambda value: torch.cat([value[:1]] * rows), inputs)
                return bytes_kept(lambda: deepcopy(self.model)(*args, **kwargs))

            with _same_draws(inputs), warnings.catch_warnings():  # weights do not count
                warnings.simplefilter("ignore")  # cudnn's, about the weights of a copy
                each = max(1, kept(2) - kept(1))
            self._fitting = max(1, 2 * self.memory_budget // (3 * (each + 4 * copied)))
        return self._fitting

    # -- passes

    def _passes_again(self, inputs: Inputs) -> Iterable[Pass]:
        """The passes that ``forward`` kept of these inputs, or new ones."""
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and kept[0] is inputs else self._passes(inputs)

    def _passes(self, inputs: Inputs, keep: bool = True) -> Iterator[Pass]:
        """The passes over a batch: in parts of one size, filled up to it where ``rows`` is given."""
        count, size = len(tree_leaves(inputs)[0]), self._at_once(inputs)
        size = min(size, count if self.rows is None else self.rows)
        size = max(size - size % self.per_unit, self.per_unit)  # a unit is clipped as a whole
        for start in range(0, count, size):
            some = slice(start, min(start + size, count))
            yield from self._separate(tree_map(lambda value: value[some], inputs), some, keep, size)  # noqa: B023

    def _separate(
        self, inputs: Inputs, rows: slice | Tensor, keep: bool, size: int = 0, *, one_unit: bool = False
    ) -> Iterator[Pass]:
        """One pass over these inputs, or several where the model decides differently for some of them.

        Where it does so within a unit, units are taken one by one, each with all its passes.
        """
        count, each = len(tree_leaves(inputs)[0]), self.per_unit
        filled = inputs if self.rows is None or count >= size else self._fill_up(inputs, size)
        try:
            yield self._pass(filled, count, rows, keep, one_unit=one_unit)
        except DisagreementError as error:
            answers = error.answers[:count]
            places = torch.arange(rows.stop)[rows] if isinstance(rows, slice) else rows
            if one_unit or torch.equal(answers, answers[::each].repeat_interleave(each)):
                for some in (answers, ~answers):
                    part = tree_map(lambda value: value[some], inputs)  # noqa: B023
                    yield from self._separate(part, places[some.cpu()], keep, size, one_unit=one_unit)
                return
            for start in range(0, count, each):
                own = slice(start, start + each)
                part = tree_map(lambda value: value[own], inputs)  # noqa: B023
                passes = list(self._separate(part, own, keep, one_unit=True))
                tapes = tuple(one.tapes[0] for one in passes)
                outputs = _joined([one.outputs for one in passes])
                yield Pass(tapes, outputs, each, torch.cat([places[one.rows] for one in passes]))

    def _fill_up(self, inputs: Inputs, size: int) -> Inputs:
        """The inputs, filled up with copies of themselves."""
        again = torch.arange(size, device=tree_leaves(inputs)[0].device) % len(tree_leaves(inputs)[0])
        filled: Inputs = tree_map(lambda value: value[again], inputs)
        return filled

    def _pass(
        self,
        inputs: Inputs,
        count: int,
        rows: slice | Tensor = ALL,
        keep: bool = True,
        *,
        one_unit: bool = False,
        tracing: bool = False,
    ) -> Pass:
        """The forward pass over examples of which ``count`` are real; without ``keep``, no way back."""
        tape = Tape(inputs, len(tree_leaves(inputs)[0]) if one_unit else self.per_unit)
        try:
            with (
                torch.set_grad_enabled(keep),
                nullcontext() if tracing else without_gradients(self.parameters.values()),
                watched(self._known.values(), tape),
                nothing_kept(self._layers),
                torch.autocast(*self._autocast),
            ):
                outputs = tape.run(self.model, inputs, {name: self.parameters[name] for name in self._copied})
        except UnfitError as error:
            self._leave_out(error.name, error.reason)
            return self._pass(inputs, count, rows, keep, one_unit=one_unit, tracing=tracing)
        return Pass((tape,), outputs, count, rows)


def _joined(outputs: list[Any]) -> Any:
    """Outputs of several passes as if there had been one."""
    if len(outputs) == 1:
        return outputs[0]
    leaves = zip(*map(tree_leaves, outputs), strict=True)
    return tree_unflatten([torch.cat(parts) for parts in leaves], tree_structure(outputs[0]))


def _same_draws(inputs: Inputs) -> AbstractContextManager[None]:
    """Restores torch's random generators at the end, so that what is drawn in between does not count."""
    device = tree_leaves(inputs)[0].device
    forked: AbstractContextManager[None] = torch.random.fork_rng([device] if device.type == "cuda" else [])
    return forked


def bytes_kept(call: Callable[[], object]) -> int:
    """How many bytes autograd keeps for the backward pass of ``call``, each tensor once.

    >>> x = torch.ones(10, requires_grad=True)
    >>> bytes_kept(lambda: x.exp().square())  # both need the same exp(x)
    40
    """
    kept: dict[tuple[int, int], Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        own = kept[tensor.data_ptr(), tensor.numel()] = tensor.detach()
        return own  # the tensor itself may refer to the graph that this is kept in

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        call()
    return sum(
        min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
        for tensor in kept.values()
    )
