"""What is special to the quantised law: any number of levels from two up."""

import pytest
import torch
from mpmath import mp

import ringfence as rf
from tests import oracle


@pytest.mark.parametrize("levels", [1, 0, -3])
def test_fewer_than_two_levels_are_refused(levels: int) -> None:
    with pytest.raises(ValueError, match=f"levels must be at least 2, got {levels}"):
        rf.QuantizedGaussian(1.0, 1.0, levels)


@pytest.mark.parametrize("levels", [2.0, "3", True])
def test_levels_that_are_no_integer_are_refused(levels: object) -> None:
    with pytest.raises(TypeError, match="levels must be an integer"):
        rf.QuantizedGaussian(1.0, 1.0, levels)


def test_an_infinite_end_is_refused() -> None:
    with pytest.raises(ValueError, match="bound must be finite, got inf"):
        rf.QuantizedGaussian(1.0, (0.0, torch.inf), 5)


@pytest.mark.parametrize("upper", [0.7, 0.3])  # -0.1 + (0.3 + 0.1) is not 0.3 in float64
def test_the_ends_are_levels_to_the_last_bit(upper: float) -> None:
    atoms = rf.QuantizedGaussian(1.0, (-0.1, upper), 12).support.atoms
    assert [float(atom) for atom in (atoms[0], atoms[-1])] == [-0.1, upper]
    assert len(atoms) == 12


def test_a_bound_for_each_coordinate_gives_levels_for_each() -> None:
    law = rf.QuantizedGaussian(1.0, torch.tensor([1.0, 2.0]), 3)
    assert [atom.tolist() for atom in law.support.atoms] == [[-1.0, -2.0], [0.0, 0.0], [1.0, 2.0]]


def test_many_levels_stay_within_memory() -> None:
    """Every coordinate needs 2,001 numbers at a time: blocks shrink accordingly."""
    law, theta = rf.QuantizedGaussian(1.0, 2.0, 2001), torch.zeros(2000, dtype=torch.float64)
    exact = rf.RectifiedGaussian(1.0, 2.0).fisher_information(0.0)
    assert float(law.fisher_information(theta)[0]) == pytest.approx(float(exact), rel=1e-3, abs=0)


@pytest.mark.parametrize("theta", [0.0, 1.7, -6.3])
@pytest.mark.parametrize("shift", [0.5, -0.31, 1e-3])
def test_a_heavy_middle_cell_keeps_its_digits(theta: float, shift: float) -> None:
    """Three levels far apart: nearly all mass in one cell, whose ratio is 1 to 60 digits or more."""
    law, family = rf.QuantizedGaussian(1.0, 40.0, 3), oracle.quantized(1.0, -40.0, 40.0, 3)
    with mp.workdps(250):
        divergence = float(oracle.renyi(family, theta, shift, 2.0))
        trade = float(oracle.hockey_stick(family, theta, shift, 0.0))
    assert 0 < divergence < 1e-30
    assert float(law.renyi_divergence(theta, shift, 2.0)) == pytest.approx(divergence, rel=1e-12, abs=0)
    assert float(law.hockey_stick(theta, shift, 0.0)) == pytest.approx(trade, rel=1e-11, abs=0)


@pytest.mark.parametrize("theta", [0.0, 1e-4, -0.05])
@pytest.mark.parametrize(("bound", "levels"), [(1.0, 2), (60.0, 4)])
def test_of_two_cells_of_one_half_neither_counts_as_heavy(theta: float, bound: float, levels: int) -> None:
    """Each taken for what the others leave, both would give nothing away."""
    law, family = rf.QuantizedGaussian(1.0, bound, levels), oracle.quantized(1.0, -bound, bound, levels)
    for shift in (1e-9, -0.01, 0.7):
        exact = float(oracle.renyi(family, theta, shift, 8.0))
        assert float(law.renyi_divergence(theta, shift, 8.0)) == pytest.approx(exact, rel=1e-12, abs=0)


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_a_level_is_known_in_float32_and_nothing_else_has_mass(size: float) -> None:
    law = rf.QuantizedGaussian(size, (-0.1 * size, 0.7 * size), 12)
    theta = torch.linspace(-2 * size, 2 * size, 500)
    draws = law.sample(theta, generator=torch.Generator().manual_seed(0))
    assert len(draws.unique()) == 12
    assert torch.isfinite(law.log_prob(draws, theta)).all()
    assert torch.isinf(law.log_prob(draws + 1e-4 * size, theta)).all()
