"""Looks: mechanisms can be told apart, and no chart asks for a look that does not exist."""

import pytest

from ringfence.audit.page import audit_chart
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.looks import looks, looks_by
from tests.audit.test_page import audit as small_audit
from tests.report.samples import everything


def test_mechanisms_differ_in_colour_and_in_marker() -> None:
    names = ("Gaussian", "rectified", "truncated", "sign", "quantised")
    by_name = looks(everything())
    assert len({by_name[name].color for name in names}) == len({by_name[name].point for name in names}) == 5


def test_what_is_no_mechanism_gets_a_look_of_its_own() -> None:
    lines = tuple(Line(name, (), ()) for name in ("empty cells", "small cells", "large cells", "sign"))
    by_name = looks(Chart("", "", "", (Panel("", "", "", lines),)))
    assert len({by_name[looks_by(line)] for line in lines}) == 4


def test_a_look_that_does_not_exist_is_refused_by_name() -> None:
    """The diagonal of the audit's chart asked for "quantized", and silently got another look."""
    line = Line("bound = claim", (), (), mechanism="quantized")
    with pytest.raises(ValueError, match=r"line 'bound = claim' must be one of .*, got 'quantized'"):
        looks(Chart("", "", "", (Panel("", "", "", (line,)),)))


def test_the_audit_asks_for_looks_that_exist() -> None:
    looks(audit_chart(small_audit().attacks))
