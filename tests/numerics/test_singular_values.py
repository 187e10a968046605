"""Both ends of the largest singular value, against numpy's SVD and multi-precision."""

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ringfence.numerics import singular_values
from ringfence.numerics.singular_values import (
    UNIT,
    Gram,
    SingularValueBounds,
    dense_bounds,
    norm_bounds,
    squared_frobenius,
    upper_bounds,
)
from tests.accounting.drawing import draw
from tests.accounting.matrices import SVD, largest, ones


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 3), (3, 5), (60, 40), (40, 60), (9000, 4)])
@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_dense_ends_hold_numpy_and_are_close(shape: tuple[int, int], scale: float) -> None:
    weights, matrices = draw(shape[0]).abs(), draw(3, *shape, seed=1) * scale
    bounds = dense_bounds(weights, matrices)
    for lower, upper, matrix in zip(bounds.lower, bounds.upper, matrices, strict=True):
        truth = largest(weights, matrix)
        assert float(lower) <= truth * (1 + SVD)
        assert float(upper) >= truth * (1 - SVD)
    assert (bounds.gap < 1e-11).all()
    assert (bounds.gap >= 0).all()
    torch.testing.assert_close(upper_bounds(weights, matrices), bounds.upper, rtol=0, atol=0)
    assert bounds.failure_probability == 0


@pytest.mark.parametrize("seed", range(8))
def test_dense_ends_hold_the_truth_to_50_digits(seed: int) -> None:
    """numpy cannot tell at this distance whether rounding went the right way."""
    matrix = draw(4, 3, seed=seed)
    bounds = dense_bounds(ones(4), matrix[None])
    with mpmath.workdps(50):
        truth = max(mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False))
        assert mpmath.mpf(float(bounds.lower)) <= truth <= mpmath.mpf(float(bounds.upper))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6), st.integers(-12, 12))
def test_dense_ends_hold_for_badly_scaled_rows(height: int, width: int, seed: int, power: int) -> None:
    matrix = draw(height, width, seed=seed)
    weights = 10.0 ** (power * torch.linspace(0, 1, height, dtype=torch.float64))
    bounds = dense_bounds(weights, matrix[None])
    truth = largest(weights, matrix)
    assert float(bounds.lower) <= truth * (1 + SVD)
    assert float(bounds.upper) >= truth * (1 - SVD)
    assert float(bounds.gap) < 1e-12


def test_many_small_examples_and_many_rows_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    matrices, weights = draw(11, 9, 4), draw(9, seed=2).abs()
    whole = upper_bounds(weights, matrices)
    monkeypatch.setattr(singular_values, "_NUMBERS", 100)  # 2 examples at a time
    monkeypatch.setattr(singular_values, "_ROWS", 2)
    torch.testing.assert_close(upper_bounds(weights, matrices), whole, rtol=1e-13, atol=0)
    wide = upper_bounds(ones(4), matrices.mT * weights)
    torch.testing.assert_close(wide, whole, rtol=1e-13, atol=0)
    frobenius = squared_frobenius(weights, matrices)
    truth = (weights[:, None] * matrices).square().sum((1, 2))
    torch.testing.assert_close(frobenius, truth, rtol=1e-13, atol=0)
    assert (frobenius >= truth).all()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_an_eigensolver_that_understates_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """What is proved rests on the Cholesky factorisation alone."""
    honest = torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda matrix: share * honest(matrix))
    matrices = draw(5, 8, 6)
    truth = torch.linalg.matrix_norm(matrices, 2)
    bound = upper_bounds(ones(8), matrices)
    assert (bound >= truth * (1 - SVD)).all()
    assert (bound <= torch.linalg.matrix_norm(matrices) * (1 + SVD)).all()


def test_one_example_that_needs_a_second_try_does_not_loosen_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = torch.linalg.eigvalsh
    spoil = torch.tensor([[1.0], [0.5], [1.0]], dtype=torch.float64)
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda matrix: spoil * honest(matrix))
    matrices = draw(3, 8, 6)
    excess = upper_bounds(ones(8), matrices) / torch.linalg.matrix_norm(matrices, 2) - 1
    assert float(excess[[0, 2]].max()) < 1e-12
    assert float(excess[1]) > 1e-12


