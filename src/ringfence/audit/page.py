"""An audit as a table, for the terminal and for the page, and as a chart."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.table import Table as TerminalTable

from ringfence.audit.result import AuditResult
from ringfence.audit.suite import Audit
from ringfence.numerics.rounding import rounded_up
from ringfence.report import content
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.content import installed_versions
from ringfence.report.page import write_report

_COLUMNS = ("attack, and the claim it is against", "settings", "closest", "median", "result")
_FLAW_COLUMNS = ("planted flaw", "epsilon claimed", "epsilon proved", "result")


def audit_tables(audit: Audit) -> tuple[TerminalTable, ...]:
    """The audit for the terminal, 80 columns wide: a line per attack and claim, then the planted flaws."""
    return tuple(_terminal(cells) for cells in audit_cells(audit))


def audit_cells(audit: Audit) -> tuple[content.Table, content.Table]:
    """The audit's tables for a page. Settings are made up or random: nothing in them is sensitive."""
    return (
        content.Table(_title(audit), _COLUMNS, _lines(audit)),
        content.Table("Flaws that attacks must see", _FLAW_COLUMNS, tuple(map(_flaw, audit.planted))),
    )


def audit_section(audit: Audit) -> content.Section:
    """The audit on a page, with what it can and cannot show."""
    text = (
        "Attacks on releases and training runs of made-up data, with the strongest test there is for each, "
        "against the epsilon that is printed for it. closest and median are lower bounds of epsilon as a "
        f"share of the claim; they hold with a confidence of {audit.confidence:.3g}, all together. An audit "
        "can prove a claim wrong, never right. Where a share is above 100 % by no more than the error of "
        "measuring it, the result is called within error: nothing is proved wrong.",
    )
    verdict = "Every claim stands." if audit.claims_hold else "A claim fell."
    return content.Section(
        "Attacks that must fail",
        text,
        (audit_chart(audit.attacks),),
        audit_cells(audit),
        lead=f"{len(audit.attacks):,} attacks on what is claimed. {verdict}",
        folded=True,
    )


def write_audit(audit: Audit, path: Path) -> Path:
    """Writes the audit alone as a page, and returns its path."""
    section = replace(audit_section(audit), folded=False)
    report = content.Report("Audit", (section,), versions=installed_versions())
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_report(report, path)


def audit_chart(results: Sequence[AuditResult]) -> Chart:
    """Every lower bound against the claim it must stay under, which is the diagonal.

    >>> result = AuditResult("", 1e-5, 0.99, 1000, epsilon_lower=0.7, claims={"data-independent": 1.2})
    >>> [line.name for line in audit_chart([result]).panels[0].lines]
    ['data-independent', 'bound = claim']
    """
    names = dict.fromkeys(name for result in results for name in result.claims)
    points = {
        name: [
            (result.claims[name], result.epsilon_lower)
            for result in results
            # on a log scale; a bound of 0 says nothing
            if result.claims.get(name, 0) > 0 and result.epsilon_lower > 0
        ]
        for name in names
    }
    lines = [
        Line(name, tuple(x for x, _ in places), tuple(y for _, y in places), points=True)
        for name, places in points.items()
        if places
    ]
    values = [value for places in points.values() for pair in places for value in pair]
    ends = (min(values), max(values)) if values else (0.1, 1.0)
    lines.append(Line("bound = claim", ends, ends, mechanism="any", dashed=True))
    broken = sum(not result.holds for result in results)
    useful = sum(result.epsilon_lower > 0 for result in results)
    caption = (
        f"{len(results):,} attacks; a point is the lower bound on ε that one of them proved, against what "
        f"was claimed. Above the diagonal a claim would be wrong: {broken} are. {len(results) - useful:,} "
        "bounds are 0 and not drawn: too few draws to tell anything apart."
    )
    panel = Panel("", "ε claimed", "ε at least", tuple(lines), x_log=True, y_log=True)
    return Chart("audit", "Attacks against claims", caption, (panel,), columns=1)


def _terminal(cells: content.Table) -> TerminalTable:
    table = TerminalTable(title=cells.title, title_justify="left")
    for column in cells.columns:
        table.add_column(column, justify="right" if column in ("settings", "closest", "median") else "left")
    for row in cells.rows:
        table.add_row(*row)
    return table


def _title(audit: Audit) -> str:
    verdict = "every claim stands" if audit.claims_hold else "A CLAIM FELL"
    attacks = f"{len(audit.attacks):,} attacks in {audit.seconds:.0f} s"
    return f"{attacks}: {verdict} (confidence {audit.confidence:.3g})"


def _lines(audit: Audit) -> tuple[tuple[str, ...], ...]:
    lines = []
    for attack, results in (
        ("one release", audit.releases),
        ("one release, more draws", audit.tight),
        ("training run", audit.training),
        ("canaries in one run", audit.canaries),
        ("one decision", audit.decisions),
        ("one job", audit.jobs),
    ):
        for claim in dict.fromkeys(name for result in results for name in result.claims):
            own = [result for result in results if claim in result.claims]
            shares = [one.epsilon_lower / one.claims[claim] for one in own if one.claims[claim] > 0]
            broken = sum(claim in result.violated for result in own)
            lines.append(_line(f"{attack}: {claim}", shares or [0.0], len(own), broken))
        watched = [result for result in results if result.exceeded is not None]
        if watched:  # how often the realised loss was above its epsilon, against delta
            shares = [(result.exceeded or 0.0) / result.delta for result in watched]
            broken = sum("ex-post" in result.violated for result in watched)
            lines.append(_line(f"{attack}: ex-post, share of delta", shares, len(watched), broken))
    for found in audit.reconstruction:
        name = f"reconstruction: 1/eta² of variance, {found.name.split('(')[0]}"
        lines.append(_line(name, [found.claim / found.variance], 1, int(not found.holds)))
    return tuple(lines)


def _line(name: str, shares: Sequence[float], settings: int, broken: int) -> tuple[str, ...]:
    above = max(shares) > 1  # but not by more than the error of measuring it
    stands = f"{broken} WRONG" if broken else "within error" if above else "holds"
    return (name, f"{settings:,}", f"{max(shares):.1%}", f"{median(shares):.1%}", stands)


def _flaw(result: AuditResult) -> tuple[str, ...]:
    epsilon = min(result.claims.values())
    seen = "NOT SEEN" if result.holds else "seen"
    return (result.name, rounded_up(epsilon), f"{result.epsilon_lower:.3g}", seen)
