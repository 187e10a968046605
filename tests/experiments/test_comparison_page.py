"""Comparisons on a page: first the answer, then one number in a cell."""

import math
from pathlib import Path

import pytest

from experiments.comparison import Banded, Candidate, Comparison
from experiments.comparison_page import (
    Compared,
    answer,
    answer_section,
    clip_chart,
    comparison_table,
    epsilon_table,
    ratio_chart,
    ratio_table,
    write_comparison,
)
from tests.experiments.test_comparison import compare, compare_all, only, sweep
from tests.report.samples import assert_readable

YES, LUCK, WORSE = (0.5, 0.4, 0.6), (0.5, 0.2, 1.9), (2.0, 1.5, 3.0)


def clip(kind: str, *bands: Banded) -> Comparison:
    laws = ("rectified", "truncated", "sign", "quantised")
    others = [Candidate(law, kind, "per-instance", own, ()) for law, own in zip(laws, bands, strict=False)]
    others.append(Candidate("Gaussian, clamped", kind, "per-instance", YES, ()))
    return Comparison("toy", (), others[0], tuple(others), True, 12, 1e-5)


def best(ratio: Banded) -> Comparison:
    reference = Candidate("Gaussian", "norm", "data-independent", (1.0, 1.0, 1.0), ())
    first = Candidate("quantised", "norm", "data-independent", ratio, ())
    return Comparison("toy", (), reference, (first, reference), True, 12, 1e-5)


def test_yes_is_said_law_by_law_and_clip_by_clip() -> None:
    said = answer(Compared([clip("clamp", YES, LUCK), clip("norm", LUCK, WORSE)], best(LUCK)))
    assert said == (
        "Yes for rectified with clamped coordinates, no otherwise; nothing reliably beat the Gaussian with "
        "the L2 clip."
    )
    assert answer(Compared([clip("norm", YES, YES)], best(YES))) == (
        "Yes for every bounded law with the L2 clip; the least epsilon is quantised with the L2 clip, "
        "data-independent."
    )
    assert answer(Compared([clip("norm", LUCK)], best(LUCK))).startswith("No, no bounded law took less")
    nothing = answer(Compared([clip("norm")], best(LUCK)))
    assert nothing == "Nothing was compared: only the Gaussian was tried."


@pytest.mark.parametrize("clamp", [(YES, YES, LUCK, LUCK), (YES,) * 4, (YES, YES, YES, LUCK), (LUCK,) * 4])
@pytest.mark.parametrize("norm", [(LUCK, YES, YES, WORSE), (YES,) * 4, (LUCK,) * 4])
@pytest.mark.parametrize("ratio", [YES, LUCK])
def test_the_answer_has_at_most_thirty_words(
    clamp: tuple[Banded, ...], norm: tuple[Banded, ...], ratio: Banded
) -> None:
    said = answer(Compared([clip("clamp", *clamp), clip("norm", *norm)], best(ratio)))
    assert len(said.split()) <= 30, said
    assert said.count(".") == 1


@pytest.fixture(scope="module")
def data() -> Compared:
    rows = (
        sweep("gaussian", 1.0, clip="norm", everyone=1.0)
        + sweep("sign", 0.2, clip="norm", everyone=1.5)
        + sweep("gaussian", 3.0, everyone=3.0)
    )
    return Compared(compare(rows, step=0.01), compare_all(rows, step=0.01))


def test_the_answer_comes_first_with_one_chart_and_one_table(data: Compared) -> None:
    section = answer_section([data])
    assert section.lead.startswith("Yes for sign with the L2 clip; the least epsilon is sign")
    assert (len(section.charts), len(section.tables)) == (1, 1)
    assert answer_section([data, data]).lead.count("toy: Yes") == 2


