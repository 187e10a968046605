"""How each trained parameter of a model gets its clipped sum, found by watching made-up examples pass."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ringfence.training.per_example.fused.layers.rules import Rewritten, Rule, rule_of
from ringfence.training.per_example.fused.local import Layout, local_gradients
from ringfence.training.per_example.fused.tape import step_by_step
from ringfence.training.per_example.gradients import Inputs, device_of, example_count


@dataclass(frozen=True)
class PlannedLayer:
    """A layer whose parameters the fused pass takes care of; without a rule by torch.func on this layer.

    ``trained`` has the names of these parameters in the layer, and ``layouts`` says of each tensor that the
    layer is given what its dimensions count.
    """

    name: str
    layer: nn.Module
    rule: Rule | Rewritten | None
    trained: frozenset[str]
    layouts: tuple[Layout, ...] = ()

    def parameter(self, own: str) -> str:
        """The name in the model of one of the layer's parameters."""
        return f"{self.name}.{own}" if self.name else own


@dataclass(frozen=True)
class Plan:
    """The layers of the fused pass, and the parameters that are left for torch.func on the whole model.

    ``rest`` says of each such parameter why it is left.
    """

    layers: tuple[PlannedLayer, ...]
    rest: dict[str, str]
    draws: bool  # whether the model draws random numbers in training

    @property
    def slower(self) -> dict[str, str]:
        """What goes through torch.func, and why: single layers, and parameters of the whole model."""
        alone = {one.name: f"{type(one.layer).__name__} is not known" for one in self.layers if not one.rule}
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
    uses = Counter(id(one.layer.get_parameter(own)) for one in owners for own in one.trained)
    counts = example_count(few), example_count(more)
    layers: list[PlannedLayer] = []
    rest: dict[str, str] = {}
    for one in owners:
        result: PlannedLayer | str
        if any(uses[id(one.layer.get_parameter(own))] > 1 for own in one.trained):
            result = "shares a parameter with another layer"
        elif one.rule is None and one.layer is model:
            result = "is not known"
        else:
            result = _placed(one, seen[0][one.name], seen[1][one.name], counts)
        if isinstance(result, PlannedLayer):
            layers.append(result)
        else:
            reason = f"{type(one.layer).__name__} {result}"
            rest |= {one.parameter(own): reason for own in one.trained}
    first_names = dict(model.named_parameters())  # a parameter that is shared has one name here
    return Plan(tuple(layers), {name: rest[name] for name in first_names if name in rest}, draws)


def _owners(model: nn.Module) -> Iterator[PlannedLayer]:
    """The layers that own trained parameters. Of a layer that is rewritten they include its children's."""
    covered = None
    for name, layer in model.named_modules():
        if covered is not None and name.startswith(covered):
            continue
        rule = rule_of(layer)
        whole = isinstance(rule, Rewritten)
        covered = (f"{name}." if name else "") if whole else covered
        own = layer.named_parameters(recurse=whole, remove_duplicate=False)
        trained = frozenset(own for own, parameter in own if parameter.requires_grad)
        if trained:
            yield PlannedLayer(name, layer, rule, trained)


def _placed(
    one: PlannedLayer, few: list[_Call], more: list[_Call], counts: tuple[int, int]
) -> PlannedLayer | str:
    """The layer with its layouts, and without its rule where that does not fit; or why nothing fits."""
    if len(few) != 1 or len(more) != 1:
        return f"is called {max(len(few), len(more))} times in one pass"
    call = few[0]
    shapes = [[tensor.shape for tensor in each.tensors()] for each in (call, more[0])]
    found = [_layout(one, other, counts) for one, other in zip(*shapes, strict=False)]
    layouts = tuple(layout for layout in found if layout is not None)
    if not layouts or not len(layouts) == len(shapes[0]) == len(shapes[1]):
        return f"is given tensors of shapes {shapes[0]}, in which nothing counts examples"
    one = replace(one, layouts=layouts)
    if isinstance(one.rule, Rewritten):
        dimension = "examples" if one.layer.batch_first else "second"
        fits = layouts[0] == dimension and one.rule.knows(one.layer, *call.args, **call.kwargs)
        return one if fits else "is called in a way that is not known"
    if (
        one.rule is not None
        and isinstance(call.output, Tensor)
        and _fits(one.rule, one, shapes[0], counts[0])
    ):
        return one
    if call.draws:
        return "is not known and draws at random"
    try:
        local_gradients(one.layer, counts[0], torch.zeros_like(call.output), layouts, call.args, call.kwargs)
    except Exception as error:  # whatever an unknown layer does under torch.func
        return f"is not known, and fails alone with {type(error).__name__}: {error}"
    return replace(one, rule=None)


def _fits(rule: Rule, one: PlannedLayer, shapes: list[torch.Size], count: int) -> bool:
    """Whether a rule holds for a layer that is called like this."""
    if len(shapes) != 1 or not one.trained <= {"weight", "bias"}:
        return False
    if one.layouts[0] == "examples":
        return rule.several or shapes[0][0] == count
    return rule.pointwise or one.layouts[0] == "one row"


def _layout(few: torch.Size, more: torch.Size, counts: tuple[int, int]) -> Layout | None:
    """What the dimensions of a tensor count, from its shapes in two passes."""
    if few == more:
        return "one row" if few and few[0] == 1 else "shared"
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
