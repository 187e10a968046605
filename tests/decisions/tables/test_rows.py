"""Rows of frames and of files."""

from pathlib import Path

import pandas
import pyarrow.parquet
import pytest

from ringfence.decisions.tables.rows import open_rows


def test_many_files_are_one_table_and_text_stays_text(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text('id,"a ""b"\n007,1\n')
    (tmp_path / "2.csv").write_text('"a ""b",id\n2,8\n,\n')
    with open_rows(str(tmp_path / "*.csv")) as rows:
        column = rows.column("by", 'a "b')
        assert rows.ask(f"SELECT id, {column} FROM rows ORDER BY ALL") == [
            ("007", "1"),
            ("8", "2"),
            (None, None),
        ]
        assert rows.text
        made = rows.like({"n": [1, None]})
    assert made.to_pydict() == {"n": [1, None]}


def test_parquet_and_frames_give_the_same_rows(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"x": [1.5, float("nan")], "y": ["a", None]})
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), tmp_path / "t.parquet")
    for data in (frame, tmp_path / "t.parquet", [str(tmp_path / "t.parquet")]):
        with open_rows(data) as rows:
            assert rows.ask("SELECT x, y FROM rows ORDER BY ALL") == [(1.5, "a"), (None, None)]
            assert rows.ask(f"SELECT {rows.numbers('of', 'y')} FROM rows") == [(None,), (None,)]


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["none.csv"], "No such file"),
        (["*.nothing.csv"], "No such file"),
        (["t.xlsx"], r"must end in .*\.parquet, \.pq, got"),
        (["t.csv", "t.parquet"], "all CSV or all parquet, got both"),
        (["t.parquet"], "the files cannot be read: .*"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(names: list[str], complaint: str, tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet", "t.xlsx"):
        (tmp_path / name).write_text("x\n1\n")
    with (
        pytest.raises((ValueError, FileNotFoundError), match=complaint) as raised,
        open_rows([str(tmp_path / name) for name in names]),
    ):
        pass
    assert "\n" not in str(raised.value)


def test_an_unknown_column_is_named() -> None:
    with (
        pytest.raises(ValueError, match="by names the column 'z', which the table lacks; it has 'x'"),
        open_rows(pandas.DataFrame({"x": [1]})) as rows,
    ):
        rows.column("by", "z")
    with (
        pytest.raises(ValueError, match="the table cannot be read: "),
        open_rows(pandas.DataFrame({"x": [1]})) as rows,
    ):
        rows.ask("SELECT nothing FROM rows")
