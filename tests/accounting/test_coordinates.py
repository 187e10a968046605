"""How many coordinates a release has, which of them are alike, and where they are measured from."""

import math

import pytest
import torch

import ringfence as rf
from experiments.grid_accounts import stacked
from ringfence.accounting.divergence_sums import (
    Setting,
    distinct,
    kind_of,
    recentre,
    released_shape,
    split_by_setting,
    with_numbers,
)
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64


@pytest.mark.parametrize(
    ("sigma", "theta", "sensitivity", "shape"),
    [
        (1.0, torch.zeros(()), float64(0.1), []),
        (1.0, torch.zeros(3), float64([[0.1]]), [1, 3]),
        (torch.ones(4), torch.zeros(1), float64(0.1), [4]),
        (torch.ones(2, 1), torch.zeros(3), torch.ones(5, 1, 1), [5, 2, 3]),
        (1.0, torch.zeros(0, 2), float64(0.1), [0, 2]),
    ],
)
def test_parameters_and_sensitivity_spread_theta_out(
    sigma: object, theta: torch.Tensor, sensitivity: torch.Tensor, shape: list[int]
) -> None:
    assert list(released_shape(rf.Gaussian(sigma), theta, sensitivity)) == shape


def test_every_coordinate_finds_its_row() -> None:
    columns = (float64([[1.0], [2.0]]), torch.tensor([3.0, 4.0, 3.0]), float64(7.0))
    rows, index = distinct(*columns)
    assert rows.shape == (4, 3)
    assert torch.equal(rows[index], torch.stack(torch.broadcast_tensors(*columns), dim=-1))


def test_single_numbers_are_one_row() -> None:
    rows, index = distinct(float64([1.0]), float64(2.0))
    assert rows.tolist() == [[1.0, 2.0]]
    assert index.tolist() == [0]


def test_a_law_gets_its_numbers_in_the_order_of_its_parameters() -> None:
    law = with_numbers(rf.TruncatedGaussian(torch.ones(3), (-1.0, 1.0)), float64([2.0, -3.0, 4.0]))
    assert repr(law) == "TruncatedGaussian(sigma=2.0, bound=(-3.0, 4.0))"


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
    parts = split_by_setting(rf.Gaussian(sigma), theta, size, most=4)
    found = {(setting.sigma, setting.sensitivity): values.tolist() for setting, values in parts}
    assert found == {(s, c): [1.0] if c == 0.2 else [0.0, 2.0] for s in (1.0, 2.0) for c in (0.1, 0.2)}
    assert split_by_setting(rf.Gaussian(sigma), theta, size, most=3) is None


def test_single_numbers_take_theta_as_it_is() -> None:
    theta = draw(5)
    [(setting, values)] = split_by_setting(rf.Gaussian(torch.ones(1)), theta, float64([[0.1]]), most=1)
    assert values is theta
    assert setting == Setting.of(rf.Gaussian(1.0), 0.1)


@pytest.mark.parametrize("sigma", [1.0, 4.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("other", [0.0, math.inf])
def test_only_beyond_256_sigma_and_only_where_the_end_is_closer_than_zero(
    sigma: float, sign: float, other: float
) -> None:
    """One of the ends is enough. A theta at half its way to the end is moved, one before it is not."""
    edge = 256 * sigma
    for end, moved in ((edge, False), (math.nextafter(edge, math.inf), True)):
        bound = (-other, end) if sign > 0 else (-end, other)
        law = rf.RectifiedGaussian(sigma, bound)
        theta = sign * float64([end - 0.5])
        expected = theta - sign * end if moved else theta
        found, at = recentre(law, theta)
        assert at.tolist() == expected.tolist()
        assert (found is law) == (not moved)
    law = rf.RectifiedGaussian(sigma, (-other, 3 * edge) if sign > 0 else (-3 * edge, other))
    halfway = sign * float64([2.0 * edge, math.nextafter(2 * edge, 0.0), -edge])
    assert recentre(law, halfway)[1].tolist() == [-sign * edge, *halfway[1:].tolist()]
