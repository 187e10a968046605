"""Tables of every kind: the same rows, none of which changes another, and the same kind out."""

import csv
import gzip
import io
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow.parquet
import pytest
import torch

import ringfence as rf
from ringfence.releases import reader
from ringfence.releases.reader import MemoryTable, make_table, open_ballots, open_rows

LANGUAGES = ["C", "C#", "Java", '5" disk', ", then", "a\nb", "#", "-", "NULL", "null", "a;b|c\td"]
HONEST = [(str(number), LANGUAGES[number % len(LANGUAGES)]) for number in range(44)]
HOSTILE = [*"#\",;\t|'\\\n\r\0\ufeffé 1C", '""', "\r\n", "NULL", "id"]


def as_csv(rows: list[tuple[str, str]], delimiter: str = ",") -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([("id", "language"), *rows])
    return file.getvalue().encode()


def csv_with_a_raw_line(rows: list[tuple[str, str]]) -> bytes:
    """The last row is a line as somebody wrote it, quotes and all, somewhere in the file."""
    line = ",".join(rows[-1]).replace("\n", "").replace("\r", "") + "\n"
    place = len(line) % 40
    return as_csv(rows[:place]) + line.encode() + as_csv(rows[place:-1]).partition(b"\n")[2]


def as_parquet(rows: list[tuple[str, str]]) -> bytes:
    file = io.BytesIO()
    pandas.DataFrame(rows, columns=["id", "language"]).to_parquet(file)
    return file.getvalue()


FILES: dict[str, tuple[str, Callable[[list[tuple[str, str]]], bytes]]] = {
    "csv": ("t.csv", as_csv),
    "line": ("t.csv", csv_with_a_raw_line),
    "tsv": ("t.tsv", lambda rows: as_csv(rows, "\t")),
    "gz": ("t.csv.gz", lambda rows: gzip.compress(as_csv(rows))),
    "parquet": ("t.parquet", as_parquet),
}
FRAMES: dict[str, Callable[[list[tuple[Any, Any]]], Any]] = {
    "pandas": lambda rows: pandas.DataFrame(rows, columns=["id", "language"]),
    "polars": lambda rows: polars.DataFrame(rows, schema=["id", "language"], orient="row"),
    "pyarrow": lambda rows: pyarrow.table(
        {"id": [row[0] for row in rows], "language": [row[1] for row in rows]}
    ),
}


