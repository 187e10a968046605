"""An audit as a table, for the terminal and for the page, and as a chart."""

from collections.abc import Sequence
from statistics import median

from rich.table import Table as TerminalTable

from ringfence.accounting.rounding import rounded_up
from ringfence.audit.reconstruction import ReconstructionResult
from ringfence.audit.result import AuditResult
from ringfence.audit.suite import Audit
from ringfence.report import content
from ringfence.report.chart import Chart, Line, Panel

_COLUMNS = ("attack", "claim", "settings", "confidence", "closest: bound of claim", "median", "result")


def audit_table(audit: Audit) -> TerminalTable:
    """For the terminal: a line for each attack and claim, then the planted flaws."""
    table = TerminalTable(title=_title(audit), title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("attack", "claim", "result") else "right")
    for line in _lines(audit):
        table.add_row(*line)
    return table


def audit_cells(audit: Audit) -> content.Table:
    """The same for a page. Settings are made up or random: nothing in it is sensitive."""
    return content.Table(_title(audit), _COLUMNS, _lines(audit))


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
    looks = ("truncated", "rectified", "Gaussian", "sign")
    lines = [
        Line(name, tuple(x for x, _ in places), tuple(y for _, y in places), mechanism=look, points=True)
        for (name, places), look in zip(points.items(), looks, strict=False)
        if places
    ]
    values = [value for places in points.values() for pair in places for value in pair]
    ends = (min(values), max(values)) if values else (0.1, 1.0)
    lines.append(Line("bound = claim", ends, ends, mechanism="quantized", dashed=True))
    broken = sum(not result.holds for result in results)
    useful = sum(result.epsilon_lower > 0 for result in results)
    caption = (
        f"{len(results):,} attacks; a point is the lower bound on ε that one of them proved, against what "
        f"was claimed. Above the diagonal a claim would be wrong: {broken} are. {len(results) - useful:,} "
        "bounds are 0 and not drawn: too few draws to tell anything apart."
    )
    panel = Panel("", "ε claimed", "ε at least", tuple(lines), x_log=True, y_log=True)
    return Chart("audit", "Attacks against claims", caption, (panel,), columns=1)


def _title(audit: Audit) -> str:
    verdict = "every claim stands, every planted flaw was seen" if audit.holds else "NOT as claimed"
    return f"{len(audit.attacks):,} attacks in {audit.seconds:.0f} s: {verdict}"


def _lines(audit: Audit) -> tuple[tuple[str, ...], ...]:
    lines = []
    for attack, results in (
        ("distinguisher, one release", audit.releases),
        ("the same, more draws", audit.tight),
        ("distinguisher, training run", audit.training),
        ("canaries, one run", audit.canaries),
    ):
        for claim in dict.fromkeys(name for result in results for name in result.claims):
            lines.append(_summary(attack, claim, [result for result in results if claim in result.claims]))
        watched = [result for result in results if result.exceeded is not None]
        if watched:
            lines.append(_ex_post(attack, watched))
    for found in audit.reconstruction:
        share = f"{found.claim / found.variance:.1%}"
        stands = "holds" if found.holds else "WRONG"
        lines.append(
            (
                "reconstruction",
                f"variance >= 1/eta²: {found.name}",
                "1",
                _confidence(found),
                share,
                "",
                stands,
            )
        )
    lines += [_flaw(result) for result in audit.planted]
    return tuple(lines)


def _summary(attack: str, claim: str, results: Sequence[AuditResult]) -> tuple[str, ...]:
    shares = [
        result.epsilon_lower / result.claims[claim] for result in results if result.claims[claim] > 0
    ] or [0.0]
    broken = sum(claim in result.violated for result in results)
    return (
        attack,
        f"epsilon, {claim}",
        f"{len(results):,}",
        _confidence(results[0]),
        f"{max(shares):.1%}",
        f"{median(shares):.1%}",
        f"{broken} WRONG" if broken else "holds",
    )


def _ex_post(attack: str, results: Sequence[AuditResult]) -> tuple[str, ...]:
    shares = [(result.exceeded or 0.0) / result.delta for result in results]
    broken = sum("ex-post" in result.violated for result in results)
    return (
        attack,
        "epsilon, ex-post: exceeded at most with probability delta",
        f"{len(results):,}",
        _confidence(results[0]),
        f"{max(shares):.1%}",
        f"{median(shares):.1%}",
        f"{broken} WRONG" if broken else "holds",
    )


def _flaw(result: AuditResult) -> tuple[str, ...]:
    name, epsilon = min(result.claims.items(), key=lambda claim: claim[1])
    seen = "NOT SEEN" if result.holds else f"seen: epsilon is at least {result.epsilon_lower:.3g}"
    claim = f"epsilon {rounded_up(epsilon)}, {name}: {result.name}"
    return ("planted flaw", claim, "1", _confidence(result), "", "", seen)


def _confidence(result: AuditResult | ReconstructionResult) -> str:
    """Of one setting: where there are many, each has a small share of what may fail."""
    return f"1 - {1 - result.confidence:.2g}"
