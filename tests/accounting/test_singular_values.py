"""Both ends of the largest singular value, against numpy's SVD and multi-precision."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ringfence.accounting import singular_values
from ringfence.accounting.linear_operator import LinearOperator, probable_bounds
from ringfence.accounting.singular_values import (
    Gram,
    SingularValueBounds,
    dense_bounds,
    norm_bounds,
    squared_frobenius,
    upper_bounds,
)

# numpy's own rounding: the ends are tighter than it for small matrices
SVD = 1e-13


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ones(size: int) -> Tensor:
    return torch.ones(size, dtype=torch.float64)


def exact(weights: Tensor, matrix: Tensor) -> float:
    return float(np.linalg.svd((weights[:, None] * matrix.double()).numpy(), compute_uv=False)[0])


def with_spectrum(values: Tensor, seed: int = 0) -> Tensor:
    left, right = (torch.linalg.qr(draw(len(values), len(values), seed=seed + i)).Q for i in range(2))
    return left @ torch.diag(values) @ right


def diagonal(values: Tensor, rounding: float = 1e-12) -> LinearOperator:
    def apply(block: Tensor) -> Tensor:
        return values[:, None] * block

    return LinearOperator((len(values), len(values)), apply, apply, rounding)


# ------------------------------------------------------------------ dense


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 3), (3, 5), (60, 40), (40, 60), (9000, 4)])
@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_dense_ends_hold_numpy_and_are_close(shape: tuple[int, int], scale: float) -> None:
    weights, matrices = draw(shape[0]).abs(), draw(3, *shape, seed=1) * scale
    bounds = dense_bounds(weights, matrices)
    for lower, upper, matrix in zip(bounds.lower, bounds.upper, matrices, strict=True):
        truth = exact(weights, matrix)
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
    truth = exact(weights, matrix)
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
    truth = exact(ones(35), parts.reshape(35, 4)) ** 2
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
        assert float(lower) < exact(weights, matrix) < float(upper)
    # each of the two norms is the better one somewhere
    eye, flat = torch.eye(20).double(), torch.ones(20, 20).double()
    assert float(dense_bounds(ones(20), eye[None]).upper) == pytest.approx(1, abs=0, rel=1e-12)
    spike = torch.zeros(20, 20).double()
    spike[0], spike[:, 0] = 1.0, 1.0
    assert float(dense_bounds(ones(20), spike[None]).upper) == pytest.approx(39**0.5, abs=0, rel=1e-12)
    assert float(upper_bounds(ones(20), flat[None])) == pytest.approx(20, abs=0, rel=1e-12)


# ------------------------------------------------------------------ products only

SPECTRA = {
    "flat": torch.ones(150).double(),
    "one": torch.eye(150).double()[0],
    "falling": 0.9 ** torch.arange(150).double(),
    "crowded": 1 - torch.arange(150).double() / 1500,
    "nearly double": torch.cat([torch.tensor([1.0, 1 - 1e-9]), torch.full((148,), 0.3)]).double(),
    "bulk below": torch.cat([torch.tensor([1.0]), torch.full((149,), 0.97)]).double(),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("tolerance", [0.2, 0.01, 3e-4])
def test_probable_ends_hold_and_close(name: str, tolerance: float) -> None:
    matrix = with_spectrum(SPECTRA[name])
    generator = torch.Generator().manual_seed(3)
    bounds = probable_bounds(
        LinearOperator.of(matrix), generator=generator, tolerance=tolerance, maximum_degree=512
    )
    truth = exact(ones(150), matrix)
    assert float(bounds.lower) <= truth * (1 + SVD)
    assert float(bounds.upper) >= truth * (1 - SVD)
    assert 0 < float(bounds.gap) <= tolerance
    assert bounds.failure_probability == 1e-6


def test_probable_ends_take_rectangles_and_no_products_more_than_they_need() -> None:
    matrix, used = draw(30, 90), []

    def apply(block: Tensor) -> Tensor:
        used.append(block.shape[1])
        return matrix @ block

    operator = LinearOperator((30, 90), apply, lambda block: matrix.mT @ block)
    bounds = probable_bounds(operator, generator=torch.Generator().manual_seed(4), tolerance=0.1)
    assert float(bounds.lower) <= exact(ones(30), matrix) <= float(bounds.upper)
    assert set(used) == {4}
    assert len(used) <= 31


@pytest.mark.parametrize("probes", [1, 4])
@pytest.mark.parametrize("name", ["one", "bulk below", "crowded"])
def test_the_upper_end_fails_no_more_often_than_stated(
    name: str, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not idly: where nothing but the top eigenvalue is there, the event fails as often as stated.

    It is then seen to have failed, the lower end being above, and a fresh start is drawn.
    """
    stated, runs, starts = 0.1, 150, []
    honest = torch.randn

    def counted(*arguments: object, **options: object) -> Tensor:
        starts.append(0)
        return honest(*arguments, **options)

    monkeypatch.setattr(torch, "randn", counted)
    generator = torch.Generator().manual_seed(5)
    options = {"failure_probability": stated, "probes": probes, "tolerance": 0.0, "maximum_degree": 16}
    bounds = [probable_bounds(diagonal(SPECTRA[name]), generator=generator, **options) for _ in range(runs)]
    allowed = stated * runs + 4 * math.sqrt(stated * (1 - stated) * runs)
    seen = len(starts) - runs
    assert seen + sum(float(bound.upper) < 1 for bound in bounds) <= allowed
    if name == "one":
        assert seen >= stated * runs / 3


