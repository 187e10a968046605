"""What of an ex-post claim passes to a function of the releases, in exact sums (docs/guarantees.md).

A run of two releases of the sign law, four outcomes. The first is a coin that no record moves. If it
falls +1 the second release is of theta = 5000 sigma and tells nothing; if -1, of theta = -8 sigma, which the
record moves to 0.
"""

import math
from collections.abc import Callable, Hashable

import pytest

import ringfence as rf

SIGN = rf.StochasticSign(1.0)
ALPHA, DELTA, MOVE = 64.0, 0.05, 8.0
SECOND = {1: 5000.0, -1: -8.0}  # theta of the second release, by what the first one was
RUNS = [(first, second) for first in (1, -1) for second in (1, -1)]


def mass(output: int, theta: float) -> float:
    return float(SIGN.log_prob(float(output), theta).exp())


def law(neighbour: bool) -> dict[Hashable, float]:
    """Of the whole run, on this dataset or on it with one record more."""
    move = MOVE if neighbour else 0.0
    return {(first, second): 0.5 * mass(second, SECOND[first] + move) for first, second in RUNS}


def realised(first: int) -> float:
    """The ex-post epsilon of a run, by the accountant."""
    account = rf.PerInstanceAccountant(SIGN, MOVE, orders=[ALPHA])
    account.step([0.0], sensitivity=0.0)
    account.step([SECOND[first]])
    return account.guarantee(DELTA).per_instance.ex_post_epsilon


EPSILON = {run: realised(run[0]) for run in RUNS}


def losses(function: Callable[[tuple[int, int]], Hashable]) -> dict[tuple[int, int], float]:
    """log P/Q of what the function makes of each run."""
    both: list[dict[Hashable, float]] = [{}, {}]
    for total, masses in zip(both, (law(False), law(True)), strict=True):
        for run in RUNS:
            total[function(run)] = total.get(function(run), 0.0) + masses[run]
    p, q = both
    return {run: math.log(p[function(run)] / q[function(run)]) for run in RUNS if p[function(run)]}


def broken(loss: dict[tuple[int, int], float], epsilon: Callable[[tuple[int, int]], float]) -> float:
    """The probability that the loss is above what was claimed."""
    return sum(law(False)[run] for run in loss if loss[run] > epsilon(run))


def usual(run: tuple[int, int]) -> bool:
    """Published: whether one of the two usual outcomes occurred."""
    return run in ((1, 1), (-1, -1))


def test_the_ex_post_claim_holds_for_the_run_and_not_for_a_function_of_it() -> None:
    assert broken(losses(lambda run: run), EPSILON.__getitem__) <= DELTA
    loss = losses(usual)
    assert EPSILON[1, 1] == pytest.approx(math.log(1 / DELTA) / (ALPHA - 1), rel=1e-6)  # 0.048
    assert loss[1, 1] == pytest.approx(math.log(4 / 3), rel=1e-6)  # 0.288
    assert broken(loss, EPSILON.__getitem__) == pytest.approx(0.5)


def test_it_holds_for_the_function_together_with_the_realised_sum() -> None:
    loss = losses(lambda run: (usual(run), EPSILON[run]))
    assert broken(loss, EPSILON.__getitem__) <= DELTA


def test_it_holds_for_the_function_with_the_sums_averaged_over_its_runs() -> None:
    """log E exp(S) under Q over the runs with the same published value; hence with the largest S too."""
    loss, q = losses(usual), law(True)
    tail = math.log(1 / DELTA) / (ALPHA - 1)

    def averaged(run: tuple[int, int]) -> float:
        alike = [other for other in RUNS if usual(other) == usual(run)]
        total = sum(q[other] * math.exp(EPSILON[other] - tail) for other in alike)
        return math.log(total / sum(q[other] for other in alike)) + tail

    assert broken(loss, averaged) <= DELTA
    assert averaged((1, 1)) < max(EPSILON.values())


def test_what_is_fixed_beforehand_passes_on_as_epsilon_delta_and_not_as_a_tail() -> None:
    """Merging an outcome of mass delta that Q never has with outcomes of loss epsilon, exactly."""
    epsilon, delta = 0.5, 0.05
    p = {"gone": delta, "at epsilon": 0.6, "rest": 0.35}
    q = {"gone": 0.0, "at epsilon": 0.6 * math.exp(-epsilon), "rest": 1 - 0.6 * math.exp(-epsilon)}
    assert sum(p[y] for y in p if p[y] > math.exp(epsilon) * q[y] * (1 + 1e-12)) == delta  # the tail, before
    merged_p, merged_q = p["gone"] + p["at epsilon"], q["at epsilon"]
    loss = math.log(merged_p / merged_q)
    assert loss > epsilon  # with probability 0.65, not 0.05
    assert merged_p - math.exp(epsilon) * merged_q == pytest.approx(delta)  # (epsilon, delta) still
    assert merged_p <= delta / (1 - math.exp(epsilon - loss)) * (1 + 1e-12)


def test_what_holds_for_every_dataset_passes_on() -> None:
    account = rf.PerInstanceAccountant(SIGN, MOVE)
    account.step([0.0], sensitivity=0.0)
    account.step([SECOND[1]])
    epsilon = account.guarantee(DELTA).epsilon
    p, q = law(False), law(True)
    for one, other in ((p, q), (q, p)):
        for published in (True, False):
            runs = [run for run in RUNS if usual(run) == published]
            assert (
                sum(one[run] for run in runs) <= math.exp(epsilon) * sum(other[run] for run in runs) + DELTA
            )
