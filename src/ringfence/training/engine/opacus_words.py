"""Arguments and methods of Opacus, and the ones to write instead."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LAW = "PrivacyEngine(Gaussian(noise_multiplier * max_grad_norm), Norm(max_grad_norm))"
_WORDS = {
    "module": "model=",
    "data_loader": "loader=",
    "noise_multiplier": _LAW,
    "max_grad_norm": _LAW,
    "poisson_sampling": 'PrivacyEngine(..., sampling="poisson") or "full"',
    "secure_mode": "PrivacyEngine(..., secure=True)",
    "noise_generator": "PrivacyEngine(..., seed=...)",
    "accountant": "engine.account, which every engine has",
    "get_epsilon": "engine.guarantee(delta).epsilon",
    "save_checkpoint": "engine.save(path)",
    "load_checkpoint": "engine.load(path), after make_private",
}


def says_what_to_write(function: Callable[P, R]) -> Callable[P, R]:
    """Returns the function, whose error says what to write where it is called as in Opacus.

    >>> @says_what_to_write
    ... def make_private(model): ...
    >>> make_private(module=3)
    Traceback (most recent call last):
    TypeError: make_private has no argument 'module' as in Opacus: write model=
    """
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        name = function.__qualname__.removesuffix(".__init__")
        for word in kwargs:
            if word not in parameters and word in _WORDS:
                raise TypeError(f"{name} has no argument {word!r} as in Opacus: write {_WORDS[word]}")
        if "mechanism" in parameters and len(args) == 1 and not kwargs:
            raise TypeError(f"{name} needs a mechanism and a clip: write {_LAW}")
        return function(*args, **kwargs)

    return called


def missing(kind: str, name: str) -> AttributeError:
    """Returns the error for an attribute that is not there."""
    if name in _WORDS:
        return AttributeError(f"{kind} has no {name!r} as in Opacus: write {_WORDS[name]}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}")
