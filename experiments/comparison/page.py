"""Comparisons of sweeps on a page: first the answer, then what it stands on, as sections or as a report."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.comparison.answer import answer, difference
from experiments.comparison.chart import frontier_chart, ratio_chart, winner_chart
from experiments.comparison.comparison import Comparison, ComparisonRow
from experiments.comparison.publication import clip_name, epsilons, publishable_section
from experiments.comparison.winner import Winner
from ringfence.numerics.rounding import rounded_up
from ringfence.report.content import Report, Section, Table, installed_versions
from ringfence.report.page import write_report

Compared = tuple[Sequence[Comparison], Winner]  # of one data set: its laws under each clip, and all together


def write_comparison(data: Sequence[Compared], path: Path, publishable: bool = False) -> Path:
    """Writes a page about sweeps that were compared.

    >>> from tempfile import TemporaryDirectory
    >>> laws = [Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)]
    >>> best = Winner("toy", (0.5,), 0.5, "Gaussian", (), "", delta=1e-5)
    >>> with TemporaryDirectory() as folder:
    ...     write_comparison([(laws, best)], Path(folder) / "report.html").stat().st_size > 0
    True
    """
    report = Report(
        title="Bounded support against the Gaussian mechanism",
        sections=(answer_section(data), comparison_section([one for laws, _ in data for one in laws])),
        settings=tuple(("data", best.data) for _, best in data),
        versions=installed_versions(),
    )
    return write_report(report, path, publishable)


def answer_section(data: Sequence[Compared]) -> Section:
    """One sentence, one chart and one table for each data set: epsilon at three accuracies.

    A publishable page has what holds for every dataset in its place.

    >>> answer_section([([], Winner("toy", (0.5,), 0.5, "Gaussian", (), "", delta=1e-5))]).lead
    'Nothing was compared: only the Gaussian was tried.'
    """
    winners = [best for _, best in data]
    names = [f"{best.data}: " if len(data) > 1 else "" for best in winners]
    said = [(name, answer(*one), difference(one[0])) for name, one in zip(names, data, strict=True)]
    return Section(
        "Did bounded support help?",
        tuple(f"{name}{why}" for name, _, why in said if why),
        (winner_chart(winners),) if winners else (),
        tuple(map(answer_table, winners)),
        sensitive=True,
        in_place=publishable_section(winners),
        lead="\n".join(f"{name}{sentence}" for name, sentence, _ in said),
    )


def comparison_section(results: Sequence[Comparison]) -> Section:
    """Figure 3: ratios, frontiers and the tables of epsilon at equal accuracy, all of them sensitive.

    >>> comparison_section([Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)]).sensitive
    True
    """
    charts = tuple(chart for chart in (ratio_chart(results), frontier_chart(results)) if chart.panels)
    text = tuple(dict.fromkeys(line for one in results for line in one.warnings))
    tables = (ratio_table(results), *map(comparison_table, results))
    return Section(
        "Figure 3: epsilon at equal accuracy",
        text,
        charts,
        tables,
        sensitive=True,
        lead="Law by law under each clip: how many times the Gaussian's epsilon, with bands that show luck.",
        folded=True,
    )


def answer_table(winner: Winner) -> Table:
    """Clip, law, statement and epsilon at three accuracies, the smallest first.

    Where both statements have the same epsilons, one line stands for both.

    >>> answer_table(Winner("toy", (0.5, 0.55), 0.5, "Gaussian", (), "")).columns
    ('clip', 'law', 'statement', '50 %', '55 %')
    """
    wide = winner_table(winner)
    lines = _merged([(*line[:3], *line[6:]) for line in wide.rows])
    title, columns = f"{winner.data}: epsilon by accuracy", (*wide.columns[:3], *wide.columns[6:])
    return replace(wide, title=title, columns=columns, rows=lines)


def winner_table(winner: Winner) -> Table:
    """The same with the median ratio to the reference and the ends of its band: one number in a cell.

    >>> winner_table(Winner("toy", (0.5, 0.55), 0.5, "Gaussian", (), "")).columns[3:6]
    ('times', 'from', 'to')
    """
    places = winner.three()
    lines = [
        (clip_name(one), one.law, one.statement, *map(_shown, one.ratio), *epsilons(one, places))
        for one in winner.candidates
    ]
    accuracies = (f"{100 * winner.targets[place]:.0f} %" for place in places)
    return Table(
        f"{winner.data}: epsilon by accuracy, and the median ratio to {winner.reference}, with its 95 % band",
        ("clip", "law", "statement", "times", "from", "to", *accuracies),
        _merged(lines),
        sensitive=True,
    )


def ratio_table(results: Sequence[Comparison]) -> Table:
    """For each clip and law the median ratio to the Gaussian's epsilon under that clip, and its band.

    >>> medians = (("rectified", (0.3, 0.1, 0.6)),)
    >>> ratio_table([Comparison("toy", "tightest", (), True, "", (), True, 0.5, medians=medians)]).rows
    (('toy', 'rectified', '0.30', '0.10', '0.60', 'yes'),)
    """
    lines = []
    for one in results:
        name = one.data if one.validated else f"{one.data}, chosen on the test split"
        for law, band in one.medians:
            helped = "yes" if band[2] < 1 else "worse" if band[1] > 1 else "no"
            lines.append((name, law, *map(_shown, band), helped))
    return Table(
        "Median ratio to the Gaussian's epsilon, and its 95 % band",
        ("data", "law", "times", "from", "to", "helped"),
        tuple(lines),
        sensitive=True,
    )


def comparison_table(comparison: Comparison) -> Table:
    """Epsilon at equal accuracy: one line for every 5 % of accuracy that counts, one column per mechanism.

    >>> empty = Comparison("toy", "per-instance", (), False, "", (), True, 0.5)
    >>> comparison_table(empty).columns, comparison_table(empty).sensitive
    (('accuracy',), True)
    """
    chosen = "a validation part" if comparison.validated else "the test split"
    names = list(dict.fromkeys(row.mechanism for row in comparison.rows))
    targets = [target for target in dict.fromkeys(row.target for row in comparison.rows)
               if target >= comparison.counts_from]  # fmt: skip
    fives = [target for target in targets if round(1000 * target) % 50 == 0]
    cells = []
    for target in fives or targets:
        own = {row.mechanism: row for row in comparison.rows if row.target == target}
        cells.append((f"{100 * target:.0f} %", *(_cell(own[name]) for name in names)))
    return Table(
        f"{comparison.data}: {comparison.kind} epsilon by accuracy on {chosen}",
        ("accuracy", *names),
        tuple(cells),
        sensitive=True,
    )


def _merged(lines: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """One line for both statements where all their numbers are the same."""
    found: dict[tuple[str, ...], str] = {}
    for clip, law, statement, *numbers in lines:
        key = (clip, law, *numbers)
        found[key] = "both" if key in found else statement
    return tuple((clip, law, statement, *numbers) for (clip, law, *numbers), statement in found.items())


def _cell(row: ComparisonRow) -> str:
    return "never" if row.epsilon is None else rounded_up(row.epsilon, 3)


def _shown(ratio: float) -> str:
    return "∞" if math.isinf(ratio) else f"{ratio:.2f}"
