"""A pass over a batch in which no example can see another, and which leaves nothing in the model.

The model runs under vmap, as if it were called with one example. What it computes for an example is then a
function of that example alone, whatever its code does: it cannot sort, mix or count the batch, and writing
what it sees into a shared tensor is an error of torch. Only layers of torch with a rule, which treat rows
apart, step out of vmap: they compute the rows of all examples at once, of which they know which belongs to
whom. In the backward pass the rule of a layer turns its input and the gradient of its output into
contributions. What Python code keeps of a pass in attributes of layers is found afterwards, and refused.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch
from torch._functorch.vmap import lazy_load_decompositions  # type: ignore[attr-defined]
from torch.backends import mha
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.nn.modules.module import _has_any_global_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.kernels.clipped_sums import ALL, Contribution, Part, Rows

Inputs = tuple[tuple[Tensor, ...], dict[str, Tensor]]  # positional and named; dimension 0 counts examples
# parts(gradient, kept): the contributions of a layer, once the gradient of its output is known
Parts = Callable[[Tensor, Tensor], Iterable[Part]]


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


class RowRule:
    """How a layer with rows of its own computes, and what its gradients are made of.

    ``output(x)`` takes rows (n k, ...): k for each of n examples. Where the layer is ``pointwise``, any
    number of dimensions may stand in their place. ``multiplies`` says that the layer is a matrix product,
    which autocast takes in half precision.
    """

    pointwise = False
    multiplies = False

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether the rule holds for a layer with its options."""
        return True

    def unfit(self, x: Tensor, examples: int) -> str | None:
        """Why the rule does not hold for these rows; None where it does."""
        return None

    def output(self, x: Tensor) -> Tensor:
        """What the layer computes."""
        result: Tensor = type(self.layer).forward(self.layer, x)
        return result

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        """The gradients of all examples by the layer's parameters, from those of its output."""
        return {}


