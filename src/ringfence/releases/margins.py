"""Tables whose totals agree with their cells, all of them whole numbers from 0 on: by post-processing."""

import itertools
from collections.abc import Sequence
from typing import Any

from ringfence.releases.reader import Columns

TOTAL = "total"


def non_negative(noisy: Sequence[int]) -> list[int]:
    """The whole numbers from 0 on that are nearest to these and have the same sum, or 0 where it is negative.

    All numbers are lowered alike and those below 0 set to 0, until the sum is right: the projection onto a
    simplex. What is left over by rounding goes to the first ones. Numbers above 0 alone stay as they are.

    >>> non_negative([5, -3, 4, 0]), non_negative([-1, -2])
    ([4, 0, 2, 0], [0, 0])
    """
    total, above, many = sum(noisy), 0, 0
    if total <= 0:
        return [0] * len(noisy)
    for number in sorted(noisy, reverse=True):
        if number * (many + 1) <= above + number - total:
            break
        above, many = above + number, many + 1
    lower = -((total - above) // many)
    kept = [max(0, number - lower) for number in noisy]
    left = total - sum(kept)
    for place, number in enumerate(noisy):
        if left and number >= lower:
            kept[place], left = kept[place] + 1, left - 1
    return kept


def margins_of(keys: Columns) -> tuple[dict[str, list[Any]], list[list[int]]]:
    """The rows of all totals of a table of cells, and the numbers of the cells that each of them adds up.

    >>> rows, cells = margins_of({"sex": ["f", "m"], "town": ["x", "x"]})
    >>> rows["sex"], rows["town"], cells
    (['f', 'm', 'total', 'total'], ['total', 'total', 'x', 'total'], [[0], [1], [0, 1], [0, 1]])
    """
    for name, values in keys.items():
        if TOTAL in values:
            raise ValueError(
                f"column {name!r} must not have the value {TOTAL!r}, which margins have: rename it"
            )
    cells = list(zip(*keys.values(), strict=True))
    members: dict[tuple[Any, ...], list[int]] = {}
    for kept in itertools.product((True, False), repeat=len(keys)):
        if not all(kept):
            for place, cell in enumerate(cells):
                row = tuple(value if keep else TOTAL for value, keep in zip(cell, kept, strict=True))
                members.setdefault(row, []).append(place)
    return {name: [row[at] for row in members] for at, name in enumerate(keys)}, list(members.values())
