"""Hooks on the layers of a plan for the time of one forward pass."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ringfence.training.per_example.fused.local import local_gradients
from ringfence.training.per_example.fused.plan import Plan, PlannedLayer
from ringfence.training.per_example.fused.tape import ALL, Part, Tape


@contextmanager
def watched(plan: Plan, tape: Tape) -> Iterator[None]:
    """The layers of a plan are watched by a tape as long as this lasts, and nothing stays on the model."""
    handles = []
    called: set[str] = set()
    for planned in plan.layers:
        if planned.rule is not None and planned.rule.multiplies:
            handles.append(planned.layer.register_forward_pre_hook(_cast))
        hook = _hook(planned, tape, called)
        handles.append(planned.layer.register_forward_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _cast(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Takes the input in the precision of autocast, so that what is kept is what autocast would keep."""
    (rows, *others) = args
    device = rows.device.type
    if not torch.is_autocast_enabled(device) or rows.dtype == torch.float64:
        return None
    return (rows.to(torch.get_autocast_dtype(device)), *others)


def _hook(planned: PlannedLayer, tape: Tape, called: set[str]) -> Any:
    def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        if planned.name in called:
            raise RuntimeError(f"layer {planned.name!r} was called twice in one pass, before only once")
        called.add(planned.name)
        leaves, spec = tree_flatten((args, kwargs))
        if planned.rule is None:
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

            def local(gradient: Tensor, *kept: Tensor) -> Iterable[Part]:
                given = iter(kept)
                again = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
                return _local(planned, tape.examples, gradient, tree_unflatten(again, spec))

            return tape.watch(output, tuple(tensors), local)
        rows = next(leaf for leaf in leaves if isinstance(leaf, Tensor)).detach()
        if planned.layout != "examples":
            new = () if planned.layout == "shared" else (1,)
            rows = rows.expand(tape.examples, *rows.shape[len(new) :])
            output = output.expand(tape.examples, *output.shape[len(new) :])
        if len(rows) % tape.examples:
            raise RuntimeError(
                f"layer {planned.name!r} was given {len(rows)} rows for {tape.examples} examples"
            )
        return tape.watch(output, (rows,), lambda gradient, rows: _parts(planned, tape, gradient, rows))

    return hook


def _parts(planned: PlannedLayer, tape: Tape, gradient: Tensor, rows: Tensor) -> Iterator[Part]:
    assert planned.rule is not None
    split = (value.unflatten(0, (tape.examples, -1)) for value in (gradient, rows))
    trained = dict(planned.layer.named_parameters(recurse=False))
    for own, contribution in planned.rule.contributions(planned.layer, *split).items():
        if own in trained:
            yield planned.parameter(own), ALL, contribution


def _local(planned: PlannedLayer, examples: int, gradient: Tensor, given: Any) -> Iterator[Part]:
    for own, contribution in local_gradients(planned.layer, examples, gradient, *given).items():
        yield planned.parameter(own), ALL, contribution