class SteppedRule:
    """A layer that is computed by ``forward(call, *args, **kwargs)`` in the place of its own method.

    The results are the same up to rounding, and what the parameters make is watched by way of ``call``. A
    call that the rule does not cover raises an ``UnfitError``.
    """

    forward: Callable[..., Any]

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether the rule holds for a layer with its options."""
        return True


@dataclass(frozen=True)
class KnownLayer:
    """A layer with a rule. ``trained`` has the names of its trained parameters, its own and the model's."""

    name: str
    layer: nn.Module
    rule: RowRule | SteppedRule
    trained: dict[str, str]


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
    """Watches the layers of one pass over ``examples`` examples.

    ``receive`` is called with the contributions of each layer, in the order of the backward pass. ``uses``
    counts how often the pass used each parameter. With ``tracing``, parameters keep their gradients but in
    the known layers: what else uses them is in the graph then. ``asked`` says whether the model's code asked
    something of an example, and ``helped`` whether it did anything that vmap needs help with.
    """

    def __init__(self, inputs: Inputs, *, tracing: bool) -> None:
        self.examples, self.tracing = example_count(inputs), tracing
        self.receive: Callable[[Iterable[Part]], None] = _nobody
        self.uses: Counter[str] = Counter()
        self.level = 0  # that of the vmap which the pass runs under
        self.asked = self.helped = False
        # outputs that depend on nothing that needs a gradient hang from this
        self._start = torch.zeros((), device=device_of(inputs), requires_grad=True)

    def run(self, model: nn.Module, inputs: Inputs, parameters: dict[str, Tensor]) -> Any:
        """The outputs of a model that sees one example at a time, with a copy of these parameters for each.

        This is ``torch.func.vmap``, without the cost of its checks.
        """
        lazy_load_decompositions()
        copies = {name: self._copies(name, value) for name, value in parameters.items()}
        self.level = _functorch._vmap_increment_nesting(self.examples, "different")
        try:
            args, kwargs = mapped(lambda value: self.enter(value.detach()).unsqueeze(0), inputs)
            own = {name: self.enter(values) for name, values in copies.items()}
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
        return self.watch(copies, self._start, lambda gradient, _: [(name, ALL, Rows(gradient))])

    def enter(self, values: Tensor) -> Tensor:
        """The tensor that the model's code goes on with, of the values of all examples (n, ...)."""
        inside: Tensor = _functorch._add_batch_dim(values, 0, self.level)
        return inside

    def values(self, given: Any) -> Tensor | None:
        """The values of all examples (n, ...) of a tensor of the model's code; None if they share it."""
        if not _functorch.is_batchedtensor(given) or _functorch.maybe_get_level(given) != self.level:
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

    ``rows`` says which examples of the batch these are.
    """

    tape: Tape  # which the graph of the outputs refers to, so it does not refer to them
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
        self.tape.receive = receive
        try:
            torch.autograd.backward([output for output, _ in pairs], filled)
        finally:
            self.tape.receive = _nobody


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


class Calls:
    """What layers do in the place of their own ``forward`` while ``replaced``: made once for a model.

    A known layer is called for all examples at once, from the code that sees one example. So are runs of
    known layers in an ``nn.Sequential`` that nobody listens to, without a return to vmap between them.
    """

    def __init__(self, model: nn.Module, known: Iterable[KnownLayer]) -> None:
        self._tape: Tape | None = None
        self._forwards: list[tuple[dict[str, Any], Callable[..., Any]]] = []  # attributes of a layer, forward
        steps: dict[nn.Module, Callable[..., Tensor]] = {}
        for one in known:
            if isinstance(one.rule, SteppedRule):
                self._forwards.append((vars(one.layer), self._stepped(one, one.rule)))
                continue
            steps[one.layer] = self._step(one, one.rule) if one.trained else one.rule.output
            if one.trained:
                self._forwards.append((vars(one.layer), self._by_rows(one, one.rule)))
        for layer in model.modules():
            if type(layer) is nn.Sequential and "forward" not in vars(layer):
                runs = list(_runs(layer, steps))
                if any(isinstance(run, list) for run in runs):
                    self._forwards.append((vars(layer), self._sequence(runs, steps)))

    @contextmanager
    def replaced(self, tape: Tape) -> Iterator[None]:
        """Layers call these functions as long as this lasts, and nothing stays on the model.

        Transformers of torch call their layers one by one, also where they have a shortcut past them.
        """
        shortcut = mha.get_fastpath_enabled()
        mha.set_fastpath_enabled(False)
        self._tape = tape
        for attributes, forward in self._forwards:
            attributes["forward"] = forward
        try:
            yield
        finally:
            for attributes, _ in self._forwards:
                del attributes["forward"]
            self._tape = None
            mha.set_fastpath_enabled(shortcut)

    def _entered(self, one: KnownLayer) -> Tape:
        tape = self._tape
        assert tape is not None
        if _functorch.maybe_current_level() != tape.level:
            raise UnfitError(one.name, "is called under a transformation of torch.func")
        return tape

    def _step(self, one: KnownLayer, rule: RowRule) -> Callable[..., Tensor]:
        """A known layer outside of vmap, of the rows of all examples or of an input that they share."""
        names, parameters = list(one.trained.values()), list(one.layer.parameters())

        def step(x: Tensor, shared: bool = False) -> Tensor:
            tape = self._tape
            assert tape is not None
            n = tape.examples
            reason = rule.unfit(x, 1 if shared else n)
            if reason is not None:
                raise UnfitError(one.name, reason)
            for name in names:
                tape.uses[name] += 1
            x = in_autocast(x) if rule.multiplies else x
            if tape.tracing:
                with without_gradients(parameters):
                    output = rule.output(x)
            else:
                output = rule.output(x)
            if shared:  # each example has a copy
                x, output = x.expand(n, *x.shape), output.expand(n, *output.shape)

            def parts(gradient: Tensor, x: Tensor) -> Iterator[Part]:
                if shared and not rule.pointwise:
                    gradient, x = gradient.flatten(0, 1), x.flatten(0, 1)
                for own, contribution in rule.contributions(n, gradient, x).items():
                    if own in one.trained:
                        yield one.trained[own], ALL, contribution

            return tape.watch(output, x, parts)

        return step

    def _by_rows(self, one: KnownLayer, rule: RowRule) -> Callable[..., Tensor]:
        step = self._step(one, rule)

        def forward(*args: Any, **kwargs: Any) -> Tensor:
            tape, given = self._entered(one), (*args, *kwargs.values())
            if len(given) != 1 or not isinstance(given[0], Tensor):
                raise UnfitError(one.name, "is called with more than one tensor")
            x = tape.values(given[0])
            with _outside():
                if x is None:
                    return tape.enter(step(given[0], shared=True))
                if rule.pointwise:
                    return tape.enter(step(x))
                if x.dim() == 1:
                    raise UnfitError(one.name, "is given a tensor without dimensions")
                return tape.enter(_split_rows(step(x.flatten(0, 1)), tape.examples))

        return forward

    def _sequence(
        self, runs: list[nn.Module | list[nn.Module]], steps: dict[nn.Module, Any]
    ) -> Callable[..., Any]:
        """An ``nn.Sequential``, of which each run steps out of vmap once."""

        def forward(input: Any) -> Any:
            tape, listened = self._tape, _has_any_global_hook()
            assert tape is not None
            for run in runs:
                if isinstance(run, nn.Module):
                    input = run(input)
                    continue
                plain = isinstance(input, Tensor) and input.dim() > 1 and not listened
                x = tape.values(input) if plain and _functorch.maybe_current_level() == tape.level else None
                if x is None:
                    for layer in run:
                        input = layer(input)
                    continue
                with _outside():
                    x = x.flatten(0, 1)
                    for layer in run:
                        x = steps[layer](x)
                    input = tape.enter(_split_rows(x, tape.examples))
            return input

        return forward

    def _stepped(self, one: KnownLayer, rule: SteppedRule) -> Callable[..., Any]:
        parameters = list(one.layer.parameters())

        def forward(*args: Any, **kwargs: Any) -> Any:
            tape = self._entered(one)
            for name in one.trained.values():
                tape.uses[name] += 1
                if tape.uses[name] > 1:  # whose parts would be clipped in pieces
                    raise UnfitError(one.name, "is called several times in one pass, or shares a parameter")
            with _outside(), without_gradients(parameters) if tape.tracing else nullcontext():
                return rule.forward(LayerCall(tape, one), *args, **kwargs)

        return forward


class LayerCall:
    """One call of a layer that is computed in steps, outside of vmap."""

    def __init__(self, tape: Tape, known: KnownLayer) -> None:
        self._tape, self._known = tape, known

    def unfit(self, reason: str) -> UnfitError:
        """The error that says why the rule does not cover this call."""
        return UnfitError(self._known.name, reason)

    def is_shared(self, value: Tensor) -> bool:
        """Whether all examples have the same tensor."""
        return self._tape.values(value) is None

    def rows(self, value: Any, at: int, dimensions: int = 3) -> Tensor:
        """The rows of all examples of a tensor of the model's code, whose dimension ``at`` counts rows."""
        if not isinstance(value, Tensor) or value.is_nested or value.dim() != dimensions:
            raise self.unfit(f"is given something else than a tensor of {dimensions} dimensions")
        own = self._tape.values(value)
        own = value.expand(self._tape.examples, *value.shape) if own is None else own
        return own.movedim(0, at).flatten(at, at + 1)

    def enter(self, rows: Tensor, at: int) -> Tensor:
        """The tensor that the model's code goes on with, of rows of all examples in dimension ``at``."""
        return self._tape.enter(rows.unflatten(at, (self._tape.examples, -1)).movedim(at, 0))

    def watch(self, output: Tensor, kept: Tensor, parts: Parts) -> Tensor:
        """``Tape.watch``, for rows (n k, ..., width): parts are given (n, positions, width) and own names."""
        trained, n = self._known.trained, self._tape.examples

        def named(gradient: Tensor, kept: Tensor) -> Iterator[Part]:
            given = (value.reshape(n, -1, value.shape[-1]) for value in (gradient, kept))
            for own, rows, contribution in parts(*given):
                if own in trained:
                    yield trained[own], rows, contribution

        return self._tape.watch(output, kept, named)


