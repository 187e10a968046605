"""The state of a model, and a check that a pass over private inputs leaves nothing in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor


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
    ringfence.training.per_example.model_state.KeptError: layer '' (Linear) keeps 'last' of a pass: ...
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
    ringfence.training.per_example.model_state.KeptError: 'running_mean' is changed by a forward pass: ...
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
        return is_functorch_wrapped_tensor(value)
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
