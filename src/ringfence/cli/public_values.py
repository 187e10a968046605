"""Public values that are typed in the shell: domains, edges of bins, names of columns."""

import json
import tomllib
from pathlib import Path
from typing import Any


def read_domains(given: list[str]) -> dict[str, list[Any]]:
    """The public values of columns: each argument is NAME=VALUE,VALUE or a TOML or JSON file of lists.

    An empty value stands for a missing one.

    >>> read_domains(["region=north,south", "smoker=yes,no,"])
    {'region': ['north', 'south'], 'smoker': ['yes', 'no', None]}
    """
    domains: dict[str, list[Any]] = {}
    for one in given:
        name, equals, values = one.partition("=")
        new = {name: [value or None for value in values.split(",")]} if equals else _domain_file(Path(one))
        for column in new:
            if column in domains:
                raise ValueError(f"--domain must give each column once, got {column!r} twice")
        domains |= new
    return domains


def read_bins(given: list[str]) -> dict[str, list[float]]:
    """The public edges of columns of numbers: each argument is NAME=EDGE,EDGE.

    >>> read_bins(["age=0,18,65,inf"])
    {'age': [0.0, 18.0, 65.0, inf]}
    """
    bins: dict[str, list[float]] = {}
    for one in given:
        name, _, values = one.partition("=")
        try:
            edges = [float(value) for value in values.split(",")]
        except ValueError:
            raise ValueError(f"--bins must be NAME=EDGE,EDGE with numbers as edges, got {one!r}") from None
        if name in bins:
            raise ValueError(f"--bins must give each column once, got {name!r} twice")
        bins[name] = edges
    return bins


def _domain_file(path: Path) -> dict[str, list[Any]]:
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"--domain must be NAME=VALUE,VALUE or a .toml or .json file, got {str(path)!r}")
    try:
        read = tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--domain {path}: {error}") from None
    if not isinstance(read, dict) or not all(isinstance(values, list) for values in read.values()):
        raise ValueError(f"--domain {path} must hold a list of values for each column")
    return read


def read_names(by: str) -> list[str]:
    """Names of columns or of other public things, with commas between them.

    >>> read_names("region, age")
    ['region', 'age']
    """
    return [name.strip() for name in by.split(",") if name.strip()]
