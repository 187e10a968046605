"""Batches that are known: quadrature in one dimension, tensor quadrature in three, every sign."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from scipy.special import ndtr

import ringfence as rf
from ringfence.accounting.subsampling import SAMPLED_ORDERS, SampledDivergence, checked_integer_orders
from tests import oracle
from tests.accounting.fixed_batch import fixed_batch_rdp

ORDERS = [2, 4, 16]
LOOSE = {1e-3: 1.004, 0.1: 1.8, 1.0: 2.3}  # how far above the exact cost the forward direction may be
LAWS = {
    "truncated": (rf.TruncatedGaussian(1.0, 1.0), oracle.truncated(1, -1, 1)),
    "rectified": (rf.RectifiedGaussian(1.0, 1.0), oracle.rectified(1, -1, 1)),
    "sign": (rf.StochasticSign(1.0), oracle.sign(1)),
    "quantized": (rf.QuantizedGaussian(1.0, 1.0, levels=5), oracle.quantized(1, -1, 1, 5)),
}


def divergence(family: oracle.Family, theta: mpf, shift: float, rate: float, alpha: int, first: str) -> float:
    """D_alpha between P = M(theta) and the mixture with Q = M(theta + shift), by definition."""
    p, q = family(theta), family(mpf(theta) + mpf(shift))
    power = alpha if first == "mixture" else 1 - alpha

    def part(a: mpf, b: mpf) -> mpf:
        x = mpf(rate) * (b / a - 1)
        return a * ((1 + x) ** power - 1 - power * x)  # integrates to E - 1, nowhere negative

    total = sum((part(mass, q.atoms[point]) for point, mass in p.atoms.items()), mpf(0))
    if p.density is not None:
        ends = [p.low, (p.low + p.high) / 2, p.high]
        total += mp.quad(lambda y: part(p.density(y), q.density(y)), ends, method="gauss-legendre")
    return float(mp.log1p(total) / (alpha - 1))


def worst_sign(
    family: oracle.Family, theta: float, c: float, rate: float, alpha: int, first: str, record: str
):
    # added: theta without the record. removed: theta holds it, and theta - v does not
    pairs = [(mpf(theta) if record == "added" else mpf(theta) - s, s) for s in (c, -c)]
    return max(divergence(family, start, s, rate, alpha, first) for start, s in pairs)


@pytest.mark.parametrize("record", ["added", "removed"])
@pytest.mark.parametrize(("theta", "c", "rate"), [(0.0, 1e-3, 0.5), (0.7, 0.1, 0.1), (2.0, 1.0, 0.01)])
@pytest.mark.parametrize("name", LAWS)
def test_one_dimension(name: str, theta: float, c: float, rate: float, record: str) -> None:
    law, family = LAWS[name]
    rdp = fixed_batch_rdp(law, theta, c, rate, ORDERS, record=record)
    for i, alpha in enumerate(ORDERS):
        backward = worst_sign(family, theta, c, rate, alpha, "mixture", record)
        forward = worst_sign(family, theta, c, rate, alpha, "P", record)
        assert float(rdp.backward[i]) == pytest.approx(backward, rel=1e-9, abs=0)
        assert backward <= float(rdp.backward[i])
        assert forward <= float(rdp.forward[i]) < LOOSE[c] * forward


@pytest.mark.parametrize(
    ("name", "theta", "c", "alpha", "ratio"),
    [("truncated", 2.0, 1.0, 2, 1.124), ("rectified", 2.0, 1.0, 2, 1.613), ("sign", 0.0, 3.0, 8, 1.628)],
)
def test_forward_is_not_dominated_by_backward(
    name: str, theta: float, c: float, alpha: int, ratio: float
) -> None:
    """The inequality of the sampled Gaussian is false here, for the same record in both directions."""
    law, family = LAWS[name]
    forward, backward = (divergence(family, theta, c, 0.5, alpha, first) for first in ("P", "mixture"))
    assert forward / backward == pytest.approx(ratio, abs=5e-4)
    assert float(fixed_batch_rdp(law, theta, c, 0.5, [alpha]).forward) >= forward


NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)


def truncated_masses(theta: float) -> np.ndarray:
    density = np.exp(-0.5 * (NODES - theta) ** 2) * WEIGHTS
    return density / density.sum()


def rectified_masses(theta: float) -> np.ndarray:
    inside = np.exp(-0.5 * (NODES - theta) ** 2) / np.sqrt(2 * np.pi) * WEIGHTS
    return np.concatenate([inside, [ndtr(-1 - theta), ndtr(theta - 1)]])


@pytest.mark.parametrize("record", ["added", "removed"])
@pytest.mark.parametrize("masses", [truncated_masses, rectified_masses])
def test_three_dimensions_every_sign_pattern(masses: Callable[[float], np.ndarray], record: str) -> None:
    """Laws on [-1, 1]^3 as weights on a tensor grid, atoms included."""
    name = masses.__name__.removesuffix("_masses")
    theta, c, rate = np.array([0.0, 0.6, -1.7]), np.array([0.5, 0.3, 0.4]), 0.2
    rdp = fixed_batch_rdp(LAWS[name][0], torch.tensor(theta), torch.tensor(c), rate, ORDERS, record=record)
    truth = {"forward": np.zeros(3), "backward": np.zeros(3)}
    moments = np.zeros(16)
    for signs in product((1, -1), repeat=3):
        start = theta if record == "added" else theta - c * signs
        p, q = (
            np.einsum("i,j,k->ijk", *(masses(t) for t in where)).ravel()
            for where in (start, start + c * signs)
        )
        mixture = 1 + rate * (q / p - 1)
        for i, alpha in enumerate(ORDERS):
            for way, power in (("forward", 1 - alpha), ("backward", alpha)):
                value = np.log((p * mixture**power).sum()) / (alpha - 1)
                truth[way][i] = max(truth[way][i], value)
        moments = np.maximum(moments, [np.log((p * (q / p) ** k).sum()) for k in range(1, 17)])
    for way in ("forward", "backward"):
        ratio = getattr(rdp, way).numpy() / truth[way]
        assert ratio.min() >= 1 - 1e-12
        assert ratio.max() < (2.0 if way == "forward" else 1.2)  # the worst v moment by moment
    # the binomial theorem with the largest moment of any pattern, which is the product of the largest
    k = np.arange(17)
    for i, alpha in enumerate(ORDERS):
        weights = [float(mp.binomial(alpha, j)) * rate**j * (1 - rate) ** (alpha - j) for j in k[: alpha + 1]]
        total = np.dot(weights, np.exp(np.concatenate([[0], moments])[: alpha + 1]))
        assert float(rdp.backward[i]) == pytest.approx(np.log(total) / (alpha - 1), rel=1e-9, abs=0)


@pytest.mark.parametrize("name", LAWS)
def test_never_above_the_sampled_gaussian(name: str) -> None:
    law = LAWS[name][0]
    theta = torch.tensor([0.0, 0.5, 3.0], dtype=torch.float64)
    for c, rate in ((1e-3, 0.01), (0.3, 0.5), (2.0, 0.9)):
        gaussian = fixed_batch_rdp(rf.Gaussian(1.0), theta, c, rate, [2, 8, 40]).backward
        for record in ("added", "removed"):
            rdp = fixed_batch_rdp(law, theta, c, rate, [2, 8, 40], record=record)
            assert bool((rdp.worst <= gaussian).all())


def test_gaussian_agrees_with_dp_accounting() -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    account = RdpAccountant(list(SAMPLED_ORDERS))
    account.compose(PoissonSampledDpEvent(0.05, GaussianDpEvent(2.0)))
    rdp = fixed_batch_rdp(rf.Gaussian(2.0), torch.zeros(4), 0.5, 0.05)
    np.testing.assert_allclose(rdp.backward.numpy(), np.array(account._rdp), rtol=1e-8)
    assert bool((rdp.forward <= rdp.backward).all())


def test_the_smaller_sign_rounds_down() -> None:
    """It is subtracted, so that less is the safe side: below the exact sum, and no more than rounding."""
    theta, size = torch.tensor([0.3, -1.2, 2.0]).double(), 0.2
    law = rf.TruncatedGaussian(1.0, 1.0)
    got = SampledDivergence(law, theta, size, 0.1, checked_integer_orders([2, 3]))._third_below(theta)
    forward = torch.minimum(*(law.renyi_divergence(theta, s, 3.0) for s in (size, -size))).sum()
    backward = torch.minimum(*(law.renyi_divergence(theta + s, -s, 3.0) for s in (size, -size))).sum()
    for value, exact in zip(got, (forward, backward), strict=True):
        assert 5e-12 < 1 - float(value / exact) < 2e-11


def test_moments_are_at_most_the_gaussians_and_the_laws_own() -> None:
    """log M_k = k (k - 1) / 2 times the squared shift in natural units."""
    law, theta, k = rf.TruncatedGaussian(2.0, 1.0), torch.zeros(3).double(), torch.arange(2, 5).double()
    release = SampledDivergence(law, theta, 0.3, 0.1, checked_integer_orders([2, 3, 4]))
    assert release.mu**2 == pytest.approx(3 * 0.15**2, rel=1e-10)
    own = float(law.fisher_information(0.0))
    assert release._largest_moments[:3].tolist() == pytest.approx(
        (0.5 * k * (k - 1) * 3 * 0.3**2 * own).tolist(), rel=1e-10
    )


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize(
    "size",
    [rf.Sensitivity(1.5, at_most=1), rf.Sensitivity(norm=1.8), rf.Sensitivity(1.2, at_most=2, norm=1.5)],
    ids=repr,
)
def test_no_move_beats_the_bound(size: rf.Sensitivity, count: int) -> None:
    """Signs: every outcome is enumerated, for random moves, both records and both directions."""
    generator, orders = (
        torch.Generator().manual_seed(count),
        torch.tensor([2.0, 3.0, 8.0], dtype=torch.float64),
    )
    outcomes = torch.tensor(list(product((-1.0, 1.0), repeat=count)), dtype=torch.float64)
    law, rate = rf.StochasticSign(1.0), 0.3
    for _ in range(4):
        theta = 1.5 * torch.randn(count, generator=generator, dtype=torch.float64)
        moves = torch.randn(500, count, generator=generator, dtype=torch.float64).pow(3)
        ranks = moves.abs().argsort(dim=1, descending=True).argsort(dim=1)
        moves = moves * (ranks < (size.at_most or count))
        moves = 9 * moves if size.norm is None else size.norm * moves / moves.norm(dim=1, keepdim=True)
        moves = moves.clamp(-size.farthest, size.farthest)
        for record, start in (("added", theta + 0 * moves), ("removed", theta - moves)):
            p, q = (
                law.log_prob(outcomes.unsqueeze(1), at).sum(dim=-1).exp() for at in (start, start + moves)
            )
            mixture = (1 - rate) * p + rate * q
            bound = fixed_batch_rdp(law, theta, size, rate, orders, record=record)
            for first, second, most in ((p, mixture, bound.forward), (mixture, p, bound.backward)):
                for alpha, limit in zip(orders.tolist(), most.tolist(), strict=True):
                    exact = torch.log((first**alpha * second ** (1 - alpha)).sum(dim=0)) / (alpha - 1)
                    assert float(exact.max()) <= limit * (1 + 1e-9)
