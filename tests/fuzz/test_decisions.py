"""Decisions: built from anything, asked anything, and never below the exact value."""

from typing import Any

import torch
from hypothesis import strategies as st
from mpmath import mp, mpf

import ringfence as rf
from ringfence.mechanisms.decision import Decision
from tests.fuzz import strategies as fuzz
from tests.fuzz.contract import calls_well
from tests.fuzz.properties import fuzzed
from tests.oracle import below

NAMES = ("sigma", "threshold", "threshold_sigma", "counts", "move", "winner", "alpha", "epsilon", "generator")
SHAPES = ((2,), (3,), (1, 3), (2, 3), (2, 1, 2), (0, 3), (3, 40))

numbers = fuzz.mostly(fuzz.extreme_sizes(), one_in=10)
rows = fuzz.mostly(fuzz.spread(fuzz.signed(), SHAPES), one_in=8)


@st.composite
def decisions(draw: Any) -> Any:
    sigma = draw(fuzz.extreme_sizes())
    if draw(st.booleans()):
        return rf.NoisyWinner(sigma)
    return rf.ConfidentWinner(sigma, draw(fuzz.signed()), draw(fuzz.extreme_sizes()))


@fuzzed("decisions", share=1, few=20, sigma=numbers, threshold=numbers, threshold_sigma=numbers)
def test_a_decision_is_built_or_refused(sigma: Any, threshold: Any, threshold_sigma: Any) -> None:
    for made in (
        calls_well(rf.NoisyWinner, sigma, names=NAMES),
        calls_well(rf.ConfidentWinner, sigma, threshold, threshold_sigma, names=NAMES),
    ):
        if made is not None:
            assert Decision.from_state_dict(made.state_dict()).state_dict() == made.state_dict()


@fuzzed("decisions", share=1, few=25, law=decisions(), counts=rows, move=rows, alpha=numbers, epsilon=numbers)
def test_what_a_decision_gives_away(law: Decision, counts: Any, move: Any, alpha: Any, epsilon: Any) -> None:
    value = calls_well(law.renyi_divergence, counts, move, alpha, names=NAMES)
    assert value is None or bool((value >= 0).all())
    value = calls_well(law.hockey_stick, counts, move, epsilon, names=NAMES)
    assert value is None or bool(((value >= 0) & (value <= 1)).all())
    calls_well(law.pair, counts, move, names=NAMES)


@fuzzed("decisions", share=1, few=20, law=decisions(), counts=rows, winner=fuzz.mostly(st.integers(-1, 3)))
def test_outcomes_and_their_masses(law: Decision, counts: Any, winner: Any) -> None:
    calls_well(law.log_prob, winner, counts, names=NAMES)
    error = calls_well(law.chance_of_error, counts, names=NAMES)
    assert error is None or bool(((error >= 0) & (error <= 1)).all())
    drawn = calls_well(law.sample, counts, generator=torch.Generator(), names=NAMES)
    released = calls_well(law.release, counts, names=NAMES)
    assert (drawn is None) == (released is None)


@fuzzed(
    "decisions",
    share=1,
    few=15,
    gap=st.floats(0, 40),
    move=fuzz.sizes(1e-6, 20.0),
    alpha=fuzz.sizes(1.01, 500.0),
    more=st.integers(0, 3),
)
def test_divergences_are_those_of_the_two_in_front(gap: float, move: float, alpha: float, more: int) -> None:
    """Others that are hopelessly behind change nothing: the exact value is that of a difference of two."""
    counts = torch.tensor([gap, 0.0, *[-500.0] * more], dtype=torch.float64)
    moves = torch.tensor([-move, *[0.0] * (1 + more)], dtype=torch.float64)
    with mp.workdps(400):
        first, second = (below(mpf(value) / mp.sqrt(2)) for value in (gap, mpf(gap) - mpf(move)))
        pairs = ((first, second), (1 - first, 1 - second))
        exact = mp.log(sum(p ** mpf(alpha) * q ** (1 - mpf(alpha)) for p, q in pairs)) / (mpf(alpha) - 1)
    found = float(rf.NoisyWinner(1.0).renyi_divergence(counts, moves, alpha))
    assert abs(found - float(exact)) <= 1e-10 * float(exact) + 1e-290
