"""A pass over a batch in which no example can see another, and whose known layers take all examples at once.

The model runs under vmap, as if it were called with one example. What it computes for an example is then a
function of that example alone, whatever its code does: it cannot sort, mix or count the batch, and writing
what it sees into a shared tensor is an error of torch. Only the layers that are known, whose rules treat rows
apart, step out of vmap: they compute the rows of all examples at once, of which they know which belongs to
whom, and are watched by the tape.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch
from torch._functorch.vmap import lazy_load_decompositions  # type: ignore[attr-defined]
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from ringfence.training.per_example.fused.contributions import Contribution
from ringfence.training.per_example.fused.layers.rules import Rewritten, Rule, rule_of
from ringfence.training.per_example.fused.tape import (
    ALL,
    Part,
    Tape,
    in_autocast,
    step_by_step,
    without_gradients,
)
from ringfence.training.per_example.gradients import first_row
from ringfence.training.per_example.inputs import Inputs, mapped


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


@dataclass(frozen=True)
class KnownLayer:
    """A layer with a rule. ``trained`` has the names of its trained parameters, its own and the model's."""

    name: str
    layer: nn.Module
    rule: Rule | Rewritten
    trained: dict[str, str]


def known_layers(model: nn.Module) -> dict[str, KnownLayer]:
    """Returns the layers with trained parameters that a rule is known for, by name.

    >>> list(known_layers(nn.Sequential(nn.Linear(3, 2), nn.Bilinear(2, 2, 1))))
    ['0']
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # one for each
    known: dict[str, KnownLayer] = {}
    covered: str | None = None  # the layer above, where its rule includes its children
    for name, layer in model.named_modules():
        if covered is not None and name.startswith(covered):
            continue
        computed = is_parametrized(layer)
        rule = None if computed else rule_of(layer)
        whole = computed or isinstance(rule, Rewritten)
        covered = (f"{name}." if name else "") if whole else covered
        own = layer.named_parameters(recurse=whole, remove_duplicate=False)
        trained = {own: names[id(parameter)] for own, parameter in own if parameter.requires_grad}
        if rule is not None and trained and (whole or trained.keys() <= {"weight", "bias"}):
            known[name] = KnownLayer(name, layer, rule, trained)
    return known


def isolated(model: nn.Module, inputs: Inputs, copies: dict[str, Tensor], tape: Tape) -> Any:
    """The outputs of a model that sees one example at a time; ``copies`` are its own copies of parameters.

    This is ``torch.func.vmap``, without the cost of its checks.
    """
    lazy_load_decompositions()
    tape.level = _functorch._vmap_increment_nesting(tape.examples, "different")
    try:
        args, kwargs = mapped(lambda value: _one(value.detach(), tape).unsqueeze(0), inputs)
        own = {name: _one(value, tape) for name, value in copies.items()}
        outputs = functional_call(model, own, args, kwargs) if own else model(*args, **kwargs)

        def leave(output: Any) -> Tensor:
            return _functorch._remove_batch_dim(first_row(output), tape.level, tape.examples, 0)

        return tree_map(leave, outputs)
    finally:
        _functorch._vmap_decrement_nesting()


@contextmanager
def watched(
    layers: Iterable[KnownLayer], tape: Tape, *, tracing: bool = False, asks: bool = False
) -> Iterator[None]:
    """Known layers take all examples at once as long as this lasts, and nothing stays on the model.

    With ``tracing``, parameters keep their gradients but in the known layers: what else uses them is in the
    graph then. With ``asks``, functions are replaced that vmap cannot do, or not fast.
    """
    layers = list(layers)
    for one in layers:
        call = _rewritten if isinstance(one.rule, Rewritten) else _by_rule
        vars(one.layer)["forward"] = partial(_for_all, call, one, tape, tracing)
    try:
        with step_by_step(), _BatchFunctions(tape) if asks else nullcontext():
            yield
    finally:
        for one in layers:
            del vars(one.layer)["forward"]


def _for_all(
    call: Callable[..., Any], one: KnownLayer, tape: Tape, tracing: bool, *args: Any, **kwargs: Any
) -> Any:
    """Calls a known layer for all examples at once, from the code that sees one example."""
    if _functorch.maybe_current_level() != tape.level:
        raise UnfitError(one.name, "is called under a transformation of torch.func")
    for name in one.trained.values():
        tape.uses[name] += 1
    with _outside(), without_gradients(one.layer.parameters()) if tracing else nullcontext():
        return call(one, tape, *args, **kwargs)


class _outside:  # noqa: N801, a context manager without the cost of a generator
    """Steps out of vmap for a while."""

    def __enter__(self) -> None:
        self._level = _functorch.pop_dynamic_layer_stack()

    def __exit__(self, *error: object) -> None:
        _functorch.push_dynamic_layer_stack(self._level)


def _examples(value: Any, tape: Tape) -> Tensor | None:
    """The values of all examples (n, ...) of a tensor that the model's code has; None if they share it."""
    if not _functorch.is_batchedtensor(value) or _functorch.maybe_get_level(value) != tape.level:
        return None
    place, inside = _functorch.maybe_get_bdim(value), _functorch.get_unwrapped(value)
    return inside.movedim(place, 0) if place else inside