@pytest.mark.parametrize(("numbers", "sizes"), [(100, [2, 2, 2, 1]), (30, [1] * 7), (1000, [7])])
def test_as_many_examples_at_once_as_may_be_held(
    numbers: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, of = [], Gram.of

    def recorded(weights: Tensor, matrices: Tensor, **options: bool) -> Gram:
        seen.append(len(matrices))
        return of(weights, matrices, **options)

    monkeypatch.setattr(Gram, "of", recorded)
    monkeypatch.setattr(singular_values, "_NUMBERS", numbers)
    upper_bounds(ones(9), draw(7, 9, 4))
    assert seen == sizes


def test_zero_is_exactly_zero_even_beside_others() -> None:
    matrices = torch.stack([torch.zeros(3, 2).double(), draw(3, 2)])
    bounds = dense_bounds(ones(3), matrices)
    assert [float(end[0]) for end in (bounds.lower, bounds.upper, bounds.gap)] == [0, 0, 0]
    assert float(bounds.upper[1]) > 0
    assert squared_frobenius(ones(3), matrices)[0] == 0
    assert float(norm_bounds(ones(3), matrices[0]).upper) == 0


def test_squares_that_underflow_are_charged() -> None:
    """The Gram matrix of this one is 0 in float64; the norm is not."""
    tiny = torch.full((1, 2, 2), 1e-170, dtype=torch.float64)
    assert float(upper_bounds(ones(2), tiny)) >= 2e-170
    assert float(norm_bounds(ones(2), tiny[0]).upper) >= 2e-170
    assert float(squared_frobenius(ones(2), tiny)) > 0


def test_squares_that_overflow_are_refused() -> None:
    with pytest.raises(ValueError, match=r"jacobian must be smaller: .* overflow"):
        upper_bounds(ones(2), torch.full((1, 2, 2), 1e200, dtype=torch.float64))


def test_gram_sums_bound_the_norm_of_the_stack() -> None:
    parts = draw(7, 5, 4)
    total = Gram.of(ones(5), parts[:1])
    for part in parts[1:]:
        total = total.plus(Gram.of(ones(5), part[None]))
    truth = largest(ones(35), parts.reshape(35, 4)) ** 2
    assert float(total.lower()) <= truth * (1 + SVD)
    assert float(total.upper()) >= truth * (1 - SVD)
    assert float(total.upper() / total.lower()) - 1 < 1e-12


def test_gram_error_covers_what_rounding_did() -> None:
    """Against the product of integers, which floats hold exactly, after a scaling they do not."""
    matrix = (draw(400, 6) * 1000).round()
    computed = Gram.of(ones(400) * (1 / 3), matrix[None])
    with mpmath.workdps(40):
        third = mpmath.mpf(1 / 3)
        gram = mpmath.matrix(matrix.mT.tolist()) * mpmath.matrix(matrix.tolist()) * third**2
        off = mpmath.matrix(computed.matrix[0].tolist()) - gram
        assert mpmath.mnorm(off, "f") <= mpmath.mpf(float(computed.error))


def test_beyond_the_limit_norms_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(singular_values, "DENSE_LIMIT", 10)
    monkeypatch.setattr(singular_values, "_NUMBERS", 50)
    weights, matrices = draw(20).abs(), draw(2, 20, 15, seed=1)
    bounds = dense_bounds(weights, matrices)
    for lower, upper, matrix in zip(bounds.lower, bounds.upper, matrices, strict=True):
        assert float(lower) < largest(weights, matrix) < float(upper)
    # each of the two norms is the better one somewhere
    eye, flat = torch.eye(20).double(), torch.ones(20, 20).double()
    assert float(dense_bounds(ones(20), eye[None]).upper) == pytest.approx(1, abs=0, rel=1e-12)
    spike = torch.zeros(20, 20).double()
    spike[0], spike[:, 0] = 1.0, 1.0
    assert float(dense_bounds(ones(20), spike[None]).upper) == pytest.approx(39**0.5, abs=0, rel=1e-12)
    assert float(upper_bounds(ones(20), flat[None])) == pytest.approx(20, abs=0, rel=1e-12)


def test_gap() -> None:
    lower, upper = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([0.0, 1.0, 3.0])
    assert SingularValueBounds(lower, upper).gap.tolist() == [0.0, math.inf, 0.5]


def test_gamma_is_highams() -> None:
    assert singular_values.gamma(1) == pytest.approx(UNIT, rel=1e-15, abs=0)
    assert singular_values.gamma(2**50) == pytest.approx(1 / 7, rel=1e-15, abs=0)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 5), (5, 3), (8, 2)])
