"""Reads grids from TOML files; the paper's three tables come with the package.

    name = "CIFAR-10"
    mechanisms = ["gaussian", "rectified", "truncated"]
    seeds = [0, 1, 2]
    delta = 1e-5

    [data]         optional: classes, intercept, unit_rows, public_projection = "FILE", and center and scale,
                   or public_statistics = "FILE"
    [paper]        lists of clip, noise_multiplier, bound, learning_rate, steps; optional: levels, norm
    [fair]         optional: settings, seed, validation, clips, and [low, high] of each range

``clips = ["clamp", "norm"]`` searches with L2 clips as well, in the ranges norm, norm_noise_multiplier and
norm_learning_rate; a list ``norm`` does so for the paper's combinations.
``fisher = true`` is optional. The files that it names are in the folder of the TOML file, or below it.
"""

import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.sweep.fair_search import FairSearch
from experiments.sweep.settings import Grid
from ringfence.data.inside import inside

TABLES = {
    "data": (
        *("classes", "intercept", "center", "scale"),
        *("public_statistics", "public_projection", "unit_rows"),
    ),
    "paper": ("clip", "noise_multiplier", "bound", "learning_rate", "steps", "levels", "norm"),
    "fair": tuple(field.name for field in fields(FairSearch)),
}
_TOP = ("name", "mechanisms", "seeds", "delta", "fisher")
_NEEDED = ("name", "mechanisms", "clip", "noise_multiplier", "bound", "learning_rate", "steps")
_NUMBERS = ("clip", "noise_multiplier", "bound", "learning_rate", "norm")
_FILES = ("public_statistics", "public_projection")
_KINDS: dict[str, type] = {
    **{"name": str, "intercept": bool, "unit_rows": bool, "fisher": bool, **dict.fromkeys(_FILES, str)},
    **{"delta": float, "center": float, "scale": float, "classes": int},
}
_ITEMS: dict[str, type] = {
    **{"mechanisms": str, "clips": str, "seeds": int, "steps": int, "levels": int},
    **dict.fromkeys(_NUMBERS, float),
}
_WORDS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


def shipped_grids() -> list[str]:
    """The names of the grids that come with the package.

    >>> shipped_grids()
    ['cifar10', 'cifar100', 'digits', 'pets']
    """
    folder = files("experiments.sweep") / "grids"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir())


def grid_text(name: str) -> str:
    """The TOML of a grid that comes with the package.

    >>> grid_text("digits").splitlines()[1]
    'name = "digits"'
    """
    if name not in shipped_grids():
        raise ValueError(f"grid must be one of {', '.join(shipped_grids())}, got {name!r}")
    return (files("experiments.sweep") / "grids" / f"{name}.toml").read_text(encoding="utf-8")


def read_grid(grid: str | Path) -> Grid:
    """Reads a grid, given the name of one that comes with the package or the path of a TOML file.

    >>> read_grid("pets").clip
    (1e-06, 2e-06, 5e-06)
    """
    if isinstance(grid, str) and grid in shipped_grids():
        return _grid(Path(f"{grid}.toml"), grid_text(grid))
    path = Path(grid)
    if not path.suffix and not path.exists():
        raise ValueError(
            f"grid must be a TOML file or one of {', '.join(shipped_grids())}, got {str(grid)!r}"
        )
    try:
        return _grid(path, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


def _grid(path: Path, text: str) -> Grid:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    tables = {name: content.pop(name, {}) for name in TABLES}
    _known(path, "", content, _TOP)
    values = {key: _value(path, key, content[key]) for key in content}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} must be a table, got {table!r}")
        _known(path, f"{name}.", table, TABLES[name])
        if name != "fair":
            values |= {key: _value(path, f"{name}.{key}", table[key]) for key in table}
    for key in _NEEDED:
        if key not in values:
            raise ValueError(f"{path}: {key if key in _TOP else f'paper.{key}'} is missing")
    for key in _FILES:
        if key in values:
            values[key] = str(inside(path.parent, values[key], f"{path}: data.{key}"))
    try:
        return Grid(**values, fair=_fair(path, tables["fair"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _known(path: Path, prefix: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"{path}: {prefix}{key} is not known; known are {', '.join(known)}")


def _value(path: Path, key: str, value: Any) -> Any:
    name = key.split(".")[-1]
    if name in _KINDS:
        return _typed(path, key, value, _KINDS[name])
    if not isinstance(value, list) or not value:
        raise ValueError(f"{path}: {key} must be a list that is not empty, got {value!r}")
    return tuple(_typed(path, key, item, _ITEMS[name]) for item in value)


def _typed(path: Path, key: str, value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{path}: {key} must be {_WORDS[kind]}, got {value!r}")
    return value


def _fair(path: Path, table: dict[str, Any]) -> FairSearch:
    single: dict[str, type] = {"settings": int, "seed": int, "validation": float}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in single:
            values[key] = _typed(path, f"fair.{key}", value, single[key])
        elif key == "clips":
            values[key] = _value(path, "fair.clips", value)
        elif isinstance(value, list) and len(value) == 2:
            values[key] = tuple(_typed(path, f"fair.{key}", end, float) for end in value)
        else:
            raise ValueError(f"{path}: fair.{key} must be [low, high], got {value!r}")
    try:
        return FairSearch(**values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: fair.{error}") from None
