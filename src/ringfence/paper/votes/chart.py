"""Figure 5a as a chart: wrong answers against epsilon, and how many times less the bounded laws cost."""

import math
from collections.abc import Callable, Iterable, Sequence

from ringfence.paper.votes.rows import VotesRow, VotesSettings
from ringfence.report.chart import Chart, Line, Panel

_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_NAMES = {
    "Gaussian": "Gaussian, sign taken afterwards",
    "sign": "sign",
    "rectified": "rectified",
    "truncated": "truncated",
}


def votes_chart(rows: Sequence[VotesRow], settings: VotesSettings) -> Chart:
    """Error against epsilon for few and many questions; the ratio to the Gaussian against the margin.

    >>> from ringfence.paper.votes.rows import votes
    >>> small = VotesSettings(questions=(1,), margins=(0.1,), errors=(0.01,), curve_errors=(0.01,))
    >>> chart = votes_chart(list(votes(small)), small)
    >>> len(chart.panels), chart.panels[0].lines[0].name
    (3, 'Gaussian, sign taken afterwards')
    """
    equal = [row for row in rows if row.comparison == "equal error"]
    few, many = min(settings.questions), max(settings.questions)
    panels = [_errors(equal, settings, questions) for questions in sorted({few, many})]
    panels += [_margins(equal, error, few, many) for error in settings.errors]
    panels.append(_confidence([row for row in rows if row.comparison == "equal noise"], settings, few, many))
    return Chart("votes", "Yes/no votes", _caption(rows, settings), tuple(panels), columns=3)


def _errors(rows: Sequence[VotesRow], settings: VotesSettings, questions: int) -> Panel:
    here = sorted(
        (row for row in rows if row.questions == questions and row.margin == settings.curve_margin),
        key=lambda row: row.error,
    )
    lines = (
        _line(name, (row for row in here if row.mechanism == mechanism), _epsilon, _error, mechanism)
        for mechanism, name in _NAMES.items()
    )
    return Panel(
        title=f"{_count(questions)}, margin {settings.curve_margin:.0%}",
        x_label=f"per-instance ε at δ = {settings.delta:g}",
        y_label="chance of a wrong answer",
        lines=tuple(lines),
        x_log=True,
        y_log=True,
    )


def _margins(rows: Sequence[VotesRow], error: float, few: int, many: int) -> Panel:
    here = [row for row in rows if row.error == error]
    return Panel(
        title=f"Wrong with chance {error:g}",
        x_label="margin",
        y_label="Gaussian's ε over this ε",
        lines=_ratios(here, few, many),
        x_log=True,
        y_from_zero=True,
        reference=1.0,
        reference_name="Gaussian",
    )


def _confidence(rows: Sequence[VotesRow], settings: VotesSettings, few: int, many: int) -> Panel:
    return Panel(
        title=f"Noise fixed beforehand, {_SIGMA} = {settings.sigma:g}",
        x_label="margin",
        y_label="Gaussian's ε over this ε",
        lines=_ratios(rows, few, many),
        y_log=True,
        reference=1.0,
        reference_name="Gaussian",
    )


def _ratios(rows: Sequence[VotesRow], few: int, many: int) -> tuple[Line, ...]:
    lines = [
        _line(
            f"{mechanism}, {_count(questions)}",
            (row for row in rows if (row.mechanism, row.questions) == (mechanism, questions)),
            lambda row: row.margin,
            lambda row: row.ratio,
            mechanism,
            dashed=questions == few and few != many,
        )
        for mechanism in ("sign", "rectified", "truncated")
        for questions in sorted({few, many}, reverse=True)
    ]
    return tuple(line for line in lines if line.x)


def _line(
    name: str,
    rows: Iterable[VotesRow],
    x: Callable[[VotesRow], float],
    y: Callable[[VotesRow], float],
    mechanism: str,
    dashed: bool = False,
) -> Line:
    """A line without the points that a log axis cannot hold: an epsilon of 0, an infinite ratio."""
    points = [(x(row), y(row)) for row in rows]
    points = [point for point in points if all(0 < value < math.inf for value in point)]
    return Line(
        name, tuple(p[0] for p in points), tuple(p[1] for p in points), mechanism=mechanism, dashed=dashed
    )


def _epsilon(row: VotesRow) -> float:
    return row.epsilon


def _error(row: VotesRow) -> float:
    return row.error


def _count(questions: int) -> str:
    return "1 question" if questions == 1 else f"{questions} questions"


def _caption(rows: Sequence[VotesRow], settings: VotesSettings) -> str:
    sentences = [
        f"{settings.voters:,} voters. The sign of the noisy surplus is read, whatever the law; "
        f"δ = {settings.delta:g}, each ε the smallest that is proved. Gaussian, sign and rectified are the "
        f"same release at the same {_SIGMA}: only the account differs. With many questions the ratio at "
        "equal error hardly depends on the margin: a larger one lets everyone add more noise."
    ]
    for questions in settings.questions:
        ranges = [
            f"{min(ratios):.1f} to {max(ratios):.1f} at {error:g}"
            for error in settings.errors
            if (ratios := _signs(rows, questions, error))
        ]
        if ranges:
            sentences.append(
                f"Sign, {_count(questions)}, times less by chance of error: {', '.join(ranges)}."
            )
    sentences.append(
        "With one question a rare wrong answer is a single event; unless its chance is near δ, it gives a "
        "voter away as much as the Gaussian's tail does, and the gain stops. Over many questions it adds up. "
        "Where the noise was fixed beforehand, ε of confident votes falls to 0 at this δ; such points are left out."
    )
    return " ".join(sentences)


def _signs(rows: Sequence[VotesRow], questions: int, error: float) -> list[float]:
    wanted = ("equal error", "sign", questions, error)
    return [row.ratio for row in rows if (row.comparison, row.mechanism, row.questions, row.error) == wanted]
