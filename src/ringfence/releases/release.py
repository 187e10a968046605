"""The result of every job: the released table, its errors, account, statement, chart and files."""

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ringfence.accounting.guarantee import REPLACED, Guarantee, PerInstance
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, OWNER_ALONE, new_folder, replacing
from ringfence.files.checkpoint import with_checksum
from ringfence.numerics.rounding import rounded_up
from ringfence.releases.budget import Budget
from ringfence.releases.reader import Columns
from ringfence.report.chart import Chart, Line, Panel

# What a row of the data is: a person, one of several rows of a person, a count that was made before, or the
# votes of a teacher who learned from several persons.
RowsAre = Literal["rows", "persons", "aggregated", "teachers"]

_PRIVATE = (
    "private: these numbers are computed from the data. Do not publish this file. Only "
    "epsilon, mu, advantage and the true positive rates hold for every dataset."
)
_MOST_PRINTED = 60  # rows of a table
_MOST_PANELS = 12
_MOST_BARS = 600  # rows of a table that are drawn: no eye tells more of them apart


class Measured(NamedTuple):
    """The cost of a release to the data at hand. All of it is sensitive.

    ``proofs`` are proofs of a per-instance epsilon other than Rényi sums, as pairs of an epsilon and a name.
    ``details`` are further numbers as plain data, and ``sentences`` say what they mean.
    """

    cost: PrivacyLoss
    proofs: tuple[tuple[float, str], ...] = ()
    details: Mapping[str, Any] = {}
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleaseAccount:
    """The cost of a release. All of it but ``epsilon`` and ``delta`` is sensitive.

    ``epsilon`` holds for every dataset and may be published. What the release cost the data at hand is
    computed when it is first asked for: ``per_instance.epsilon`` is the smallest per-instance epsilon that is
    proved, by a tight profile or by Rényi sums, ``per_instance.proof`` names the proof, ``details`` has
    further numbers as plain data, such as the epsilon of each cell, and ``statement`` says it in words.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> account = rf.release_counts(np.array([120, 3]), suppress_below=30, epsilon=1.0, delta=1e-6).account
    >>> account.delta, account.per_instance.epsilon <= account.epsilon <= 1.0
    (1e-06, True)
    >>> account.to_json()[:13]
    '{"private": "'
    """

    promised: PrivacyLoss  # for every dataset
    delta: float
    measure: Callable[[], Measured] | None = field(default=None, repr=False)  # None: everybody pays the same
    adaptive: bool = False  # whether what was asked may depend on earlier answers

    @cached_property
    def promise(self) -> Guarantee:
        """The claim that holds for every dataset, computed without the data: it may be published."""
        return self.promised.guarantee(self.delta)

    @property
    def epsilon(self) -> float:
        """The epsilon of ordinary differential privacy, for every dataset: it may be published."""
        return self.promise.epsilon

    @property
    def replaced(self) -> bool:
        """Whether neighbours differ in the values of a person, and not in whether the person takes part."""
        return self.promised.change == REPLACED

    @cached_property
    def _measured(self) -> Measured:
        return Measured(self.promised) if self.measure is None else self.measure()

    @property
    def cost(self) -> PrivacyLoss:
        """The promised loss with the Rényi sums for the data at hand."""
        return self._measured.cost

    @property
    def details(self) -> Mapping[str, Any]:
        """Further numbers as plain data."""
        return self._measured.details

    @cached_property
    def guarantee(self) -> Guarantee:
        """The promise with the numbers of the data at hand.

        Guarantee: where the release was ``adaptive``, the Rényi sums prove the ex-post epsilon alone, and the
        per-instance epsilon is that of every dataset.
        """
        claim = self.cost.guarantee(self.delta).with_proofs(*self._measured.proofs)
        if not self.adaptive:
            return claim
        every = self.promise.per_instance
        own = replace(claim.per_instance, epsilon=every.epsilon, proof=every.proof, every_dataset=True)
        return replace(claim, per_instance=own)

    def plus(self, further: PrivacyLoss) -> "ReleaseAccount":
        """The account of this release and a further Gaussian one, which tight proofs do not know."""
        return replace(self, promised=self.promised + further, measure=partial(_with_further, self, further))

    @property
    def per_instance(self) -> PerInstance:
        """The numbers that are computed from the data and must not be published."""
        return self.guarantee.per_instance

    def to_json(self, path: str | Path | None = None, **more: Any) -> Any:
        """The account as JSON with its checksum, or written to a file for its owner alone: then the path.

        ``more`` is written beside the numbers.
        """
        numbers = {**self.guarantee.as_dict(), **self.details, **more}
        text = with_checksum({"private": _PRIVATE, **numbers, "cost": self.cost.state()})
        if path is None:
            return text
        with replacing(path, mode=OWNER_ALONE) as file:
            file.write(f"{text}\n".encode())
        return Path(path)

    @property
    def statement(self) -> str:
        """The per-instance numbers in words, one sentence a line, for the owner of the data alone."""
        own = self.per_instance
        change = (
            "the values of any one person replaced" if self.replaced else "it plus or minus any one person"
        )
        first = (
            f"For this dataset, and with {change}, the release is "
            f"({rounded_up(own.epsilon)}, {self.delta:.3g})-indistinguishable (proved by: {own.proof}). By "
            f"Rényi sums epsilon is {rounded_up(own.renyi_epsilon)}, and for every dataset it is "
            f"{rounded_up(self.epsilon)}."
        )
        asked = (
            "What was asked may depend on earlier answers, where the Rényi sums are an estimate: the privacy "
            f"loss of this run is at most {rounded_up(own.ex_post_epsilon)}, except with probability "
            f"{self.delta:.3g}."
        )
        return "\n".join((first, *([asked] if self.adaptive else ()), *self._measured.sentences))


