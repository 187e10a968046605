"""Which settings reach a target: by their mean accuracy, at the largest epsilon of their seeds."""

from dataclasses import replace

import pytest

from experiments.comparison.comparison import compare
from experiments.comparison.winner import winner
from tests.experiments.comparison.test_comparison import at, sweep


def test_the_largest_epsilon_of_the_seeds_counts() -> None:
    rows = [replace(row, epsilon_pdp=1.0 + row.seed) for row in sweep("gaussian", 1.0, count=1, best=0.5)]
    assert at(compare(rows), "Gaussian", 0.5).epsilon == 3.0


def test_kinds_of_epsilon() -> None:
    rows = sweep("gaussian", 1.0) + sweep("truncated", 0.5)
    assert at(compare(rows, kind="ex-post"), "truncated", 0.45).epsilon == pytest.approx(10 * 0.45**2)
    assert at(compare(rows, kind="data-independent"), "truncated", 0.45).ratio == pytest.approx(1.0)
    # the Gaussian's exact epsilon is 0.9 of its Rényi one here
    assert at(compare(rows, kind="tightest"), "truncated", 0.45).ratio == pytest.approx(0.5 / 0.9)


def test_a_lucky_seed_does_not_reach_a_target_but_the_mean_does() -> None:
    rows = sweep("gaussian", 1.0, count=1, best=0.5)
    assert at(compare(rows, step=0.01), "Gaussian", 0.5).epsilon is not None
    lucky = [replace(row, validation_accuracy=0.5 + (0.3 if row.seed == 0 else -0.2)) for row in rows]
    result = compare(lucky, step=0.01)
    assert max(row.target for row in result.rows) == pytest.approx(0.46)


def test_targets_at_or_below_chance_do_not_count_where_the_number_of_classes_is_known() -> None:
    rows = sweep("gaussian", 1.0) + sweep("truncated", 0.5)
    assert compare(rows).counts_from == 0.45  # half of the best
    of_two = [replace(row, classes=2) for row in rows]
    assert compare(of_two).counts_from == winner(of_two, resamples=20).counts_from == 0.55
    guesses = [replace(row, classes=1) for row in rows]  # nothing is above chance
    assert compare(guesses).counts_from == 0.45
