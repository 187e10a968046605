"""How each trained parameter of a model gets its clipped sum, found by watching made-up examples pass."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ringfence.training.per_example.fused.rules import Rule, rule_of
from ringfence.training.per_example.gradients import Inputs, device_of, example_count

# what the first dimension of a layer's input counts: examples, something that all share, or nothing (one row)
Layout = Literal["examples", "shared", "one row"]


@dataclass(frozen=True)
class PlannedLayer:
    """A layer whose parameters the fused pass takes care of; without a rule by torch.func on this layer."""

    name: str
    layer: nn.Module
    rule: Rule | None
    layout: Layout

    def parameter(self, own: str) -> str:
        """The name in the model of one of the layer's parameters."""
        return f"{self.name}.{own}" if self.name else own


@dataclass(frozen=True)
class Plan:
    """The layers of the fused pass, and the parameters that are left for torch.func on the whole model."""

    layers: tuple[PlannedLayer, ...]
    rest: frozenset[str]
    draws: bool  # whether the model draws random numbers in training


def planned(model: nn.Module, few: Inputs, more: Inputs) -> Plan:
    """Returns the plan for a model; ``few`` and ``more`` are two made-up batches of different sizes.

    >>> model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    >>> plan = planned(model, ((torch.zeros(2, 3),), {}), ((torch.zeros(3, 3),), {}))
    >>> [(each.name, each.layout) for each in plan.layers], sorted(plan.rest)
    ([('0', 'examples'), ('1', 'examples')], [])
    """
    owners = {name: layer for name, layer in model.named_modules() if _is_trained(layer)}
    before = torch.get_rng_state(), _device_state(few)
    seen = [_shapes(model, owners, inputs) for inputs in (few, more)]
    draws = not torch.equal(before[0], torch.get_rng_state()) or not torch.equal(
        before[1], _device_state(few)
    )
    uses: dict[int, int] = {}
    for layer in owners.values():
        for parameter in layer.parameters(recurse=False):
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    layers, rest = [], set()
    for name, layer in owners.items():
        calls = [shapes.get(name, []) for shapes in seen]
        trained = {own: p for own, p in layer.named_parameters(recurse=False) if p.requires_grad}
        shared = any(uses[id(p)] > 1 for p in trained.values())
        layout = _layout(calls, (example_count(few), example_count(more)))
        one = PlannedLayer(name, layer, _rule(layer, calls, example_count(few)), layout or "examples")
        unknown = one.rule is None and (layer is model or layout != "examples")
        if shared or layout is None or unknown:
            rest |= {one.parameter(own) for own in trained}
        else:
            layers.append(one)
    return Plan(tuple(layers), frozenset(rest), draws)


def _rule(layer: nn.Module, calls: list[list[Any]], few: int) -> Rule | None:
    rule = rule_of(layer)
    several = bool(calls[0]) and calls[0][0] is not None and calls[0][0][0] > few
    return None if rule is None or (several and not rule.several) else rule


def _layout(calls: list[list[Any]], counts: tuple[int, int]) -> Layout | None:
    """What the first dimension of the input counts, or None where the layer is not called just once."""
    few, more = calls
    if len(few) != 1 or len(more) != 1 or few[0] is None or more[0] is None:
        return None
    if few[0] == more[0]:
        return "one row" if few[0][0] == 1 else "shared"
    if few[0][0] * counts[1] == more[0][0] * counts[0] and few[0][0] % counts[0] == 0:
        return "examples"
    return None


def _shapes(model: nn.Module, owners: dict[str, nn.Module], inputs: Inputs) -> dict[str, list[Any]]:
    """The shape of the first input of every call of every layer, None unless input and output are tensors."""
    shapes: dict[str, list[Any]] = {}

    def note(name: str) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
            plain = bool(tensors) and tensors[0].dim() > 0 and isinstance(output, Tensor)
            shapes.setdefault(name, []).append(tuple(tensors[0].shape) if plain else None)

        return hook

    hooks = [layer.register_forward_hook(note(name), with_kwargs=True) for name, layer in owners.items()]
    try:
        with torch.no_grad():
            model(*inputs[0], **inputs[1])
    finally:
        for hook in hooks:
            hook.remove()
    return shapes


def _is_trained(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in layer.parameters(recurse=False))


def _device_state(inputs: Inputs) -> Tensor:
    device = device_of(inputs)
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.zeros(0)
