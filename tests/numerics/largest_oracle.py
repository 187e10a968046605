"""The chance of each of several normal variables to be the largest, by definition, in multi-precision.

    python -m tests.numerics.largest_oracle    computes the record again and prints what has moved

A case is a list of groups (location, move, how many): variables of a group are equal. The integrals are plain
sums over a fine grid, which for functions like these are right to as many digits as are asked for; the tests
compare them with closed forms. Differences of two chances are summed as differences, in 80 digits.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mpmath import mp, mpf

from tests.oracle import below, phi

Group = tuple[float, float, int]

RECORD = Path(__file__).parent / "largest_normal.json"
DIGITS = 25
CASES: tuple[tuple[Group, ...], ...] = (
    ((0, 1e-6, 1), (0, 0, 1)),
    ((0, 0, 1), (-40, 1e-6, 1)),
    ((0, -0.125, 1), (-40, 0.125, 1)),
    ((0, 0, 1), (-1, -1e-6, 1), (-3, 0, 1), (-40, 1e-6, 1)),
    ((0, 0, 1), (-1, -1e-3, 1), (-3, 0, 1), (-40, 1e-3, 1)),
    ((0, 0.25, 1), (0, 0, 1), (0, -0.25, 1), (-5, 0, 1)),
    ((0, 5, 1), (-2, 0, 1), (-7, -5, 1)),
    ((0, -12, 1), (-2, 0, 1), (-7, 0, 1)),
    ((0, -0.125, 1), (0, 0, 19), (-40, 0.125, 1)),
    ((0, -0.5, 1), (-10, 0, 1), (-20, 0, 1), (-30, 0, 1), (-40, 0.5, 1)),
    ((0, 1e-6, 1), (0, -1e-6, 1), (0, 0, 998)),
    ((3, 0, 1), (0, -0.125, 1), (0, 0, 499), (-4, 0, 498), (-37, 0.125, 1)),
)


def exact(groups: Sequence[Group]) -> tuple[list[mpf], list[mpf]]:
    """log p, and log p/q after the moves, of one variable of each group."""
    step = 16 if sum(count for *_, count in groups) < 100 else 32  # many variables make narrow densities
    with mp.workdps(80):
        before = [(mpf(location), count) for location, _, count in groups]
        after = [(mpf(location) + mpf(move), count) for location, move, count in groups]
        ends = [location for location, _ in before + after]
        first, last = int(min(ends)) - 20, int(max(ends)) + 20
        chances, differences = ([mpf(0)] * len(groups) for _ in range(2))
        for number in range(first * step, last * step):
            x = mpf(number) / step
            ours, theirs = _densities(before, x), _densities(after, x)
            for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                chances[place] += one / step
                differences[place] += (other - one) / step
        counts = [count for *_, count in groups]
        log_p, ratios = [], []
        for place, (chance, difference) in enumerate(zip(chances, differences, strict=True)):
            others = [place != other for other in range(len(groups))]
            if chance > 0.6:  # what the others leave
                difference = -_sum(differences, counts, others)
            left = mp.log1p(-_sum(chances, counts, others)) if chance > 0.6 else mp.log(chance)
            log_p.append(left)
            ratios.append(-mp.log1p(difference / mp.exp(left)))
        return log_p, ratios


def _densities(groups: list[tuple[mpf, int]], x: mpf) -> list[mpf]:
    tails = [below(x - location) for location, _ in groups]
    product = mp.fprod(tail**count for tail, (_, count) in zip(tails, groups, strict=True))
    return [product / tail * phi(x - location) for tail, (location, _) in zip(tails, groups, strict=True)]


def _sum(values: list[mpf], counts: list[int], wanted: list[bool]) -> mpf:
    return mp.fsum(value * count for value, count, one in zip(values, counts, wanted, strict=True) if one)


def computed(groups: Sequence[Group]) -> list[list[str]]:
    return [[mp.nstr(value, DIGITS) for value in row] for row in exact(groups)]


@cache
def recorded() -> list[list[list[str]]]:
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    now = [computed(groups) for groups in CASES]
    before_now = recorded() if RECORD.exists() else []
    for groups, values in zip(CASES, now, strict=True):
        if values not in before_now:  # strings of 25 digits
            print(groups, values)
    RECORD.write_text("[\n" + ",\n".join(json.dumps(values) for values in now) + "\n]\n")
