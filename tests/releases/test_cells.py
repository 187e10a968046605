"""Cells are public: declared, all combinations; and one person moves at most so many of them."""

import itertools
import math
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.releases.cells import UNITS, Clamped, counts_in, people_in, public_cells, ranks_in, sums_in
from ringfence.releases.reader import open_rows

HALF = Clamped("x", 0.0, 1.0, 0.5, 0.5)

PEOPLE = pandas.DataFrame(
    {"region": ["n", "s", "n"], "smoker": [True, False, True], "age": [17.9, 18.0, 90.0]}
)
REGIONS = {"region": ["n", "s", "w"]}


def in_cells(data: Any, by: list[str], domain: Any = None, bins: Any = None) -> dict[tuple[Any, ...], int]:
    with open_rows(data) as rows:
        cells = public_cells(rows, by, domain, bins)
        people = people_in(rows, cells, None, 1).tolist()
        return dict(zip(zip(*cells.columns.values(), strict=True), people, strict=True))


def test_all_combinations_are_cells() -> None:
    assert in_cells(PEOPLE, ["region", "smoker"], REGIONS) == {
        ("n", False): 0, ("n", True): 2, ("s", False): 1, ("s", True): 0, ("w", False): 0, ("w", True): 0,
    }  # fmt: skip


def test_edges_belong_to_the_bin_above_and_the_last_to_its_own() -> None:
    assert in_cells(PEOPLE, ["age"], bins={"age": [0, 18, 65, 90]}) == {
        ("0 to under 18",): 1,
        ("18 to under 65",): 1,
        ("65 to 90",): 1,
    }
    open_ended = {"age": [-math.inf, 18, math.inf]}
    assert in_cells(PEOPLE, ["age"], bins=open_ended) == {("under 18",): 1, ("18 and over",): 2}
    ages = pandas.DataFrame({"age": [float(age) for age in range(100)]})
    fine = in_cells(ages, ["age"], bins={"age": range(0, 101, 10)})
    assert list(fine.values()) == [10] * 10


def test_a_row_that_lacks_one_value_counts_in_no_sum() -> None:
    frame = pandas.DataFrame({"x": [1.0, 1.0, 1.0, None], "y": [2.0, None, 2.0, 2.0]})
    with open_rows(frame) as rows:
        columns = [Clamped(name, -2.0, 2.0, 0.0, 2.0) for name in ("x", "y")]
        people, sums = sums_in(rows, public_cells(rows, [], missing="drop"), columns, None, 1)
    assert people.tolist() == [2]
    assert (sums / UNITS).flatten().tolist() == [1.0, 2.0]


def test_values_that_are_missing_are_left_out_and_those_that_are_no_numbers_refused() -> None:
    frame = pandas.DataFrame({"id": ["a", "a", "b", "c"], "x": ["1", None, "0", None]})
    for person, wanted in ((None, 2), ("id", 2)):
        with open_rows(frame) as rows:
            cells = public_cells(rows, [], missing="drop")
            assert sums_in(rows, cells, [HALF], person, 1)[0].tolist() == [wanted]
    bad = frame.assign(x=["1", None, "inf", "0"])
    with (
        open_rows(bad) as rows,
        pytest.raises(ValueError, match="column 'x' has the value 'inf', where a fin"),
    ):
        sums_in(rows, public_cells(rows, [], missing="drop"), [HALF], None, 1)


def test_intervals_of_pandas_and_lists_for_one_column() -> None:
    cut = pandas.cut(PEOPLE["age"], [0, 18, 95])
    frame = PEOPLE.assign(age=cut)
    wanted = {("(0, 18]",): 2, ("(18, 95]",): 1}
    assert in_cells(frame, ["age"], {"age": cut.cat.categories}) == wanted
    assert in_cells(frame, ["age"], ["(0, 18]", "(18, 95]"]) == wanted
    assert in_cells(PEOPLE.assign(region=[1, 2, 1]), ["region"], ["1", "2"]) == {("1",): 2, ("2",): 1}
    more = {"region": ["n", "s"], "elsewhere": [1]}  # a file may describe more columns
    assert in_cells(PEOPLE, ["region"], more) == {("n",): 2, ("s",): 1}


