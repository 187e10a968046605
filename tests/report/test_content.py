"""What is in a report, and in a publishable one."""

import pytest

from ringfence.report.content import (
    Report,
    Section,
    Table,
    installed_versions,
    publishable_part,
    sensitive_parts,
)
from tests.report.samples import everything, full_report


def test_the_publishable_part() -> None:
    report = full_report()
    assert sensitive_parts(report) == 3
    public = publishable_part(report)
    assert sensitive_parts(public) == 0
    assert [section.heading for section in public.sections] == ["Figures", "Bounds", "What is promised"]
    assert "secret" not in repr(public)
    assert "0.12345" not in repr(public)


def test_what_stands_in_place_must_itself_be_publishable() -> None:
    inner = Section("still private", sensitive=True)
    with pytest.raises(ValueError, match="'still private' is given in place of a sensitive one"):
        publishable_part(Report("", (Section("private", sensitive=True, in_place=inner),)))
    chart = everything(sensitive=True)
    emptied, text = Section("b", charts=(chart,)), Section("c", ("Text.",), (chart,))
    public = publishable_part(Report("", (Section("a", sensitive=True, in_place=text), emptied)))
    assert [(section.heading, section.charts) for section in public.sections] == [("c", ())]


def test_a_report_of_which_nothing_may_be_published_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nothing of the report 'mine' may be published.*sections \(2\)"):
        publishable_part(Report("mine", (Section("a", sensitive=True), Section("b", sensitive=True))))


def test_versions_are_those_of_the_packages() -> None:
    assert {"Python", "ringfence", "torch"} <= dict(installed_versions()).keys()


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="a row of table 't' must have 2 cells, got 1"):
        Table("t", ("a", "b"), (("1",),))
    with pytest.raises(ValueError, match="section 'open' has a section in its place but is not sensitive"):
        Section("open", in_place=Section("other"))