@pytest.mark.parametrize("probes", [1, 2, 3, 8])
@pytest.mark.parametrize("stated", [0.3, 0.01])
def test_the_quantile_is_the_chi_squared_tail(probes: int, stated: float) -> None:
    """Step 1 of the proof on its own: P(|v^T G| < t) <= stated, and not by orders of magnitude."""
    threshold = 2 * (stated * math.gamma(probes / 2 + 1)) ** (2 / probes)
    tail = float(mpmath.gammainc(probes / 2, 0, threshold / 2, regularized=True))
    assert tail <= stated
    assert tail > stated / 4


def test_a_start_blind_to_the_top_is_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one way to fail, planted; with a component above t the bound holds again."""
    values = torch.cat([torch.tensor([2.0]), torch.ones(99)]).double()
    honest = torch.randn
    for component, holds in ((0.0, False), (0.06, True)):

        def blind(*arguments: object, component: float = component, **options: object) -> Tensor:
            start = honest(*arguments, **options)
            start[0] = 0
            start[0, 0] = component  # |v^T G|; t is 0.0532 at 1e-6 and 4 probes
            return start

        monkeypatch.setattr(torch, "randn", blind)
        bounds = probable_bounds(
            diagonal(values), generator=torch.Generator().manual_seed(6), maximum_degree=8, tolerance=0.0
        )
        assert (float(bounds.upper) >= 2) is holds


def test_rounding_loosens_the_bound_until_there_is_none() -> None:
    values = SPECTRA["crowded"]
    uppers = []
    for rounding in (1e-15, 1e-7, 1e-5):
        generator = torch.Generator().manual_seed(7)
        options = {"generator": generator, "maximum_degree": 64, "tolerance": 0.0}
        uppers.append(float(probable_bounds(diagonal(values, rounding), **options).upper))
    assert uppers == sorted(uppers)
    assert uppers[-1] > uppers[0] + 1e-3
    with pytest.raises(ValueError, match="failure_probability 1e-06 is below what rounding allows"):
        probable_bounds(diagonal(values, 1e-3), generator=torch.Generator().manual_seed(7))


def test_products_in_float32_with_their_rounding_stated_still_hold() -> None:
    matrix = with_spectrum(SPECTRA["crowded"])
    single = matrix.float()
    operator = LinearOperator(
        (150, 150),
        lambda block: (single @ block.float()).double(),
        lambda block: (single.mT @ block.float()).double(),
        rounding=1e-6,
    )
    bounds = probable_bounds(operator, generator=torch.Generator().manual_seed(8))
    truth = exact(ones(150), single)
    assert float(bounds.lower) <= truth <= float(bounds.upper)


def test_the_zero_operator() -> None:
    bounds = probable_bounds(diagonal(torch.zeros(5).double()), generator=torch.Generator().manual_seed(9))
    assert float(bounds.lower) == float(bounds.upper) == float(bounds.gap) == 0


def test_weighted_and_stacked_operators_are_the_matrices() -> None:
    first, second, weights = draw(4, 6), draw(5, 6, seed=1), draw(4, seed=2).abs()
    stack = LinearOperator.stacked([LinearOperator.of(first).weighted(weights), LinearOperator.of(second)])
    whole = torch.cat([weights[:, None] * first, second])
    assert stack.shape == (9, 6)
    torch.testing.assert_close(stack.apply(torch.eye(6).double()), whole)
    torch.testing.assert_close(stack.apply_transpose(torch.eye(9).double()), whole.mT)


def test_bad_operators_are_refused_by_name() -> None:
    generator = torch.Generator().manual_seed(10)
    square = draw(3, 3)

    def refused(match: str, operator: LinearOperator, error: type[Exception] = ValueError, **options: object):
        with pytest.raises(error, match=match):
            probable_bounds(operator, **{"generator": generator, **options})

    good = LinearOperator.of(square)
    refused("generator must be a torch.Generator, got None", good, TypeError, generator=None)
    for bad in (0.0, 1.0, math.nan):
        refused("failure_probability must", good, failure_probability=bad)
    refused("probes must be at least 1, got 0", good, probes=0)
    refused(
        r"apply must return shape \[3, 4\], got \[2, 4\]",
        LinearOperator((3, 3), lambda b: b[:2], lambda b: b),
    )
    refused(
        r"apply_transpose must return shape \[3, 4\], got \[1, 4\]",
        LinearOperator((3, 3), lambda b: b, lambda b: b[:1]),
    )
    refused("apply must return finite", LinearOperator((3, 3), lambda b: b * math.nan, lambda b: b))
    refused(
        "apply_transpose must be the transpose",
        LinearOperator((3, 3), lambda b: square @ b, lambda b: square @ b),
    )
    with pytest.raises(ValueError, match=r"shape must be two positive numbers, got \(0, 3\)"):
        LinearOperator((0, 3), lambda b: b, lambda b: b)
    with pytest.raises(ValueError, match=r"rounding must be in \[0, 1\), got nan"):
        LinearOperator((1, 3), lambda b: b, lambda b: b, rounding=math.nan)


def test_gap() -> None:
    lower, upper = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([0.0, 1.0, 3.0])
    assert SingularValueBounds(lower, upper).gap.tolist() == [0.0, math.inf, 0.5]
