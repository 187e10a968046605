"""Sheets: the same columns, whatever they come in."""

from pathlib import Path

import pandas
import polars

from ringfence.decisions.ballots.sheet import read_sheet


def test_categories_text_and_missing_values(tmp_path: Path) -> None:
    column = ["b", "a", None, "b"]
    frames = [
        pandas.DataFrame({"c": pandas.Categorical(column)}),
        pandas.DataFrame({"c": column}),
        polars.DataFrame({"c": column}, schema={"c": polars.Enum(["a", "b"])}),
        polars.concat([polars.DataFrame({"c": column[:2]}), polars.DataFrame({"c": column[2:]})]),
    ]
    (tmp_path / "c.csv").write_text('c\nb\na\n""\nb\n')
    for data in (*frames, tmp_path / "c.csv", [tmp_path / "c.csv"]):
        codes = read_sheet(data).coded("c", {"a": 0, "b": 1}.get, -1, "")
        assert codes.tolist() == [1, 0, -1, 1]


def test_rows_of_files_stay_in_order(tmp_path: Path) -> None:
    pandas.DataFrame({"id": range(300_000)}).to_csv(tmp_path / "people.csv", index=False)
    assert read_sheet(tmp_path / "people.csv").names("id") == [str(row) for row in range(300_000)]


def test_counts_in_files_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("n\n3\n1e3\n")
    assert read_sheet(tmp_path / "n.csv").counts("n").tolist() == [3, 1000]
