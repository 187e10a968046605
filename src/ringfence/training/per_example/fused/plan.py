"""How each trained parameter of a model gets its clipped sum, found by watching made-up examples pass."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import tree_leaves

from ringfence.training.per_example.fused.layers.rules import Rewritten, Rule, rule_of
from ringfence.training.per_example.fused.local import Layout, local_gradients
from ringfence.training.per_example.fused.tape import step_by_step
from ringfence.training.per_example.inputs import Inputs, device_of, example_count


@dataclass(frozen=True)
class PlannedLayer:
    """A layer whose parameters the fused pass takes care of; without a rule by torch.func on this layer.

    ``trained`` has the names of these parameters in the layer, and those in the model; ``layouts`` says of
    each tensor that the layer is given what its dimensions count; ``calls`` is how often it is called in a
    pass.
    """

    name: str
    layer: nn.Module
    rule: Rule | Rewritten | None
    trained: dict[str, str]
    layouts: tuple[Layout, ...] = ()
    calls: int = 1


@dataclass(frozen=True)
class Plan:
    """The layers of the fused pass, and the parameters that are left for torch.func on the whole model.

    ``rest`` says of each such parameter why it is left. ``several`` are the parameters to whose gradients
    several layers, or several calls of a layer, contribute.
    """

    layers: tuple[PlannedLayer, ...]
    rest: dict[str, str]
    several: frozenset[str]
    draws: bool  # whether the model draws random numbers in training

    @property
    def slower(self) -> dict[str, str]:
        """What goes through torch.func, and why: single layers, and parameters of the whole model."""
        alone = {
            one.name: f"{type(one.layer).__name__} is not known"
            for one in self.layers
            if one.layouts and not one.rule
        }
        return {**alone, **self.rest}


class _Call(NamedTuple):
    """One call of a layer."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    draws: bool

    def tensors(self) -> list[Tensor]:
        return [value for value in tree_leaves((self.args, self.kwargs)) if isinstance(value, Tensor)]


def planned(model: nn.Module, few: Inputs, more: Inputs) -> Plan:
    """Returns the plan for a model; ``few`` and ``more`` are two made-up batches of different sizes.

    >>> model = nn.Sequential(nn.Linear(3, 2), nn.Bilinear(2, 2, 1))
    >>> plan = planned(model[:1], ((torch.zeros(2, 3),), {}), ((torch.zeros(3, 3),), {}))
    >>> [(each.name, each.layouts) for each in plan.layers], plan.rest
    ([('0', ('examples',))], {})
    """
    owners = list(_owners(model))
    before = _state(few)
    seen = [_calls(model, owners, inputs) for inputs in (few, more)]
    draws = not torch.equal(before, _state(few))
    uses = Counter(name for one in owners for name in one.trained.values())
    counts = example_count(few), example_count(more)
    layers: list[PlannedLayer] = []
    rest: dict[str, str] = {}
    for one in owners:
        calls = seen[0][one.name], seen[1][one.name]
        result: PlannedLayer | str
        if one.rule is None and one.layer is model:
            result = "is not known"
        elif isinstance(one.rule, Rewritten) and any(uses[name] > 1 for name in one.trained.values()):
            result = "shares a parameter with another layer"
        elif any(calls):
            result = _placed(one, *calls, counts)
        else:
            used = not _used(model, few).isdisjoint(one.trained.values())
            result = "is not called, but its parameters are used" if used else replace(one, calls=0)
        if isinstance(result, PlannedLayer):
            layers.append(result)
        else:
            rest |= dict.fromkeys(one.trained.values(), f"{type(one.layer).__name__} {result}")
    layers = [replace(one, trained=_without(one.trained, rest)) for one in layers]
    parts = Counter(name for one in layers for name in one.trained.values() for _ in range(one.calls))
    several = frozenset(name for name, count in parts.items() if count > 1)
    return Plan(tuple(layers), rest, several, draws)


def _owners(model: nn.Module) -> Iterator[PlannedLayer]:
    """The layers that own trained parameters.

    Those of children are included where a layer is rewritten, and where a parameter is computed from others.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # one for each
    covered = None
    for name, layer in model.named_modules():
        if covered is not None and name.startswith(covered):
            continue
        computed = is_parametrized(layer)
        rule = None if computed else rule_of(layer)
        whole = computed or isinstance(rule, Rewritten)
        covered = (f"{name}." if name else "") if whole else covered
        own = layer.named_parameters(recurse=whole, remove_duplicate=False)
        trained = {own: names[id(parameter)] for own, parameter in own if parameter.requires_grad}
        if trained:
            yield PlannedLayer(name, layer, rule, trained)


def _used(model: nn.Module, inputs: Inputs) -> set[str]:
    """The names of the trained parameters that the outputs depend on."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad(), step_by_step():
        leaves = tree_leaves(model(*inputs[0], **inputs[1]))
    outputs = [output for output in leaves if isinstance(output, Tensor) and output.requires_grad]
    slopes = [torch.zeros_like(output) for output in outputs]
    found = torch.autograd.grad(outputs, list(trained.values()), slopes, allow_unused=True)
    return {name for name, gradient in zip(trained, found, strict=True) if gradient is not None}


