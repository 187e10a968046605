import pytest
import torch
from mpmath import mp, mpf

from ringfence.numerics import normal
from tests import oracle
from tests.tensors import float64

POINTS = [-40.0, -12.0, -5.0, -1.0, -1e-3, 0.0, 0.3, 2.0, 8.5, 20.0, 37.0]


def tail(x: mpf) -> mpf:
    return mp.erfc(x / mp.sqrt(2)) / 2


@pytest.mark.parametrize("x", POINTS)
def test_tails_to_full_relative_accuracy(x: float) -> None:
    got, truth = torch.tensor([x], dtype=torch.float64), mpf(x)
    expected = {
        normal.density: oracle.phi(truth),
        normal.cumulative: tail(-truth),
        normal.log_tail: mp.log(tail(truth)),
        normal.hazard: oracle.phi(truth) / tail(truth),
    }
    for function, value in expected.items():
        if 1e-290 < abs(value) < 1e290:
            error = abs(mpf(float(function(got))) / value - 1)
            assert error < 3e-13, (function.__name__, float(error))


@pytest.mark.parametrize(("dtype", "units"), [(torch.float64, 4), (torch.float32, 4)])
def test_mills_ratio_to_a_few_units_in_the_last_place(dtype: torch.dtype, units: float) -> None:
    spots = [0.0, 1e-300, 1e-9, *(k / 16 for k in range(1, 700)), *(10.0**k for k in range(2, 18))]
    x = float64(spots).to(dtype)
    got = normal.mills_ratio(x).tolist()
    with mp.workdps(60):
        for value, result in zip(x.tolist(), got, strict=True):
            truth = tail(mpf(value)) / oracle.phi(mpf(value)) if value < 1e3 else 1 / mpf(value)
            slack = units * torch.finfo(dtype).eps + (value**-2 if value >= 1e3 else 0)
            assert abs(mpf(result) / truth - 1) <= slack, value


@pytest.mark.parametrize("x", POINTS)
@pytest.mark.parametrize(
    "shift", [1e-300, 1e-12, 1e-4, -1e-2, 0.0101, 0.05, 0.19, -0.21, 0.99, 1.01, -3.0, 10.0]
)
def test_log_tail_ratio(x: float, shift: float) -> None:
    with mp.workdps(330):  # the smallest that is compared is 1e-290, beside 1
        truth = mp.log(tail(mpf(x)) / tail(mpf(x) + mpf(shift)))
    got = normal.log_tail_ratio(float64([x]), float64([shift]))
    # Far below 0 the tail is everything and its ratio, 1 but for 1e-30, is never needed as such.
    tolerance = 5e-13 if x > -8 else 3e-12
    assert abs(mpf(float(got)) - truth) <= tolerance * abs(truth) + 1e-290


def test_log_tail_ratio_of_mixed_shifts_is_elementwise() -> None:
    x = torch.linspace(-9, 30, 40, dtype=torch.float64).unsqueeze(1)
    shift = torch.tensor([1e-9, 0.5, -4.0], dtype=torch.float64)
    together = normal.log_tail_ratio(x, shift)
    for column, alone in enumerate(shift):
        torch.testing.assert_close(
            together[:, column], normal.log_tail_ratio(x[:, 0], alone), rtol=2e-13, atol=0
        )


def test_the_torch_cdf_underflows_and_is_not_used() -> None:
    """Why normal.cumulative exists."""
    x = torch.tensor([-9.0], dtype=torch.float64)
    assert float(torch.special.ndtr(x)) == 0
    assert float(normal.cumulative(x)) == pytest.approx(float(tail(mpf(9))), rel=1e-13, abs=0)


def test_nothing_in_nothing_out() -> None:
    empty = float64([])
    for result in (normal.log_tail_ratio(empty, empty), normal.hazard(empty), normal.log_tail(empty)):
        assert result.shape == (0,)


@pytest.mark.parametrize("count", [2, 3, 8, 14, 48])
def test_nodes_are_roots_to_the_last_bit(count: int) -> None:
    nodes, weights = (part.tolist() for part in normal.gauss_legendre(count, float64([0.0])))
    assert nodes == sorted(nodes)
    for node, weight in zip(nodes, weights, strict=True):
        root = mp.findroot(lambda x: mp.legendre(count, x), 2 * mpf(node) - 1)
        slope = mp.diff(lambda x: mp.legendre(count, x), root)
        assert node == pytest.approx(float((root + 1) / 2), rel=2.3e-16, abs=0)
        assert weight == pytest.approx(float(1 / ((1 - root**2) * slope**2)), rel=2.3e-16, abs=0)
