"""Settings: laws with single numbers, equal where their divergences are, and theta split by them."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.per_instance.setting import Setting, kind_of, settings_of, stacked
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64


def test_a_law_with_tensors_of_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be single numbers, got Gaussian\(sigma=tensor\[3\]\)"):
        Setting.of(rf.Gaussian(torch.ones(3)), 0.1)


def test_settings_differ_where_divergences_do() -> None:
    law = rf.QuantizedGaussian(1.0, 2.0, levels=5)
    others = [
        Setting.of(law, 0.2),
        Setting.of(rf.QuantizedGaussian(1.0, 2.0, levels=7), 0.1),
        Setting.of(rf.QuantizedGaussian(1.0, 2.5, levels=5), 0.1),
        Setting.of(rf.RectifiedGaussian(1.0, 2.0), 0.1),
    ]
    one = Setting.of(law, 0.1)
    assert one == Setting.of(rf.QuantizedGaussian(torch.tensor(1.0), 2.0, levels=5), 0.1)
    assert len({one, *others}) == 5
    assert one.sigma == 1.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_stacked_law_is_each_of_its_laws(case: Case) -> None:
    laws, theta = [case.make(sigma, -1.0, 1.5) for sigma in (0.8, 0.3)], draw(2, 7)
    assert kind_of(laws[0]) == kind_of(laws[1])
    expected = torch.stack([law.fisher_information(row) for law, row in zip(laws, theta, strict=True)])
    torch.testing.assert_close(stacked(laws, 1).fisher_information(theta), expected, rtol=1e-14, atol=0)


def test_theta_is_split_by_parameters_and_sensitivity() -> None:
    sigma, size = float64([[1.0], [2.0]]), float64([0.1, 0.2, 0.1])
    theta = torch.arange(3, dtype=torch.float64)  # which the two sigmas spread out
    parts = settings_of(rf.Gaussian(sigma), theta, size, most=4)
    found = {(setting.sigma, setting.sensitivity): values.tolist() for setting, values in parts}
    assert found == {(s, c): [1.0] if c == 0.2 else [0.0, 2.0] for s in (1.0, 2.0) for c in (0.1, 0.2)}
    assert settings_of(rf.Gaussian(sigma), theta, size, most=3) is None


def test_single_numbers_take_theta_as_it_is() -> None:
    theta = draw(5)
    [(setting, values)] = settings_of(rf.Gaussian(torch.ones(1)), theta, float64([[0.1]]), most=1)
    assert values is theta
    assert setting == Setting.of(rf.Gaussian(1.0), 0.1)
