"""What one record can move: the value itself, and that no move beats an account of it."""

import json
import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting.sensitivity import Sensitivity, filled
from tests.accounting.evaluation import exact_rdp

ORDERS = torch.tensor([1.25, 8.0, 1024.0], dtype=torch.float64)
LAWS = (
    rf.Gaussian(1.0),
    rf.RectifiedGaussian(1.0, bound=0.5),
    rf.TruncatedGaussian(1.0, bound=(-1.0, 2.0)),
    rf.StochasticSign(1.0),
    rf.QuantizedGaussian(1.0, bound=2.0, levels=5),
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "each or norm must be given"),
        ({"at_most": 2}, "each or norm must be given"),
        ({"each": 1.0, "at_most": 0}, "at_most must be"),
        ({"each": 1.0, "at_most": 2.5}, "at_most must be"),
        ({"norm": math.nan}, "norm must"),
        ({"norm": -1.0}, "norm must"),
        ({"each": [1.0, math.inf]}, "each must"),
    ],
)
def test_what_bounds_no_move_is_refused_by_name(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Sensitivity(**arguments)  # type: ignore[arg-type]


def test_a_state_keeps_everything_and_old_states_load() -> None:
    for size in (Sensitivity(0.5), Sensitivity([0.5, 1.0], at_most=3), Sensitivity(norm=2.0)):
        account = rf.PerInstanceAccountant(LAWS[3], size)
        account.step([0.1, 2.0])
        again = rf.PerInstanceAccountant.from_state_dict(json.loads(json.dumps(account.state_dict())))
        assert again.sensitivity == size
        assert torch.equal(again.sensitivity.farthest, size.farthest)
        assert again.guarantee(1e-5) == account.guarantee(1e-5)
    assert rf.PerInstanceAccountant(LAWS[0], 0.5).state_dict()["sensitivity"] == 0.5


def _moves(size: Sensitivity, count: int, generator: torch.Generator) -> torch.Tensor:
    """Random and adversarial moves that ``size`` allows: (moves, count)."""
    moves = torch.randn(120, count, generator=generator, dtype=torch.float64)
    moves[:30] = moves[:30].sign()  # corners
    moves[30:60] *= torch.rand(30, count, generator=generator) < 1.5 / count  # all in a few coordinates
    moves[60:90] = moves[60:90].pow(3)
    if size.at_most is not None and size.at_most < count:
        order = torch.rand(120, count, generator=generator).argsort(dim=1)
        moves = moves * (order < size.at_most)
    farthest = size.farthest.expand(count)
    if size.each is not None and size.norm is None:
        return (moves * 3).clamp(-farthest, farthest)
    length = moves.norm(dim=1, keepdim=True).clamp(min=1e-300)
    lengths = torch.rand(120, 1, generator=generator, dtype=torch.float64).pow(0.3)
    lengths[:105] = 1.0
    return (moves / length * lengths * size.norm).clamp(-farthest, farthest)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("count", [1, 3, 12])
def test_no_move_beats_the_bound(law: rf.Mechanism, count: int) -> None:
    """Random and adversarial moves, from a table, by evaluation and for every theta."""
    generator = torch.Generator().manual_seed(count)
    for size in (
        Sensitivity(each=0.7, at_most=2),
        Sensitivity(norm=1.3),
        Sensitivity(each=0.5, norm=1.1),
        Sensitivity(each=torch.arange(count) % 3 * 0.2 + 0.1, at_most=2, norm=0.9),
    ):
        theta = 2 * torch.randn(count, generator=generator, dtype=torch.float64)
        moves = _moves(size, count, generator)
        forward = law.renyi_curve(theta, moves, ORDERS).sum(dim=-1)
        backward = law.renyi_curve(theta + moves, -moves, ORDERS).sum(dim=-1)
        bounds = rf.per_instance_rdp(law, theta, size, ORDERS)
        exact = exact_rdp(law, theta, size, ORDERS)
        for bound in (bounds, exact):
            assert bool((forward.amax(dim=1) <= bound.forward * (1 + 1e-9)).all())
            assert bool((backward.amax(dim=1) <= bound.backward * (1 + 1e-9)).all())
        assert bool((exact.worst <= bounds.worst * (1 + 1e-9)).all())


def test_the_gaussian_has_its_usual_account() -> None:
    theta, orders = torch.zeros(1_000), ORDERS
    for size, length in (
        (Sensitivity(norm=2.0), 2.0),
        (Sensitivity(each=0.1, norm=2.0), 2.0),
        (Sensitivity(each=0.1, norm=9.0), 0.1 * math.sqrt(1_000)),
        (Sensitivity(each=0.5, at_most=9), 1.5),
    ):
        account = rf.PerInstanceAccountant(rf.Gaussian(4.0), size, orders)
        account.step(theta)
        usual = orders * (length / 4.0) ** 2 / 2
        assert torch.allclose(account.worst, usual, rtol=1e-10)
        exactly = rf.PerInstanceAccountant(rf.Gaussian(4.0 / length), 1.0)
        exactly.step([0.0])
        want, got = (own.guarantee(1e-5).epsilon for own in (exactly, account))
        assert got == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("law", LAWS[1:], ids=lambda law: type(law).__name__)
def test_a_norm_is_read_from_a_table_close_to_its_evaluation(law: rf.Mechanism) -> None:
    generator = torch.Generator().manual_seed(1)
    theta = torch.randn(300, generator=generator, dtype=torch.float64)
    for size in (Sensitivity(norm=0.5), Sensitivity(each=0.1, norm=0.5)):
        orders = ORDERS[1:]
        bound, exact = (rdp(law, theta, size, orders).worst for rdp in (rf.per_instance_rdp, exact_rdp))
        assert bool((bound >= exact * (1 - 1e-9)).all())
        assert bool((bound <= 1.005 * exact).all())
        ceiling = 0.5 * orders * size.norm**2
        assert bool((bound <= ceiling * (1 + 1e-9)).all())


def test_filling_by_hand() -> None:
    """The largest values first: 4 of 1 room, 3 of half, then 1 of two and a quarter."""
    values = torch.tensor([3.0, 1.0, 4.0, 1.0], dtype=torch.float64)
    room = torch.tensor([0.5, 2.0, 1.0, 0.25], dtype=torch.float64)
    for budget, best in ((0.0, 0.0), (0.3, 1.2), (1.2, 4.6), (2.0, 6.0), (3.75, 7.75), (10.0, 7.75)):
        assert float(filled(values, room, budget)) == pytest.approx(best, rel=1e-14)
        half, rows = min(budget, 1.2), torch.stack((values, 2 * values.flip(0)))
        each = 4 * min(half, 0.5) + 3 * min(max(half - 0.5, 0.0), 0.5) + max(half - 1.0, 0.0)
        assert filled(rows, room[0], half).tolist() == pytest.approx([each, 2 * each], rel=1e-14)
    unbounded = torch.tensor([2.0, math.inf], dtype=torch.float64)
    assert [float(filled(unbounded, room[:1], budget)) for budget in (0.0, 0.1)] == [0.0, math.inf]
    assert float(filled(values, 0 * room, 1.0)) == 0.0


def test_a_budget_is_raised_by_what_a_running_sum_may_lose() -> None:
    """By 2^-52 for each value, whether all of them are sorted or only those that can be filled."""
    for room in (torch.ones(()), torch.cat((torch.ones(9), torch.full((1,), 1e-3)))):
        left = float(filled(torch.ones(10).double(), room.double(), 3.0)) - 3
        assert left == pytest.approx(3 * 10 * 2.0**-52, rel=0.1)


def test_the_longest_move_in_units_by_hand() -> None:
    unit = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    one, three = torch.tensor(4.0), torch.Size([3])
    for size, its_unit, shape, square in (
        (Sensitivity(2.0, at_most=3), one, torch.Size([10]), 3 / 4),
        (Sensitivity([1.0, 2.0, 3.0], at_most=2), one, three, 13 / 16),
        (Sensitivity(1.0, at_most=2), unit, three, 5.0),
        (Sensitivity(norm=3.0), unit, three, 36.0),
        (Sensitivity(1.0, norm=1.2), unit, three, 4 + 0.44),
        (Sensitivity([0.5, 1.0, 2.0], at_most=1, norm=1.5), unit, three, 4.0),  # one coordinate
        (Sensitivity([0.5, 1.0, 2.0], at_most=2, norm=1.1), unit, three, 4 + 0.21),  # their length
        (Sensitivity(1.0, norm=1.2), unit[:2], torch.Size([2]), 4 + 0.44),
        (Sensitivity([1.0, 2.0]), torch.tensor([[1.0], [2.0]]), torch.Size([2, 2]), 6.25),
        (Sensitivity(3.0), one, torch.Size([5, 2]), 10 * 9 / 16),
        (Sensitivity(1.0), one, torch.Size([0]), 0.0),
    ):
        assert size.longest_square(its_unit, shape) == pytest.approx(square, rel=1e-13), size


def test_bounds_that_others_imply_are_left_out_and_equal_moves_are_equal() -> None:
    each = torch.tensor([3.0, 4.0, 1.0], dtype=torch.float64)
    three = torch.Size([3])
    assert Sensitivity(each, at_most=2, norm=5.0).binding(three) == Sensitivity(each, at_most=2)
    assert Sensitivity(each, at_most=2, norm=4.9).binding(three) == Sensitivity(each, at_most=2, norm=4.9)
    assert Sensitivity(each, at_most=3).binding(three) == Sensitivity(each)
    assert Sensitivity(1.0, at_most=4, norm=1.9).binding(torch.Size([9])) == Sensitivity(1.0, norm=1.9)
    assert Sensitivity(1.0, norm=3.0).binding(torch.Size([9])) == Sensitivity(1.0)
    assert Sensitivity(1.0) != 1.0
    assert (
        len({Sensitivity(1.0), Sensitivity(1.0, norm=1.0), Sensitivity(1.0, at_most=1), Sensitivity(1.0)})
        == 3
    )
    assert Sensitivity(1.0, at_most=2).statement.startswith("One record moves at most 2 coordinates, by at")
    assert Sensitivity(norm=2.0).statement == "One record moves theta by an L2 norm of at most 2.0 in all."
