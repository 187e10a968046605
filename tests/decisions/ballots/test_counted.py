"""Counts of voters, as they are or from ballots."""

import numpy as np
import pandas

from ringfence.decisions.ballots.counted import read_votes


def test_counts_and_ballots_agree() -> None:
    ballots = pandas.DataFrame({"id": [4, 5, 6], "x": ["a", "b", "a"], "y": [None, "b", "b"]})
    counted = read_votes(ballots, None, ["a", "b"], "id", None, ())
    as_is = read_votes(np.array([[2, 1], [0, 2]]), None, None, None, None, ())
    assert np.array_equal(counted.counts, as_is.counts)
    assert (counted.names, counted.candidates, counted.rows_are) == (["x", "y"], ("a", "b"), "persons")
    assert (as_is.names, as_is.candidates, as_is.rows_are) == ([1, 2], ("0", "1"), "aggregated")
    assert counted.ballots is not None
    assert counted.ballots.people == [4, 5, 6]
