"""The same messy data on every engine and in every kind of table: identical true numbers for every job."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas
import polars
import pyarrow.parquet
import pytest
import torch

import ringfence as rf
from ringfence.releases import ballots
from ringfence.releases.cells import UNITS, Clamped, public_cells, sums_in
from ringfence.releases.reader import engine_table, open_rows
from tests import postgresql

WARDS = ["North", "a, b", 'quo"ted', "line\nbreak", "NULL", "é", "007", None]
AGES = [0.0, 17.9, 18.0, 64.999, 65.0, 90.0]
ANSWERS = [1, -1, 0, None]
PETS = ["cat", "dog", "C#", None]
DRAW = np.random.default_rng(5)
PEOPLE = 240


def some(values: list[Any]) -> list[Any]:
    return [values[number] for number in DRAW.integers(0, len(values), PEOPLE)]


# Persons have several rows; `name` names each row once.
MESSY: dict[str, list[Any]] = {
    "name": [f"p{number}" for number in range(PEOPLE)],
    "person": [int(number) for number in DRAW.integers(0, 60, PEOPLE)],
    "ward": some(WARDS),
    "smoker": some([True, False]),
    "age": some(AGES),
    "euros": [float(value) for value in DRAW.normal(0, 80, PEOPLE).round(3)],
    "tree": some(ANSWERS),
    "car": some(ANSWERS),
    "pet": some(PETS),
    "friend": some(PETS),
    "foe": some(PETS),
    "left": [int(number) for number in DRAW.integers(0, 1000, PEOPLE)],
    "right": [int(number) for number in DRAW.integers(0, 1000, PEOPLE)],
}
NUMBERS = ["person", "age", "euros"]  # what an array can hold
ARROW = pyarrow.table(MESSY)


def in_csv(folder: Path) -> str:
    half = PEOPLE // 2
    for number, part in enumerate((ARROW[:half], ARROW[half:])):
        frame = part.to_pandas(types_mapper={pyarrow.int64(): pandas.Int64Dtype()}.get)
        frame["smoker"] = frame["smoker"].map({True: "true", False: "false"})
        frame.to_csv(folder / f"{number}.csv", index=False)
    return str(folder / "*.csv")


def in_parquet(folder: Path) -> Path:
    pyarrow.parquet.write_table(ARROW, folder / "people.parquet")
    return folder / "people.parquet"


def in_duckdb(folder: Path) -> Any:
    engine = ibis.duckdb.connect()
    engine.con.register("people", ARROW)
    return engine.table("people")


def in_sqlite(folder: Path) -> Any:
    engine = ibis.sqlite.connect()
    kinds = {name: str(kind) for name, kind in ibis.memtable(ARROW).schema().items()}
    engine.create_table("people", schema=kinds)
    marks = ", ".join("?" * len(MESSY))
    engine.con.executemany(f"INSERT INTO people VALUES ({marks})", zip(*MESSY.values(), strict=True))
    return engine.table("people").cast({"smoker": "boolean"})


def relation(folder: Path) -> Any:
    import duckdb

    return duckdb.connect().from_arrow(ARROW)


def in_pandas(folder: Path) -> pandas.DataFrame:
    return ARROW.to_pandas(types_mapper={pyarrow.int64(): pandas.Int64Dtype()}.get)


KINDS: dict[str, Callable[[Path], Any]] = {
    "pyarrow": lambda folder: ARROW,
    "pandas": in_pandas,
    "polars": lambda folder: polars.DataFrame(ARROW),
    "relation": relation,
    "memtable": lambda folder: ibis.memtable(ARROW),
    "ibis on duckdb": in_duckdb,
    "ibis on polars": lambda folder: ibis.polars.connect({"people": polars.DataFrame(ARROW)}).table("people"),
    "ibis on sqlite": in_sqlite,
    "csv": in_csv,
    "parquet": in_parquet,
}


def in_spark(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    few = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = SparkSession.builder.master("local[2]").config(map={**local, **few}).getOrCreate()
    kinds = {"int64": "long", "float64": "double"}
    schema = ibis.memtable(ARROW).schema().items()
    columns = ", ".join(f"{name} {kinds.get(str(kind), str(kind))}" for name, kind in schema)
    return session.createDataFrame(list(zip(*MESSY.values(), strict=True)), columns)


def in_postgresql(url: Any) -> Any:
    engine = ibis.connect(url)
    engine.create_table("people", ARROW)
    engine.disconnect()
    return engine_table(url, "public.people")


if "RINGFENCE_ENGINES" in os.environ:  # make engines
    KINDS |= {"spark": in_spark, "postgresql": in_postgresql}


# What the reader opens as the same columns of the same engine as another kind: of both, jobs ask the same.
ALIKE = {"polars": "pyarrow", "relation": "pyarrow", "parquet": "pyarrow", "memtable": "ibis on duckdb"}


@pytest.mark.parametrize("kind", ALIKE)
def test_tables_that_are_alike_are_opened_alike(kind: str, tmp_path: Path) -> None:
    with open_rows(KINDS[kind](tmp_path)) as rows, open_rows(KINDS[ALIKE[kind]](tmp_path)) as others:
        assert rows.table.get_backend().name == others.table.get_backend().name
        assert (rows.is_here, rows.table.schema()) == (others.is_here, others.table.schema())
        found = rows.table.to_pyarrow().sort_by("name").select(list(MESSY)).to_pydict()
        assert found == ARROW.sort_by("name").to_pydict()


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind not in ALIKE])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ExitStack() as closing:
        if request.param == "postgresql":
            made = in_postgresql(closing.enter_context(postgresql.server()))
        else:
            made = KINDS[request.param](tmp_path_factory.mktemp("engine"))
        yield made
        if hasattr(made, "get_backend") and request.param != "memtable":
            made.get_backend().disconnect()


def truth(cells: Callable[[dict[str, Any]], Any], keys: list[Any], persons: bool = False) -> list[int]:
    """Counts by a loop over the rows in Python: of rows, or of the persons who have one there."""
    rows = [dict(zip(MESSY, row, strict=True)) for row in zip(*MESSY.values(), strict=True)]
    found = {(cells(row), row["person" if persons else "name"]) for row in rows}
    return [sum(cell == key for cell, _ in found) for key in keys]


@pytest.mark.parametrize("edges", [[0, 250, 500, 1000], [-math.inf, 99.5, 700, math.inf]])
def test_bins_of_whole_numbers(data: Any, edges: list[float]) -> None:
    found = rf.release_counts(data, ["ward", "left"], domain={"ward": WARDS}, bins={"left": edges}, sigma=1.0)
    keys = [(ward, group) for ward in WARDS for group in range(3)]
    wanted = truth(lambda row: (row["ward"], sum(row["left"] >= edge for edge in edges[1:3])), keys)
    assert found.account.details["cell_values"] == wanted


def age_group(row: dict[str, Any]) -> int:
    return int(row["age"] >= 18) + int(row["age"] >= 65)


@pytest.mark.parametrize("persons", [False, True])
def test_counts(data: Any, persons: bool) -> None:
    own = {"person": "person", "at_most": 24} if persons else {}
    how = {"domain": {"ward": WARDS}, "bins": {"age": [0, 18, 65, math.inf]}}
    found = rf.release_counts(data, ["ward", "age"], **how, **own, sigma=1.0)
    keys = [(ward, group) for ward in WARDS for group in range(3)]
    assert found.account.details["cell_values"] == truth(
        lambda row: (row["ward"], age_group(row)), keys, persons
    )
    same = type(data).__module__.partition(".")[0] in ("pandas", "polars", "ibis")
    assert isinstance(found.values, type(data) if same else pyarrow.Table)
    assert isinstance(found.errors, type(found.values))


def test_a_column_of_booleans(data: Any) -> None:
    found = rf.release_counts(data, "smoker", domain={"smoker": [True, False]}, sigma=1.0)
    assert found.account.details["cell_values"] == truth(lambda row: row["smoker"], [True, False])


def test_few_cells_of_each_person(data: Any) -> None:
    """Which ones is the engine's to choose, and everybody counts in that many. SQLite has no hash."""
    how: dict[str, Any] = {"domain": {"ward": WARDS}, "person": "person", "sigma": 1.0}
    if hasattr(data, "get_backend") and data.get_backend().name == "sqlite":
        with pytest.raises(ValueError, match=r"at_most must be at least 8, .* on sqlite, which has no hash"):
            rf.release_counts(data, "ward", **how)
        return
    all_of_them = truth(lambda row: row["ward"], WARDS, persons=True)
    wards = Counter(person for person, _ in set(zip(MESSY["person"], MESSY["ward"], strict=True)))
    for at_most in (1, 2):
        counts = rf.release_counts(data, "ward", at_most=at_most, **how).account.details["cell_values"]
        assert all(one <= most for one, most in zip(counts, all_of_them, strict=True))
        assert sum(counts) == sum(min(at_most, many) for many in wards.values())


