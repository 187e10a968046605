"""A record that moves a few coordinates: the envelope is above every such move, and exact for one."""

from itertools import combinations

import pytest
import torch

import ringfence as rf
from ringfence.accounting.profile.dominating_pair import composed_delta
from ringfence.accounting.profile.few_moves import envelope_delta, single_epsilons

ONE = torch.tensor(1.0, dtype=torch.float64)
LAWS = [
    rf.RectifiedGaussian(4.0, (18.0, 1e4)),
    rf.TruncatedGaussian(4.0, (18.0, 60.0)),
    rf.StochasticSign(4.0),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_one_move_costs_what_the_worst_coordinate_does(law: rf.Mechanism) -> None:
    theta = torch.tensor([-3.0, 1.0, 12.0, 12.0, 40.0], dtype=torch.float64)
    delta = envelope_delta(law, theta, ONE, 1)
    alone = [composed_delta(law, value, ONE, 1) for value in theta.split(1)]
    for epsilon in (0.0, 0.3, 0.9, 2.0):
        assert delta(epsilon) == pytest.approx(max(one(epsilon) for one in alone), rel=1e-9)


def test_two_moves_cost_no_less_than_any_two_coordinates() -> None:
    law = rf.StochasticSign(4.0)
    theta = torch.tensor([-3.0, 6.0, 12.0], dtype=torch.float64)
    delta = envelope_delta(law, theta, 3 * ONE, 2)
    pairs = [composed_delta(law, torch.stack(pair), 3 * ONE, 1) for pair in combinations(theta, 2)]
    for epsilon in (0.0, 0.5, 1.5):
        assert delta(epsilon) >= max(pair(epsilon) for pair in pairs)
    alike = envelope_delta(law, theta[1].expand(9), 3 * ONE, 2)
    twice = composed_delta(law, theta[1].expand(2), 3 * ONE, 1)
    assert twice(0.5) <= alike(0.5) <= 1.1 * twice(0.5)  # every pattern of signs is below the envelope


def test_a_coordinate_that_cannot_move_costs_nothing() -> None:
    theta, still = torch.tensor([0.0, 12.0], dtype=torch.float64), torch.tensor([1.0, 0.0]).double()
    alone = composed_delta(LAWS[0], theta[:1], ONE, 1)
    assert envelope_delta(LAWS[0], theta, still, 1)(0.01) == pytest.approx(alone(0.01), rel=1e-9)
    assert envelope_delta(LAWS[0], theta, 0 * still, 1)(0.0) == 0
    assert envelope_delta(LAWS[0], torch.arange(5000.0), ONE, 1) is None


@pytest.mark.parametrize(
    "law",
    [
        rf.RectifiedGaussian(4.0, (18.0, 1e4)),
        rf.TruncatedGaussian(4.0, (18.0, 60.0)),
        rf.StochasticSign(4.0),
        rf.Gaussian(4.0),
    ],
    ids=lambda law: law.name,
)
def test_single_epsilons_hold_and_no_less_would(law: rf.Mechanism) -> None:
    theta = torch.tensor([1.0, 10.0, 17.0], dtype=torch.float64)  # of a sign at 17 the move down is worse
    epsilon = single_epsilons(law, theta, 1.0, 1e-5)

    def delta(at: torch.Tensor) -> torch.Tensor:
        return torch.stack(
            [law.hockey_stick(theta, s, at) for s in (1.0, -1.0)]
            + [law.hockey_stick(theta + s, -s, at) for s in (1.0, -1.0)]
        ).amax(dim=0)

    assert bool((delta(epsilon) <= 1e-5 * (1 + 1e-9)).all())
    assert bool((delta(epsilon * 0.99999) > 1e-5).all())


def test_parameters_may_differ_by_coordinate() -> None:
    sigma = torch.tensor([2.0, 8.0], dtype=torch.float64)
    both = single_epsilons(rf.StochasticSign(sigma), torch.ones(2, dtype=torch.float64), 1.0, 1e-5)
    each = [
        single_epsilons(rf.StochasticSign(float(s)), torch.ones(1, dtype=torch.float64), 1.0, 1e-5)
        for s in sigma
    ]
    assert both.tolist() == pytest.approx([float(one) for one in each], rel=1e-9)
