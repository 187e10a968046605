"""The audit on paper: numbers as found, points under the diagonal, flaws named."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ringfence.audit.attacks.reconstruction import ReconstructionResult
from ringfence.audit.page import audit_cells, audit_chart, audit_tables, write_audit
from ringfence.audit.result import AuditResult
from ringfence.audit.suite import Audit
from tests.report.samples import assert_readable


def result(bound: float, **claims: float) -> AuditResult:
    return AuditResult(
        "a law", 1e-3, 0.99, 100, bound, {name.replace("_", "-"): e for name, e in claims.items()}
    )


def audit() -> Audit:
    flaw = AuditResult("accounting for one side only", 1e-3, 0.99, 100, 1.7, {"one-sided": 0.51925})
    training = AuditResult("training", 1e-2, 0.99, 10, 0.5, {"data-independent": 2.0}, exceeded=0.001)
    found = ReconstructionResult("a law", 0.99, 100, variance=2.0, variance_high=2.2, claim=1.9)
    releases = (result(0.5, per_instance=1.0), result(0.3, per_instance=2.0))
    return Audit(releases, (), (training,), (), (found,), (flaw,), 1.5, 0.99)


def test_the_table_holds_the_numbers() -> None:
    console = Console(width=80)
    with console.capture() as text:
        for table in audit_tables(audit()):
            console.print(table)
    shown = text.get()
    assert "3 attacks in 2 s: every claim stands (confidence 0.99)" in shown
    [line] = [line for line in shown.splitlines() if "one release: per-instance" in line]
    assert [cell.strip() for cell in line.split("│")[2:6]] == ["2", "50.0%", "32.5%", "holds"]
    [line] = [line for line in shown.splitlines() if "one side only" in line]
    assert [cell.strip() for cell in line.split("│")[2:5:2]] == ["0.5193", "seen"]
    assert "10.0%" in shown  # ex-post: 0.001 of 0.01
    assert "95.0%" in shown  # 1.9 of 2.0
    assert max(map(len, shown.splitlines())) <= 80


def test_a_share_above_the_claim_within_the_error_of_measuring_is_called_so() -> None:
    found = ReconstructionResult("a law", 0.99, 100, variance=2.0, variance_high=2.2, claim=2.04)
    cells, _ = audit_cells(replace(audit(), reconstruction=(found,)))
    assert cells.rows[-1][2:] == ("102.0%", "102.0%", "within error")


def test_a_broken_claim_is_named() -> None:
    broken = replace(audit(), releases=(result(1.5, per_instance=1.0),))
    cells, flaws = audit_cells(broken)
    assert "A CLAIM FELL" in cells.title
    assert flaws.rows[0][3] == "seen"
    assert "1 WRONG" in cells.rows[0]
    assert not cells.sensitive


def test_the_chart_has_a_point_for_each_bound_above_zero() -> None:
    results = [
        result(0.5, per_instance=1.0),
        result(0.0, per_instance=2.0),
        result(0.3, data_independent=0.9),
    ]
    chart = audit_chart(results)
    names = ("exact", "tight", "profile", "renyi", "per_instance", "data_independent")
    assert_readable(audit_chart([result(0.5, **{name: 1.0}) for name in names]))
    [panel] = chart.panels
    assert {line.name: (line.x, line.y) for line in panel.lines} == {
        "per-instance": ((1.0,), (0.5,)),
        "data-independent": ((0.9,), (0.3,)),
        "bound = claim": ((0.3, 1.0), (0.3, 1.0)),
    }
    assert "3 attacks" in chart.caption
    assert "1 bounds are 0" in chart.caption
    for line in panel.lines[:-1]:
        assert all(low <= claim for claim, low in zip(line.x, line.y, strict=True))


def test_the_page_has_the_table_the_figure_and_what_they_do_not_show(tmp_path: Path) -> None:
    page = write_audit(audit(), tmp_path / "out" / "audit.html").read_text()
    for words in ("Attacks that must fail", "one release: per-instance", "32.5%", "never right"):
        assert words in page
    assert "one side only" in page


def test_nothing_to_draw_is_still_a_chart() -> None:
    assert len(audit_chart([result(0.0, per_instance=1.0)]).panels[0].lines) == 1