@pytest.mark.parametrize("person", [None, "person"])
def test_means(data: Any, person: str | None) -> None:
    """Values clamped to -100 and 100, several rows of a person as their mean, in whole units."""

    def sums(rows_of: Any) -> tuple[list[int], list[int]]:
        with open_rows(rows_of) as rows:
            cells = public_cells(rows, ["ward"], {"ward": WARDS})
            people, units = sums_in(rows, cells, [Clamped("euros", -100.0, 100.0, 0.0, 100.0)], person, 8)
        return people.tolist(), units.flatten().tolist()

    people, units = sums(data)
    assert (people, units) == sums(ARROW)
    frame = pandas.DataFrame(MESSY).assign(euros=lambda one: one["euros"].clip(-100, 100))
    own = frame.groupby(["ward", person or "name"], dropna=False)["euros"].mean()
    groups = own.groupby("ward", dropna=False)
    size, total = groups.size(), groups.sum()
    found = {None if ward != ward else ward: (size[ward], total[ward]) for ward in size.index}
    assert people == [found[ward][0] for ward in WARDS]
    assert [unit * 100 / UNITS for unit in units] == pytest.approx(
        [found[ward][1] for ward in WARDS], abs=1e-2
    )


def true_numbers(data: Any, person: str | None) -> dict[str, Any]:
    how: dict[str, Any] = {"domain": {"ward": WARDS}, "person": person, "at_most": 8 if person else 1}
    made = {
        "counts": rf.release_shares(data, ["tree", "car"], answers=[1, 0, -1], epsilon=1.0),
        "units": rf.release_sums(data, ["euros", "age"], "ward", lower=-9, upper=99, **how, epsilon=1.0),
        "people": rf.release_quantiles(
            data, "euros", "ward", candidates=range(-50, 51, 5), **how, epsilon=1.0
        ),
    }
    return {name: release.account.details[name] for name, release in made.items()}


