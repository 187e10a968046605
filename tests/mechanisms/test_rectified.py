"""What is special to the rectified law: two atoms and a density."""

import pytest
import torch

import ringfence as rf


def test_one_number_is_a_symmetric_bound() -> None:
    law = rf.RectifiedGaussian(1.0, 2.0)
    assert (float(law.lower), float(law.upper)) == (-2.0, 2.0)
    for bad in (0.0, -2.0):
        with pytest.raises(ValueError, match=f"bound must be > 0, got {bad}"):
            rf.RectifiedGaussian(1.0, bad)
    with pytest.raises(ValueError, match=r"bound must be a number or a pair .*got \(1, 2, 3\)"):
        rf.RectifiedGaussian(1.0, (1, 2, 3))


def test_far_outside_only_the_other_atom_tells() -> None:
    """At theta = 37 sigma nearly every release is the upper end, and it gives nearly nothing."""
    law, theta = rf.RectifiedGaussian(1.0, 1.0), torch.tensor(37.0, dtype=torch.float64)
    draws = law.sample(theta.expand(1000), generator=torch.Generator().manual_seed(0))
    assert (draws == 1).all()
    assert 0 < float(law.fisher_information(theta)) < 1e-270


def test_a_half_line_has_one_atom_that_matters() -> None:
    """clamp at 0 from below only: half the sign's story, half the Gaussian's."""
    law = rf.RectifiedGaussian(1.0, (0.0, torch.inf))
    assert float(law.fisher_information(0.0)) == pytest.approx(0.5 + 1 / torch.pi, rel=1e-12, abs=0)
    assert float(law.fisher_information(30.0)) == pytest.approx(1, rel=1e-12, abs=0)
    assert float(law.renyi_divergence(30.0, 0.1, 2.0)) == pytest.approx(0.01, rel=1e-12, abs=0)
    assert float(law.log_prob(torch.inf, 0.0)) == -torch.inf


def test_the_loss_ends_where_the_density_does_if_an_atom_has_no_mass() -> None:
    law, shift = rf.RectifiedGaussian(1.0, (-1.0, 50.0)), 0.5
    largest = float(law.log_prob(-1.0, 0.0) - law.log_prob(-1.0, shift))  # at the atom below
    smallest = shift * (0.5 * shift - 50.0)  # of the density, at its upper end
    extent = float(law.loss_moments(0.0, shift).extent)
    assert extent == pytest.approx(largest - smallest, rel=1e-13, abs=0)
