"""Counts: the law that is released, what it is said to cost, and what is refused."""

import math

import numpy as np
import pandas
import pyarrow
import pytest
import torch

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.releases.budget import GaussianNoise
from tests.tensors import float64

PEOPLE = pandas.DataFrame(
    {"id": range(300), "region": ["n"] * 200 + ["s"] * 99 + ["w"], "age": [20, 40, 70] * 100}
)
REGIONS = {"region": ["n", "s", "w", "e"]}


def test_people_in_suppressed_cells_pay_less_and_that_is_sensitive() -> None:
    """One person in 'w', none in 'e', and a threshold far above the noise: almost free for them."""
    table = rf.release_counts(PEOPLE, "region", domain=REGIONS, suppress_below=40, sigma=5.0, delta=1e-6)
    everywhere = gaussian_epsilon(1 / 5, 1e-6)
    alone = table.account.details["cell_epsilons"]
    assert alone[0] == pytest.approx(everywhere, rel=1e-3)
    assert alone[2] == alone[3] == 0.0
    assert table.account.per_instance.epsilon == pytest.approx(max(alone))
    law = rf.RectifiedGaussian(5.0, (39.0, math.inf))
    profile = rf.privacy_profile(law, float64([200, 99, 1, 0]), rf.Sensitivity(1.0, at_most=1))
    assert table.account.per_instance.epsilon == pytest.approx(profile.epsilon(1e-6), rel=1e-5)
    (_, gain) = table.account.statement.splitlines()
    assert "2 of 4 counts are below the threshold, with 1 people in them" in gain
    assert "epsilon between 0 and 0," in gain
    assert table.account.epsilon == pytest.approx(everywhere, rel=1e-6)


def test_the_sentence_to_print_says_what_was_done_and_nothing_private() -> None:
    table = rf.release_counts(PEOPLE, "region", domain=REGIONS, suppress_below=40, epsilon=1.0, delta=1e-6)
    assert table.statement.public == (
        "These counts are protected by differential privacy (epsilon 1, delta 1e-06) for each person (each "
        "row is taken as one person): Laplace noise with a standard deviation of 1.36 was added to every "
        "count, and noisy counts below 40 are not shown; the intervals have a coverage of 0.95."
    )
    assert str(table.statement).startswith(table.statement.public)
    assert "below the threshold" not in str(table.statement)
    seeded = rf.release_counts(PEOPLE, "region", domain=REGIONS, epsilon=1.0, seed=1)
    assert "Fixed seed: for testing, not a private release." in seeded.statement.public


def test_counts_that_were_aggregated_are_taken_as_they_are() -> None:
    made = pyarrow.table({"region": ["n", "s", "n"], "n": [150, 99, 50]})
    once = rf.release_counts(made, "region", counts="n", domain=REGIONS, sigma=1.0, seed=1)
    again = rf.release_counts(PEOPLE[PEOPLE["region"] != "w"], "region", domain=REGIONS, sigma=1.0, seed=1)
    assert once.values.column("count").to_pylist() == again.values["count"].tolist()
    assert any(
        "each person must have been counted in at most 1 of the cells" in said
        for said in once.statement.promises
    )


def test_an_array_keeps_its_shape_a_tensor_its_kind_and_without_columns_everybody_is_counted() -> None:
    table = rf.release_counts(torch.full((2, 3), 1000), sigma=2.0)
    assert isinstance(table.values, torch.Tensor)
    assert (table.values.shape, table.errors.shape) == ((2, 3), (2, 3))
    assert list(table.columns) == ["dimension 0", "dimension 1", "count"]
    everybody = rf.release_counts(PEOPLE, person="id", epsilon=1.0).values
    assert abs(everybody["count"][0] - 300) < 60
    assert len(everybody) == 1


def test_very_much_noise_is_released_on_a_coarser_grid() -> None:
    table = rf.release_counts(np.zeros(100), sigma=2.0**22)
    assert bool((table.values % 4 == 0).all())


def test_the_statement_says_what_suppression_does_to_the_counts_that_are_shown() -> None:
    assert GaussianNoise(4.24).shown(0, 10**6) == (0.0, 0.0)
    said = str(rf.release_counts(np.ones(2), sigma=4.24, suppress_below=20).statement)
    assert "on whole numbers, whatever the data" not in said
    assert "a true 20 is shown with a chance of 55 %, then 3.1 too large" in said
    assert "a true 11 is shown with a chance of 2.2 %, then 10 too large on average" in said
    assert "whatever the data" in rf.release_counts(np.ones(2), sigma=4.24).statement.promises[-1]
    least = rf.release_counts(np.ones(2), sigma=4.24, suppress_below=3).statement.promises[-1]
    assert "a true 0 is shown with" in least
    rf.release_counts(np.ones(2), sigma=1.0, suppress_below=2**40)  # a chance too small for a number


def test_a_person_is_never_in_more_cells_than_there_are() -> None:
    visits = np.array([[7, 0], [7, 1], [8, 1]])
    of_people = rf.release_counts(visits, [1], domain={1: [0, 1]}, person=0, at_most=9, sigma=4.0)
    assert of_people.account.details["cell_values"] == [1.0, 2.0]
    for made in (of_people, rf.release_counts(np.array([3, 4]), at_most=9, sigma=4.0)):
        assert dict(made.settings)["cells of one person"] == "at most 2"
