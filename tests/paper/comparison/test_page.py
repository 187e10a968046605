"""Comparisons on a page: every number of a table is in it, and none of it in a publishable page."""

from pathlib import Path

from ringfence.paper.comparison.comparison import compare
from ringfence.paper.comparison.page import comparison_table, write_comparison
from tests.paper.comparison.test_comparison import sweep


def test_a_line_for_every_five_percent_and_a_column_for_every_mechanism(tmp_path: Path) -> None:
    result = compare(sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6), step=0.01)
    table = comparison_table(result)
    assert table.columns == ("validation", "Gaussian", "truncated")
    assert [row[0] for row in table.rows] == [f"{5 * line}%" for line in range(1, 19)]
    assert table.rows[-1][2] == "never"
    page = write_comparison([result], [], tmp_path / "a.html").read_text()
    public = write_comparison([result], [], tmp_path / "b.html", publishable=True).read_text()
    for cell in (table.rows[8][1], result.sentence[:40]):
        assert cell in page
        assert cell not in public
