"""Cells are public: declared, all combinations, and nothing that only occurs in the data."""

import math
from typing import Any

import pandas
import polars
import pytest

from ringfence.releases.contributions import people_in
from ringfence.releases.domains import public_cells
from ringfence.releases.reader import open_rows

PEOPLE = pandas.DataFrame(
    {"region": ["n", "s", "n"], "smoker": [True, False, True], "age": [17.9, 18.0, 90.0]}
)
REGIONS = {"region": ["n", "s", "w"]}


def counted(data: Any, by: list[str], domain: Any = None, bins: Any = None) -> dict[tuple[Any, ...], int]:
    with open_rows(data) as rows:
        cells = public_cells(rows, by, domain, bins)
        people = people_in(rows, cells, None, 1).tolist()
        return dict(zip(zip(*cells.columns.values(), strict=True), people, strict=True))


def test_all_combinations_are_cells() -> None:
    assert counted(PEOPLE, ["region", "smoker"], REGIONS) == {
        ("n", False): 0, ("n", True): 2, ("s", False): 1, ("s", True): 0, ("w", False): 0, ("w", True): 0,
    }  # fmt: skip


def test_edges_belong_to_the_bin_above_and_the_last_to_its_own() -> None:
    assert counted(PEOPLE, ["age"], bins={"age": [0, 18, 65, 90]}) == {
        ("0 to under 18",): 1,
        ("18 to under 65",): 1,
        ("65 to 90",): 1,
    }
    open_ended = {"age": [-math.inf, 18, math.inf]}
    assert counted(PEOPLE, ["age"], bins=open_ended) == {("under 18",): 1, ("18 and over",): 2}
    ages = pandas.DataFrame({"age": [float(age) for age in range(100)]})
    fine = counted(ages, ["age"], bins={"age": range(0, 101, 10)})
    assert list(fine.values()) == [10] * 10


def test_a_declared_dtype_is_a_domain() -> None:
    frame = polars.DataFrame({"x": polars.Series(["b", None], dtype=polars.Enum(["b", "a"]))})
    assert counted(frame.drop_nulls(), ["x"]) == {("b",): 1, ("a",): 0}
    assert counted(frame, ["x"], {"x": ["b", None]}) == {("b",): 1, (None,): 1}


FREE_TEXT = pandas.DataFrame({"region": ["n", *map(str, range(50))]})


TWO = {"age": range(4000), "region": range(4000)}
HOLE = pandas.DataFrame({"region": ["n", None]})


@pytest.mark.parametrize(
    ("data", "by", "domain", "bins", "complaint"),
    [
        (PEOPLE, ["region"], None, None, "domain= must list the public values of column 'region'"),
        (PEOPLE.astype({"region": "category"}), ["region"], None, None, "domain= must list the public"),
        (PEOPLE, ["region"], {"region": ["n"]}, None, "column 'region' has the value 's', which its domain"),
        (FREE_TEXT, ["region"], {"region": ["n"]}, None, r"column 'region' has the value '\d+', which its"),
        (HOLE, ["region"], REGIONS, None, "column 'region' has a missing value, which its domain lacks: add"),
        (PEOPLE, ["age"], None, {"age": [0, 80]}, r"column 'age' has the value 90\.0, which its bins lacks"),
        (
            PEOPLE,
            ["age"],
            None,
            {"age": [0, math.nan]},
            "an edge of the bins of column 'age' must not be NaN",
        ),
        (PEOPLE, ["age"], None, {"age": [9, 0]}, "bins of column 'age' must be two or more rising edges"),
        (PEOPLE, ["age"], {"age": [1]}, {"age": [0, 9]}, "column 'age' must have a domain or bins, got both"),
        (PEOPLE, ["region"], {"region": "ns"}, None, "domain of column 'region' must be a list"),
        (PEOPLE, ["region"], {"region": []}, None, "must hold at least one value"),
        (PEOPLE, ["region"], {"region": ["n", "n"]}, None, "each value once and no NaN, got 'n'"),
        (
            PEOPLE,
            ["region"],
            {"regions": ["n"]},
            None,
            "domain names the column 'regions', which by does not",
        ),
        (PEOPLE, ["region", "region"], REGIONS, None, "by must name each column once"),
        (PEOPLE, ["county"], {"county": ["n"]}, None, "by names the column 'county', which the table lacks"),
        (PEOPLE, ["age", "region"], TWO, None, "by must give at most 10,000,000 cells, got 16,000,000"),
    ],
)
def test_what_is_not_public_is_refused(
    data: Any, by: list[str], domain: Any, bins: Any, complaint: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint) as raised:
        counted(data, by, domain, bins)
    assert "\n" not in str(raised.value)


def test_a_misspelt_column_is_named_before_the_domain_that_lacks_it() -> None:
    with pytest.raises(ValueError, match="by names the column 'regoin', which the table lacks; it has"):
        counted(PEOPLE, ["regoin"], REGIONS, None)
    with pytest.raises(ValueError, match="'region', which by does not; by names no column"):
        counted(PEOPLE, [], REGIONS, None)
