"""Looks and files."""

from pathlib import Path

import pytest

from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.figures import looks, looks_by, save
from ringfence.report.paper_chart import paper_figure
from tests.report.samples import everything


def test_mechanisms_differ_in_colour_and_in_marker() -> None:
    names = ("Gaussian", "rectified", "truncated", "sign", "quantised")
    by_name = looks(everything())
    assert len({by_name[name].color for name in names}) == len({by_name[name].point for name in names}) == 5


def test_what_is_no_mechanism_gets_a_look_of_its_own() -> None:
    lines = tuple(Line(name, (), ()) for name in ("empty cells", "small cells", "large cells", "sign"))
    by_name = looks(Chart("", "", "", (Panel("", "", "", lines),)))
    assert len({by_name[looks_by(line)] for line in lines}) == 4


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc/passwd"])
def test_a_name_does_not_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name must be a file name"):
        save(paper_figure(everything()), tmp_path, name)