def test_the_owner_is_told_whom_at_most_leaves_out() -> None:
    frame = pandas.DataFrame({"who": [1, 1, 1, 2, 3, 3], "ward": [0, 1, 2, 0, 1, 2]})
    for at_most, wanted in ((1, 2), (2, 1), (3, 0)):
        with open_rows(frame) as rows:
            people_in(rows, public_cells(rows, ["ward"], [0, 1, 2]), "who", at_most)
        told = [
            f"People of whom at_most={at_most} leaves something out, who would count more often: {wanted}."
        ]
        assert rows.for_owner == (told if wanted else [])


EDGES = [
    [0, 18, 65, 90],
    [-3.5, 0.5, 18.2, 64.9, 99.5],
    [-math.inf, 18, math.inf],
    [18, 65, math.inf],
    [-math.inf, 0, 30],
    [-math.inf, math.inf],
    [0.2, 0.8],
    [-1e300, 5, 1e300],
]


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8, float])
@pytest.mark.parametrize("edges", EDGES)
def test_whole_numbers_are_in_the_bins_that_their_edges_say(kind: Any, edges: list[float]) -> None:
    """Whole numbers are grouped before they are sorted into bins; numbers beyond the bins stay beyond."""
    values = [-128, -4, -1, 0, 1, 17, 18, 19, 64, 65, 90, 99, 100, 127]
    values = [value for value in values if value >= 0] if kind == np.uint8 else values
    frame = pandas.DataFrame({"x": np.array(values, dtype=kind)})
    bins = list(itertools.pairwise(edges))
    wanted = [
        sum(low <= value < high or (value == high and high == edges[-1]) for value in values)
        for low, high in bins
    ]
    beyond = len(values) - sum(wanted)
    if beyond:
        with pytest.raises(ValueError, match=r"column 'x' has the value -?\d+(\.0)?, which its bins lack"):
            in_cells(frame, ["x"], bins={"x": edges})
        inside = [value for value in values if edges[0] <= value <= edges[-1]]
        frame = pandas.DataFrame({"x": np.array(inside, dtype=kind)})
    if len(frame):
        assert list(in_cells(frame, ["x"], bins={"x": edges}).values()) == wanted


def test_whole_numbers_that_are_missing_are_in_no_bin() -> None:
    frame = pandas.DataFrame({"x": pandas.array([1, None, 5, None], dtype="Int64")})
    with pytest.raises(ValueError, match="column 'x' has a missing value"):
        in_cells(frame, ["x"], bins={"x": [0, 3, 9]})
    with open_rows(frame) as rows:
        cells = public_cells(rows, ["x"], bins={"x": [0, 3, 9]}, missing="category")
        assert people_in(rows, cells, None, 1).tolist() == [1, 1, 2]


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
        (HOLE, ["region"], REGIONS, None, "column 'region' has a missing value: fill it, or give missing="),
        (PEOPLE, ["age"], None, {"age": [0, 80]}, r"column 'age' has the value 90\.0, which its bins lack"),
        (PEOPLE, ["age"], None, {"age": [0, math.nan]}, "an edge of the bins of column 'age' must not"),
        (PEOPLE, ["age"], None, {"age": [9, 0]}, "bins of column 'age' must be two or more rising edges"),
        (PEOPLE, ["age"], {"age": [1]}, {"age": [0, 9]}, "column 'age' must have a domain or bins, got both"),
        (PEOPLE, ["region"], {"region": "ns"}, None, "domain of column 'region' must be a list"),
        (PEOPLE, ["region"], {"region": []}, None, "must hold at least one value"),
        (PEOPLE, ["region"], {"region": ["n", "n"]}, None, "each value once and no NaN, got 'n'"),
        (PEOPLE, ["region"], {"regions": ["n"]}, None, "domain= must list the public values of column 'reg"),
        (PEOPLE, ["age"], {"age": ["18.0"]}, None, r"column 'age' has the value \d+\.\d, which its domain"),
        (PEOPLE, ["region", "smoker"], ["n"], None, "domain must be a dict, got list"),
        (
            PEOPLE.assign(age=math.inf),
            ["age"],
            None,
            [0, math.inf],
            "'age' has the value inf, which its bins",
        ),
        (PEOPLE, ["region", "region"], REGIONS, None, "by must name each column once"),
        (PEOPLE, ["regoin"], REGIONS, None, "by names the column 'regoin', which the table lacks; it has"),
        (PEOPLE, [], REGIONS, None, "by must name the columns that domain describes, got none"),
        (PEOPLE, ["age", "region"], TWO, None, "by must give at most 10,000,000 cells, got 16,000,000"),
    ],
)
def test_what_is_not_public_is_refused(
    data: Any, by: list[str], domain: Any, bins: Any, complaint: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint) as raised:
        in_cells(data, by, domain, bins)
    assert "\n" not in str(raised.value)