def _with_further(account: ReleaseAccount, further: PrivacyLoss) -> Measured:
    return account._measured._replace(cost=account.cost + further, proofs=())


@dataclass(frozen=True)
class Statement:
    """The words that belong to a release, in the order in which a reader needs them. All may be published.

    ``public`` is the one sentence to print under the table. The words about what the release cost the data at
    hand are ``Release.account.statement``, which must not be published.

    >>> print(Statement("Noise was added.", ("One person.",), ("Two people.",)))
    Noise was added.
    <BLANKLINE>
    What this promises
    - One person.
    <BLANKLINE>
    What this does not promise
    - Two people.
    """

    public: str
    promises: tuple[str, ...]
    leaves_out: tuple[str, ...]

    def __str__(self) -> str:
        parts = ("What this promises", self.promises), ("What this does not promise", self.leaves_out)
        lists = ("\n- ".join((heading, *sentences)) for heading, sentences in parts)
        return "\n\n".join((self.public, *lists))


def _attack(account: ReleaseAccount, person: str) -> str:
    """The meaning of the guarantee for an attacker who wants to know something about one person."""
    found = rounded_up(min(100.0, 100 * account.promise.true_positive_rate(1e-3)))
    change, about = (
        "added or removed",
        f"whether somebody is in the data, and accepts one false alarm in 1,000, finds at most {found} % of "
        "those who are",
    )
    if account.replaced:
        change, about = (
            "whose values are replaced by any others",
            "which of two values somebody has, and takes one for the other in one case of 1,000, finds at "
            f"most {found} % of those who have the other",
        )
    return (
        f"For every dataset, the release satisfies ({rounded_up(account.epsilon)}, {account.delta:.3g})-"
        f"differential privacy for any one {person} {change}: an attacker who tries to tell from it {about}, "
        "even knowing everybody else."
    )


