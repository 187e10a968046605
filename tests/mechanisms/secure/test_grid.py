"""Public grids: one coordinate's own, where columns are single numbers and where they are not."""

import pytest
import torch

from ringfence.mechanisms.secure.grid import Levels, Points, Steps
from tests.tensors import float64


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize(
    ("make", "last"), [(Steps, [0.25, 0.5, 0.125]), (Levels, [3.0, 5.0, 9.0])], ids=["steps", "levels"]
)
def test_one_coordinate_is_selected_from_numbers_and_columns(
    make: type[Levels | Steps], last: list[float], place: int
) -> None:
    lower, upper = float64([-1.0]), float64([1.0, 2.0, 3.0])
    grid = make(lower, upper, float64(last)).select(place)
    alone = make(float64(-1.0), float64(upper[place].item()), float64(last[place]))
    for number in (int(alone.first), 1, int(alone.last)):
        index = alone.last * 0 + number
        assert float(grid.point(index)) == float(alone.point(index))
        assert float(grid.cut(index)) == float(alone.cut(index))
    assert (int(grid.first), int(grid.last)) == (int(alone.first), int(alone.last))


def test_values_beyond_the_ends_belong_to_the_outermost_points() -> None:
    far = float64([-1e300, -9.0, 9.0, 1e300])
    for grid in (Levels(*float64([-1.0, 2.0, 7.0])), Steps(*float64([-1.0, 2.0, 0.5]))):
        first, last = int(grid.first), int(grid.last)
        assert grid.nearest(far).tolist() == [first, first, last, last]
        assert grid.point(grid.nearest(far)).tolist() == [-1.0, -1.0, 2.0, 2.0]


def test_listed_points_have_the_cuts_they_are_given() -> None:
    low, high = float64([-1.0]), float64([1.0, 2.0, torch.inf])
    points = Points((-1.0, 0.0, 7.0), (low, high))
    value = float64([1.5, 1.5, 1e300])
    assert points.nearest(value).tolist() == [2, 1, 1]
    assert points.point(points.nearest(value)).tolist() == [7.0, 0.0, 0.0]
    assert points.cut(torch.tensor([0, 1, 1])).tolist() == [-1.0, 2.0, torch.inf]
    alone = points.select(1)
    assert [float(alone.cut(torch.tensor(number))) for number in (0, 1)] == [-1.0, 2.0]
    assert (int(alone.first), int(alone.last)) == (0, 2)
    assert int(points.nearest(float64([torch.nan]))[0]) == 0  # any number: a guess is checked
