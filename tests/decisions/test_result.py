"""The result of a job: what it prints, and what its files say and do not say."""

import csv
import io
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest

import ringfence as rf
from tests.faults.conditions import no_room_beyond

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
    (tmp_path / "release").mkdir()
    for room in (200, 20_000):  # the first files fit, or some of them
        with no_room_beyond(room), pytest.raises(OSError, match="File too large"):
            table.save(tmp_path / "release")
        assert list(tmp_path.rglob("*")) == [tmp_path / "release"]


def test_a_release_is_not_written_over_another_one(table: rf.DecisionRelease, tmp_path: Path) -> None:
    first = {path: path.read_bytes() for path in table.save(tmp_path / "release")}
    with pytest.raises(FileExistsError, match="release must be a new folder or an empty one"):
        table.save(tmp_path / "release")
    assert {path: path.read_bytes() for path in (tmp_path / "release").iterdir()} == first


@pytest.mark.parametrize("seconds", [0.3, 0.7, 1.1])
def test_a_killed_process_leaves_whole_folders(seconds: float, tmp_path: Path) -> None:
    save = (
        "import itertools, numpy, ringfence\n"
        "table = ringfence.release_counts(numpy.arange(9), sigma=4.0)\n"
        "for number in itertools.count(): table.save(f'{number}')\n"
    )
    run = subprocess.Popen([sys.executable, "-c", save], cwd=tmp_path)
    while not (tmp_path / "0").exists():
        time.sleep(0.01)
    time.sleep(seconds)
    run.kill()
    run.wait()
    whole = [path for path in tmp_path.iterdir() if path.suffix != ".tmp"]
    assert whole
    for folder in whole:
        assert len(list(folder.iterdir())) == 6


def test_a_spreadsheet_runs_nothing_of_the_table() -> None:
    names = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "-5", "+3.5", "a=b"]
    frame = pandas.DataFrame({"=name": names})
    table = rf.release_counts(frame, "=name", domain={"=name": names}, sigma=2.0)
    rows = list(csv.reader(io.StringIO(table.csv(), newline="")))
    assert rows[0] == ["'=name", "count"]
    assert [row[0] for row in rows[1:]] == [*(f"'{name}" for name in names[:5]), "-5", "+3.5", "a=b"]
    assert list(table.values["=name"]) == names
    below = rf.release_counts(np.zeros(200), sigma=5.0)
    assert any(line.split(",")[1].startswith("-") for line in below.csv().splitlines())