@dataclass(frozen=True)
class Source:
    """Public facts about the data that a job has read, and ``for_owner``: sentences for its owner alone.

    ``keys`` tell the rows of its table apart, and ``like`` makes a frame of the kind that came in. One person
    counts in ``at_most`` units, or in all of them.
    """

    keys: Columns
    like: Callable[[Columns], Any]
    rows_are: RowsAre
    at_most: int | None
    for_owner: Sequence[str] = ()

    def release(
        self,
        account: ReleaseAccount,
        budget: Budget,
        chart: Chart,
        released: Columns,
        errors: Columns | None,
        law: object,
        *,
        method: str,
        public: str,
        units: str = "groups",
        data: str = "data",
        hidden: str = "suppressed",
        coverage: float | None = None,
        promises: Sequence[str] = (),
        leaves_out: Sequence[str] = (),
    ) -> "Release":
        """The release of a table from this data and its chart.

        Its statement has the sentences of every job, and ``promises`` and ``leaves_out`` of this one. The
        first word of the chart's title and ``data`` name what comes out and what went in. One person counts
        in some of the ``units``, once in each. ``method`` says what was done, and ``public`` names what must
        not have been chosen by looking at the data. ``coverage`` is that of intervals, where there are some.
        Privacy numbers are rounded up.
        """
        name = chart.title.split()[0].lower()
        shown = account.epsilon if budget.epsilon is None else budget.epsilon
        person = "person (each row is taken as one person)" if self.rows_are == "rows" else "person"
        testing = " Fixed seed: for testing, not a private release." if budget.noise.seeded else ""
        covered, missed = "", tuple[str, ...]()
        if coverage is not None:
            covered = f"; the intervals have a coverage of {coverage:.3g}"
            missed = (
                "The chance over the noise that a number is shown with an interval that misses the true one "
                f"is at most {1 - coverage:.2g}, whatever the data.",
            )
        once, own = f"at most once in each of the {units}", ""
        if self.at_most is not None:
            once = f"in at most {self.at_most:,} of the {units}, at most once in each"
            own = ": in which of them depends on that person alone"
        bounded = {
            "rows": f"Each row is taken as one person, who counts {once}: a person with several rows is "
            "protected less.",
            "persons": f"Each person counts {once}{own}.",
            "aggregated": f"The counts came aggregated: each person must have been counted {once}.",
            "teachers": "The records of one person must be in the part of the data of one teacher alone, and "
            "which part that is must not depend on other people: then one person changes the votes of one "
            "teacher. A person whose records several teachers learned from is protected less.",
        }
        said = Statement(
            f"These {name} are protected by differential privacy (epsilon {rounded_up(shown)}, delta "
            f"{account.delta:.3g}) for each {person}: {method}{covered}.{testing}",
            (
                _attack(account, person),
                bounded[self.rows_are],
                f"{public} are public. They must not have been chosen by looking at the {data}.",
                *missed,
                *promises,
            ),
            (
                f"It is about one person at a time: what a large group has in common shows in the {name}.",
                f"Every further release from the same {data} costs its own epsilon, and the epsilons add up.",
                f"Sampling, non-response and errors in the {data} are not accounted for: errors and "
                "intervals are those of the noise alone.",
                *leaves_out,
            ),
        )
        counted = "all" if self.at_most is None else f"at most {self.at_most:,}"
        settings = (("law", repr(law)), (f"{units} of one person", counted))
        table = (chart, self.keys, released, errors, hidden, self.like, account, said)
        return Release(*table, settings, tuple(self.for_owner))


Heights = Sequence[float | None]


def bars(
    name: str, heights: Heights, low: Heights | None = None, high: Heights | None = None, gray: bool = False
) -> Line:
    """Bars, one for each row of a table (None: no bar), with whiskers from low to high.

    ``gray`` and hatched ones stand for what is not shown.

    >>> bars("count", [5, None]).y
    (5, nan)
    """
    x, y, bottom, top = (
        tuple(math.nan if end is None else end for end in ends or ())
        for ends in (range(len(heights)), heights, low, high)
    )
    look = ("any" if gray else "rectified", gray)
    return Line(name, x, y, bottom or None, top or None, *look, bars=True)


def bar_chart(
    title: str, caption: str, y_label: str, lines: Sequence[Line], rows: Columns, one_scale: bool = True
) -> Chart:
    """One panel, or one for each value of the first column of ``rows`` where there are several columns.

    ``rows`` tell the bars apart. With ``one_scale`` all panels have the same.

    >>> places = {"region": ["north", "north", "south"], "age": ["young", "old", "young"]}
    >>> chart = bar_chart("t", "c", "count", [bars("count", [10, 3, None])], places)
    >>> [panel.title for panel in chart.panels], chart.panels[0].x_label, chart.panels[0].x_names
    (['region: north', 'region: south'], 'age', ('young', 'old'))
    """
    names = list(rows)
    labels = [
        tuple("missing" if value is None else str(value) for value in row)
        for row in zip(*rows.values(), strict=True)
    ] or [()]
    if len(labels) > _MOST_BARS:
        caption = f"The first {_MOST_BARS} of {len(labels):,} rows. {caption}"
        labels = labels[:_MOST_BARS]
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, label in enumerate(labels):
        groups.setdefault(label[:1], []).append(row)
    apart = len(names) > 1 and 1 < len(groups) <= _MOST_PANELS
    ends = [end for own in lines for each in (own.y, own.low, own.high) for end in each or ()]
    panels = [
        Panel(
            title=f"{names[0]}: {first[0]}" if apart else title,
            x_label=", ".join(names[apart:]),
            y_label=y_label,
            lines=tuple(_part(own, places) for own in lines),
            y_from_zero=True,
            y_also=tuple(ends) if one_scale else (),
            x_names=tuple(", ".join(labels[row][apart:]) for row in places),
        )
        for first, places in (groups.items() if apart else [((), range(len(labels)))])
    ]
    return Chart("chart", title, caption, tuple(panels), columns=3)


