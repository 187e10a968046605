"""A pass over a batch in which no example can see another, and whose known layers take all examples at once.

The model runs under vmap, as if it were called with one example. What it computes for an example is then a
function of that example alone, whatever its code does: it cannot sort, mix or count the batch, and writing
what it sees into a shared tensor is an error of torch. Only layers of torch with a rule, which treat rows
apart, step out of vmap: they compute the rows of all examples at once, of which they know which belongs to
whom. In the backward pass the rule of a layer turns its input and the gradient of its output into
contributions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
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
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.kernels.clipped_sums import ALL, Part, Rows
from ringfence.training.per_example import layers as rules
from ringfence.training.per_example.attention import Attention
from ringfence.training.per_example.inputs import Inputs, device_of, example_count, mapped
from ringfence.training.per_example.layers import Rewritten, RowRule, in_autocast
from ringfence.training.per_example.model_state import has_hooks
from ringfence.training.per_example.recurrent import Recurrent

_RULES: tuple[tuple[type[nn.Module], type[RowRule | Rewritten]], ...] = (
    (nn.Linear, rules.Linear),
    *((kind, rules.Convolution) for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)),
    (nn.Embedding, rules.Embedding),
    (nn.EmbeddingBag, rules.EmbeddingBag),
    *((kind, rules.LayerNorm) for kind in (nn.LayerNorm, nn.RMSNorm)),
    (nn.GroupNorm, rules.GroupNorm),
    *(
        (kind, rule)
        for rule in (rules.InstanceNorm, rules.FrozenNorm)
        for kind in (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
    ),
    *((kind, rules.FrozenNorm) for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)),
    (nn.MultiheadAttention, Attention),
    *((kind, Recurrent) for kind in (nn.RNN, nn.LSTM, nn.GRU)),
    *((kind, rules.Apart) for kind in rules.Apart.kinds),
)


def rule_of(layer: nn.Module) -> RowRule | Rewritten | None:
    """Returns the rule for a layer, or None for one that has none.

    >>> rule_of(nn.Linear(2, 1)) is not None, rule_of(nn.Bilinear(2, 2, 1)) is None
    (True, True)
    """
    if is_parametrized(layer):
        return None
    if (type(layer).__module__, type(layer).__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return rules.TurnedLinear(layer) if _is_unchanged(layer, type(layer)) else None
    for kind, rule in _RULES:
        if isinstance(layer, kind) and _is_unchanged(layer, kind) and rule.suits(layer):
            return rule(layer)
    return None


def _is_unchanged(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether neither the layer nor its class has a method other than that of a kind of layer."""
    own = type(layer).__mro__[: type(layer).__mro__.index(kind)]
    for name in {name for each in (layer, *own) for name in vars(each)} - {"reset_parameters", "extra_repr"}:
        counts = not name.startswith("__") or name in ("__call__", "__getattr__", "__getattribute__")
        if counts and callable(getattr(kind, name, None)):
            return False
    return True


@dataclass(frozen=True)
class KnownLayer:
    """A layer with a rule. ``trained`` has the names of its trained parameters, its own and the model's."""

    name: str
    layer: nn.Module
    rule: RowRule | Rewritten
    trained: dict[str, str]


