"""Jobs for tables and ballots: given any frame, they release what they promise or name what is wrong."""

import math
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import torch
from hypothesis import strategies as st

import ringfence as rf
from tests.fuzz import strategies as fuzz
from tests.fuzz.contract import calls_well
from tests.fuzz.properties import fuzzed

# what a message may name instead of an argument: the table, one of its columns, one of their domains
NAMES = ("column", "table", "counts", "data", "domain", "candidates", "files", "sigma")
ODD = (None, math.nan, math.inf, 2, -2, 0.5, 10**30, "1", "x", "", True, b"1", (1,))

answers = st.sampled_from((1, 0, -1, 1, -1, None))
counts = st.integers(0, 300)
choices = st.sampled_from(("cat", "dog", "fox", None))
KNOWN = {
    "sigma": fuzz.mostly(fuzz.sizes(0.05, 200.0), one_in=12),
    "epsilon": st.one_of(st.none(), fuzz.mostly(fuzz.sizes(1e-2, 20.0), one_in=12)),
    "at_most": fuzz.mostly(st.one_of(st.none(), st.integers(1, 4)), one_in=12),
    "who": fuzz.mostly(st.sampled_from(("added", "replaced")), one_in=20),
    "threshold": fuzz.mostly(st.one_of(st.none(), fuzz.sizes(0.1, 500.0)), one_in=12),
    "candidates": fuzz.mostly(st.just(["cat", "dog", "fox"]), one_in=6),
    "by": st.sampled_from(("c0", 0, None)),
}


@st.composite
def frames(draw: Any, entry: Any, one_in: int = 5) -> Any:
    """A frame of any kind, sometimes with an entry that does not belong there, sometimes no frame at all."""
    if draw(st.integers(1, 12)) == 12:
        other = draw(fuzz.hostile())
        return None if isinstance(other, str | list) else other  # those may be names of files
    rows, width = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    columns = {f"c{place}": [draw(entry) for _ in range(rows)] for place in range(width)}
    if rows and width and draw(st.integers(1, one_in)) == one_in:
        columns["c0"][0] = draw(st.sampled_from(ODD))
    kind = draw(st.sampled_from(("pandas", "polars", "pyarrow", "numpy", "torch")))
    try:
        if kind == "polars":
            return polars.DataFrame(columns)
        if kind == "pyarrow":
            return pyarrow.table(columns)
        if kind == "pandas":
            return pandas.DataFrame(columns)
        filled = [[0 if value is None else value for value in column] for column in columns.values()]
        array = np.array(filled, dtype=np.float64).reshape(width, rows).T
        return torch.from_numpy(array.copy()) if kind == "torch" else array
    except (TypeError, ValueError, OverflowError, pyarrow.ArrowException):
        return pandas.DataFrame(columns)  # of objects, where columns hold more than one kind of thing


def well(made: Any, epsilon: Any) -> None:
    """What every release promises."""
    if made is None:
        return
    account = made.account
    assert account.per_instance.epsilon <= account.epsilon * (1 + 1e-9)
    assert epsilon is None or account.epsilon <= epsilon
    assert "\n" not in made.statement.public
    assert len(made.rows()) == len(made.values)
    for sentence in account.statement.splitlines():
        assert sentence not in str(made.statement)


@fuzzed("jobs", 0.1, 6, KNOWN, data=frames(answers))
def test_votes(data: Any, epsilon: Any, sigma: Any, at_most: Any, who: Any) -> None:
    noise = sigma if epsilon is None else None
    made = calls_well(
        rf.release_votes, data, epsilon=epsilon, sigma=noise, at_most=at_most, neighbours=who, names=NAMES
    )
    well(made, epsilon)


@fuzzed("jobs", 0.1, 6, KNOWN, data=frames(counts))
def test_winners(data: Any, epsilon: Any, sigma: Any, at_most: Any, who: Any, threshold: Any) -> None:
    made = calls_well(
        rf.release_winners,
        data,
        epsilon=epsilon,
        sigma=sigma if epsilon is None else None,
        at_most=at_most,
        neighbours=who,
        confident_above=threshold,
        names=NAMES,
    )
    well(made, epsilon)


@fuzzed("jobs", 0.1, 6, KNOWN, data=frames(choices))
def test_ballots(data: Any, sigma: Any, candidates: Any) -> None:
    made = calls_well(rf.release_winners, data, candidates=candidates, sigma=sigma, names=NAMES)
    well(made, None)


@fuzzed("jobs", 0.1, 6, KNOWN, data=frames(counts))
def test_tables(data: Any, sigma: Any, by: Any) -> None:
    domain = None if by is None else {by: [*range(40), None]}
    made = calls_well(rf.release_counts, data, by, domain=domain, sigma=sigma, names=NAMES)
    if made is not None:
        assert made.account.per_instance.epsilon <= made.account.epsilon * (1 + 1e-9)
    calls_well(rf.release_means, data, "c1", by, domain=domain, lower=0, upper=9, sigma=sigma, names=NAMES)
