"""The result of a job: the released table, its errors, its cost, what may be said, and files of it all."""

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from ringfence.decisions.account import ReleaseAccount
from ringfence.decisions.statement import Statement
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, new_folder, replacing
from ringfence.report.chart import Chart

_SHOWN = 60  # rows of a table that is printed


@dataclass(frozen=True)
class DecisionRelease:
    """What a job released. Every job returns one.

    ``values`` and ``errors`` are frames of the kind that came in: what is released, and its standard errors
    or chances of being wrong. Where ``errors_are_sensitive`` they are computed from the private data: no
    file but account.json has them. ``account`` says what the release cost and is sensitive, ``statement`` has
    the words for it. ``columns`` and ``error_columns`` are the same tables as plain data, where a number
    that is not shown is None; ``hidden`` is what is printed in its place. ``like`` makes a frame of columns.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> table = rf.release_counts(np.array([120, 3, 44]), suppress_below=10, epsilon=1.0, delta=1e-6)
    >>> len(table.values), table.account.epsilon <= 1.0, table.statement.public.split(":")[0]
    (3, True, 'These counts are protected by differential privacy (epsilon 1, delta 1e-06) for each person')
    """

    title: str
    columns: Mapping[str, Sequence[Any]]
    error_columns: Mapping[str, Sequence[Any]]
    hidden: str
    numbers: tuple[str, ...]  # the columns that hold what was released
    like: Callable[[Mapping[str, Sequence[Any]]], Any]
    account: ReleaseAccount
    statement: Statement
    drawn: Callable[["DecisionRelease"], Chart]
    settings: tuple[tuple[str, str], ...] = ()
    errors_are_sensitive: bool = False

    @property
    def values(self) -> Any:
        """What was released, as a frame of the kind that came in."""
        return self.like(self.columns)

    @property
    def errors(self) -> Any:
        """How far off it may be, as a frame of the kind that came in; see ``errors_are_sensitive``."""
        return self.like(self.error_columns)

    def chart(self) -> Chart:
        """The release as a chart, which ``ringfence.report`` draws to files and pages."""
        return self.drawn(self)

    def non_negative(self) -> "DecisionRelease":
        """The same release with negative counts set to 0, which makes them too large on average.

        Nothing is released anew: this is computed from what is public already.

        >>> import numpy as np
        >>> import ringfence as rf
        >>> table = rf.release_counts(np.zeros(50), sigma=10.0).non_negative()
        >>> bool((table.values >= 0).all()), table.statement.public.split(". ")[-1]
        (True, 'Negative counts were set to 0 afterwards.')
        """
        if "count" not in self.columns:
            raise TypeError(f"non_negative is for counts, got {self.title!r}")
        counts = [None if value is None else max(value, 0) for value in self.columns["count"]]
        raised = {**self.columns, "count": counts}
        sentence = "Negative counts were set to 0 afterwards."
        return replace(self, columns=raised, statement=self.statement.with_sentence(sentence))

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text, one tuple per row; what is not shown is said in words."""
        columns = [[self._text(name, value) for value in values] for name, values in self.columns.items()]
        return list(zip(*columns, strict=True))

    def csv(self) -> str:
        """The table as the text of a CSV file; a text that spreadsheets would run has a quote before it."""
        file = StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(_no_formula, self.columns))
        writer.writerows(map(_no_formula, row) for row in self.rows())
        return file.getvalue()

    def to_csv(self, path: str | Path) -> Path:
        """Writes the table to a CSV file."""
        return _written(Path(path), self.csv())

    def save(self, folder: str | Path) -> list[Path]:
        """Writes table.csv, statement.txt, chart.png, chart.pdf, report.html, account.json: a new folder.

        Guarantee: what depends on the private data other than through the release is in
        account.json alone, which only its owner may read and which says that it is private.
        """
        from ringfence.report.drawing import save_chart
        from ringfence.report.page import write_report

        details = {**self.account.details, "statement": self.statement.publishable}
        with new_folder(folder) as beside:
            files = [
                self.to_csv(beside / "table.csv"),
                _written(beside / "statement.txt", f"{self.statement.publishable}\n"),
                *save_chart(replace(self.chart(), name="chart"), beside),
                write_report(self._report(), beside / "report.html", publishable=True),
                replace(self.account, details=details).to_json(beside / "account.json"),
            ]
        return [Path(folder) / file.name for file in files]

    def _report(self) -> Any:
        from ringfence import __version__
        from ringfence.report.content import Report, Section, Table

        table = Table(self.title, tuple(self.columns), tuple(self.rows()))
        said = self.statement
        return Report(
            title=self.title,
            summary=(said.public,),
            sections=(
                Section("What was released", charts=(self.chart(),), tables=(table,)),
                Section("What this promises", text=said.promises),
                Section("What this does not promise", text=said.leaves_out),
                Section("What it cost the data at hand", text=said.sensitive, sensitive=True),
            ),
            settings=self.settings,
            versions=(("ringfence", __version__),),
        )

    def _text(self, name: str, value: Any) -> str:
        if value is None:
            return self.hidden if name in self.numbers else ""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float) and math.isfinite(value):
            return f"{value:.6g}"
        return str(value)

    def __str__(self) -> str:
        rows = [tuple(self.columns), *self.rows()[:_SHOWN]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        left = len(self.rows()) - _SHOWN
        lines += [f"... and {left:,} rows more"] if left > 0 else []
        return "\n".join((*lines, "", self.statement.public))


def _no_formula(text: str) -> str:
    """A text with a quote before it where a spreadsheet would run it, as OWASP advises; numbers stay."""
    return re.sub(r"^(?=[=+\-@\t])(?![+-][\d.]+(e[+-]\d+)?$)", "'", text)


def _written(path: Path, text: str) -> Path:
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(text.encode())
    return path
