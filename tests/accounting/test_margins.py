"""Where the arithmetic is exact, what is left is the margin: as large as its proof asks, and no larger."""

import math
from collections.abc import Callable

import pytest
import torch

import ringfence as rf
from experiments.grid_accounts import GridTable, block_sums
from ringfence.accounting import fisher
from ringfence.accounting.conversion import gaussian_delta
from ringfence.accounting.divergence_sums import Setting
from ringfence.accounting.gaussian_releases import GaussianRelease, _log_excess
from ringfence.numerics import singular_values
from ringfence.numerics.singular_values import Gram
from tests.accounting.evaluation import EvaluatedSums
from tests.accounting.matrices import ones
from tests.tensors import float64

U = 2.0**-53
TINY = 2.0**-1022
GAUSSIAN = rf.Gaussian(1.0)
TWO = float64([2.0])


def gamma(count: int) -> float:
    """What a sum of so many products may err by."""
    return count * U / (1 - count * U)


def eye(height: int, width: int) -> torch.Tensor:
    return torch.eye(height, width, dtype=torch.float64)[None]


GRAM = Gram.of(ones(6), eye(6, 3))

# what is computed, what it would be without rounding, and the relative margin


def _one_sample() -> GaussianRelease:
    account = rf.SampledAccountant(rf.Gaussian(2.0), 0.5, 0.5)
    account.step_worst_case(ones(4))
    return account.releases[0]


MARGINS: dict[str, tuple[Callable[[], float], float, float]] = {
    "a Gram matrix: 6 products a sum, 3 more": (lambda: 1 + float(GRAM.error) / 3, 1.0, 2 * gamma(9)),
    "a Gram matrix of rows": (
        lambda: 1 + float(Gram.of(ones(2), eye(2, 5), of_rows=True).error) / 2,
        1.0,
        2 * gamma(8),
    ),
    "two Gram matrices: each entry rounded once": (
        lambda: 1 + float(GRAM.plus(GRAM).error) / 6,
        1.0,
        2 * gamma(9) + 4 * U,
    ),
    "an eigenvalue proved: what is proposed above it, and what the factorisation may miss": (
        lambda: float(GRAM.largest_eigenvalue()),
        1.0,
        8 * gamma(11) * 3 * math.sqrt(3) + 6 * gamma(9) + 4 * U,
    ),
    "the trace of a Gram matrix": (lambda: float(GRAM.trace()), 3.0, 2 * gamma(9) + gamma(3) + 2.0**-50),
    "Frobenius": (
        lambda: float(singular_values.squared_norms(ones(6), eye(6, 3), trace=True)),
        3.0,
        2 * gamma(9) + gamma(3) + 2.0**-50,
    ),
    "the information of a coordinate": (
        lambda: float(fisher.coordinate_losses(rf.StochasticSign(1.0), 0.0, 1)) ** 2,
        2 / math.pi,
        1e-12 + 2 * 2.0**-50,
    ),
    "a paged sum": (
        lambda: float(block_sums(GridTable(TWO), [Setting.of(GAUSSIAN, 0.5)], torch.zeros(1, 4))[0, 0]),
        1 / (1 - 4 / 6 / 128**2),
        1e-11,
    ),
    "an example evaluated": (
        lambda: float(
            EvaluatedSums(GAUSSIAN, torch.zeros(4).double(), TWO).charge(float64([[0.5] * 4]))[0][0]
        ),
        1.0,
        1e-11,
    ),
    "a curve of the Gaussian": (lambda: gaussian_delta(1.0, 0.0), math.erf(0.5 / math.sqrt(2)), 1e-11),
    "moments of a mixture of halves": (  # (3 - 1) / 4 at order 2
        lambda: math.exp(float(_log_excess(math.sqrt(math.log(3)), math.inf, 0.5)[1, 0])),
        0.5,
        1e-12,
    ),
    "shift / sigma of a sampled release": (lambda: _one_sample().mu, 0.5, 5e-13),
}


@pytest.mark.parametrize("name", MARGINS)
def test_the_margin(name: str) -> None:
    result, exact, margin = MARGINS[name]
    # what is left over may itself be rounded, a few units in the last place
    assert result() / exact - 1 == pytest.approx(margin, rel=0.02, abs=6 * U)


@pytest.mark.parametrize("scale", [1e-200, 0.0])
def test_squares_that_underflow_are_charged_and_zeros_are_not(scale: float) -> None:
    matrix, charged = scale * torch.ones(2, 6, 3, dtype=torch.float64), float(scale > 0)
    assert Gram.of(ones(6), matrix).error.tolist() == [charged * 18 * TINY] * 2
    assert Gram.of(ones(6), matrix, of_rows=True).error.tolist() == [charged * 18 * TINY] * 2


def test_an_information_that_underflows_is_charged() -> None:
    lost = fisher.coordinate_losses(rf.StochasticSign(2.0), 200.0, 1)
    assert float(lost) == pytest.approx(1e-145 / 2, rel=1e-12, abs=0)
