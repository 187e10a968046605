"""Arguments and methods of Opacus, and the ones to write instead."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")

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


def answers_opacus(kind: type[T]) -> type[T]:
    """The class, whose errors say what to write where it is used as the engine of Opacus.

    >>> @answers_opacus
    ... class Engine:
    ...     def make_private(self, model): ...
    >>> Engine().make_private(module=3)
    Traceback (most recent call last):
    TypeError: Engine.make_private has no argument 'module' as in Opacus: write model=
    >>> Engine().get_epsilon(1e-5)
    Traceback (most recent call last):
    AttributeError: Engine has no 'get_epsilon' as in Opacus: write engine.guarantee(delta).epsilon
    """

    def missing(self: Any, name: str) -> Any:
        if name in _WORDS:
            raise AttributeError(f"{kind.__name__} has no {name!r} as in Opacus: write {_WORDS[name]}")
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")

    for name in {"__init__", "make_private", "make_private_with_epsilon"} & vars(kind).keys():
        setattr(kind, name, _says_what_to_write(vars(kind)[name]))
    kind.__getattr__ = missing  # type: ignore[attr-defined]
    return kind


def _says_what_to_write(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = function.__qualname__.removesuffix(".__init__")
        for word in kwargs:
            if word in _WORDS:
                raise TypeError(f"{name} has no argument {word!r} as in Opacus: write {_WORDS[word]}")
        if function.__name__ == "__init__" and not args and not kwargs:
            raise TypeError(f"{name} needs a mechanism and a clip: write {_LAW}")
        return function(self, *args, **kwargs)

    return called