def _runs(sequence: nn.Sequential, steps: dict[nn.Module, Any]) -> Iterator[nn.Module | list[nn.Module]]:
    """Cuts a sequence into layers that are called as they are, and runs of known layers.

    A layer that works in place belongs to a run if the layer before made the tensor it works on.
    """
    run: list[nn.Module] = []
    for layer in sequence:
        fits = layer in steps and not has_hooks(layer)
        in_place = fits and getattr(layer, "inplace", False)
        if fits and (not in_place or (run and next(run[-1].parameters(), None) is not None)):
            run.append(layer)
            continue
        if run:
            yield run if len(run) > 1 else run[0]
        run = []
        yield layer
    if run:
        yield run if len(run) > 1 else run[0]


def _split_rows(rows: Tensor, examples: int) -> Tensor:
    """(n k, ...) as (n, k, ...)."""
    return rows.view(examples, len(rows) // examples, *rows.shape[1:])


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
                self._tape.asked = self._tape.helped = True
                answers = answers.detach().flatten() != 0
                if bool(answers.any()) != bool(answers.all()):
                    raise DisagreementError(answers)
                return bool(answers[0])
        elif func is scaled_dot_product_attention:
            self._tape.helped = True
            return self._attention(*args, **(kwargs or {}))
        elif func is multi_head_attention_forward:  # whose attention vmap can do in steps
            self._tape.helped = True
            with sdpa_kernel(SDPBackend.MATH):
                return func(*args, **(kwargs or {}))
        elif func is torch.prelu:  # which autocast does not reach under vmap
            self._tape.helped = True
            return torch.prelu(args[0], args[1].to(args[0].dtype))
        return func(*args, **(kwargs or {}))

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *args: Any,
        **more: Any,
    ) -> Tensor:
        given = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
        rows = [self._tape.values(each) for each in given]
        fits = all(each is not None for each in rows[:3]) and all(each.dim() == 4 for each in given[:3])
        if not fits or (attn_mask is not None and rows[3] is not None and attn_mask.dim() != 4):
            return scaled_dot_product_attention(query, key, value, attn_mask, *args, **more)
        with _outside():
            flat = [each if row is None else row.flatten(0, 1) for each, row in zip(given, rows, strict=True)]
            mask = flat[3] if len(flat) > 3 else None
            output = scaled_dot_product_attention(flat[0], flat[1], flat[2], mask, *args, **more)
            return self._tape.enter(_split_rows(output, self._tape.examples))