@cache
def true_numbers_of_arrow(person: str | None) -> dict[str, Any]:
    return true_numbers(ARROW, person)


@pytest.mark.parametrize("person", [None, "person"])
def test_shares_sums_and_ranks(data: Any, person: str | None) -> None:
    """The true numbers of every job are those of Arrow's table."""
    found = true_numbers(data, person)
    assert found == true_numbers_of_arrow(person)
    assert all(any(map(bool, numbers)) for numbers in found.values())


def test_votes(data: Any) -> None:
    votes = rf.release_votes(data, ["tree", "car"], person="name", sigma=1.0)
    wanted = [sum(answer or 0 for answer in MESSY[name]) for name in ("tree", "car")]
    assert votes.account.details["votes"] == wanted


def test_winners_of_ballots(data: Any) -> None:
    # so much noise that no tight profile, which takes half a second, is searched for
    winners = rf.release_winners(data, ["pet", "friend"], candidates=PETS[:3], sigma=9.0)
    wanted = [[MESSY[name].count(pet) for pet in PETS[:3]] for name in ("pet", "friend")]
    assert winners.account.details["votes"] == wanted


@pytest.mark.parametrize("person", [None, "person"])
def test_winners_of_rows_that_are_votes(data: Any, person: str | None) -> None:
    """A person counts once at every query, with one of the votes that the person gave there."""
    how: dict[str, Any] = {"domain": {"ward": WARDS}, "candidates": PETS[:3], "neighbours": "added"}
    if person and hasattr(data, "get_backend") and data.get_backend().name == "sqlite":
        with pytest.raises(ValueError, match="on sqlite, which has no hash"):
            rf.release_winners(data, by="ward", of="pet", person=person, **how, sigma=9.0)
        return
    found = rf.release_winners(data, by="ward", of="pet", person=person, **how, sigma=9.0)
    assert ("each row is taken as one person" in found.statement.public) == (person is None)
    assert found.columns["ward"] == WARDS
    votes = found.account.details["votes"]
    cast = Counter(zip(MESSY["ward"], MESSY["pet"], strict=True))
    if person is None:
        assert votes == [[cast[ward, pet] for pet in PETS[:3]] for ward in WARDS]
        return
    some_vote = {one for one in zip(MESSY["person"], MESSY["ward"], MESSY["pet"], strict=True) if one[2]}
    there = Counter(ward for _, ward in {(who, ward) for who, ward, _ in some_vote})
    assert [sum(own) for own in votes] == [there[ward] for ward in WARDS]
    few = rf.release_winners(data, by="ward", of="pet", person=person, **how, sigma=9.0, at_most=1)
    assert sum(map(sum, few.account.details["votes"])) == len({who for who, *_ in some_vote})


