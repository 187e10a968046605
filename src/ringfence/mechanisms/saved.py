"""Laws as plain data: how a law is found by name, written down and built again."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.law import Law

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def laws_below(face: Any) -> Iterator[Any]:
    """Every class that derives from ``face``.

    Classes defined later come first, so that in a dict none takes over the name of an earlier one.
    """
    for child in reversed(face.__subclasses__()):
        yield from laws_below(child)
        yield child


def plain(law: Law) -> dict[str, Any]:
    """The class, the parameters and the settings of a law, as dicts, lists, numbers and text.

    >>> from ringfence import StochasticSign
    >>> plain(StochasticSign(2.0))["parameters"]
    {'sigma': {'value': 2.0, 'dtype': 'float64'}}
    """
    parameters = {
        name: {"value": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}
        for name, value in law.parameters().items()
    }
    return {"law": type(law).__name__, "parameters": parameters, "settings": law.settings()}


def rebuilt(law: Any, state: dict[str, Any]) -> Any:
    """The law of this class with the parameters and settings that ``plain`` wrote down.

    Whatever is missing, unknown or of the wrong kind is refused by name.
    """
    ends = {"lower", "upper"}
    wanted = {name for key in law.fields() for name in (ends if key == "bound" else {key})}
    settings = checks.mapping("settings", state["settings"])
    given = {**checks.mapping("parameters", state["parameters"]), **settings}
    checks.keys("parameters and settings", given, wanted)
    parameters = {}
    for name, entry in state["parameters"].items():
        checks.keys(f"parameter {name}", entry, {"value", "dtype"})
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
            raise ValueError(f"dtype of {name} must be one of {list(_DTYPES)}, got {entry['dtype']!r}")
        value = checks.real(f"parameter {name}", entry["value"])
        parameters[name] = value.to(_DTYPES[entry["dtype"]])
    return constructed(law, parameters, settings)


def constructed(law: Any, parameters: dict[str, Tensor], settings: dict[str, int]) -> Any:
    """A law of this class. Its constructor takes the two ends of the interval as one bound."""
    arguments: dict[str, Any] = dict(parameters)
    if "lower" in arguments:
        arguments["bound"] = (arguments.pop("lower"), arguments.pop("upper"))
    return law(**arguments, **settings)


def shown(law: Law) -> str:
    """The call that builds the law; of a tensor with several entries, its shape."""
    texts = {
        name: repr(float(value)) if value.numel() == 1 else f"tensor{list(value.shape)}"
        for name, value in law.parameters().items()
    }
    if "lower" in texts:
        texts["bound"] = f"({texts.pop('lower')}, {texts.pop('upper')})"
    texts |= {name: str(value) for name, value in law.settings().items()}
    return f"{type(law).__name__}({', '.join(f'{name}={text}' for name, text in texts.items())})"
