"""How far long-running work is, and bars that show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, float], None]  # the name of the part, and the share of it that is done, from 0 to 1


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A progress bar per part for a person at a terminal, and nothing otherwise.

    >>> with progress_bars() as progress:
    ...     progress("votes", 0.5)
    """
    from rich.console import Console  # here: sweeps also run where there is no rich
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=1.0)
            bars.update(tasks[name], completed=share)

        yield show