@pytest.mark.parametrize("person", [None, "person"])
@pytest.mark.parametrize("missing", ["drop", "category"])
def test_rows_without_a_value(data: Any, missing: Any, person: str | None) -> None:
    how: dict[str, Any] = {"domain": {"ward": WARDS[:-1]}, "missing": missing, "person": person}
    found = rf.release_counts(data, "ward", **how, at_most=8 if person else 1, sigma=1.0)
    wards = WARDS if missing == "category" else WARDS[:-1]
    wanted = truth(lambda row: row["ward"], wards, persons=person is not None)
    assert found.account.details["cell_values"] == wanted


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ballots in files are more than are read into memory."""
    monkeypatch.setattr(ballots, "_KEPT", 0)


@pytest.mark.usefixtures("many")
def test_ballots_that_are_counted_where_they_are(data: Any) -> None:
    test_votes(data)
    test_winners_of_ballots(data)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("person", [None, "name"])
@pytest.mark.parametrize("at_most", [1, 2])
def test_few_votes_of_each_person(data: Any, person: str | None, at_most: int) -> None:
    how: dict[str, Any] = {"candidates": PETS[:3], "neighbours": "added", "at_most": at_most, "sigma": 9.0}
    queries = ["pet", "friend", "foe"]
    if hasattr(data, "get_backend") and data.get_backend().name == "sqlite":
        with pytest.raises(ValueError, match=r"at_most must be at least 3, .* on sqlite, which has no hash"):
            rf.release_winners(data, queries, person=person, **how)
        return
    found = np.array(rf.release_winners(data, queries, person=person, **how).account.details["votes"])
    everything = np.array([[MESSY[name].count(pet) for pet in PETS[:3]] for name in queries])
    ballots_cast = zip(*(MESSY[name] for name in queries), strict=True)
    assert found.sum() == sum(min(at_most, 3 - own.count(None)) for own in ballots_cast)
    assert (found <= everything).all()
    assert found.sum(axis=1).min() > 0.15 * found.sum()  # every query has its share of what is kept


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("queries", "person", "complaint"),
    [
        (["pet"], "person", r"column 'person' must hold each name once, got '?\d+'? twice"),
        (["pet"], "friend", "column 'friend' must hold (each name once|a name in every row), got"),
        (["ward"], None, "column 'ward' must hold one of the candidates, got"),
        (["pet", "pets"], None, "queries names the column 'pets', which the table lacks"),
    ],
)
def test_bad_ballots_are_refused_where_they_are(
    data: Any, queries: list[str], person: str | None, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        rf.release_winners(data, queries, person=person, candidates=PETS[:3], sigma=1.0)


def test_winners_of_counts(data: Any) -> None:
    """Every row a query, in whichever order an engine has its rows."""
    ignore = [name for name in MESSY if name not in ("name", "left", "right")]
    found = rf.release_winners(data, query="name", ignore=ignore, sigma=100.0)
    votes = dict(zip(found.columns["name"], found.account.details["votes"], strict=True))
    assert votes == {
        name: [*own] for name, *own in zip(*(MESSY[n] for n in ("name", "left", "right")), strict=True)
    }


def test_counts_on_an_engine_need_names_and_ballots_need_rows() -> None:
    counts = ibis.memtable({"cat": [3, 4], "dog": [5, 1]})
    with pytest.raises(ValueError, match="query must name a column on an engine, where rows have no order"):
        rf.release_winners(counts, sigma=9.0)
    with pytest.raises(ValueError, match="the table must have at least one row, got none"):
        rf.release_votes(ibis.memtable(pandas.DataFrame({"q": [1]})[:0]), sigma=9.0)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_arrays(make: Any) -> None:
    numbers = make(
        [[float(value) for value in row] for row in zip(*(MESSY[n] for n in NUMBERS), strict=True)]
    )
    people = rf.release_counts(numbers, [0], domain={0: range(60)}, suppress_below=4, sigma=1.0)
    assert isinstance(people.values, type(numbers))
    assert np.isnan(np.asarray(people.values)[:, 1]).tolist() == people.columns["suppressed"]
    bins = {1: [0, 18, 65, math.inf]}
    counts = rf.release_counts(numbers, [1], bins=bins, person=0, at_most=3, sigma=1.0)
    assert counts.account.details["cell_values"] == truth(age_group, [0, 1, 2], persons=True)
    answers = make([[value or 0 for value in row] for row in zip(MESSY["tree"], MESSY["car"], strict=True)])
    votes = rf.release_votes(answers, sigma=1.0)
    assert votes.account.details["votes"] == [sum(filter(None, MESSY[name])) for name in ("tree", "car")]
    assert isinstance(votes.values, type(numbers))
    assert set(votes.values.tolist()) <= {1, -1}


def test_infinite_values_and_columns_that_differ_in_case_alone_are_refused() -> None:
    large = pandas.DataFrame({"x": [1.0, math.inf]})
    with pytest.raises(ValueError, match="column 'x' has the value inf, where a finite number is needed"):
        rf.release_means(large, "x", lower=0, upper=1, sigma=1.0)
    two = pyarrow.table([[1], [2]], names=["Ward", "ward"])
    with pytest.raises(ValueError, match="the table must name each column once, in upper or lower case"):
        rf.release_counts(two, "ward", domain={"ward": [2]}, sigma=1.0)
