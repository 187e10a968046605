"""Hooks on the layers of a plan for the time of one forward pass."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ringfence.training.per_example.fused.contributions import Contribution
from ringfence.training.per_example.fused.layers.rules import Rewritten, Rule
from ringfence.training.per_example.fused.local import local_gradients
from ringfence.training.per_example.fused.plan import Plan, PlannedLayer
from ringfence.training.per_example.fused.tape import ALL, Part, Tape, in_autocast, step_by_step


@contextmanager
def watched(plan: Plan, tape: Tape) -> Iterator[None]:
    """The layers of a plan are watched by a tape as long as this lasts, and nothing stays on the model."""
    called: set[str] = set()
    with ExitStack() as stack, step_by_step():
        for planned in plan.layers:
            layer, rule = planned.layer, planned.rule
            if isinstance(rule, Rewritten):
                layer.forward = partial(_rewritten, planned, rule, tape, called)
                stack.callback(delattr, layer, "forward")
                continue
            if rule is not None and rule.output is not None:
                layer.forward = partial(rule.output, layer)
                stack.callback(delattr, layer, "forward")
            if rule is not None and rule.multiplies:
                stack.callback(layer.register_forward_pre_hook(_cast).remove)
            hook = partial(_after, planned, rule, tape, called)
            stack.callback(layer.register_forward_hook(hook, prepend=True, with_kwargs=True).remove)
        yield


def _cast(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return (in_autocast(args[0]), *args[1:]) if args and isinstance(args[0], Tensor) else None


def _rewritten(
    planned: PlannedLayer, rule: Rewritten, tape: Tape, called: set[str], *args: Any, **kwargs: Any
) -> Any:
    _count(planned, called)
    if not rule.knows(planned.layer, *args, **kwargs):
        raise RuntimeError(f"layer {planned.name!r} was called in another way than before")

    def split(value: Tensor) -> Tensor:
        return _split(planned, tape, value).flatten(1, 2)

    def watch(output: Tensor, kept: tuple[Tensor, ...], parts: Callable[..., Iterable[Part]]) -> Tensor:
        def named(*values: Tensor) -> Iterator[Part]:
            for own, rows, contribution in parts(*map(split, values)):
                yield from _trained(planned, own, rows, contribution)

        return tape.watch(output, kept, named)

    return rule.forward(planned.layer, watch, *args, **kwargs)


def _after(
    planned: PlannedLayer,
    rule: Rule | None,
    tape: Tape,
    called: set[str],
    layer: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> Any:
    _count(planned, called)
    if output._is_view():  # what is done in place to a view goes past the hooks on it
        output = output.clone()
    if rule is None:
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        kind = output.device.type
        precision = torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

        def local(gradient: Tensor, *kept: Tensor) -> Iterator[Part]:
            given = iter(kept)
            again = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            args, kwargs = tree_unflatten(again, spec)
            found = local_gradients(
                layer, planned.trained, tape.examples, gradient, planned.layouts, args, kwargs, precision
            )
            for own, contribution in found.items():
                yield from _trained(planned, own, ALL, contribution)

        return tape.watch(output, tuple(tensor.detach() for tensor in tensors), local)
    rows = (args[0] if args else next(iter(kwargs.values()))).detach()
    if planned.layouts[0] in ("shared", "one row"):
        new = 0 if planned.layouts[0] == "shared" else 1
        rows = rows.expand(tape.examples, *rows.shape[new:])
        output = output.expand(tape.examples, *output.shape[new:])

    def parts(gradient: Tensor, rows: Tensor) -> Iterator[Part]:
        if planned.layouts[0] == "second":
            gradient, rows = gradient.transpose(0, 1), rows.transpose(0, 1)
        split = (_split(planned, tape, value) for value in (gradient, rows))
        for own, contribution in rule.contributions(layer, *split).items():
            yield from _trained(planned, own, ALL, contribution)

    return tape.watch(output, (rows,), parts)


def _count(planned: PlannedLayer, called: set[str]) -> None:
    """Stops at a call that the plan does not know of; what several calls contribute is clipped together."""
    if planned.calls < 1 or (planned.calls == 1 and planned.name in called):
        before = "once" if planned.calls else "never"
        raise RuntimeError(
            f"layer {planned.name!r} was called again in one pass, on made-up examples {before}"
        )
    called.add(planned.name)


def _split(planned: PlannedLayer, tape: Tape, value: Tensor) -> Tensor:
    """Rows of the batch as (n, k, ...): k rows per example."""
    if len(value) % tape.examples:
        raise RuntimeError(f"layer {planned.name!r} has {len(value)} rows for {tape.examples} examples")
    split: Tensor = value.unflatten(0, (tape.examples, -1))
    return split


def _trained(planned: PlannedLayer, own: str, rows: slice, contribution: Contribution) -> Iterator[Part]:
    """The part of a parameter, if it is trained."""
    if own in planned.trained:
        yield planned.trained[own], rows, contribution
