"""The slope of a divergence is bounded wherever theta lies: compared with slopes to fifty digits."""

import math

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

import ringfence as rf
from ringfence.accounting import steepness as file
from ringfence.accounting.sensitivity import natural_unit
from ringfence.accounting.steepness import largest_share, steepness
from tests.fuzz import exact

LEVELS = 3


def made(name: str, bound: float, offset: float = 0.0) -> tuple[rf.Mechanism, exact.Setting]:
    low, high = offset - bound, offset + bound
    law = {
        "gaussian": lambda: rf.Gaussian(1.0),
        "rectified": lambda: rf.RectifiedGaussian(1.0, (low, high)),
        "truncated": lambda: rf.TruncatedGaussian(1.0, (low, high)),
        "sign": lambda: rf.StochasticSign(1.0),
        "quantized": lambda: rf.QuantizedGaussian(1.0, (low, high), levels=LEVELS),
    }[name]()
    return law, exact.Setting(name, 1.0, low, high, LEVELS)


def slope(setting: exact.Setting, theta: float, shift: float, alpha: float) -> float:
    """dD/dtheta of D(theta || theta + shift): a difference quotient of fifty digits."""
    with mp.workdps(exact.DIGITS):
        step = mpf(10) ** -10
        up, down = (exact.renyi(setting, mpf(theta) + way * step, shift, alpha) for way in (1, -1))
        return float((up - down) / (2 * step))


def steepest(name: str, bound: float, move: float, alpha: float) -> float:
    """The largest |slope| to be found in units of M / u, exactly, at places that a plain search finds."""
    law, setting = made(name, bound)
    unit = float(natural_unit(law))
    ends = [bound * (2 * (i + 0.5) / (LEVELS - 1) - 1) for i in range(LEVELS - 1)]
    places = {"gaussian": [0.0], "sign": [0.0], "quantized": ends}.get(name, [-bound, bound])
    reach = 40 * unit + 3 * alpha * move
    if max(places) < reach:  # one search for all of them: nodes that lie too close give noise
        places, reach = [0.0], reach + max(places)
    sizes = torch.logspace(-2, 0, 500, dtype=torch.float64)
    around = reach * torch.cat((-sizes.flip(0), torch.linspace(-0.01, 0.01, 301).double()[1:-1], sizes))
    theta = torch.cat([place + around for place in places])
    found = 0.0
    for shift in (move, -move):
        values = law.renyi_divergence(theta, shift, alpha)
        rises = (torch.diff(values) / torch.diff(theta)).abs()
        place = int(rises.argmax())
        middle = float(theta[place] + theta[place + 1]) / 2
        found = max(found, abs(slope(setting, middle, shift, alpha)))
    return found * unit / (0.5 * alpha * (move / unit) ** 2)


@pytest.mark.parametrize("name", ["gaussian", "rectified", "truncated", "sign", "quantized"])
def test_never_below_the_exact_slope(name: str) -> None:
    """And hardly above it where the nodes are as close as they should be."""
    generator = np.random.default_rng(13)
    sharp = 0
    for _ in range(6):
        bound, move = 10.0 ** generator.uniform(-3, 3), 10.0 ** generator.uniform(-4, 1)
        alpha = 1.1 * (1024 / 1.1) ** generator.uniform()
        law, _ = made(name, bound)
        bounded, true = steepness(law, move, alpha), steepest(name, bound, move, alpha)
        assert true * (1 - 1e-9) <= bounded <= 2 * max(1, move), (bound, move, alpha)
        if alpha * move < 4 and (name != "quantized" or bound < 30):
            sharp += 1
            assert bounded <= 1.04 * true, (bound, move, alpha)
    assert sharp >= 2


@pytest.mark.parametrize("bound", [1e-6, 1e-3, 0.1])
def test_a_narrow_truncated_law_is_steepest_far_outside_its_support(bound: float) -> None:
    """|theta| = 1.37 sigma^2 / b, and far below what the third cumulant of any law on the interval allows."""
    law, setting = made("truncated", bound)
    unit, move, alpha = float(natural_unit(law)), 1e-3, 8.0
    size = steepness(law, move, alpha) * 0.5 * alpha * (move / unit) ** 2 / unit
    true = abs(slope(setting, 1.3715 / bound, move, alpha))
    assert true < size < 1.02 * true
    assert size < 0.5 * alpha * move**2 * (2 * bound) ** 3 / (6 * math.sqrt(3)) / 7


@pytest.mark.parametrize("bound", [(0.0, math.inf), (-math.inf, 0.0), (-1e7, 1e7), (-math.inf, math.inf)])
@pytest.mark.parametrize("law", [rf.TruncatedGaussian, rf.RectifiedGaussian])
def test_ends_that_are_far_apart_are_seen_one_by_one(law: type, bound: tuple[float, float]) -> None:
    """At an end the slope is 0.2957 M (truncated) or 0.4013 M (rectified); elsewhere f is flat."""
    expected = {"truncated": 0.2957, "rectified": 0.4013}[law.name] * any(map(math.isfinite, bound))
    found = steepness(law(1.0, bound), 1e-5, 2.0)
    assert expected <= found <= 1.03 * expected + 1e-20


