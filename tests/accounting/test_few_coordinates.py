"""Hockey sticks instead of moments: parameters of each coordinate, moves from nothing to very far."""

import math
from typing import Any

import pytest
import torch
from mpmath import mp, mpf

import ringfence as rf
from ringfence.accounting import poisson_mixture
from ringfence.accounting.divergence_sums import released_shape
from ringfence.accounting.poisson_mixture import log_excess_of_few
from ringfence.accounting.subsampling import fixed_batch_rdp
from tests import oracle

ORDERS = torch.tensor([2.0, 5.0, 40.0], dtype=torch.float64)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def sign_excess(thetas: list[float], moves: list[float], rate: float, alpha: int) -> mpf:
    """E_P[(1 - q + q r)^(1 - alpha)] - 1 of independent signs, P at theta and Q at theta + move."""
    pairs = [(mpf(1), mpf(1))]
    for theta, move in zip(thetas, moves, strict=True):
        p, q = oracle.sign(1)(theta).atoms, oracle.sign(1)(mpf(theta) + mpf(move)).atoms
        pairs = [(a * p[point], b * q[point]) for a, b in pairs for point in p]
    return sum(p * (1 + mpf(rate) * (q / p - 1)) ** (1 - alpha) for p, q in pairs) - 1


@pytest.mark.parametrize(("size", "rate"), [(1e-7, 0.3), (0.4, 0.01), (3.0, 0.9)])
def test_two_signs_by_definition(size: float, rate: float) -> None:
    thetas = [0.3, -1.1]
    got = log_excess_of_few(rf.StochasticSign(1.0), torch.tensor(thetas).double(), number(size), rate, ORDERS)
    corners = [[a * size, b * size] for a in (1, -1) for b in (1, -1)]
    with mp.workdps(50):
        for i, alpha in enumerate(ORDERS.long().tolist()):
            added = max(sign_excess(thetas, v, rate, alpha) for v in corners)
            removed = max(
                sign_excess([t - m for t, m in zip(thetas, v, strict=True)], v, rate, alpha) for v in corners
            )
            for value, exact in zip(got[:, i].tolist(), (added, removed), strict=True):
                # of D: log(1 + excess) / (alpha - 1)
                assert 1 <= math.log1p(math.exp(value)) / float(mp.log1p(exact)) < 1.002


def test_every_coordinate_has_its_own_law_and_move() -> None:
    """Where the others do not move, one of four coordinates costs what it costs alone, on a coarser grid."""
    sigma, bound = torch.tensor([1.0, 2.0]).double(), torch.tensor([[1.0], [3.0]]).double()
    law, theta = rf.TruncatedGaussian(sigma, bound), number(0.4)
    assert released_shape(law, theta, number(0.1)).numel() == 4
    for row, column in ((0, 0), (1, 0), (1, 1)):
        moves = torch.zeros(2, 2, dtype=torch.float64)
        moves[row, column] = 0.5
        together = log_excess_of_few(law, theta, moves, 0.2, ORDERS)
        single = rf.TruncatedGaussian(sigma[column], bound[row, 0])
        alone = log_excess_of_few(single, theta, number(0.5), 0.2, ORDERS)
        torch.testing.assert_close(together, alone, rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    ("law", "theta", "move"),
    [
        (rf.StochasticSign(1.0), 300.0, 1.0),  # the masses underflow
        (rf.Gaussian(1.0), 0.0, 1e-300),
        (rf.TruncatedGaussian(1.0, 1e-9), 1.0, 999.0),  # thresholds cannot be told from the ends
        (rf.QuantizedGaussian(1.0, 1.0, levels=3), 0.0, 1e6),
    ],
)
def test_no_bound_where_digits_are_lost(law: rf.Mechanism, theta: float, move: float) -> None:
    assert bool((log_excess_of_few(law, number(theta), number(move), 0.5, ORDERS) == torch.inf).all())
    assert bool(fixed_batch_rdp(law, theta, move, 0.5, [2, 5]).forward.isfinite().all())


def test_very_far_apart() -> None:
    """The ratio is 0 under P and the mixture (1 - q) P: the cost is -log(1 - q)."""
    for law in (rf.Gaussian(1.0), rf.StochasticSign(1.0), rf.RectifiedGaussian(1.0, 1.0)):
        excess = log_excess_of_few(law, number(-50.0), number(100.0), 0.2, ORDERS)[0]
        divergence = torch.logaddexp(excess, number(0.0)) / (ORDERS - 1)
        torch.testing.assert_close(divergence, torch.full_like(divergence, -math.log1p(-0.2)))


def test_roundings_that_grow_with_the_square_of_the_move_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log densities of a move of m sigma go up to m^2 / 2, and are wrong by some 2^-52 of that. The grid ends
    where a tail of the Gaussian's loss is e^-70 of what is left out by (1 - q)^(1 - alpha), or at 300."""
    charged, grids = [], []
    pairs = poisson_mixture._pairs

    def seen(*arguments: Any) -> Any:
        charged.append(arguments[-1])
        grids.append(arguments[-2])
        return pairs(*arguments)

    monkeypatch.setattr(poisson_mixture, "_pairs", seen)
    for move in (1e-3, 16.0, 512.0):
        log_excess_of_few(rf.Gaussian(2.0), number(0.0), number(2 * move), 0.2, ORDERS)
    assert charged == pytest.approx([1e-11, 1e-11 + 2.0**-43, 1e-11 + 2.0**-33], rel=1e-9, abs=0)
    tail = math.sqrt(2 * (70 - float(ORDERS.max() - 1) * math.log1p(-0.2)))
    assert [len(grid) for grid in grids] == [385] * 3
    ends = [float(grid[-1]) for grid in grids]
    assert ends == pytest.approx([1e-3 * (1e-3 / 2 + tail), 300.0, 300.0], rel=1e-12, abs=0)
