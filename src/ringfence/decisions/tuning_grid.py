"""The settings that tuning draws from: every combination of lists, given in Python or in a TOML file.

    clip_norm = [0.03, 0.1, 0.3]           and, or instead, clip, for clamped coordinates
    learning_rate = [16, 64, 256, 1024]
    steps = [8, 32]
    momentum = [0.5]

What the file does not name follows from the rule of ``LinearProbe``.
"""

import math
import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ringfence.training.clipping import Norm

TUNED = ("clip", "learning_rate", "steps", "momentum")
_MOST = 10**6  # combinations
_FILE = ("clip", "clip_norm", "learning_rate", "steps", "momentum")


def tuning_settings(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the lists, as arguments of ``LinearProbe``.

    >>> tuning_settings({"steps": [8, 32], "momentum": [0.5]})
    [{'steps': 8, 'momentum': 0.5}, {'steps': 32, 'momentum': 0.5}]
    >>> tuning_settings({"sigma": [1.0]})
    Traceback (most recent call last):
    ValueError: grid must hold lists of clip, learning_rate, steps, momentum, got 'sigma'
    """
    if not isinstance(grid, Mapping):
        raise ValueError(f"grid must be a dict of lists, got {type(grid).__name__}")
    for name, values in grid.items():
        if name not in TUNED:
            raise ValueError(f"grid must hold lists of {', '.join(TUNED)}, got {name!r}")
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"grid[{name!r}] must be a list that is not empty, got {values!r}")
    if not grid:
        raise ValueError("grid must hold a list at least, got none")
    if (count := math.prod(map(len, grid.values()))) > _MOST:
        raise ValueError(f"grid must have at most {_MOST} combinations, got {count}")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def read_tuning_grid(path: Path) -> dict[str, list[Any]]:
    """The lists of a TOML file, as ``tuning_settings`` takes them."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested without end
        raise ValueError(f"{path} is not TOML: {error}") from None
    for name, values in content.items():
        if name not in _FILE:
            raise ValueError(f"{path}: {name} is not known; known are {', '.join(_FILE)}")
        if not isinstance(values, list) or not values:
            raise ValueError(f"{path}: {name} must be a list that is not empty, got {values!r}")
        for value in values:
            whole = name == "steps"
            if type(value) is not int and (whole or type(value) is not float):
                wanted = "integers" if whole else "numbers"
                raise ValueError(f"{path}: {name} must hold {wanted}, got {value!r}")
    norms = [Norm(value) for value in content.pop("clip_norm", [])]
    if norms:
        content["clip"] = [*content.get("clip", []), *norms]
    return content