def known_layers(model: nn.Module) -> dict[str, KnownLayer]:
    """Returns the layers that have a rule, by name.

    >>> list(known_layers(nn.Sequential(nn.Linear(3, 2), nn.Bilinear(2, 2, 1), nn.Tanh())))
    ['0', '2']
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # one for each
    known: dict[str, KnownLayer] = {}
    covered: str | None = None  # the layer above, where its rule includes its children
    for name, layer in model.named_modules():
        if covered is not None and name.startswith(covered):
            continue
        rule = rule_of(layer)
        whole = isinstance(rule, Rewritten) or is_parametrized(layer)
        covered = (f"{name}." if name else "") if whole else covered
        own = layer.named_parameters(recurse=whole, remove_duplicate=False)
        trained = {own: names[id(parameter)] for own, parameter in own if parameter.requires_grad}
        if isinstance(rule, RowRule) and trained.keys() <= {"weight", "bias"}:
            known[name] = KnownLayer(name, layer, rule, trained)
        if isinstance(rule, Rewritten) and trained:
            known[name] = KnownLayer(name, layer, rule, trained)
    return known


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
            return map_leaves(self._leave, outputs)
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

    def watch(
        self, output: Tensor, kept: Tensor, parts: Callable[[Tensor, Tensor], Iterable[Part]]
    ) -> Tensor:
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
            if isinstance(one.rule, Rewritten):
                self._forwards.append((vars(one.layer), self._rewritten(one, one.rule)))
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

    def _rewritten(self, one: KnownLayer, rule: Rewritten) -> Callable[..., Any]:
        dimensions, out = rule.dimensions
        parameters = list(one.layer.parameters())

        def forward(*args: Any, **kwargs: Any) -> Any:
            tape = self._entered(one)
            n, entered = tape.examples, dict[int, Tensor]()  # what was one tensor stays one
            for name in one.trained.values():
                tape.uses[name] += 1
                if tape.uses[name] > 1:  # whose parts would be clipped in pieces
                    raise UnfitError(one.name, "is called several times in one pass, or shares a parameter")

            def enter(at: int | None, value: Any) -> Any:
                rows = tape.values(value) if isinstance(value, Tensor) else None
                if not isinstance(value, Tensor) or (at is None and rows is None):
                    return value
                if value.dim() != 3 and at != 0:
                    raise UnfitError(one.name, f"is given a tensor of {value.dim()} dimensions")
                if id(value) not in entered:
                    rows = value.expand(n, *value.shape) if rows is None else rows
                    entered[id(value)] = rows.movedim(0, at or 0).flatten(at or 0, (at or 0) + 1)
                return entered[id(value)]

            def watch(
                output: Tensor, kept: Tensor, parts: Callable[[Tensor, Tensor], Iterable[Part]]
            ) -> Tensor:
                def named(gradient: Tensor, kept: Tensor) -> Iterator[Part]:
                    given = (value.reshape(n, -1, value.shape[-1]) for value in (gradient, kept))
                    for own, rows, contribution in parts(*given):
                        if own in one.trained:
                            yield one.trained[own], rows, contribution

                return tape.watch(output, kept, named)

            def leave(at: int, value: Tensor | None) -> Tensor | None:
                return None if value is None else tape.enter(value.unflatten(at, (n, -1)).movedim(at, 0))

            with _outside(), without_gradients(parameters) if tape.tracing else nullcontext():
                inside = [
                    _each(enter, at, value) for value, at in zip(args, dimensions.values(), strict=False)
                ]
                named_inside = {
                    name: _each(enter, dimensions.get(name), value) for name, value in kwargs.items()
                }
                if not rule.knows(*inside, **named_inside):
                    raise UnfitError(one.name, "is called in a way that is not known")
                outputs = rule.forward(watch, *inside, **named_inside)
                return tuple(_each(leave, at, value) for value, at in zip(outputs, out, strict=True))

        return forward


def _each(change: Callable[[Any, Any], Any], at: int | None, value: Any) -> Any:
    """A value with everything in its tuples and lists changed; a function that calls itself is a cycle."""
    if isinstance(value, tuple | list):
        return tuple(_each(change, at, each) for each in value)
    return change(at, value)


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


def map_leaves(change: Callable[[Any], Tensor], outputs: Any) -> Any:
    """Outputs with every tensor changed: most models return one, which needs no tree.

    >>> map_leaves(torch.numel, {"a": torch.ones(2)})
    {'a': 2}
    """
    return change(outputs) if isinstance(outputs, Tensor) else tree_map(change, outputs)


def first_row(output: Any) -> Tensor:
    """The output for the only example of a batch; a single number is taken as that of the example.

    >>> first_row(torch.ones(1, 3)).shape
    torch.Size([3])
    """
    if not isinstance(output, Tensor) or output.shape[:1] not in ((), (1,)):
        what = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(f"the model must return tensors with one row for each example, got {what} for one")
    return output.squeeze(0) if output.dim() else output
