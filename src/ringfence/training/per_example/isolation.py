"""A pass over a batch in which no example can see another, and which leaves nothing in the model.

The model runs under vmap, as if it were called with one example. What it computes for an example is then a
function of that example alone, whatever its code does: it cannot sort, mix or count the batch, and writing
what it sees into a shared tensor is an error of torch. Only layers of torch with a rule, which treat rows
apart, step out of vmap: they compute the rows of all examples at once, of which they know which belongs to
whom. In the backward pass the rule of a layer turns its input and the gradient of its output into
contributions. What Python code assigns to attributes of layers is taken back afterwards, and refused where it
is made of the inputs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch
from torch._functorch.vmap import lazy_load_decompositions  # type: ignore[attr-defined]
from torch.backends import mha
from torch.func import functional_call
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.kernels.clipped_sums import ALL, Contribution, Part, Rows, unit_sums

Inputs = tuple[tuple[Tensor, ...], dict[str, Tensor]]  # positional and named; dimension 0 counts examples
# parts(gradient, kept): the contributions of a layer, once the gradient of its output is known
Parts = Callable[[Tensor, Tensor], Iterable[Part]]


class UnfitError(Exception):
    """A known layer is used in a way that its rule does not cover: ``name`` is the layer's."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.reason = name, reason


class DisagreementError(Exception):
    """The model's code asks a question that examples answer differently; ``answers`` has one for each."""

    def __init__(self, answers: Tensor) -> None:
        super().__init__("examples decide differently")
        self.answers = answers


class Tape:
    """Watches the layers of one pass over ``examples`` rows, of which each unit has ``per_unit``.

    No row sees another. The contributions are those of units: what is clipped as a whole. ``receive`` is
    called with the contributions of each layer, in the order of the backward pass. ``uses`` counts how often
    the pass used each parameter.
    """

    def __init__(self, inputs: Inputs, per_unit: int = 1) -> None:
        self.examples = len(tree_leaves(inputs)[0])
        self.units = self.examples // per_unit
        self.receive: Callable[[Iterable[Part]], None] = _nobody
        self.uses: Counter[str] = Counter()
        self.level = 0  # that of the vmap which the pass runs under
        # outputs that depend on nothing that needs a gradient hang from this
        self._start = torch.zeros((), device=tree_leaves(inputs)[0].device, requires_grad=True)

    def run(self, model: nn.Module, inputs: Inputs, parameters: dict[str, Tensor]) -> Any:
        """The outputs of a model that sees one example at a time, with a copy of these parameters for each.

        This is ``torch.func.vmap``, without the cost of its checks.
        """
        lazy_load_decompositions()
        copies = {name: self._copies(name, value) for name, value in parameters.items()}
        self.level = _functorch._vmap_increment_nesting(self.examples, "different")
        try:
            args, kwargs = tree_map(lambda value: self.enter(value.detach()).unsqueeze(0), inputs)
            own = {name: self.enter(values) for name, values in copies.items()}
            with BatchFunctions(self):
                outputs = functional_call(model, own, args, kwargs) if own else model(*args, **kwargs)
            return tree_map(self._leave, outputs)
        finally:
            _functorch._vmap_decrement_nesting()

    def _leave(self, output: Any) -> Tensor:
        rows: Tensor = _functorch._remove_batch_dim(first_row(output), self.level, self.examples, 0)
        return rows

    def _copies(self, name: str, parameter: Tensor) -> Tensor:
        """A copy of a parameter for each example, which it may spoil."""
        copies = parameter.detach().expand(self.examples, *parameter.shape).clone()

        def parts(gradient: Tensor, _: Tensor) -> list[Part]:
            return [(name, ALL, Rows(unit_sums(gradient, self.units)))]

        return self.watch(copies, self._start, parts)

    def enter(self, values: Tensor) -> Tensor:
        """The tensor that the model's code goes on with, of the values of all examples (n, ...)."""
        inside: Tensor = _functorch._add_batch_dim(values, 0, self.level)
        return inside

    def values(self, given: Any) -> Tensor | None:
        """The values of all examples (n, ...) of a tensor of the model's code; None if they share it."""
        if not isinstance(given, Tensor) or _functorch.maybe_get_level(given) != self.level:
            return None
        place, inside = _functorch.maybe_get_bdim(given), _functorch.get_unwrapped(given)
        return inside.movedim(place, 0) if place else inside

    def watch(self, output: Tensor, kept: Tensor, parts: Parts) -> Tensor:
        """Returns the output to go on with; ``parts(gradient, kept)`` is called in the backward pass.

        Changing what is kept in place afterwards is refused.
        """
        if not torch.is_grad_enabled():  # nobody will go back
            return output
        version, held = kept._version, [kept]

        def arrived(gradient: Tensor) -> None:
            given = held.pop()  # as autograd frees what it saved
            if given._version != version:
                raise RuntimeError("the input of a layer was changed in place after the layer had used it")
            self.receive(parts(gradient, given))

        if not output.requires_grad or output._is_view():  # what is done in place to a view passes its hooks
            output = _Begin.apply(output, self._start)  # type: ignore[no-untyped-call]
        output.register_hook(arrived)
        return output