CELLS = 6


def visits(seed: int) -> pandas.DataFrame:
    random = np.random.default_rng(seed)
    return pandas.DataFrame(
        {
            "who": random.integers(0, 12, 80),
            "ward": random.integers(0, CELLS, 80),
            "cost": random.normal(0, 60, 80),  # many beyond the limits
        }
    )


def counted(frame: pandas.DataFrame, at_most: int) -> tuple[Tensor, ...]:
    with open_rows(frame) as rows:
        cells = public_cells(rows, ["ward"], {"ward": range(CELLS)})
        people, sums = sums_in(rows, cells, [Clamped("cost", -50.0, 50.0, 0.0, 50.0)], "who", at_most)
        ranks = ranks_in(rows, cells, "cost", [-90, -20, 0, 30, 40], "who", at_most)
        return people_in(rows, cells, "who", at_most), people, sums.flatten(), ranks


@pytest.mark.parametrize("at_most", [1, 2, 3])
def test_persons_count_at_the_candidate_of_their_value_in_whatever_cells_they_are(at_most: int) -> None:
    visits = [[person, ward, 90.0] for person in range(30) for ward in range(2)]
    with open_rows(np.array(visits)) as rows:
        wards = public_cells(rows, [1], {1: [0, 1, 2]})
        ranks = ranks_in(rows, wards, 2, [0, 30, 60, 90], 0, at_most)
    assert ranks.sum(dim=0).tolist() == [0, 0, 0, 30 * min(at_most, 2)]


