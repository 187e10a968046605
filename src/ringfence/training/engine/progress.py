"""A progress bar for a person at a terminal: step, loss and epsilon so far."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ringfence import checks
from ringfence.training.engine.run import StepReport

_SHARE = 20  # at most one part in so many of the time goes into computing epsilon


class StepProgress:
    """Shows steps, loss and the data-independent epsilon while a model trains; silent without a terminal.

    Give it to ``PrivacyEngine(on_step=...)``. The epsilon is the one that may be published, because what a
    terminal shows ends up in logs. The loss comes from private data.

    >>> with StepProgress(steps=10, delta=1e-5) as progress:
    ...     progress.shown
    False
    """

    def __init__(self, steps: int, delta: float, console: Console | None = None) -> None:
        self.delta = checks.probability("delta", delta)
        own = Console(stderr=True) if console is None else console
        self._console = checks.instance("console", own, Console)
        self.shown = self._console.is_terminal
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  epsilon {task.fields[epsilon]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self.shown,
        )
        total = checks.count("steps", steps, at_least=1)
        self._task = self._progress.add_task("", total=total, loss="-", epsilon="-")
        self._next = 0.0

    def __call__(self, report: StepReport) -> None:
        """Shows a step."""
        if not self.shown:
            return
        fields: dict[str, Any] = {"loss": "-" if report.loss is None else f"{report.loss:.4f}"}
        start = time.monotonic()
        if start >= self._next or report.steps >= (self._progress.tasks[0].total or 0):
            fields["epsilon"] = f"{report.guarantee(self.delta).epsilon:.4g}"
            self._next = time.monotonic() + _SHARE * (time.monotonic() - start)
        self._progress.update(self._task, completed=report.steps, **fields)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