def _one(values: Tensor, tape: Tape) -> Tensor:
    """The tensor that the model's code goes on with, of the values of all examples."""
    inside: Tensor = _functorch._add_batch_dim(values, 0, tape.level)
    return inside


def _by_rule(one: KnownLayer, tape: Tape, *args: Any, **kwargs: Any) -> Tensor:
    layer, rule, given = one.layer, one.rule, (*args, *kwargs.values())
    assert isinstance(rule, Rule)
    if len(given) != 1 or not isinstance(given[0], Tensor):
        raise UnfitError(one.name, "is called with more than one tensor")
    seen, n = given[0].dim(), tape.examples
    if rule.dimensions is not None and seen not in rule.dimensions(layer):
        raise UnfitError(one.name, f"is given a tensor of {seen} dimensions")
    if not rule.several and given[0].shape[0] != 1:
        raise UnfitError(one.name, "is called with several rows for one example")
    rows = _examples(given[0], tape)
    shared = rows is None
    x = given[0] if rows is None else rows
    x = in_autocast(x) if rule.multiplies else x
    flat = x if shared or rule.pointwise else x.flatten(0, 1)
    output: Tensor = (rule.output or type(layer).forward)(layer, flat)
    if shared:
        x, output = x.expand(n, *x.shape), output.expand(n, *output.shape)
    split = not (shared or rule.pointwise)

    def parts(gradient: Tensor, x: Tensor) -> Iterator[Part]:
        if rule.pointwise:
            gradient, x = gradient.unsqueeze(1), x.unsqueeze(1)
        for own, contribution in rule.contributions(layer, gradient, x).items():
            yield from _trained(one, own, ALL, contribution)

    return _one(tape.watch(output, (x.detach(),), parts, split=split), tape)


def _rewritten(one: KnownLayer, tape: Tape, *args: Any, **kwargs: Any) -> Any:
    layer, rule, n = one.layer, one.rule, tape.examples
    assert isinstance(rule, Rewritten)
    if any(tape.uses[name] > 1 for name in one.trained.values()):  # whose parts would be clipped in pieces
        raise UnfitError(one.name, "is called several times in one pass, or shares a parameter")
    dimensions, out = rule.dimensions(layer)
    entered: dict[int, Tensor] = {}  # what was one tensor stays one

    def enter(value: Any, at: int | None) -> Any:
        if isinstance(value, tuple | list):
            return tuple(enter(each, at) for each in value)
        if not isinstance(value, Tensor):
            return value
        rows = _examples(value, tape)
        if at is None and rows is None:
            return value
        if value.dim() != 3 and at != 0:
            raise UnfitError(one.name, f"is given a tensor of {value.dim()} dimensions")
        if id(value) not in entered:
            rows = value.expand(n, *value.shape) if rows is None else rows
            entered[id(value)] = rows.movedim(0, at or 0).flatten(at or 0, (at or 0) + 1)
        return entered[id(value)]

    def split(value: Tensor) -> Tensor:
        rows: Tensor = value.unflatten(0, (n, -1))
        return rows.flatten(1, 2)

    def watch(output: Tensor, kept: tuple[Tensor, ...], parts: Callable[..., Iterable[Part]]) -> Tensor:
        def named(*values: Tensor) -> Iterator[Part]:
            for own, rows, contribution in parts(*map(split, values)):
                yield from _trained(one, own, rows, contribution)

        return tape.watch(output, kept, named)

    def leave(value: Any, at: int) -> Any:
        if isinstance(value, tuple):
            return tuple(leave(each, at) for each in value)
        return None if value is None else _one(value.unflatten(at, (n, -1)).movedim(at, 0), tape)

    inside = [enter(value, at) for value, at in zip(args, dimensions.values(), strict=False)]
    named_inside = {name: enter(value, dimensions.get(name)) for name, value in kwargs.items()}
    if not rule.knows(layer, *inside, **named_inside):
        raise UnfitError(one.name, "is called in a way that is not known")
    outputs = rule.forward(layer, watch, *inside, **named_inside)
    return tuple(leave(value, at) for value, at in zip(outputs, out, strict=True))


def _trained(one: KnownLayer, own: str, rows: slice, contribution: Contribution) -> Iterator[Part]:
    """The part of a parameter, if it is trained."""
    if own in one.trained:
        yield one.trained[own], rows, contribution


class _BatchFunctions(TorchFunctionMode):
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
            answers = _examples(args[0], self._tape)
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
        rows = [_examples(each, self._tape) for each in given]
        fits = all(each is not None for each in rows[:3]) and all(each.dim() == 4 for each in given[:3])
        if not fits or (attn_mask is not None and rows[3] is not None and attn_mask.dim() != 4):
            return scaled_dot_product_attention(query, key, value, attn_mask, *args, **more)
        with _outside():
            n, one = self._tape.examples, query.shape[0]
            flat = [each if row is None else row.flatten(0, 1) for each, row in zip(given, rows, strict=True)]
            mask = flat[3] if len(flat) > 3 else None
            output = scaled_dot_product_attention(flat[0], flat[1], flat[2], mask, *args, **more)
            return _one(output.unflatten(0, (n, one)), self._tape)
