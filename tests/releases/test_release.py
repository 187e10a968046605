"""The result of a job: its words, its chart, and what its files say and do not say."""

import csv
import itertools
import json
import math
import os
import re
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import ringfence as rf
from ringfence.releases.budget import Budget
from ringfence.releases.release import ReleaseAccount, RowsAre, Source, Statement
from ringfence.report.chart import Chart
from tests.faults.conditions import no_room_beyond
from tests.forks import forked
from tests.report.samples import assert_readable

PEOPLE = pandas.DataFrame({"region": ["n, e"] * 123 + ["s"] * 7, "sick": [True, False] * 65})


@pytest.fixture(scope="module")
def table() -> rf.Release:
    return rf.release_counts(
        PEOPLE, ["region", "sick"], domain={"region": ["n, e", "s"]}, suppress_below=30, sigma=4.0
    )


def test_files(table: rf.Release, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        files = table.save(tmp_path / "new" / "folder", private=tmp_path / "own")
    finally:
        os.umask(old)
    names = ["table.csv", "table_wide.csv", "statement.txt", "chart.png", "report.html"]
    assert [path.name for path in files] == [*names, "account.json"]
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {*names}
    for inside in ("release", "release/own", "."):
        with pytest.raises(ValueError, match="private must be a folder apart from"):
            table.save(tmp_path / "release", private=tmp_path / inside)
    assert stat.S_IMODE(files[-1].stat().st_mode) == 0o600
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o644
    rows = list(csv.reader(files[0].read_text().splitlines()))
    assert rows[0] == ["region", "sick", "count", "suppressed", "standard_error", "low", "high"]
    assert rows[3] == ["s", "no", "", "yes", "", "", ""]
    assert float(rows[1][5]) < float(rows[1][2]) < float(rows[1][6])
    wide = list(csv.reader(files[1].read_text().splitlines()))
    assert wide == [["region", "no", "yes"], ["n, e", rows[1][2], rows[2][2]], ["s", "", ""]]
    assert files[2].read_text().startswith(table.statement.public + "\n\n")
    page = files[4].read_text()
    assert table.statement.public in page
    assert "<img" in page
    private = json.loads(files[-1].read_text())
    assert private["cell_values"] == [61, 62, 4, 3]
    for sentence in table.account.statement.splitlines():
        for public in (page, files[2].read_text(), files[0].read_text()):
            assert sentence not in public
    assert "cell_values" not in page
    far = pandas.DataFrame({"x": [2e9] * 300, "y": 0.5})
    sums = rf.release_sums(far, ["x", "y"], lower=[0, 0], upper=[2e9, 1], epsilon=1.0)
    text = sums.save(tmp_path / "far", private=tmp_path / "its")[0].read_text()
    assert "e+" not in text
    assert re.search(r"\b\d{3}\.\d", text)


def test_a_table_is_printed_with_its_sentence(table: rf.Release) -> None:
    lines = str(table).splitlines()
    assert lines[0].split() == ["region", "sick", "count", "suppressed"]
    assert lines[3].split() == ["s", "no", "<30", "yes"]
    assert lines[-1] == table.statement.public
    long = rf.release_counts(np.zeros(100), sigma=1.0)
    assert "... and 40 rows more" in str(long)
    assert re.fullmatch(r"\d,\d{3},\d{3}", rf.release_counts(np.array([2e6]), sigma=9.0).rows()[0][-1])


def test_an_account_that_cannot_be_written_leaves_no_table(table: rf.Release, tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    for room in (200, 20_000):  # the first files fit, or some of them
        with no_room_beyond(room), pytest.raises(OSError, match="File too large"):
            table.save(tmp_path / "release")
        assert list(tmp_path.rglob("*")) == [tmp_path / "release"]


def test_a_release_is_not_written_over_another_one(table: rf.Release, tmp_path: Path) -> None:
    first = {path: path.read_bytes() for path in table.save(tmp_path / "release")}
    with pytest.raises(FileExistsError, match="release must be a new folder or an empty one"):
        table.save(tmp_path / "release")
    assert {path: path.read_bytes() for path in (tmp_path / "release").iterdir()} == first


def save_without_end(folder: Path) -> None:
    table = rf.release_counts(np.arange(9), sigma=4.0)
    for number in itertools.count():
        table.save(folder / f"{number}")


def test_a_killed_process_leaves_whole_folders(tmp_path: Path) -> None:
    run = forked(save_without_end, tmp_path)
    while not (tmp_path / "0").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    run.kill()
    run.join()
    whole = [path for path in tmp_path.iterdir() if path.suffix != ".tmp"]
    assert whole
    for folder in whole:
        assert len(list(folder.iterdir())) == 4


def test_a_spreadsheet_runs_nothing_of_the_table(tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "-5", "+3.5", "a=b"]
    frame = pandas.DataFrame({"=name": names})
    table = rf.release_counts(frame, "=name", domain={"=name": names}, sigma=2.0)
    with table.to_csv(tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:2] == ["'=name", "count"]
    assert [row[0] for row in rows[1:]] == [*(f"'{name}" for name in names[:5]), "-5", "+3.5", "a=b"]
    assert list(table.values["=name"]) == names
    below = rf.release_counts(np.zeros(200), sigma=5.0).to_csv(tmp_path / "below.csv")
    assert any(line.split(",")[1].startswith("-") for line in below.read_text().splitlines())


def stated(
    account: ReleaseAccount, rows_are: RowsAre = "rows", at_most: int | None = 1, **budget: Any
) -> Statement:
    words = {"units": "queries", "method": "noise was added", "public": "Queries"}
    asked = Budget.checked(**{"epsilon": None, "delta": account.delta, **budget})
    chart = Chart("chart", "Counts", "", ())
    source = Source({}, dict, rows_are, at_most)
    return source.release(account, asked, chart, {}, (), None, **words).statement


def test_privacy_numbers_are_rounded_up_and_targets_printed_as_they_are() -> None:
    account = rf.release_counts(np.ones(3), epsilon=1 / 3, delta=1e-6).account
    for target, said in ((1 / 3, "0.3334"), (1.0, "1")):
        assert f"(epsilon {said}, delta 1e-06)" in stated(account, epsilon=target).public
    found = stated(account, sigma=1.0).public.split("(epsilon ")[1].split(",")[0]
    assert float(found) >= account.epsilon


def test_who_is_protected_against_what() -> None:
    account = rf.release_counts(np.ones(3), sigma=4.0).account
    replaced = rf.release_votes(np.ones((3, 1)), sigma=4.0, neighbours="replaced").account
    for own, word in ((account, "added or removed"), (replaced, "replaced by any others")):
        said = stated(own, sigma=4.0).promises[0]
        assert word in said
        assert float(said.split("at most ")[1].split()[0]) >= 100 * own.guarantee.true_positive_rate(1e-3)
    assert "protected less" in stated(account, sigma=4.0).promises[1]
    for at_most, once in ((2, "in at most 2 of the queries"), (None, "once in each of the queries")):
        assert once in stated(account, "aggregated", at_most, sigma=4.0).promises[1]
    assert "Fixed seed: for testing" in stated(account, sigma=4.0, seed=0).public
    assert "seed" not in str(stated(account, sigma=4.0))


def test_panels_share_their_axis_and_hidden_numbers_are_gray() -> None:
    table = rf.release_counts(np.array([[100, 2], [3, 40]]), suppress_below=20, sigma=2.0)
    chart = table.chart()
    assert [panel.title for panel in chart.panels] == ["dimension 0: 0", "dimension 0: 1"]
    shown, gray = chart.panels[0].lines
    assert (math.isnan(shown.y[0]), math.isnan(shown.y[1])) == (False, True)
    assert (math.isnan(gray.y[0]), gray.y[1]) == (True, 20.0)
    assert gray.name == "below 20, not shown"
    assert chart.panels[0].y_also == chart.panels[1].y_also
    assert shown.high is not None
    assert shown.high[0] - shown.y[0] == 4
    assert (shown.dashed, gray.dashed) == (False, True)
    assert_readable(chart)


def test_columns_of_their_own_scale_have_panels_of_their_own() -> None:
    people = pandas.DataFrame({"region": ["n", "s"] * 500, "age": [20, 60] * 500, "euros": [30_000] * 1000})
    how = {"by": "region", "domain": ["n", "s"], "lower": 0, "upper": [100, 90_000], "epsilon": 9.0}
    for job in (rf.release_means, rf.release_sums):
        panels = job(people, ["age", "euros"], **how).chart().panels
        assert [(panel.title, panel.x_names, panel.y_also) for panel in panels] == [
            ("column: age", ("n", "s"), ()),
            ("column: euros", ("n", "s"), ()),
        ]


def test_what_no_eye_can_read_is_not_drawn() -> None:
    assert "The first" not in rf.release_counts(np.ones(600), sigma=4.0).chart().caption
    chart = rf.release_counts(np.ones(6000), sigma=4.0).chart()
    assert chart.caption.startswith("The first 600 of 6,000 rows.")
    assert [len(line.y) for line in chart.panels[0].lines] == [600]
