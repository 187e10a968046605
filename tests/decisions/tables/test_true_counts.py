"""True counts of arrays and of rows."""

import numpy as np

from ringfence.decisions.tables.true_counts import array_counts, table_counts


def test_a_person_is_never_in_more_cells_than_there_are() -> None:
    assert array_counts(np.array([3, 4]), at_most=9).at_most == 2
    visits = np.array([[7, 0], [7, 1], [8, 1]])
    counted = table_counts(visits, [1], {1: [0, 1]}, None, person=0, at_most=9, counts=None)
    assert (counted.at_most, counted.theta.tolist(), counted.rows_are) == (2, [1.0, 2.0], "persons")


def test_columns_of_an_array_tell_its_cells_apart() -> None:
    counted = array_counts(np.arange(6).reshape(2, 3), at_most=1)
    assert counted.columns["dimension 1"] == ("0", "1", "2") * 2
    assert counted.theta.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