@dataclass(frozen=True)
class Pass:
    """A forward pass over examples of which the first ``count`` are real: others fill up.

    ``rows`` says which examples of the batch these are. There are several ``tapes`` where the rows of one
    unit went separate ways: its gradient is the sum of what they give.
    """

    tapes: tuple[Tape, ...]  # which the graph of the outputs refers to, so they do not refer to them
    outputs: Any
    count: int
    rows: slice | Tensor

    def backward(self, cotangents: Iterable[Tensor], receive: Callable[[Iterable[Part]], None]) -> None:
        """Goes back from the outputs, whose gradients are given for the real examples.

        ``receive`` is called with the contributions of each layer, and then forgotten: contributions refer
        to inputs of layers, whose graph refers to the tape, and no collector sees a cycle through a graph.
        """
        pairs = [pair for pair in zip(tree_leaves(self.outputs), cotangents, strict=True) if pair[0].grad_fn]
        filled = []
        for output, cotangent in pairs:
            missing = len(output) - len(cotangent)
            zeros = [cotangent.new_zeros(missing, *cotangent.shape[1:])] if missing else []
            filled.append((torch.cat([cotangent, *zeros]) if missing else cotangent).to(output.dtype))
        for tape in self.tapes:
            tape.receive = receive
        try:
            torch.autograd.backward([output for output, _ in pairs], filled)
        finally:
            for tape in self.tapes:
                tape.receive = _nobody


def _nobody(parts: Iterable[Part]) -> None:
    """Receives contributions outside of a backward pass."""


class _Begin(torch.autograd.Function):
    """The identity, whose output is no view and has a gradient, also where nothing before it needs one."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, start: Tensor) -> Tensor:
        return output.data  # not a view: layers that work in place may follow

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        return gradients[0] if ctx.needs_input_grad[0] else None, None


class _outside:  # noqa: N801, a context manager without the cost of a generator
    """Steps out of vmap for a while."""

    def __enter__(self) -> None:
        self._level = _functorch.pop_dynamic_layer_stack()

    def __exit__(self, *error: object) -> None:
        _functorch.push_dynamic_layer_stack(self._level)


class Rule:
    """How a known layer is called for all examples at once, from the code that sees one example.

    ``name`` is the layer's, and ``trained`` has the names of its trained parameters: its own and the model's.
    """

    def __init__(self, name: str, layer: nn.Module, trained: dict[str, str]) -> None:
        self.name, self.trained = name, trained
        self.layer: Any = layer
        self.parameters = list(layer.parameters())

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether the rule holds for a layer with its options."""
        return True

    def call(self, tape: Tape, *args: Any, **kwargs: Any) -> Any:
        """Takes the place of the layer's ``forward``; counts the uses of its parameters."""
        if _functorch.maybe_current_level() != tape.level:
            raise UnfitError(self.name, "is called under a transformation of torch.func")
        for name in self.trained.values():
            tape.uses[name] += 1
        with _outside(), without_gradients(self.parameters):
            mode = _pop_mode()  # BatchFunctions, which take time at every function
            try:
                return self.computed(tape, *args, **kwargs)
            finally:
                _push_mode(mode)

    def computed(self, tape: Tape, *args: Any, **kwargs: Any) -> Any:
        """The layer's outputs, computed outside of vmap and watched by the tape."""
        raise NotImplementedError

    def watch(self, tape: Tape, output: Tensor, kept: Tensor, parts: Parts) -> Tensor:
        """The output to go on with; ``parts(gradient, kept)`` go by the layer's own names of parameters."""

        def trained(gradient: Tensor, kept: Tensor) -> Iterator[Part]:
            for own, rows, contribution in parts(gradient, kept):
                if own in self.trained:
                    yield self.trained[own], rows, contribution

        return tape.watch(output, kept, trained) if self.trained else output

    def rows(self, tape: Tape, value: Any, at: int, dimensions: int = 3) -> Tensor:
        """The rows of all examples of a tensor of the model's code, whose dimension ``at`` counts rows."""
        if not isinstance(value, Tensor) or value.is_nested or value.dim() != dimensions:
            reason = f"is given something else than a tensor of {dimensions} dimensions"
            raise UnfitError(self.name, reason)
        own = tape.values(value)
        own = value.expand(tape.examples, *value.shape) if own is None else own
        return own.movedim(0, at).flatten(at, at + 1)


