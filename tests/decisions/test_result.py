"""The result of a job: what it prints, and what its files say and do not say."""

import csv
import io
import json
import os
import stat
from pathlib import Path

import numpy as np
import pandas
import pytest

import ringfence as rf

PEOPLE = pandas.DataFrame({"region": ["n, e"] * 123 + ["s"] * 7, "sick": [True, False] * 65})


@pytest.fixture(scope="module")
def table() -> rf.DecisionRelease:
    return rf.release_counts(
        PEOPLE, ["region", "sick"], domain={"region": ["n, e", "s"]}, suppress_below=30, sigma=4.0
    )


def test_files(table: rf.DecisionRelease, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        files = table.save(tmp_path / "new" / "folder")
    finally:
        os.umask(old)
    names = ["table.csv", "statement.txt", "chart.png", "chart.pdf", "report.html", "account.json"]
    assert [path.name for path in files] == names
    assert stat.S_IMODE(files[-1].stat().st_mode) == 0o600
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o644
    rows = list(csv.reader(files[0].read_text().splitlines()))
    assert rows[0] == ["region", "sick", "count", "suppressed"]
    assert rows[3] == ["s", "no", "<30", "yes"]
    assert files[1].read_text().startswith(table.statement.public + "\n\n")
    page = files[4].read_text()
    assert table.statement.public in page
    private = json.loads(files[-1].read_text())
    assert private["cell_values"] == [61, 62, 4, 3]
    for sentence in table.statement.sensitive:
        for public in (page, files[1].read_text(), files[0].read_text()):
            assert sentence not in public
    assert "cell_values" not in page


def test_a_table_is_printed_with_its_sentence(table: rf.DecisionRelease) -> None:
    lines = str(table).splitlines()
    assert lines[0].split() == ["region", "sick", "count", "suppressed"]
    assert lines[3].split() == ["s", "no", "<30", "yes"]
    assert lines[-1] == table.statement.public
    long = rf.release_counts(np.zeros(100), sigma=1.0)
    assert "... and 40 rows more" in str(long)


def test_negative_counts_stay_unless_asked_otherwise() -> None:
    table = rf.release_counts(np.zeros(100), sigma=5.0)
    assert bool((table.values < 0).any())
    raised = table.non_negative()
    assert np.array_equal(raised.values, np.maximum(table.values, 0))
    assert raised.statement.public.endswith("Negative counts were set to 0 afterwards.")
    assert bool((table.values < 0).any())


def test_an_account_that_cannot_be_written_leaves_no_table(table: rf.DecisionRelease, tmp_path: Path) -> None:
    (tmp_path / "account.json").mkdir()
    with pytest.raises(OSError, match=r"account\.json"):
        table.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["account.json"]


def test_a_spreadsheet_runs_nothing_of_the_table() -> None:
    names = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "-5", "+3.5", "a=b"]
    frame = pandas.DataFrame({"=name": names})
    table = rf.release_counts(frame, "=name", domain={"=name": names}, sigma=0.05)
    rows = list(csv.reader(io.StringIO(table.csv(), newline="")))
    assert rows[0] == ["'=name", "count"]
    assert [row[0] for row in rows[1:]] == [*(f"'{name}" for name in names[:5]), "-5", "+3.5", "a=b"]
    assert list(table.values["=name"]) == names
    below = rf.release_counts(np.zeros(200), sigma=5.0)
    assert any(line.split(",")[1].startswith("-") for line in below.csv().splitlines())
