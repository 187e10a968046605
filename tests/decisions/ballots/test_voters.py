"""What decisions cost one given voter: against enumeration of all answers."""

import itertools
import math

import numpy as np
import torch

import ringfence as rf
from ringfence.accounting.conversion import epsilon_from_rdp
from ringfence.decisions.ballots.voters import voter_epsilons
from tests.tensors import float64


def test_no_voter_pays_more_than_is_said() -> None:
    """The exact delta at each voter's epsilon, over all answers to four questions, in both directions."""
    law, surplus, delta = rf.StochasticSign(3.0), float64([4, -2, 0, 9]), 1e-2
    marks = torch.tensor([[0, 0, 1, 0], [1, 1, 1, 1], [-1, -1, 0, -1], [-1, 1, -1, -1]])
    epsilons = voter_epsilons(law, surplus, marks, delta)
    assert epsilons is not None
    for ballot, epsilon in zip(marks, epsilons, strict=True):
        own = torch.where(ballot == 0, 1.0, torch.where(ballot == 1, -1.0, 0.0))
        here, there = (_masses(values) for values in (surplus, surplus - own))
        for p, q in ((here, there), (there, here)):
            assert np.maximum(p - math.exp(float(epsilon)) * q, 0).sum() <= delta
            half = np.maximum(p - math.exp(float(epsilon) / 4) * q, 0).sum()
    assert half > 0  # the numbers are not idle
    assert float(epsilons[1]) > float(epsilons[3])


def test_a_voter_of_a_winner_pays_for_the_candidate_chosen() -> None:
    law, counts = rf.NoisyWinner(4.0), float64([[20, 18, 1], [30, 2, 1]])
    marks = torch.tensor([[0, -1], [2, -1], [-1, 0], [-1, -1]])
    front, behind, clear, nobody = (float(value) for value in voter_epsilons(law, counts, marks, 1e-4))
    assert min(front, behind, clear) > 0
    assert nobody == 0.0
    orders = [2.0, 8.0, 32.0]
    curve = [float(law.renyi_divergence([20, 18, 1], [-1, 0, 0], order)) for order in orders]
    back = [float(law.renyi_divergence([19, 18, 1], [1, 0, 0], order)) for order in orders]
    worst = torch.maximum(float64(curve), float64(back))
    assert front <= epsilon_from_rdp(float64(orders), worst, 1e-4)[0] * (1 + 1e-9)


def test_too_many_candidates_are_left_out() -> None:
    assert voter_epsilons(rf.NoisyWinner(4.0), torch.zeros(1, 5000).double(), torch.zeros(1, 1), 1e-4) is None


def _masses(surplus: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    yes = torch.special.ndtr(surplus / 3.0).tolist()
    return np.array([math.prod(one) for one in itertools.product(*((p, 1 - p) for p in yes))])