class RowRule(Rule):
    """A layer with rows of its own: ``output(x)`` takes rows (n k, ...), k for each of n examples.

    Where the layer is ``pointwise``, any number of dimensions may stand in their place. ``multiplies`` says
    that the layer is a matrix product, which autocast takes in half precision.
    """

    pointwise = False
    multiplies = False

    def unfit(self, x: Tensor) -> str | None:
        """Why the rule does not hold for these rows; None where it does."""
        return None

    def output(self, x: Tensor) -> Tensor:
        """The layer's own output."""
        result: Tensor = type(self.layer).forward(self.layer, x)
        return result

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        """The gradients of all units by the layer's parameters, from those of its output.

        The rows of a unit lie one after the other, and each unit has as many.
        """
        raise NotImplementedError

    def computed(self, tape: Tape, *args: Any, **kwargs: Any) -> Tensor:
        given = (*args, *kwargs.values())
        if len(given) != 1 or not isinstance(given[0], Tensor):
            raise UnfitError(self.name, "is called with more than one tensor")
        x = tape.values(given[0])
        if x is None:  # all examples have the same
            if not self.trained:
                return self.output(given[0])
            x = given[0].expand(tape.examples, *given[0].shape)
        x = x if self.pointwise else x.flatten(0, 1)
        reason = self.unfit(x)
        if reason is not None:
            raise UnfitError(self.name, reason)
        x = in_autocast(x) if self.multiplies else x
        output = self.output(x)

        def parts(gradient: Tensor, x: Tensor) -> Iterator[Part]:
            return ((own, ALL, each) for own, each in self.contributions(tape.units, gradient, x).items())

        output = self.watch(tape, output, x, parts)
        return tape.enter(output if self.pointwise else output.unflatten(0, (tape.examples, -1)))


def enter_rows(tape: Tape, rows: Tensor, at: int) -> Tensor:
    """The tensor that the model's code goes on with, of rows of all examples in dimension ``at``."""
    return tape.enter(rows.unflatten(at, (tape.examples, -1)).movedim(at, 0))


@contextmanager
def watched(rules: Collection[Rule], tape: Tape) -> Iterator[None]:
    """Known layers are called by their rules as long as this lasts, and nothing stays on the model.

    Transformers of torch call their layers one by one, also where they have a shortcut past them.
    """
    shortcut = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    for rule in rules:
        vars(rule.layer)["forward"] = partial(rule.call, tape)
    try:
        yield
    finally:
        for rule in rules:
            del vars(rule.layer)["forward"]
        mha.set_fastpath_enabled(shortcut)


class BatchFunctions(TorchFunctionMode):
    """Functions that vmap cannot do, or not fast, for tensors of one example.

    A question of Python (``if x.max() > 6``) is answered where all examples agree. Otherwise the pass ends
    with a DisagreementError: those that answer differently go separate ways. Attention takes the rows of all
    examples at once.
    """

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__bool__:
            answers = self._tape.values(args[0])
            if answers is not None:
                answers = answers.detach().flatten() != 0
                if bool(answers.any()) != bool(answers.all()):
                    raise DisagreementError(answers)
                return bool(answers[0])
        elif func is scaled_dot_product_attention:
            return self._attention(*args, **(kwargs or {}))
        elif func is torch.prelu:  # which autocast does not reach under vmap
            return torch.prelu(args[0], args[1].to(args[0].dtype))
        return func(*args, **(kwargs or {}))

    def _attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, *args: Any, **more: Any
    ) -> Tensor:
        given: tuple[Any, ...] = (query, key, value, more.pop("attn_mask", mask))
        rows = [self._tape.values(each) for each in given]
        fits = all(each is not None for each in rows[:3])
        if not fits or any(row is not None and row.dim() != 5 for row in rows):
            return scaled_dot_product_attention(*given, *args, **more)
        with _outside():
            flat = (each if row is None else row.flatten(0, 1) for each, row in zip(given, rows, strict=True))
            output: Tensor = scaled_dot_product_attention(*flat, *args, **more)  # type: ignore[arg-type]
            return enter_rows(self._tape, output, 0)


