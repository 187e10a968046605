"""Upper bounds of the largest singular value, against numpy's SVD and multi-precision."""

import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ringfence.numerics.rounding import UNIT
from ringfence.numerics.singular_values import Gram, cholesky, largest_eigenvalues, squared_norms
from tests.accounting.drawing import draw
from tests.accounting.matrices import SVD, largest, ones
from tests.tensors import float64


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 3), (3, 5), (60, 40), (40, 60), (9000, 4)])
@pytest.mark.parametrize("scale", [1e-145, 1.0, 1e145])
def test_bounds_hold_numpy_and_are_close(shape: tuple[int, int], scale: float) -> None:
    weights, matrices = draw(shape[0]).abs(), draw(3, *shape, seed=1) * scale
    for upper, matrix in zip(squared_norms(weights, matrices).sqrt(), matrices, strict=True):
        truth = largest(weights, matrix)
        assert truth * (1 - SVD) <= float(upper) < truth * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_the_truth_to_50_digits(seed: int) -> None:
    """numpy cannot tell at this distance whether rounding went the right way."""
    matrix = draw(4, 3, seed=seed)
    upper = squared_norms(ones(4), matrix[None])
    with mpmath.workdps(50):
        truth = max(mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False))
        assert truth**2 <= mpmath.mpf(float(upper)) <= truth**2 * (1 + mpmath.mpf(10) ** -12)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6), st.integers(-12, 12))
def test_bounds_hold_for_badly_scaled_rows(height: int, width: int, seed: int, power: int) -> None:
    matrix = draw(height, width, seed=seed)
    weights = 10.0 ** (power * torch.linspace(0, 1, height, dtype=torch.float64))
    truth = largest(weights, matrix)
    assert truth * (1 - SVD) <= float(squared_norms(weights, matrix[None]).sqrt()) < truth * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_an_eigensolver_that_understates_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """What is proved rests on the Cholesky factorisation; without one the trace serves."""
    honest = torch.linalg.eigh

    def spoiled(matrix: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = honest(matrix)
        values[1] *= share
        return values, vectors

    monkeypatch.setattr(torch.linalg, "eigh", spoiled)
    matrices = draw(3, 8, 6)
    excess = squared_norms(ones(8), matrices).sqrt() / torch.linalg.matrix_norm(matrices, 2) - 1
    assert -SVD < float(excess[[0, 2]].max()) < 1e-12
    assert bool(torch.isclose(excess[1] + 1, matrices[1].norm() / torch.linalg.matrix_norm(matrices[1], 2)))


def test_gram_sums_bound_the_norm_of_the_stack() -> None:
    parts = draw(7, 5, 4)
    total = Gram.of(ones(5), parts[:1])
    for part in parts[1:]:
        total = total.plus(Gram.of(ones(5), part[None]))
    truth = largest(ones(35), parts.reshape(35, 4)) ** 2
    assert truth * (1 - SVD) <= float(total.largest_eigenvalue()) < truth * (1 + 1e-12)
    trace = float(parts.square().sum())
    assert trace <= float(total.trace()) < trace * (1 + 1e-12)


def test_gram_error_covers_what_rounding_did() -> None:
    """Against the product of integers, which floats hold exactly, after a scaling they do not."""
    matrix = (draw(400, 6) * 1000).round()
    computed = Gram.of(ones(400) * (1 / 3), matrix[None])
    with mpmath.workdps(40):
        third = mpmath.mpf(1 / 3)
        gram = mpmath.matrix(matrix.mT.tolist()) * mpmath.matrix(matrix.tolist()) * third**2
        off = mpmath.matrix(computed.matrix[0].tolist()) - gram
        assert mpmath.mnorm(off, "f") <= mpmath.mpf(float(computed.error))


def test_a_sum_of_grams_is_charged_at_least_what_both_and_the_addition_are() -> None:
    gram = Gram.of(ones(3), torch.eye(3).double()[None])
    assert float(gram.plus(gram).error) >= math.nextafter(2 * float(gram.error) + 4 * UNIT * 6, math.inf)


def test_one_square_that_overflows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"jacobian must be smaller: .* overflow"):
        Gram.of(ones(3), torch.diag(float64([1.0, 1e200, 1.0]))[None])


def test_what_a_proof_of_an_eigenvalue_charges() -> None:
    three = torch.stack((torch.eye(3), -torch.eye(3))).double()
    factor, missing = cholesky(three)
    assert torch.equal(factor, torch.stack((torch.eye(3), torch.zeros(3, 3))).double())
    assert float(missing[0]) / UNIT == pytest.approx(2 * (3 + 4) * 3, rel=1e-12)
    assert float(missing[1]) == torch.inf
    upper, computed, _ = largest_eigenvalues(torch.zeros(1, 2, 2).double())
    assert float(computed) == 0 < float(upper) < 1e-290  # of a matrix of zeros as well
    upper, computed, _ = largest_eigenvalues(-torch.eye(2).double()[None])
    proposed = 8 * (2 + 8) * 2 * 2**0.5
    assert float(computed) == 0 < float(upper)
    assert float(upper) / UNIT == pytest.approx(proposed + 2 * (2 + 4) * 2, abs=4)


def test_a_library_that_gives_up_is_asked_again_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = float64([[[2.0, 1.0], [1.0, 2.0]]])
    solve, calls = torch.linalg.eigh, []

    def stubborn(values: Tensor) -> object:
        calls.append(values)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("the algorithm failed to converge")
        return solve(values)

    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    _, computed, vector = largest_eigenvalues(matrix)
    assert len(calls) == 2
    assert float(computed) == pytest.approx(3.0)
    torch.testing.assert_close(matrix @ vector, 3 * vector)


def test_where_the_trace_is_the_better_bound_it_is_charged_for_its_sum() -> None:
    """Of a single 1, in units of 2^-53: 2 gamma(3), 2 gamma(4) for the Gram matrix, 4 more, and the root."""
    one = torch.ones(1, 1, 1).double()
    upper = Gram.of(ones(1), one).largest_eigenvalue()
    assert float(upper - 1) / UNIT == 6 + 8 + 4
    assert float(squared_norms(ones(1), one) - 1) / UNIT == 18
