"""What is special to the Laplace law: whole numbers, pure differential privacy, kinks, a threshold."""

import math

import pytest
import torch
from mpmath import mp, mpf

import ringfence as rf
from ringfence.accounting.divergence_sums import both_directions, pushes, recentre
from ringfence.noise import Noise
from tests.oracle import Family, Law, Number
from tests.tensors import float64

_SCALE = mpf(math.sqrt(math.pi / 2))  # of sigma, as a double


def laplace(sigma: Number, low: Number, high: Number) -> Family:
    """Weights exp(-|k - theta| / scale) of whole numbers, added up to an end; the rest is geometric."""
    scale, low, high = mpf(float(float(sigma) * _SCALE)), mpf(low), mpf(high)

    def law(theta: Number) -> Law:
        theta, ratio = mpf(theta), mp.exp(-1 / scale)
        first, last = int(mp.floor(min(theta, low))) - 1, int(mp.ceil(max(theta, high))) + 1
        weights = {k: mp.exp(-abs(k - theta) / scale) for k in range(first + 1, last)}
        weights[first] = mp.exp((first - theta) / scale) / (1 - ratio)  # and all below
        weights[last] = mp.exp((theta - last) / scale) / (1 - ratio)  # and all above
        total, atoms = mp.fsum(weights.values()), {}
        for k, weight in weights.items():
            point = min(max(mpf(k), low), high)
            atoms[point] = atoms.get(point, mpf(0)) + weight / total
        return Law(atoms, kinks=True)

    return law


def test_the_discrete_laplace_law_at_a_whole_theta() -> None:
    law, ratio = rf.Laplace(1.5), math.exp(-1 / 1.5)
    for k in (-4, 0, 3):
        mass = (1 - ratio) / (1 + ratio) * ratio ** abs(k)
        assert float(law.log_prob(7.0 + k, 7.0).exp()) == pytest.approx(mass, rel=1e-13)
    assert float(law.log_prob(7.5, 7.0)) == -math.inf


@pytest.mark.parametrize("bound", [math.inf, (20.0, math.inf), (-2.0, 3.0)])
def test_pure_differential_privacy_at_every_theta(bound: object) -> None:
    law = rf.Laplace(0.7, bound)
    theta = torch.linspace(-6, 24, 1201, dtype=torch.float64)
    for move in (0.2, 0.5, 1.0, 1.5, 3.0):
        most = law.pure_epsilon(float64(move))
        for pairs in pushes(theta, float64(move)):
            for place, shift in pairs:
                log_p, rho = law.pair(place, shift)
                assert float(rho[log_p > -600].abs().max()) <= float(most) * (1 + 1e-12)
                assert float(law.hockey_stick(place, shift, most).max()) <= 1e-15
    on_grid = law.pair(float64([20.0, 2.0]), float64(1.0))[1]
    assert float(on_grid.abs().max()) == pytest.approx(1 / 0.7, rel=1e-12)  # and no less


def test_a_move_by_one_is_randomised_response() -> None:
    law, epsilon = rf.Laplace(0.5), 2.0
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    for at in (0.0, 0.7, 1.9):
        expected = truth * (1 - math.exp(at - epsilon))
        assert float(law.hockey_stick(3.0, 1.0, at)) == pytest.approx(expected, rel=1e-13)


def test_a_threshold_spares_those_far_below_it() -> None:
    law = rf.Laplace(1.0, (20.0, math.inf))
    hidden, shown = law.renyi_divergence(float64([0.0, 40.0]), 1.0, 8.0).tolist()
    assert hidden < 1e-3 * shown


def test_the_information_is_the_larger_of_the_two_sides() -> None:
    for bound in ((0.0, math.inf), (-math.inf, 0.0)):
        law = rf.Laplace(sigma=1.0, bound=bound)
        beside = law.fisher_information(float64([-1e-9, 1e-9]))
        assert float(law.fisher_information(0.0)) == pytest.approx(float(beside.max()), rel=1e-6)
        assert float(beside.min()) < 0.9 * float(beside.max())


def test_whole_numbers_stay_where_they_are_when_theta_is_recentred() -> None:
    law, theta = rf.Laplace(sigma=1.0, bound=(4000.5, 5000.0)), float64([4001.25])
    moved, near = recentre(law, theta)
    assert float(near) == float(near.round()) + 0.25
    torch.testing.assert_close(moved.log_prob(2.0, near), law.log_prob(2.0 + theta - near, theta))


def test_a_move_past_very_many_whole_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shift must pass at most 65536 whole numbers, got 70000\.0"):
        rf.Laplace(sigma=1e4).renyi_divergence(0.0, 70_000.0, 2.0)


def test_a_table_of_many_cells_is_evaluated_and_not_tabulated() -> None:
    law, theta = rf.Laplace(2.0, (5.0, math.inf)), torch.arange(-300.0, 300.0).double()
    size = rf.Sensitivity(each=1.0, at_most=3)
    exact = both_directions(law, theta, torch.tensor(1.0).double(), torch.tensor([2.0, 8.0]).double())
    largest = exact.topk(3).values.sum(dim=2).amax(dim=0)
    torch.testing.assert_close(rf.per_instance_rdp(law, theta, size, [2, 8]).worst, largest)
    every = rf.per_instance_rdp(law, theta, 1.0, [2, 8])
    torch.testing.assert_close(torch.stack((every.forward, every.backward)), exact.sum(dim=2))
    assert float(rf.per_instance_rdp(law, theta, rf.Sensitivity(norm=1.0), [2]).worst) <= 0.25 * (1 + 1e-9)


def test_bits_are_drawn_until_there_is_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every draw in doubt, the release still has the law, and takes more bits where it needs them."""
    from ringfence.mechanisms import secure

    monkeypatch.setattr(secure, "_DOUBT", 2.0)
    law, count = rf.Laplace(1.0, (-1.0, 2.0)), 3000
    draws = Noise(seed=3).at("a test")
    drawn = secure.SecureRelease(law).draw(torch.full((count,), 0.25).double(), draws)
    for k in (-1.0, 0.0, 1.0, 2.0):
        mass = float(law.log_prob(k, 0.25).exp())
        assert float((drawn == k).double().mean()) == pytest.approx(mass, abs=4 * math.sqrt(mass / count))
    uniform = secure._Uniform(torch.tensor(0), draws)
    for numerator, more in ((2**255 - 2, False), (2**255 - 1, True)):  # clearly below a half, or in doubt
        uniform.numerator, uniform.bits = numerator, 256
        assert uniform.is_below(lambda bits: mpf(1) / 2)
        assert (uniform.bits > 256) == more


@pytest.mark.parametrize("arguments", [{}, {"scale": 1.0, "sigma": 1.0}], ids=str)
def test_the_noise_is_the_scale_or_sigma_by_name(arguments: dict[str, float]) -> None:
    assert float(rf.Laplace(2.0).scale) == pytest.approx(2.0, rel=1e-15)
    assert float(rf.Laplace(sigma=2.0).sigma) == 2.0
    assert float(rf.Laplace(2.0).sigma) == pytest.approx(2.0 / math.sqrt(math.pi / 2), rel=1e-15)
    with pytest.raises(ValueError, match=r"scale, or in its place sigma = .*, must be given, got scale="):
        rf.Laplace(**arguments)