def hostile_rows(many: int, seed: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    cell = lambda: "".join(draw.choices(HOSTILE, k=draw.randrange(6)))  # noqa: E731
    return [("#300", "Java"), ('"', ""), *((cell(), cell()) for _ in range(many))]


def read_table(data: Any) -> MemoryTable:
    with open_ballots(data) as table:
        return table.read([*table.columns])


def codes_of(code: Callable[[Any], int | None], rule: str = "") -> reader.Codes:
    return partial(reader.code_values, code=code, rule=rule)


def rows_of(data: Any, *names: str) -> list[tuple[Any, ...]]:
    with open_rows(data) as rows:
        found = rows.ask(
            rows.table.select(*(rows.column("by", name) for name in names or ("id", "language")))
        )
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize("kind", [*FILES, *FRAMES])
def test_no_row_changes_those_of_others(kind: str, tmp_path: Path) -> None:
    """Fewer of them where nothing is parsed, or where it is parsed as CSV files are."""
    many, refused = 40 if kind in ("csv", "line") else 10, 0
    for number, row in enumerate(hostile_rows(many, seed=len(kind))):
        rows = [*HONEST, row]
        if kind in FRAMES:
            data = FRAMES[kind](rows)
        else:
            name, write = FILES[kind]
            data = tmp_path / f"{number}{name}"
            data.write_bytes(write(rows))
        try:
            found = Counter(rows_of(data))
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
            continue
        assert not Counter(HONEST) - found, row
        assert found.total() == len(rows), row
    assert refused < (many if kind == "line" else many // 2 if kind in FILES else 1)


@pytest.mark.parametrize("kind", ["csv", "line", "parquet"])
def test_no_ballot_changes_those_of_others(kind: str, tmp_path: Path) -> None:
    """Both shapes: a ballot per person, and a row of counts per query."""
    name, write = FILES[kind]
    for number, row in enumerate(hostile_rows(8, seed=7)):
        data = tmp_path / f"{number}{name}"
        ballots = [("yes", "no"), ("no", "no"), ("yes", "#")] * 5
        data.write_bytes(write([*ballots, (row[0], "yes")]))
        try:
            read = rf.release_winners(data, ["language"], candidates=["yes", "no", "#"], sigma=9.0)
        except ValueError:
            pass
        else:
            assert read.account.details["votes"] == [[1, 10, 5]], row
        counts = [(str(one), str(2 * one)) for one in range(9)]
        data.write_bytes(write([*counts, ("7", row[1])]))
        try:
            read = rf.release_winners(data, sigma=9.0)
        except ValueError:
            continue
        own = Counter((str(int(a)), str(int(b))) for a, b in read.account.details["votes"])
        assert not Counter(counts) - own, row


def test_a_file_stands_for_itself_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "t1.csv").write_text("id,language\n1,C\n")
    (tmp_path / "t[1].csv").write_text("id,language\n2,C\n")  # as a pattern it would be the other file
    assert rows_of(tmp_path / "t[1].csv") == [("2", "C")]
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "t2.csv").write_text("id,language\n3,C\n")
    assert rows_of(str(tmp_path / "**" / "t2.csv")) == [("3", "C")]
    os.symlink(tmp_path / "t1.csv", tmp_path / "soft.csv")
    os.link(tmp_path / "t1.csv", tmp_path / "hard.csv")
    for other in ("t1.csv", "soft.csv", "hard.csv", "../" + tmp_path.name + "/t1.csv", "*1.csv"):
        with pytest.raises(
            ValueError, match=r"each file must be given once, got one of these twice: .*t1\.csv"
        ):
            rows_of([str(tmp_path / "t1.csv"), str(tmp_path / other)])


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", r"t\.csv must begin with a line of names of columns, got none: is it empty\?"),
        (b"\n1,2\n", "must begin with a line of names of columns, got none"),
        (b"id,ID\n1,2\n", r"t\.csv must name each column once, in upper or lower case, got 'id' twice"),
        ("id,language\n1,é\n".encode("latin-1"), "UTF-8 .* got other bytes in line 2: save it as UTF-8"),
        ("id,language\n1,C\n".encode("utf-16"), "UTF-8 .* got other bytes in line 1: save it as UTF-8"),
        (b"id,language\n1,C\n2,C\r\n", "cannot be read: .*t.csv"),
        (b"id,language\n1,C,D\n", r"t\.csv cannot be read: line 2 has 3 instead of 2 cells"),
        (b"id,language\n1,C\n\nsecret\n", r"t\.csv cannot be read: line \d has 1 instead of 2 cells"),
        (b"id,language\n1,C\n" + b"secret" * 500_000 + b",1\n", r"t\.csv cannot be read: line 3 has what is"),
        (b'id,language\nx,"1\n2,",y"\n3,C\n', "must be CSV .* a quote"),  # the second would close the first
        (b'id,language\n3,C\nx,"1\n', "must be CSV .* a quote"),
        (b'id,n,language\n5","C\n2,y,",x"\n3,y,C\n', "must be CSV .* a quote"),  # no opening one to DuckDB
    ],
)
def test_another_dialect_or_a_stray_quote_is_refused(data: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(ValueError, match=complaint) as raised:
        rows_of(tmp_path / "t.csv")
    assert "secret" not in str(raised.value)


def test_the_line_is_named_in_a_large_file_and_folders_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_BLOCK", 64)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    rows = [f"{row},C" for row in range(500)]
    for place in (3, 250, 499):
        rows[place] = f'{place},C"x'
        (tmp_path / "deep" / "er" / "a.csv").write_text("\n".join(["id,language", *rows, ""]))
        with pytest.raises(ValueError, match=f"a quote inside a cell in line {place + 2}$"):
            read_table(str(tmp_path / "**" / "a.csv"))
        rows[place] = f"{place},C"


def test_semicolons_in_the_header_are_the_delimiter(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id;language\n1;"a;b"\n2;c,d\n')
    assert set(rows_of(tmp_path / "t.csv")) == {("1", "a;b"), ("2", "c,d")}


def test_many_files_are_one_table_and_text_stays_text(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text('id,"a ""b"\n007,1\n')
    (tmp_path / "2.csv").write_text('id,"a ""b"\n8,2\n,\n')
    files = str(tmp_path / "*.csv")
    assert set(rows_of(files, "id", 'a "b')) == {("007", "1"), ("8", "2"), (None, None)}
    with open_rows(files) as rows:
        assert rows.text
    assert make_table(rows.kind, {"n": [1, None]}).to_pydict() == {"n": [1, None]}
    for header in ("id", '"a ""b",id', 'id,"A ""b"', 'id;"a ""b"'):
        (tmp_path / "3.csv").write_text(f"{header}\n9,x\n")
        with pytest.raises(ValueError, match=r"same columns in the same order, got .*1\.csv and .*3\.csv"):
            rows_of(files)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["none.csv"], "No such file"),
        (["*.nothing.csv"], "No such file"),
        (["t.xlsx"], r"must end in .*\.parquet, \.pq, got .*: texts are names of files, and a column"),
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
    assert isinstance(raised.value, FileNotFoundError) == (complaint == "No such file")
    assert "\n" not in str(raised.value)


def test_names_that_look_alike_are_told_apart() -> None:
    frame = pandas.DataFrame({"re\u0301gion": ["e\u0301"]})
    looks = r"'r\\xe9gion', which the table lacks; it has 're\\u0301gion', which only looks like 'r\\xe9gion'"
    with pytest.raises(ValueError, match=looks.replace(r"r\\xe9gion', which the", "r\u00e9gion', which the")):
        rf.release_counts(frame, "r\u00e9gion", domain=["\u00e9"], sigma=1.0)
    with pytest.raises(ValueError, match=r"; it has '\\xe9', which only looks like 'e\\u0301'"):
        rf.release_counts(frame, "re\u0301gion", domain=["\u00e9"], sigma=1.0)


def test_an_unknown_column_is_named() -> None:
    with (
        pytest.raises(ValueError, match="by names the column 'z', which the table lacks; it has 'x'"),
        open_rows(pandas.DataFrame({"x": [1]})) as rows,
    ):
        rows.column("by", "z")
    with (
        pytest.raises(ValueError, match="the table cannot be read: Conversion Error"),
        open_rows(pandas.DataFrame({"x": ["one"]})) as rows,
    ):
        rows.ask(rows.table.select(x=rows.table.x.cast("int64")))


def test_cells_with_line_breaks_are_read_by_one_thread_as_they_are(tmp_path: Path) -> None:
    """Threads of DuckDB begin in the middle of a file: here inside a cell that looks like rows."""
    inside = "".join(f"{number},C\n" for number in range(100_000))
    before = [(str(number), "Java") for number in range(650_000)]
    (tmp_path / "t.csv").write_bytes(as_csv([*before, ("x", inside), ("y", "C")]))
    with open_rows(tmp_path / "t.csv") as rows:
        counts = rows.table.aggregate(n=rows.table.count(), c=(rows.table.language == "C").sum())
        assert rows.ask(counts).to_pylist() == [{"n": 650_002, "c": 1}]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({1, 2}, "data must be a frame .* got set"),
        (np.zeros((2, 2, 2)), r"rows and columns, got shape \[2, 2, 2\]"),
        (pandas.DataFrame({"x": [1, "one"]}), "columns of one type each, got a column of several"),
        (
            pandas.DataFrame([[1, 2]], columns=["x", "X"]),
            "the table must name each column once, .* got 'x' tw",
        ),
    ],
)
def test_what_is_no_frame_is_refused(data: object, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        read_table(data)


def test_text_does_not_fit_in_an_array() -> None:
    with pytest.raises(ValueError, match="column 'age' must hold numbers to go into an array"):
        make_table("numpy", {"age": ["0 to 18"]})


@pytest.mark.parametrize("missing", ["ibis", "pyarrow", "duckdb"])
def test_the_extra_is_named_where_a_library_is_missing(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=r"ringfence\[tables\]"):
        rf.release_counts(np.zeros((3, 1)), by=[0], domain={0: [0]}, sigma=1.0)


@pytest.mark.parametrize(
    "data",
    [
        np.ma.array([3, 8_000_000], mask=[0, 1]),
        [np.ma.array([3, 8_000_000], mask=[0, 1])],
        [3, np.ma.masked],
        np.ma.array([[1, 1], [1, 8_000_000]], mask=[[0, 0], [0, 1]]),
    ],
)
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
def test_a_masked_cell_is_not_released(data: Any) -> None:
    with pytest.raises(ValueError, match="data must have no masked cells"):
        rf.release_counts(data, sigma=1.0)
    with pytest.raises(ValueError, match="masked cells"):
        read_table(data)
    plain = np.ma.array([3, 4])
    assert rf.release_counts(plain, sigma=1.0).account.details["cell_values"] == [3, 4]


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
        codes = read_table(data).coded(["c"], codes_of({"a": 0, "b": 1}.get))
        assert codes.tolist() == [[1], [0], [-1], [1]]


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint16, np.float32, np.float64])
def test_arrays_of_small_whole_numbers_are_coded_as_any_others(kind: type, monkeypatch: Any) -> None:
    """By a table, some rows at a time; the codes are those of the values one by one."""
    values = np.random.default_rng(0).integers(0, 5, (1000, 3)).astype(kind)
    codes = {number: 7 - number for number in range(5)}
    quick = read_table(values).coded(["0", "2"], codes_of(codes.get))
    assert quick.dtype == torch.int16
    monkeypatch.setattr(reader, "_HELD", 64)
    assert torch.equal(quick, read_table(values).coded(["0", "2"], codes_of(codes.get)))
    assert quick.tolist() == [[codes[row[0]], codes[row[2]]] for row in values.tolist()]
    values[700, 2] = 9
    with pytest.raises(ValueError, match="column '2' must be small, got 9"):
        read_table(values).coded(["0", "2"], codes_of(codes.get, "must be small"))


@pytest.mark.parametrize("bad", [0.5, np.nan, np.inf, -np.inf, 2.0**40, -65535.0])
def test_numbers_that_are_no_small_integers_are_refused_by_their_value(bad: float) -> None:
    values = np.ones((20, 2))
    values[11, 1] = bad
    with pytest.raises(ValueError, match=f"column '1' must be 1, got {re.escape(repr(float(bad)))}"):
        read_table(values).coded(["0", "1"], codes_of({1: 0}.get, "must be 1"))


def test_rows_of_files_stay_in_order(tmp_path: Path) -> None:
    pandas.DataFrame({"id": range(300_000)}).to_csv(tmp_path / "people.csv", index=False)
    assert read_table(tmp_path / "people.csv").values("id") == [str(row) for row in range(300_000)]


def test_counts_in_files_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("n\n3\n1e3\n")
    assert read_table(tmp_path / "n.csv").counts("n").tolist() == [3, 1000]