def _part(line: Line, places: Sequence[int]) -> Line:
    y, low, high = (
        None if ends is None else tuple(ends[place] for place in places)
        for ends in (line.y, line.low, line.high)
    )
    return replace(line, x=tuple(range(len(places))), y=y or (), low=low, high=high)


def interval_chart(
    title: str, y_label: str, released: Columns, rows: Columns, coverage: float | None, one_scale: bool = True
) -> Chart:
    """Bars as high as the first column says, with ``low`` and ``high`` as whiskers where they are there."""
    caption = "" if coverage is None else f"Whiskers are the intervals of coverage {coverage:.3g}."
    heights, *_ = released.values()
    line = bars(y_label, heights, released.get("low"), released.get("high"))
    return bar_chart(title, caption, y_label, [line], rows, one_scale)


@dataclass(frozen=True)
class Release:
    """The result of a release job.

    ``values`` and ``errors`` are frames of the kind that came in: what is released, and its standard errors
    or chances of being wrong. Where ``errors_are_sensitive`` they are computed from the private data: no
    file but account.json, in a private folder, has them. ``account`` is the cost of the release and
    sensitive, ``statement`` has the words for it. ``columns`` and ``error_columns`` are the same tables as
    plain data: ``keys`` tell the rows apart, and a number that is not shown is None; ``hidden`` is what is
    printed in its place. ``like`` makes a frame of columns. ``private`` are sentences for the owner of the
    data, which no file has.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> table = rf.release_counts(np.array([120, 3, 44]), suppress_below=10, epsilon=1.0, delta=1e-6)
    >>> len(table.values), table.account.epsilon <= 1.0, table.statement.public.split(":")[0]
    (3, True, 'These counts are protected by differential privacy (epsilon 1, delta 1e-06) for each person')
    """

    drawn: Chart = field(repr=False)
    keys: Columns
    released: Columns
    public_errors: Columns | None  # None: chances of error, which the account has
    hidden: str
    like: Callable[[Columns], Any]
    account: ReleaseAccount
    statement: Statement
    settings: tuple[tuple[str, str], ...] = ()
    private: tuple[str, ...] = ()

    @property
    def columns(self) -> Columns:
        """The released table as plain data."""
        return {**self.keys, **self.released}

    @property
    def error_columns(self) -> Columns:
        """How far off it may be, as plain data; see ``errors_are_sensitive``."""
        if self.public_errors is None:
            return {**self.keys, "chance_of_error": self.account.details["chances_of_error"]}
        return {**self.keys, **self.public_errors}

    @property
    def errors_are_sensitive(self) -> bool:
        """Whether errors are computed from the private data, and must not be published."""
        return self.public_errors is None

    @property
    def values(self) -> Any:
        """The released table as a frame of the kind that came in."""
        return self.like(self.columns)

    @property
    def errors(self) -> Any:
        """How far off it may be, as a frame of the kind that came in; see ``errors_are_sensitive``."""
        return self.like(self.error_columns)

    def chart(self) -> Chart:
        """The release as a chart, which ``ringfence.report`` draws to files and pages."""
        return self.drawn

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text, one tuple per row; what is not shown is said in words."""
        columns = [[self._text(name, value) for value in values] for name, values in self.columns.items()]
        return list(zip(*columns, strict=True))

    @property
    def table(self) -> Columns:
        """All that may be published: what was released, and its standard errors and intervals."""
        return self.columns if self.errors_are_sensitive else {**self.columns, **self.error_columns}

    def to_csv(self, path: str | Path) -> Path:
        """Writes the table with its errors to a CSV file: what is not shown is an empty cell.

        A text that spreadsheets would run has a quote before it.
        """
        columns = ([self._cell(name, value) for value in values] for name, values in self.table.items())
        return _write_csv(Path(path), [tuple(self.table), *zip(*columns, strict=True)])

    def wide_to_csv(self, path: str | Path) -> Path:
        """Writes what was released as a cross-table: the first key column down, the second across.

        >>> import numpy as np
        >>> import ringfence as rf
        >>> from tempfile import TemporaryDirectory
        >>> table = rf.release_counts(np.array([[900, 800], [700, 600]]), epsilon=1.0)
        >>> with TemporaryDirectory() as folder:
        ...     table.wide_to_csv(Path(folder) / "wide.csv").read_text().split()[0]
        'dimension'
        """
        if len(self.keys) != 2:
            raise ValueError(f"a cross-table must have 2 key columns, got {', '.join(self.keys) or 'none'}")
        heights = next(iter(self.released.values()))
        numbers = dict(zip(zip(*self.keys.values(), strict=True), heights, strict=True))
        down, across = map(dict.fromkeys, self.keys.values())
        rows = [(a, *(numbers.get((a, b)) for b in across)) for a in down]
        header = (next(iter(self.keys)), *across)
        return _write_csv(Path(path), [tuple(map(_written, row)) for row in (header, *rows)])

    def save(self, folder: str | Path, private: str | Path | None = None) -> list[Path]:
        """Writes table.csv, statement.txt, chart.png and report.html, which may be published: a new folder.

        A table with two key columns is written as a cross-table too, table_wide.csv. ``private`` is another
        new folder, for account.json: what the release cost the people in the data.

        Guarantee: nothing in ``folder`` depends on the private data other than through the release. Only its
        owner may read account.json, which says that it is private.
        """
        from ringfence.report.drawing import save_chart
        from ringfence.report.page import write_report

        folder, own = Path(folder), None if private is None else Path(private)
        check_apart(folder, own)
        with ExitStack() as folders:
            beside = folders.enter_context(new_folder(folder))
            files = [
                self.to_csv(beside / "table.csv"),
                *([self.wide_to_csv(beside / "table_wide.csv")] if len(self.keys) == 2 else []),
                _write(beside / "statement.txt", f"{self.statement}\n"),
                *save_chart(self.chart(), beside, kinds=("png",)),
                write_report(self._report(), beside / "report.html"),
            ]
            paths = [folder / file.name for file in files]
            if own is not None:
                apart = folders.enter_context(new_folder(own))
                self.account.to_json(apart / "account.json", statement=str(self.statement))
                paths.append(own / "account.json")
        return paths

    def _report(self) -> Any:
        from ringfence import __version__
        from ringfence.report.page import Report, Section, Table

        table = Table(self.drawn.title, tuple(self.columns), tuple(self.rows()))
        said = self.statement
        return Report(
            title=self.drawn.title,
            summary=(said.public,),
            sections=(
                Section("What was released", charts=(self.chart(),), tables=(table,)),
                Section("What this promises", text=said.promises),
                Section("What this does not promise", text=said.leaves_out),
            ),
            settings=self.settings,
            versions=(("ringfence", __version__),),
        )

    def _cell(self, name: str, value: Any) -> str:
        """A value for programs; a decision that was not made is a result, and said in words."""
        unmade = value is None and name in self.released and "suppressed" not in self.released
        return self.hidden if unmade else _written(value)

    def _text(self, name: str, value: Any) -> str:
        if value is None:
            return "missing" if name in self.keys else self.hidden
        return _written(value, "," if name in self.released else "")

    def __str__(self) -> str:
        every = self.rows()
        rows = [tuple(self.columns), *every[:_MOST_PRINTED]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        more = len(every) - _MOST_PRINTED
        lines += [f"... and {more:,} rows more"] if more > 0 else []
        return "\n".join((*lines, "", self.statement.public))


def several_rows(source: Source) -> tuple[str, ...]:
    """The sentence about rows with values, where a person may have several."""
    return ("Several rows of a person in a group count as their mean.",) * (source.rows_are == "persons")


def check_apart(folder: Path, private: Path | None) -> None:
    """Refuses a private folder that is the public one, in it, or around it.

    >>> check_apart(Path("release"), Path("release/private"))
    Traceback (most recent call last):
    ValueError: private must be a folder apart from 'release', got 'release/private'
    """
    if private is not None:
        public, hidden = folder.resolve(), private.resolve()
        if public in (hidden, *hidden.parents) or hidden in public.parents:
            raise ValueError(f"private must be a folder apart from {str(folder)!r}, got {str(private)!r}")


def _no_formula(text: str) -> str:
    """A text with a quote before it where a spreadsheet would run it, as OWASP advises; numbers stay."""
    return re.sub(r"^(?=[=+\-@\t])(?![+-][\d.]+(e[+-]\d+)?$)", "'", text)


def _written(value: Any, separator: str = "") -> str:
    """A value as text, empty where there is none; the separator of thousands is for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:{separator}.6g}" if abs(value) < 1e6 else f"{value:{separator}.0f}"
    return f"{value:{separator}}" if isinstance(value, int) else str(value)


def _write_csv(path: Path, rows: Iterable[Sequence[str]]) -> Path:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_no_formula, row) for row in rows)
    return _write(path, text.getvalue())


def _write(path: Path, text: str) -> Path:
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(text.encode())
    return path