def test_every_operation_is_charged(height: int, width: int) -> None:
    """Of a matrix with a single 1 nothing is rounded, so the ends show what is charged, in units of 2^-53."""
    matrix = torch.zeros(1, height, width).double()
    matrix[0, 0, 0] = 1.0

    def units(value: Tensor) -> float:
        return float(value - 1) / UNIT

    norms = norm_bounds(ones(height), matrix[0])
    operations = height + width + 8
    assert units(norms.lower) == -operations
    assert units(norms.upper) == 2 * operations
    assert units(squared_frobenius(ones(height), matrix)) == 2 * (height * width + 1 + 4)

    gram = Gram.of(ones(height), matrix)
    assert float(gram.error) / UNIT == pytest.approx(2 * (height + 1 + 3), rel=1e-9, abs=0)
    assert units(gram.upper()) == pytest.approx(2 * (width + 2) + 2 * (height + 4) + 4, abs=3)
    assert units(gram.lower()) == pytest.approx(-2 * (height + 4) - 4 * (2 * width + 4), abs=3)
    twice = gram.plus(gram)
    assert float(twice.error) / UNIT == pytest.approx(4 * (height + 4) + 4 * 2, rel=1e-9, abs=0)

    ends = dense_bounds(ones(height), matrix)
    small = Gram.of(ones(height), matrix, of_rows=height < width)
    assert units(ends.upper) == pytest.approx(units(small.upper()) / 2 + 2, abs=3)
    assert units(ends.lower) == pytest.approx(units(small.lower()) / 2 - 2, abs=2)


def test_a_proved_eigenvalue_is_charged_for_its_proof() -> None:
    """Of the identity, where the trace is no better: 2 gamma(k + 2) k, once to be proved and twice for it."""
    for size in (2, 3, 6):
        gram = Gram.of(ones(size), torch.eye(size).double()[None])
        margin, error = 2 * (size + 2) * size, 2 * (size + 4) * size
        assert float(gram.upper() - 1) / UNIT == pytest.approx(3 * margin + error + 4, abs=5)


def test_a_sum_of_grams_is_charged_at_least_what_both_and_the_addition_are() -> None:
    gram = Gram.of(ones(3), torch.eye(3).double()[None])
    assert float(gram.plus(gram).error) >= math.nextafter(2 * float(gram.error) + 4 * UNIT * 6, math.inf)


def test_the_smaller_side_decides_whether_norms_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(singular_values, "DENSE_LIMIT", 3)
    matrices = draw(1, 9, 3)
    for some in (matrices, matrices.mT):
        weights = ones(some.shape[1])
        assert torch.equal(
            singular_values.upper_bounds(weights, some), singular_values.dense_bounds(weights, some).upper
        )
        assert float(dense_bounds(weights, some).gap) < 1e-12


def test_one_square_that_overflows_among_many_is_refused() -> None:
    matrices = torch.diag(torch.tensor([1.0, 1e200, 1.0])).double()[None]
    with pytest.raises(ValueError, match="jacobian must be smaller"):
        Gram.of(ones(3), matrices)


@pytest.mark.parametrize("bounds", [dense_bounds, upper_bounds])
def test_gram_matrices_are_formed_up_to_the_limit(
    bounds: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(singular_values, "DENSE_LIMIT", 3)
    monkeypatch.setattr(singular_values, "_grams", None)
    bounds(ones(4), draw(1, 4, 5))
    for shape in ((3, 5), (5, 3)):
        with pytest.raises(TypeError):
            bounds(ones(shape[0]), draw(1, *shape))
