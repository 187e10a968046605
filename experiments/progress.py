"""Progress bars for a person at a terminal."""

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], name: str, total: int | None = None) -> Iterable[Item]:
    """The items, with a progress bar where stderr is a terminal, and without one where there is no rich."""
    try:
        from rich.console import Console
        from rich.progress import track as with_bar
    except ModuleNotFoundError:  # sweeps also run where torch is all there is
        return items
    console = Console(stderr=True)
    return with_bar(items, name, total, console=console, disable=not console.is_terminal)
