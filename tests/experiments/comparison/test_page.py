"""Comparisons on a page: first the answer, one number in a cell, and what may be published in its place."""

from pathlib import Path

import pytest

from experiments.comparison.comparison import compare
from experiments.comparison.frontier import by_clip
from experiments.comparison.page import (
    Compared,
    answer_section,
    answer_table,
    comparison_table,
    ratio_table,
    winner_table,
    write_comparison,
)
from experiments.comparison.winner import winner
from tests.experiments.comparison.test_comparison import sweep
from tests.experiments.comparison.test_winner import rows


@pytest.fixture(scope="module")
def data() -> Compared:
    swept = (
        rows("gaussian", 1.0, "norm")
        + rows("sign", 0.2, "norm", everyone=1.5)
        + rows("gaussian", 3.0, everyone=3.0)
    )
    return [compare(own, step=0.01) for own in by_clip(swept)], winner(swept, step=0.01)


def test_the_answer_comes_first_with_one_chart_and_one_table(data: Compared) -> None:
    section = answer_section([data])
    assert section.lead.startswith("Yes for sign with the L2 clip; the least epsilon is sign")
    [why] = section.text
    assert why.startswith("The README says no, for each of its data sets with the L2 clip")
    assert (len(section.charts), len(section.tables)) == (1, 1)
    both = answer_section([data, data])
    assert both.lead.count("toy: Yes") == 2
    assert both.text == (f"toy: {why}",) * 2


def test_one_number_in_a_cell_and_one_line_where_both_statements_agree(data: Compared) -> None:
    table = answer_table(data[1])
    assert table.columns == ("clip", "law", "statement", "45 %", "70 %", "90 %")
    assert table.rows[0] == (
        "L2",
        "sign",
        "per-instance",
        "0.406",
        "1.04",
        "1.63",
    )  # 0.2 * 10 a^2 at 0.45, 0.72, 0.9
    assert ("L2", "Gaussian", "both", "2.03", "5.19", "8.11") in table.rows
    wide = winner_table(data[1])
    assert wide.rows[0][:4] == ("L2", "sign", "per-instance", "0.20")
    assert 0.15 < float(wide.rows[0][4]) <= 0.2 <= float(wide.rows[0][5]) < 0.25
    assert ratio_table(data[0]).rows[0][-1] == "yes"


def test_a_line_for_every_five_percent_that_counts_and_a_column_for_every_mechanism() -> None:
    result = compare(sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6), step=0.01)
    table = comparison_table(result)
    assert table.columns == ("accuracy", "Gaussian", "truncated")
    assert [row[0] for row in table.rows] == [f"{5 * line} %" for line in range(9, 19)]
    assert table.rows[0][1] == "2.03"  # 10 * 0.45^2 = 2.025, rounded up
    assert table.rows[-1][2] == "never"


def test_a_publishable_page_has_what_holds_for_every_dataset_and_names_the_uncharged_choice(
    data: Compared, tmp_path: Path
) -> None:
    page = write_comparison([data], tmp_path / "a.html").read_text()
    public = " ".join(write_comparison([data], tmp_path / "b.html", publishable=True).read_text().split())
    for private in ("per-instance", "0.406", "Yes for sign"):
        assert private in page
        assert private not in public
    assert "2.03" in public
    assert "is not charged" in public
    assert "360 runs were made, and which of them reach an accuracy was read off a validation part" in public
