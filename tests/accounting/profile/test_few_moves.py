"""A record that moves a few coordinates: the envelope is above every such move, and exact for one."""

from itertools import combinations

import pytest
import torch

import ringfence as rf
from ringfence.accounting.profile import few_moves
from ringfence.accounting.profile.dominating_pair import Coordinate, composed_delta
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


def test_one_move_is_raised_by_its_rounding_and_no_more() -> None:
    law, theta = LAWS[2], torch.tensor([1.0, 3.0], dtype=torch.float64)
    sticks = [law.hockey_stick(theta, move, 0.1) for move in (1.0, -1.0)]
    sticks += [law.hockey_stick(theta + move, -move, 0.1) for move in (1.0, -1.0)]
    delta = envelope_delta(law, theta, ONE, 1)
    assert delta(0.1) / float(torch.stack(sticks).max()) - 1 == pytest.approx(1e-11, rel=0.02)


def test_how_many_coordinates_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_moves, "_composed", lambda *_: None)
    theta = torch.arange(4097, dtype=torch.float64)
    assert envelope_delta(rf.Gaussian(4.0), theta[:-1], ONE, 1) is not None
    assert envelope_delta(rf.Gaussian(4.0), theta, ONE, 1) is None
    assert envelope_delta(rf.Gaussian(4.0), theta, (theta < 9).double(), 1) is not None  # the others stay
    # 2^18 hockey sticks, two signs and two directions, of which half lie on either side of 0; at least 4
    # points in a deviation of 1/4, whose reach is 12 deviations
    most = 2**18 // (8 * 4 * 12)
    for count, enough in ((most - 10, True), (most + 10, False)):
        found = envelope_delta(rf.Gaussian(4.0), theta[:count], ONE, 2)
        assert (found is not None) == enough


def test_every_value_of_a_composition_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Composed:
        size = 1000

        def self_compose(self, moves: int, tail_mass_truncation: float) -> "Composed":
            assert (moves, tail_mass_truncation) == (5, 1e-18)
            return self

        def get_delta_for_epsilon(self, epsilon: float) -> float:
            return epsilon

    seen = []
    monkeypatch.setattr(
        few_moves, "pessimistic", lambda curve, step: seen.append((curve, step)) or Composed()
    )
    sides = Coordinate(rf.Gaussian(1.0), torch.zeros(1).double(), ONE).direction(False)
    delta = few_moves._composed(sides, 0.95, 5, 0.1)
    assert delta(0.25) == pytest.approx(0.25 + 1e-15 * 1000 * 6, rel=1e-15)
    ((curve, step),) = seen
    epsilon = 0.1 * torch.arange(-11, 12).double()
    assert step == 0.1
    assert curve.tolist() == pytest.approx(sides[0].curve(epsilon).tolist(), rel=1e-12)


def test_a_delta_that_covers_every_difference_costs_nothing_and_roundings_are_charged() -> None:
    law, theta = rf.StochasticSign(4.0), torch.tensor([3.0], dtype=torch.float64)
    largest = max(
        float(law.hockey_stick(start, move, 0.0)) for start, move in ((3, 1), (3, -1), (4, -1), (2, 1))
    )
    assert float(single_epsilons(law, theta, 1.0, largest * (1 + 1.1e-11))) == 0.0
    assert float(single_epsilons(law, theta, 1.0, largest * (1 + 0.9e-11))) > 0.0
    assert torch.equal(single_epsilons(law, theta, 1.0, 1e-3), single_epsilons(law, theta, -1.0, 1e-3))