def _without(trained: dict[str, str], rest: dict[str, str]) -> dict[str, str]:
    return {own: name for own, name in trained.items() if name not in rest}


def _placed(
    one: PlannedLayer, few: list[_Call], more: list[_Call], counts: tuple[int, int]
) -> PlannedLayer | str:
    """The layer with its layouts, and without its rule where that does not fit; or why nothing fits."""
    if len(few) != len(more) or (len(few) > 1 and isinstance(one.rule, Rewritten)):
        return f"is called {max(len(few), len(more))} times in one pass"
    first, *others = (_follow(one, *pair, counts) for pair in zip(few, more, strict=True))
    if any(other != first for other in others):
        return "is called in different ways in one pass"
    return first if isinstance(first, str) else replace(first, calls=len(few))


def _follow(one: PlannedLayer, call: _Call, other: _Call, counts: tuple[int, int]) -> PlannedLayer | str:
    """The same for one call, as it was in either pass."""
    shapes, more = ([tensor.shape for tensor in each.tensors()] for each in (call, other))
    found = [_layout(*pair, counts) for pair in zip(shapes, more, strict=False)]
    layouts = tuple(layout for layout in found if layout is not None)
    if not layouts or not len(layouts) == len(shapes) == len(more):
        return f"is given tensors of shapes {list(map(list, shapes))}, in which nothing counts examples"
    one = replace(one, layouts=layouts)
    if isinstance(one.rule, Rewritten):
        dimension = "examples" if one.layer.batch_first else "second"
        fits = layouts[0] == dimension and one.rule.knows(one.layer, *call.args, **call.kwargs)
        return one if fits else "is called in a way that is not known"
    if one.rule is not None and isinstance(call.output, Tensor) and _fits(one.rule, one, shapes, counts[0]):
        return one
    if call.draws:
        return "is not known and draws at random"
    try:
        slopes = torch.zeros_like(call.output)
        local_gradients(one.layer, one.trained, counts[0], slopes, layouts, call.args, call.kwargs)
    except Exception as error:  # whatever an unknown layer does under torch.func
        return f"is not known, and fails alone with {type(error).__name__}: {error}"
    return replace(one, rule=None)


def _fits(rule: Rule, one: PlannedLayer, shapes: list[torch.Size], count: int) -> bool:
    """Whether a rule holds for a layer that is called like this."""
    if len(shapes) != 1 or not one.trained.keys() <= {"weight", "bias"}:
        return False
    if one.layouts[0] == "examples":
        return rule.several or shapes[0][0] == count
    return rule.pointwise or one.layouts[0] == "one row"


def _layout(few: torch.Size, more: torch.Size, counts: tuple[int, int]) -> Layout | None:
    """What the dimensions of a tensor count, from its shapes in two passes."""
    if few == more:
        return "one row" if few and few[0] == 1 else "shared"
    if len(few) != len(more):
        return None
    changed = [i for i, (one, other) in enumerate(zip(few, more, strict=True)) if one != other]
    at = changed[0]
    if len(changed) > 1 or at > 1 or few[at] * counts[1] != more[at] * counts[0] or few[at] % counts[0]:
        return None
    return "second" if at else "examples"


def _calls(model: nn.Module, owners: list[PlannedLayer], inputs: Inputs) -> dict[str, list[_Call]]:
    """The calls of all layers in one pass."""
    calls: dict[str, list[_Call]] = {one.name: [] for one in owners}
    before: dict[str, Tensor] = {}

    def start(one: PlannedLayer) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...]) -> None:
            before[one.name] = _state(inputs)

        return hook

    def end(one: PlannedLayer) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            draws = not torch.equal(before[one.name], _state(inputs))
            calls[one.name].append(_Call(args, kwargs, output, draws))

        return hook

    hooks = [one.layer.register_forward_pre_hook(start(one)) for one in owners]
    hooks += [one.layer.register_forward_hook(end(one), with_kwargs=True) for one in owners]
    try:
        with torch.no_grad(), step_by_step():
            model(*inputs[0], **inputs[1])
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _state(inputs: Inputs) -> Tensor:
    """Where torch's random numbers stand."""
    device = device_of(inputs)
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return torch.cat([torch.get_rng_state(), *cuda])
