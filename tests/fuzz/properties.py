"""Properties that run twice: with few examples in the tests, with very many in ``python -m tests.fuzz``."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True)
class Property:
    """What holds for every case that ``strategies`` make. ``share``: thousands in a run of 100,000 or so."""

    surface: str
    function: Callable[..., None]
    strategies: dict[str, SearchStrategy[Any]]
    share: float

    @property
    def name(self) -> str:
        return self.function.__name__.removeprefix("test_").replace("_", " ")


PROPERTIES: list[Property] = []


def fuzzed(
    surface: str,
    share: float,
    few: int,
    known: Mapping[str, SearchStrategy[Any]] | None = None,
    **own: SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test of ``few`` examples, and remembers the property for the long run.

    Arguments without a strategy of their own have the one that is ``known`` by their name.
    """

    def remember(function: Callable[..., None]) -> Callable[..., None]:
        every = {**(known or {}), **own}
        strategies = {name: every[name] for name in inspect.signature(function).parameters}
        PROPERTIES.append(Property(surface, function, strategies, share))
        return settings(max_examples=few)(given(**strategies)(function))

    return remember