@pytest.mark.parametrize("at_most", [1, 2, CELLS])
def test_removing_a_person_moves_at_most_so_many_cells_by_one(
    at_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbits", lambda bits: 7)  # the rule is drawn once, for both datasets
    frame = visits(at_most)
    every = counted(frame, at_most)
    assert bool((every[0] == every[1]).all())  # both jobs keep the same cells of each person
    moved = 0
    for who in range(4):
        without = counted(frame[frame["who"] != who], at_most)
        for (now, then), most in zip(zip(every, without, strict=True), (1, 1, UNITS, 1), strict=True):
            change = now - then
            assert int((change != 0).sum()) <= at_most
            assert int(change.abs().max()) <= most
        moved = max(moved, int((every[0] - without[0]).sum()))
    own = frame.groupby("who")["ward"].nunique().loc[:3].max()
    assert moved == min(at_most, own)  # nothing is thrown away that may be kept


def test_all_cells_of_everybody_are_what_pandas_counts() -> None:
    frame = visits(9)
    people, _, sums, _ = counted(frame, CELLS)
    groups = frame.assign(cost=frame["cost"].clip(-50, 50)).groupby(["ward", "who"])["cost"].mean()
    assert people.tolist() == groups.groupby("ward").size().tolist()
    assert (sums / UNITS * 50).tolist() == pytest.approx(groups.groupby("ward").sum().tolist(), abs=1e-2)


def test_which_cells_are_kept_is_left_to_chance() -> None:
    with open_rows(pandas.DataFrame({"who": [1] * CELLS, "ward": range(CELLS)})) as rows:
        cells = public_cells(rows, ["ward"], {"ward": range(CELLS)})
        kept = {int(people_in(rows, cells, "who", 1).argmax()) for _ in range(12)}
    assert len(kept) > 1  # the chance that all twelve are the same is 6^-11


def test_the_order_of_rows_and_the_number_of_files_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbits", lambda bits: 7)
    frame = visits(3)
    frame[40:].to_csv(tmp_path / "a.csv", index=False)
    frame[:40].to_csv(tmp_path / "b.csv", index=False)
    with open_rows(str(tmp_path / "*.csv")) as rows:
        cells = public_cells(rows, ["ward"], {"ward": range(CELLS)})
        people, sums = sums_in(rows, cells, [Clamped("cost", -50.0, 50.0, 0.0, 50.0)], "who", CELLS)
    _, expected, expected_sums, _ = counted(frame, CELLS)
    assert bool((people == expected).all())
    assert bool((sums.flatten() == expected_sums).all())


def test_sums_are_exact_beyond_what_floats_add_up_to() -> None:
    """2^53 units and one more: a sum in float64 would lose the one."""
    with open_rows(pandas.DataFrame({"x": [1.0] * 3 + [1e-6]})) as rows:
        people, sums = sums_in(rows, public_cells(rows, []), [Clamped("x", -1.0, 1.0, 0.0, 1.0)], None, 1)
    assert (people.tolist(), sums.tolist()) == ([4], [[3 * UNITS + 1]])
    assert sums.dtype == torch.int64


@pytest.mark.parametrize("value", [-1, 1.5, float("nan"), 1e16, None])
def test_what_is_no_count_is_refused(value: float) -> None:
    frame = pandas.DataFrame({"ward": [0, 1], "n": [3, value]})
    with open_rows(frame) as rows, pytest.raises(ValueError, match=r"column 'n' must hold counts"):
        counts_in(rows, public_cells(rows, ["ward"], {"ward": [0, 1]}), "n")


@pytest.mark.parametrize("largest", [2.0**53 - 1, 2.0**53])
def test_people_are_not_told_apart_by_numbers_that_are_rounded(largest: float) -> None:
    frame = pandas.DataFrame({"region": ["n", "s"], "id": [1.0, -largest]})
    with open_rows(frame) as rows:
        cells = public_cells(rows, ["region"], REGIONS, None)
        if largest < 2.0**53:
            assert people_in(rows, cells, "id", 1).sum() == 2
            return
        with pytest.raises(ValueError, match="'id' must name people by integers or text, got floating-point"):
            people_in(rows, cells, "id", 1)


def test_rows_without_a_person_or_a_value_are_refused() -> None:
    frame = visits(1)
    with pytest.raises(ValueError, match="column 'who' must name the person of every row, got a missing"):
        counted(frame.assign(who=frame["who"].where(frame.index != 5)), 1)
    with pytest.raises(ValueError, match="column 'cost' has a missing value, where a number is needed"):
        counted(frame.assign(cost=frame["cost"].where(frame.index != 5)), 1)
    with pytest.raises(
        ValueError, match="column 'cost' has the value 'much', where a finite number is needed"
    ):
        counted(frame.assign(cost="much"), 1)
    with pytest.raises(ValueError, match="the table must have at least one row, got none"):
        counted(frame[:0], 1)


def test_one_person_in_each_cell_is_no_table_of_counts_where_nothing_is_counted() -> None:
    frame = pandas.DataFrame({"ward": ["a", "b"], "weight": [61.5, 70.25]})
    assert rf.release_counts(frame, "ward", domain=["a", "b"], sigma=1.0).columns["ward"] == ["a", "b"]
