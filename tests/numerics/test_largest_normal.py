"""Chances of normal variables to be the largest, against 25 recorded digits, closed forms and finer grids."""

import itertools
import math
import random
from datetime import date

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from ringfence.mechanisms.pieces import sharpened
from ringfence.numerics import largest_normal
from ringfence.numerics.largest_normal import completed, log_chances, log_chances_and_ratios
from ringfence.numerics.normal import log_tail
from tests.numerics.largest_oracle import CASES, Group, computed, exact, recorded
from tests.oracle import below


def as_atoms(location: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    """log p, and log p/q as a law of atoms has them."""
    log_p, rho = log_chances_and_ratios(location, moves)
    return log_p, sharpened(log_p.unsqueeze(2).expand_as(rho), rho)


def close(values: Tensor, truth: list[str]) -> bool:
    """To 2e-12 of each; where two moves cancel, to a rounding error of what one of them does."""
    exact_values = list(map(mpf, truth))
    rounding = 1e-16 * max(map(abs, exact_values))
    pairs = zip(values.tolist(), exact_values, strict=True)
    return all(
        abs(mpf(value) - true) < 2e-12 * abs(true) + min(rounding, 1e-9 * abs(true)) for value, true in pairs
    )


def found(groups: tuple[Group, ...]) -> tuple[Tensor, Tensor]:
    """log p and log p/q of one variable of each group."""
    rows = [[float(group[column]) for group in groups for _ in range(group[2])] for column in (0, 1)]
    location, move = torch.tensor(rows, dtype=torch.float64)
    log_p, rho = as_atoms(location.unsqueeze(0), move.view(1, 1, -1))
    firsts = [sum(group[2] for group in groups[:place]) for place in range(len(groups))]
    return log_p[firsts, 0], rho[firsts, 0, 0]


@pytest.mark.parametrize("groups", CASES)
def test_recorded_digits(groups: tuple[Group, ...]) -> None:
    """40 sigma behind, moves from 1e-6 to 12 sigma, 2 to 1,000 variables."""
    for values, truth in zip(found(groups), recorded()[CASES.index(groups)], strict=True):
        assert close(values, truth)


def test_one_of_them_computed_again() -> None:
    """Another one every day; those of 1,000 variables take too long."""
    groups = random.Random(date.today().isoformat()).choice([case for case in CASES if len(case) == 2])
    assert computed(groups) == recorded()[CASES.index(groups)]


def test_the_oracle_knows_closed_forms() -> None:
    """Two variables: Phi(-d / sqrt 2). Equal ones: 1 / K."""
    with mp.workdps(60):
        assert abs(exact([(0, 0, 1), (-3, 1, 1)])[0][1] / mp.log(below(-3 / mp.sqrt(2))) - 1) < 1e-45
        assert abs(exact([(0, 0.5, 4)])[0][0] + mp.log(4)) < 1e-45


def test_two_variables_at_any_distance() -> None:
    gaps = torch.tensor([0.0, 1e-9, 3.0, 40.0, 300.0, 1e4, 9e5], dtype=torch.float64)
    values = log_chances(torch.stack((torch.zeros_like(gaps), -gaps), dim=1))
    sizes = gaps * 0.5**0.5
    assert torch.allclose(values, torch.stack((log_tail(-sizes), log_tail(sizes))), rtol=1e-12, atol=0)


def random_rows(variables: int, generator: torch.Generator, rows: int = 12) -> Tensor:
    """Ties, crowds and single ones far behind."""
    spread = 10 ** (4 * torch.rand(rows, 1, generator=generator, dtype=torch.float64) - 2)
    location = spread * torch.randn(rows, variables, generator=generator, dtype=torch.float64)
    tied = torch.rand(rows, variables, generator=generator) < torch.rand(rows, 1, generator=generator)
    location = torch.where(tied, location[:, :1], location)
    return (location - location.amax(dim=1, keepdim=True)).clamp(min=-40.0)


@pytest.mark.parametrize("variables", [2, 3, 10, 30, 31, 200])
def test_a_finer_and_longer_grid_gives_the_same(variables: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the quadrature is measured here, as docs/guarantees.md says."""
    location = random_rows(variables, torch.Generator().manual_seed(variables))
    moves = torch.zeros(1, 4, variables, dtype=torch.float64)
    moves[0, 0, 0], moves[0, 1, 0], moves[0, 1, -1], moves[0, 2, -1], moves[0, 3, 1] = 1e-6, -0.1, 0.1, 3, -9
    log_p, rho = as_atoms(location, moves)
    for name, value in (("_STEP", 0.2), ("_STEP_OF_MANY", 0.15), ("_REACH", 12.0)):
        monkeypatch.setattr(largest_normal, name, value)
    finer, sharp = as_atoms(location, moves)
    assert torch.allclose(log_p, finer, rtol=1e-12, atol=0)
    assert torch.allclose(rho, sharp, rtol=1e-10, atol=0)


def test_long_moves_are_two_evaluations() -> None:
    """They make densities narrower and wider than they were; differences of logarithms keep their digits."""
    ahead = torch.full((2, 30), -6.0, dtype=torch.float64)
    ahead[0, 0], ahead[1, :-1] = 0.0, 0.0
    moves = torch.zeros(5, 30, dtype=torch.float64)
    moves[0, 0], moves[1, -1], moves[2, -1], moves[3], moves[3, 0] = -40.0, -40.0, 40.0, 20.0, -20.0
    moves[4, 1] = 0.75
    for row, move in itertools.product(ahead.split(1), moves):  # together they would share the finer grid
        log_p, rho = log_chances_and_ratios(row, move.view(1, 1, -1))
        assert torch.allclose(rho[:, :, 0], log_p - log_chances(row + move), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("behind", [-4.0, -6.0, -12.0])
def test_small_ratios_beside_enormous_ones_keep_their_digits(behind: float) -> None:
    """The third comes up from 100 sigma behind: e^4000 for itself, and P(third) for the two others."""
    location, move = (
        torch.tensor([[0.0, 0.0, -100.0]]).double(),
        torch.tensor([[[0.0, 0.0, 100 + behind]]]).double(),
    )
    rho = log_chances_and_ratios(location, move)[1][:2, 0, 0]
    third = log_chances(location + move[0])[2, 0].exp()
    assert torch.allclose(rho, -torch.log1p(-third), rtol=1e-13, atol=0)


def test_windows_that_are_far_apart() -> None:
    """So far behind, log Phi(u) is -u^2 / 2 up to logarithms, and the best x is a mean."""
    others = torch.tensor([0.0, 0.0, -900.0], dtype=torch.float64)
    location = torch.cat((others, torch.tensor([-5e5], dtype=torch.float64))).unsqueeze(0)
    best = float(location.mean())
    log_p, rho = log_chances_and_ratios(location, torch.tensor([[[0.0, 0.0, 0.0, 1.0]]]).double())
    assert float(log_p[3, 0]) == pytest.approx(-0.5 * float((location - best).square().sum()), rel=1e-9)
    assert float(rho[3, 0, 0]) == pytest.approx(-(best + 5e5), rel=1e-5)


@pytest.mark.parametrize("others", [[], [0.0], [-3.0, -3.5], [-300.0], [-20.0, -300.0]])
def test_nothing_is_computed_between_windows(others: list[float]) -> None:
    """However far apart they are, and between whichever two the way is long."""
    still = torch.zeros(1, 0, 2 + len(others), dtype=torch.float64)
    counts = [
        float(largest_normal._Grids(torch.tensor([[0.0, *others, -far]]).double(), still).counts)
        for far in (1e3, 1e6)
    ]
    assert counts[0] == counts[1] < 200 * (1 + len(others))


@pytest.mark.parametrize(
    "location",
    [[0.0, -3.0, -3.5, -300.0, -301.0], [-1000.0, -90.0, 0.0, 0.0, -200.0], [0.0] * 30, [0.0] * 31],
)
@pytest.mark.parametrize("move", [[], [-0.3, 0.2], [0.0, 0.5], [-0.5, 0.0], [0.6, -2.0], [0.0, -0.7]])
def test_nodes_fill_the_windows_and_nothing_else(location: list[float], move: list[float]) -> None:
    """Window by window: 8.5 around each mode, whose estimate may be 5.5 too low, and as far as the moves."""
    row = torch.tensor([location], dtype=torch.float64)
    moves = torch.zeros(1, 1, len(location), dtype=torch.float64)
    if move:
        moves[..., -2:] = torch.tensor(move, dtype=torch.float64)
    else:
        moves = moves[:, :0]
    down, up = max([0.0, *(-size for size in move)]), max([0.0, *move])
    ((_, nodes, _),) = largest_normal._Grids(row, moves).parts()
    begin, end, width = (float(part) for part in largest_normal._outer_modes(row))
    if max(down, up) > 0.5:  # densities become narrower, or wider
        moved = row + moves[0]
        width = min(width, float(largest_normal._outer_modes(moved - moved.max())[2]))
        begin -= 8.5
    windows = [
        [mode - 8.5 - down, mode + 5.5 + 8.5 + up]
        for mode in sorted(largest_normal._modes_at_least(row)[0].tolist())
    ]
    windows[0][0], windows[-1][1] = max(begin - down, windows[0][0] - 20), end + up
    gaps = [max(0.0, later[0] - one[1]) for one, later in itertools.pairwise(windows)]
    length = windows[-1][1] - windows[0][0] - sum(gaps)
    step = 0.45 if len(location) <= 30 else 0.3
    count, passed, expected = math.ceil(length / (step * width)), 0, []
    for i in range(count):
        place = windows[0][0] + (i + 0.5) * length / count
        while passed < len(gaps) and place + sum(gaps[:passed]) > windows[passed][1]:
            passed += 1
        expected.append([place + sum(gaps[:passed]) - one for one in location])
    assert torch.allclose(nodes.u[0].T, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_rows_with_moves_of_their_own_are_what_they_are_alone() -> None:
    """One of them is long, and the rows with the most nodes are not the last ones."""
    location = random_rows(6, torch.Generator().manual_seed(3))[:5].flip(0)
    moves = 0.1 * torch.randn(5, 2, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    moves[1, 0, 2] = 3.0
    log_p, rho = log_chances_and_ratios(location, moves)
    for row in range(5):
        alone = log_chances_and_ratios(location[row : row + 1], moves[row : row + 1])
        assert torch.allclose(log_p[:, row], alone[0][:, 0], rtol=1e-12, atol=0)
        assert torch.allclose(rho[:, row], alone[1][:, 0], rtol=1e-9, atol=1e-14)
    counts = largest_normal._Grids(location, moves).counts
    assert float(counts[1]) == float(largest_normal._Grids(location[1:2], moves[1:2]).counts)
    ((_, nodes, _),) = largest_normal._Grids(location, moves).parts()
    assert nodes.u.shape == (5, 6, int(counts.max()))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    location = random_rows(6, torch.Generator().manual_seed(3))
    shared = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    log_p, rho = as_atoms(location, shared)
    own = as_atoms(location, shared.expand(12, -1, -1).contiguous())
    monkeypatch.setattr(largest_normal, "_NUMBERS", 5000)
    some = as_atoms(location, shared)
    monkeypatch.setattr(largest_normal, "_NUMBERS", 300)  # four rows are planned at once
    for again in (own, some, as_atoms(location, shared)):
        assert torch.allclose(again[0], log_p, rtol=1e-12, atol=0)
        assert torch.allclose(again[1], rho, rtol=1e-9, atol=0)


@pytest.mark.parametrize("numbers", [10_000, 200_000])
def test_as_much_is_held_at_once_as_is_allowed(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows share their nodes, and moves of two variables a call, as far as they fit; one is taken anyway."""
    location = random_rows(6, torch.Generator().manual_seed(3))
    moves = torch.randn(1, 30, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    moves[..., 2:] = 0
    held, honest = [], largest_normal._log_ratios

    def recorded(nodes: largest_normal._Nodes, sizes: Tensor, places: Tensor) -> Tensor:
        (rows, variables, count), together = nodes.u.shape, sizes.shape[1]
        whole = rows * count * (4 * variables + 9 * moves.shape[1])
        held.append((rows, together, whole, 9 * rows * count * together))
        return honest(nodes, sizes, places)

    monkeypatch.setattr(largest_normal, "_log_ratios", recorded)
    monkeypatch.setattr(largest_normal, "_NUMBERS", numbers)
    log_chances_and_ratios(location, moves)
    assert all(rows == 1 or whole <= numbers for rows, _, whole, _ in held)
    assert all(together == 1 or changes <= numbers for _, together, _, changes in held)
    assert max(rows for rows, *_ in held) == (1 if numbers == 10_000 else 5)
    assert max(together for _, together, *_ in held) == (9 if numbers == 10_000 else 30)


def test_a_heavy_outcome_is_what_the_others_leave() -> None:
    log_p = completed(torch.tensor([0.1, -50.0, -60.0], dtype=torch.float64))
    assert float(log_p[0]) == pytest.approx(-float(torch.exp(log_p[1:]).sum()), rel=1e-14)