class without_gradients:  # noqa: N801, without the cost of a generator
    """Makes parameters need no gradient for a while, so that none is computed or stored.

    >>> layer = nn.Linear(2, 2)
    >>> with without_gradients(layer.parameters()):
    ...     layer(torch.ones(1, 2)).requires_grad
    False
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._changed = [parameter for parameter in parameters if parameter.requires_grad]

    def __enter__(self) -> None:
        for parameter in self._changed:
            parameter.requires_grad_(False)

    def __exit__(self, *error: object) -> None:
        for parameter in self._changed:
            parameter.requires_grad_()


def first_row(output: Any) -> Tensor:
    """The output for the only example of a batch; a single number is taken as that of the example.

    >>> first_row(torch.ones(1, 3)).shape
    torch.Size([3])
    """
    if not isinstance(output, Tensor) or output.shape[:1] not in ((), (1,)):
        what = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(f"the model must return tensors with one row for each example, got {what} for one")
    return output.squeeze(0) if output.dim() else output


def in_autocast(x: Tensor) -> Tensor:
    """The input of a matrix product as autocast would take it, so that what is kept is what autocast keeps.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     in_autocast(torch.ones(1)).dtype
    torch.bfloat16
    """
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(device))


class KeptError(ValueError):
    """A model keeps what it computes from its inputs."""


_WHY = "what a model keeps of its inputs does not pass the mechanism"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def state_of(model: nn.Module, place: Callable[[Tensor], int] = id) -> tuple[Any, ...]:
    """Layers, modes, hooks, parameters and buffers: checks rest on these.

    It does not change when parameters are trained. ``place`` tells one tensor from another.

    >>> model = nn.Linear(2, 2)
    >>> before = state_of(model)
    >>> before == state_of(model), before == state_of(model.eval())
    (True, False)
    """
    state: list[Any] = []
    layers = [model]
    for layer in layers:  # which grow: a step asks twice, and modules() takes twice as long
        own = vars(layer)
        layers += [child for child in own["_modules"].values() if child is not None]
        state += (layer, own["training"], *(len(own[name]) for name in _HOOKS if own[name]))
        for value in own["_parameters"].values():
            if value is not None:
                state += (place(value), value.requires_grad)
        state += (place(value) for value in own["_buffers"].values() if value is not None)
    return tuple(state)


@contextmanager
def nothing_kept(layers: Mapping[str, nn.Module]) -> Iterator[None]:
    """Takes back what is assigned to attributes and buffers of layers, given by name, as long as this lasts.

    Raises a KeptError that names what is made of the inputs of a pass under vmap, and any buffer that is
    replaced or written to. Not noticed is what is kept outside of the layers, and in containers what is no
    tensor.

    >>> layer = nn.Linear(2, 2)
    >>> with nothing_kept({"": layer}):
    ...     _ = torch.func.vmap(lambda x: setattr(layer, "last", x) or x)(torch.ones(3, 2))
    Traceback (most recent call last):
    ...
    ringfence.training.per_example.isolation.KeptError: layer '' (Linear) keeps 'last' of a pass: ...
    """
    before = [(dict(vars(layer)), dict(layer._buffers), _versions(layer)) for layer in layers.values()]
    kept: list[tuple[str, nn.Module, str]] = []
    try:
        yield
    finally:
        for (name, layer), (attributes, buffers, versions) in zip(layers.items(), before, strict=True):
            written = _versions(layer)
            if written != versions:
                both = {**versions, **written}
                kept += [(name, layer, own) for own in both if versions.get(own) != written.get(own)]
                layer._buffers.clear()
                layer._buffers.update(buffers)
            now = vars(layer)
            same = len(now) == len(attributes) and all(map(is_, now.values(), attributes.values()))
            if not same or not type(layer).__module__.startswith("torch.nn."):  # whose layers hold no lists
                kept += [(name, layer, own) for own, value in now.items() if _is_of_pass(value)]
                now.clear()
                now.update(attributes)
    for name, layer, own in kept:
        raise KeptError(f"layer {name!r} ({type(layer).__name__}) keeps {own!r} of a pass: {_WHY}")


def _versions(layer: nn.Module) -> dict[str, tuple[int, int]]:
    """Changes when a buffer of the layer is replaced or written to."""
    if not layer._buffers:  # as most layers have none
        return {}
    buffers = layer._buffers.items()
    return {own: (id(value), -1 if value is None else value._version) for own, value in buffers}


def _is_of_pass(value: Any) -> bool:
    """Whether a value is, or holds, a tensor that vmap made."""
    if isinstance(value, Tensor):
        return _functorch.is_functorch_wrapped_tensor(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set):
        return False
    return any(map(_is_of_pass, value))


def refuse_changed(model: nn.Module, used: nn.Module) -> None:
    """Raises a KeptError that names the first value by which a used copy differs from the model.

    >>> from copy import deepcopy
    >>> used = deepcopy(model := nn.BatchNorm1d(2))
    >>> _ = used(torch.randn(3, 2))
    >>> refuse_changed(model, used)
    Traceback (most recent call last):
    ...
    ringfence.training.per_example.isolation.KeptError: 'running_mean' is changed by a forward pass: ...
    """
    before, after = ({**dict(one.named_parameters()), **dict(one.named_buffers())} for one in (model, used))
    for name in {**before, **after}:
        if name not in before or name not in after or not torch.equal(before[name], after[name]):
            raise KeptError(f"{name!r} is changed by a forward pass: {_WHY}")
