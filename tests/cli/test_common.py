"""What commands print is text as it is."""

import io

import pytest
from rich.table import Table

from ringfence.cli import common


def test_a_name_that_looks_like_markup_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("[b]law", title="[red]toy")
    common.print_table(table)
    shown = capsys.readouterr().out
    assert "[red]toy" in shown
    assert "[b]law" in shown


def test_statements_are_broken_between_words_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    for environment, lines in (("TTY_COMPATIBLE", ["epsilon holds for", "every dataset"]), ("", None)):
        if environment:
            monkeypatch.setenv(environment, "1")
        else:
            monkeypatch.delenv("TTY_COMPATIBLE")
        monkeypatch.setattr("sys.stdout", shown := io.StringIO())
        common.print_statement("epsilon holds for every dataset")
        printed = [line.rstrip() for line in shown.getvalue().splitlines()]
        assert printed == (lines or ["epsilon holds for every dataset"])