def test_one_number_in_a_cell_and_one_line_where_both_statements_agree(data: Compared) -> None:
    table = epsilon_table(data.everything, ratios=False)
    assert table.columns == ("clip", "law", "statement", "45 %", "70 %", "90 %")
    # 0.2 * 10 a^2 at 0.45, 0.72, 0.9
    assert table.rows[0] == ("L2", "sign", "per-instance", "0.406", "1.04", "1.63")
    assert ("L2", "Gaussian", "both", "2.03", "5.19", "8.11") in table.rows
    wide = epsilon_table(data.everything)
    assert wide.rows[0][:4] == ("L2", "sign", "per-instance", "0.20")
    assert 0.15 < float(wide.rows[0][4]) <= 0.2 <= float(wide.rows[0][5]) < 0.25
    assert ratio_table(data.clips).rows[0][-1] == "yes"
    worse = ratio_table(compare(sweep("gaussian", 1.0) + sweep("sign", 3.0)))
    assert worse.rows[0][1:3] + worse.rows[0][-1:] == ("sign", "3.00", "worse")


def test_a_line_for_every_five_percent_that_counts_and_a_column_for_every_mechanism() -> None:
    table = comparison_table(only(sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6), step=0.01))
    assert table.columns == ("accuracy", "Gaussian", "truncated")
    assert [row[0] for row in table.rows] == [f"{5 * line} %" for line in range(9, 19)]
    assert table.rows[0][1] == "2.03"  # 10 * 0.45^2 = 2.025, rounded up
    assert table.rows[-1][2] == "never"


def test_a_page_says_that_it_is_sensitive(data: Compared, tmp_path: Path) -> None:
    page = write_comparison([data], tmp_path / "a.html").read_text()
    for said in ("do not publish this file", "per-instance", "0.406", "Yes for sign"):
        assert said in page


RESULT = only(sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6) + sweep("rectified", 1.5), step=0.01)


def test_the_ratio_has_a_panel_a_data_set_and_a_line_a_law() -> None:
    same = only(sweep("gaussian", 1.0) + sweep("truncated", 1.0), step=0.01)
    chart = ratio_chart([RESULT, same, RESULT])
    assert len(chart.panels) == 2  # nothing is drawn of what is the same
    assert "every law takes what the Gaussian takes: toy, fair search." in chart.details
    assert_readable(chart)
    panel = chart.panels[0]
    assert (panel.title, panel.reference) == ("toy, fair search", 1.0)
    assert [line.name for line in panel.lines] == ["truncated", "rectified"]
    truncated, rectified = panel.lines
    assert max(truncated.x) == pytest.approx(60)  # where it ends
    assert max(rectified.x) == pytest.approx(90)
    assert min(truncated.x) == min(rectified.x) == pytest.approx(45)  # half of the best
    assert truncated.y[0] == pytest.approx(0.5, rel=0.1)
    for line in panel.lines:
        assert all(math.isfinite(value) for value in (*line.x, *line.y, *line.low, *line.high))
    assert "Highest target reached on toy: Gaussian 90 %, truncated 60 %, rectified 90 %." in chart.details


def test_the_clamped_gaussian_is_dashed_and_without_a_band() -> None:
    rows = [row | {"gaussian_epsilon_pdp": 2 * row["epsilon_pdp"]} for row in sweep("rectified", 0.3)]
    [panel] = ratio_chart([only(sweep("gaussian", 1.0) + rows, step=0.01)]).panels
    [line] = [line for line in panel.lines if line.name == "Gaussian, clamped"]
    assert (line.dashed, line.low, line.mechanism) == (True, None, "Gaussian")


def test_colours_are_laws_and_dashes_the_clamp_where_there_are_two_clips(data: Compared) -> None:
    chart = clip_chart([data.everything])
    assert_readable(chart)
    [panel] = chart.panels
    shown = [(line.name, line.dashed, line.in_legend) for line in panel.lines]
    assert ("sign", False, True) in shown
    assert ("Gaussian", True, False) in shown
    assert shown[-1] == ("coordinates clamped", True, True)
    alone = clip_chart([compare_all(sweep("gaussian", 1.0), resamples=20)])
    assert [(line.name, line.dashed) for line in alone.panels[0].lines] == [("Gaussian", False)]