def test_where_nodes_cannot_say_the_bound_that_holds_everywhere_does() -> None:
    small = 2 * math.exp(-0.5)  # for laws with atoms, where (alpha - 1) M is small
    assert steepness(rf.QuantizedGaussian(1.0, 1e6, levels=3), 1e-3, 8.0) == pytest.approx(small, rel=1e-4)
    assert steepness(rf.QuantizedGaussian(1.0, 1e6, levels=3), 1.0, 8.0) == 2.0  # nodes too far apart
    assert steepness(rf.TruncatedGaussian(1.0, (1e15, 1e15 + 2)), 1e-3, 8.0) == math.sqrt(2)  # one float64
    assert steepness(rf.StochasticSign(1.0), 1e-170, 8.0) == pytest.approx(small)  # divergences underflow
    assert largest_share(rf.StochasticSign(1.0), 10.0, 1024.0) == 1.0  # f cannot change by more than M


@pytest.mark.parametrize("alpha", [1.5, 3.0])
def test_beyond_65536_cells_of_an_eighth_the_bound_that_holds_everywhere_does(
    alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sqrt(k) e^(-1/2) (e^t - 1) / t for a law with atoms, t = (alpha - 1) M."""
    law, move, nodes = rf.QuantizedGaussian, 0.5, []

    def flat(_: rf.Mechanism, theta: torch.Tensor, *__: object) -> torch.Tensor:
        nodes.append(len(theta))
        return torch.zeros(1, len(theta), dtype=torch.float64)

    monkeypatch.setattr(law, "renyi_curve", flat)
    last = 4096 - (17 + 2 * alpha * move)
    assert steepness(law(1.0, last - 1e-6, levels=3), move, alpha) < 1e-6
    assert nodes == 2 * [65537]
    tilt = (alpha - 1) * 0.5 * alpha * move**2
    everywhere = math.sqrt((4 + max(0.0, 2 - alpha) * move**2 / 4) / math.e) * math.expm1(tilt) / tilt
    found = steepness(law(1.0, last + 1e-6, levels=3), move, alpha)
    assert found == pytest.approx(everywhere * (1 + 1e-11), rel=2e-12)


def test_a_support_far_from_zero_pays_for_the_rounding_of_theta() -> None:
    near, far = (rf.RectifiedGaussian(1.0, (place - 1.0, place + 1.0)) for place in (0.0, 1e12))
    move = 1e-5
    rounding = 2.0**-51 * 1e12  # more than theta + s may be off, for both neighbours together
    grown = largest_share(far, move, 2.0) / largest_share(near, move, 2.0)
    assert 1 + 0.9 * rounding / move < grown < 4 + 4 * rounding / move


@pytest.mark.parametrize("alpha", [1.5, 8.0])
def test_between_nodes_the_bound_is_that_of_the_proof(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steeper of two neighbouring cells, what the bend may add to it, and all roundings. Nodes are so far
    apart that the bend shows."""
    monkeypatch.setattr(file, "_NODES_PER_UNIT", 4)
    law, move, unit, most, width = rf.RectifiedGaussian(1.0, 1.0), 0.5, 2.0, 3.0, 0.25
    bend = 4 + max(0.0, 2 - alpha) * (move / unit) ** 2 / 4
    nodes = [0.3 + 2 * width * i for i in range(5)]
    expected = 0.0
    for shift in (move, -move):
        values = [float(law.renyi_divergence(theta, shift, alpha)) / most for theta in nodes]
        for first, second, third in zip(values, values[1:], values[2:], strict=False):
            steep = max(abs(second - first), abs(third - second)) / width
            highest = max(first, second, third) / (1 - bend * width**2 / 6)
            expected = max(expected, steep + 1.5 * bend * width * highest)
    expected = expected * (1 + 1e-11) + 2 * 1e-11 / width
    found = file._between_nodes(law, (nodes[0], nodes[-1]), unit, move, alpha, most)
    assert found == pytest.approx(expected, rel=1e-12, abs=0)
    if alpha < 2:  # twice as far apart: k h^2 is just above 1, and nothing is known between the nodes
        monkeypatch.setattr(file, "_NODES_PER_UNIT", 2)
        assert file._between_nodes(law, (nodes[0], nodes[-1]), unit, move, alpha, most) == math.inf


@pytest.mark.parametrize("alpha", [1.5, 8.0])
def test_beyond_the_nodes_the_bound_is_that_of_the_proof(
    alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 units from the ends: next to nothing of a law with atoms, the square of a distance of a family's."""
    monkeypatch.setattr(file, "_between_nodes", lambda *_: 0.0)
    law, move = rf.RectifiedGaussian(1.0, 1.0), 1e-3
    bend = 4 + max(0.0, 2 - alpha) * move**2 / 4
    nothing = math.exp(-(15**2) / 2) * alpha / (alpha - 1) / (0.5 * alpha * move**2)
    expected = math.sqrt(2 * bend * nothing + nothing**2)
    assert steepness(law, move, alpha) == pytest.approx(expected, rel=1e-9, abs=0)
    family = rf.TruncatedGaussian(1.0, 1.0)
    jump = move / float(natural_unit(family))
    expected = math.sqrt(3) / (15 + alpha * jump) ** 2
    assert steepness(family, move, alpha) == pytest.approx(expected, rel=1e-9, abs=0)
    jump = 10 / float(natural_unit(family))
    assert steepness(family, 10.0, alpha) == pytest.approx(
        math.sqrt(3) / (15 + alpha * jump) ** 2, rel=1e-9, abs=0
    )