@contextmanager
def without_gradients(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Makes parameters need no gradient for a while, so that none is computed or stored.

    >>> layer = nn.Linear(2, 2)
    >>> with without_gradients(layer.parameters()):
    ...     layer(torch.ones(1, 2)).requires_grad
    False
    """
    changed = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in changed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in changed:
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
_OF_MODULES = frozenset(vars(nn.Module()))  # attributes that every module has
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def state_of(model: nn.Module) -> tuple[Any, ...]:
    """Layers, modes, hooks, and where parameters and buffers lie: checks and recordings rest on these.

    It does not change when parameters are trained.

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
                state += (value.data_ptr(), value.requires_grad)
        state += (value.data_ptr() for value in own["_buffers"].values() if value is not None)
    return tuple(state)


def has_hooks(layer: nn.Module) -> bool:
    """Whether code of somebody else runs when the layer is called.

    >>> has_hooks(nn.Linear(2, 2))
    False
    """
    return any(vars(layer)[name] for name in _HOOKS)


@contextmanager
def nothing_kept(
    model: nn.Module,
    layers: list[nn.Module],
    asked: Callable[[], bool] = lambda: False,
    *,
    asks: bool = False,
) -> Iterator[None]:
    """Raises a KeptError that names what a pass under vmap has changed or kept on the layers of a model.

    What was kept is taken off the model again. Where the pass ``asked`` something of its inputs, which only
    counts with ``asks``, no plain attribute may change. Not noticed is what is kept outside of the layers.

    >>> layer = nn.Linear(2, 2)
    >>> with nothing_kept(layer, [layer]):
    ...     _ = torch.func.vmap(lambda x: setattr(layer, "last", x) or x)(torch.ones(3, 2))
    Traceback (most recent call last):
    ...
    ringfence.training.per_example.isolation.KeptError: layer '' (Linear) keeps 'last' of a pass: ...
    """
    attributes = [list(vars(layer).values()) for layer in layers]
    buffers = [(layer, own, value) for layer in layers for own, value in layer._buffers.items()]
    versions = [_version(value) for *_, value in buffers]
    plain = _plain(layers) if asks else {}
    kept: list[tuple[nn.Module, str]] = []
    try:
        yield
    finally:
        kept += _taken_off(layers, attributes)
        for (layer, own, value), version in zip(buffers, versions, strict=True):
            if layer._buffers.get(own) is not value or _version(value) != version:
                kept.append((layer, own))
                layer._buffers[own] = value
        if asks and asked():
            now = _plain(layers)
            for layer, own in [key for key in {**plain, **now} if plain.get(key) != now.get(key)]:
                kept.append((layer, own))
                vars(layer).pop(own, None)
                vars(layer).update({own: plain[layer, own]} if (layer, own) in plain else {})
    for layer, own in kept:
        name = next(name for name, each in model.named_modules() if each is layer)
        raise KeptError(f"layer {name!r} ({type(layer).__name__}) keeps {own!r} of a pass: {_WHY}")


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


def _version(value: Tensor | None) -> int:
    return -1 if value is None else value._version


def _taken_off(layers: list[nn.Module], before: list[list[Any]]) -> Iterator[tuple[nn.Module, str]]:
    """Removes tensors of a pass from attributes of the layers; yields the layers and the names."""
    for layer, values in zip(layers, before, strict=True):
        attributes = vars(layer)
        same = len(attributes) == len(values) and all(map(is_, attributes.values(), values))
        if same and type(layer).__module__.startswith("torch.nn."):  # torch's own layers hold no containers
            continue
        for own in [own for own in attributes if own not in _OF_MODULES and _is_of_pass(attributes[own])]:
            del attributes[own]
            yield layer, own


def _is_of_pass(value: Any) -> bool:
    """Whether a value is, or holds, a tensor that vmap made."""
    if isinstance(value, Tensor):
        return _functorch.is_functorch_wrapped_tensor(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set):
        return False
    return any(map(_is_of_pass, value))


def _plain(layers: list[nn.Module]) -> dict[tuple[nn.Module, str], Any]:
    """The attributes of layers that are numbers, text or nothing."""
    kinds = (int, float, str, type(None))
    return {
        (layer, own): value
        for layer in layers
        for own, value in vars(layer).items()
        if isinstance(value, kinds)
    }
