"""What gets further seeds: the frontiers, the most accurate first, methods taking turns."""

from experiments.information.full_size.place import frontiers
from experiments.information.full_size.settings import methods
from tests.experiments.information.full_size import toys


def test_frontiers_take_turns() -> None:
    rows = [
        *toys.whole_round(0, 0.5, 1.0),
        *toys.whole_round(1, 0.7, 3.0),
        *toys.whole_round(2, 0.6, 4.0),  # beaten by the second
        *(toys.row(name, 3, 0.9, None) for name in methods()),  # not measured
        *(toys.row(name, 4, 0.95, 0.0) for name in methods()),  # flattened by its clip
    ]
    assert [(row.round, row.method) for row in frontiers(rows)] == [
        (number, name) for number in (1, 0) for name in methods()
    ]
    assert frontiers([toys.row("rectified", 0, 0.5, 1.0)])[0].method == "rectified"
