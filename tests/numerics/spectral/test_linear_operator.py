"""Both ends of the largest singular value from products alone, and how often the upper one fails."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from ringfence.numerics.spectral.linear_operator import LinearOperator, _batch_of_one, probable_bounds
from tests.accounting.drawing import draw
from tests.accounting.matrices import SVD, largest, ones
from tests.tensors import float64

SPECTRA = {
    "flat": torch.ones(150).double(),
    "one": torch.eye(150).double()[0],
    "falling": 0.9 ** torch.arange(150).double(),
    "crowded": 1 - torch.arange(150).double() / 1500,
    "nearly double": torch.cat([torch.tensor([1.0, 1 - 1e-9]), torch.full((148,), 0.3)]).double(),
    "bulk below": torch.cat([torch.tensor([1.0]), torch.full((149,), 0.97)]).double(),
}


def with_spectrum(values: Tensor, seed: int = 0) -> Tensor:
    left, right = (torch.linalg.qr(draw(len(values), len(values), seed=seed + i)).Q for i in range(2))
    return left @ torch.diag(values) @ right


def diagonal(values: Tensor, rounding: float = 1e-12) -> LinearOperator:
    def apply(block: Tensor) -> Tensor:
        return values[:, None] * block

    return LinearOperator((len(values), len(values)), apply, apply, rounding)


@cache
def named(name: str) -> tuple[Tensor, float]:
    """A matrix with this spectrum, and its largest singular value."""
    matrix = with_spectrum(SPECTRA[name])
    return matrix, float(largest(ones(150), matrix))


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("tolerance", [0.2, 3e-4])
def test_probable_ends_hold_and_close(name: str, tolerance: float) -> None:
    matrix, truth = named(name)
    generator = torch.Generator().manual_seed(3)
    bounds = probable_bounds(
        LinearOperator.of(matrix), generator=generator, tolerance=tolerance, maximum_degree=512
    )
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
    assert float(bounds.lower) <= largest(ones(30), matrix) <= float(bounds.upper)
    assert set(used) == {4}
    assert len(used) <= 31


@pytest.mark.parametrize(("name", "probes"), [("one", 1), ("one", 4), ("bulk below", 1), ("crowded", 4)])
def test_the_upper_end_fails_no_more_often_than_stated(
    name: str, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not idly: where nothing but the top eigenvalue is there, the event fails as often as stated.

    It is then seen to have failed, the lower end being above, and a fresh start is drawn.
    """
    stated, runs, starts = 0.1, 80, []
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
    with pytest.raises(
        ValueError, match=r"failure_probability must be larger, got 1e-06 for 1 matrices: rounding 0\.001"
    ):
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
    truth = largest(ones(150), single)
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
    batch, probes = _batch_of_one(stack, torch.device("cpu")), draw(1, 3, 6, seed=3)
    squares = batch.squares(probes, torch.arange(1))
    torch.testing.assert_close(squares, (probes @ whole.mT).square().sum(2))


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
    with pytest.raises(ValueError, match=r"rounding must be in \[0, 0.1\], got nan"):
        LinearOperator((1, 3), lambda b: b, lambda b: b, rounding=math.nan)


def test_rounding_takes_from_the_threshold_what_the_proof_says() -> None:
    """t falls by 20 (e + u) k^2 |G|_F; where nothing is left of it at k = 1 there is no bound."""
    probability, probes = 1e-6, 4
    block = torch.randn((5, probes), generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    t = math.sqrt(2) * (probability * math.gamma(probes / 2 + 1)) ** (1 / probes)
    edge = t / (20 * float(block.norm()))

    def bounds(rounding: float) -> object:
        eye = LinearOperator((5, 5), lambda v: v, lambda v: v, rounding)
        return probable_bounds(
            eye,
            generator=torch.Generator().manual_seed(7),
            failure_probability=probability,
            probes=probes,
            maximum_degree=8,
        )

    assert float(bounds(0.98 * edge).upper) >= 1
    with pytest.raises(ValueError, match="leaves nothing of 4 probes"):
        bounds(1.001 * edge)


@pytest.mark.parametrize("rounding", [0.0, 1e-6])
def test_the_ends_are_those_of_the_proof(rounding: float) -> None:
    """T_k(2 b / c - 1) of the eigenvalues themselves, degree by degree, and the least bound of all."""
    values, probes = torch.linspace(0.2, 1.5, 40, dtype=torch.float64), 3
    options = {"failure_probability": 1e-3, "probes": probes, "tolerance": 1e-6, "maximum_degree": 32}
    generator = torch.Generator().manual_seed(11)
    got = probable_bounds(diagonal(values, rounding), generator=generator, **options)

    start = torch.randn((40, probes), generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    b, size = values.square().numpy(), float(start.norm())
    t = math.sqrt(2) * (1e-3 * math.gamma(probes / 2 + 1)) ** (1 / probes)
    down, up = 1 / (1 + rounding + 1e-12 + 80 * 2.0**-53), 1 + 1e-12 + 120 * 2.0**-53

    def quotient(block: np.ndarray) -> float:
        return float(np.sqrt(((b[:, None] * block**2).sum(0) / (block**2).sum(0)).max())) * down

    lower, upper = quotient(start.numpy()), math.inf
    for degree in (8, 16, 32):
        cut = lower**2
        for k in range(1, degree + 1):
            row = np.polynomial.chebyshev.chebval(2 * b / cut - 1, [0.0] * k + [1.0])
            block = row[:, None] * start.numpy()
            sure = t - 20 * (rounding + 2.0**-53) * k**2 * size
            if sure <= 0:
                break
            angle = math.acosh(max(1.0, np.linalg.norm(block) * up / sure)) / k
            upper = min(upper, math.sqrt(cut * (1 + math.cosh(angle)) / 2))
            lower = max(lower, quotient(block)) if k < degree else lower
    assert float(got.lower) == pytest.approx(lower, rel=2e-13, abs=0)
    assert float(got.upper) == pytest.approx(upper * (1 + 0.5e-12), rel=2e-13, abs=0)


def test_stacked_operators_round_like_the_worst_of_them() -> None:
    one, other = (LinearOperator((2, 2), lambda v: v, lambda v: v, rounding) for rounding in (1e-3, 1e-6))
    for pair in ((one, other), (other, one)):
        assert LinearOperator.stacked(pair).rounding == pytest.approx(2**0.5 * 1e-3, rel=1e-9, abs=0)


def test_one_number_that_is_not_finite_is_enough() -> None:
    spoil = float64([[1.0], [torch.nan]])
    spoiled = LinearOperator((2, 2), lambda v: spoil * v, lambda v: v)
    with pytest.raises(ValueError, match="apply must return finite numbers"):
        probable_bounds(spoiled, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rounding", [0.0, 1e-12, 1e-4])
def test_a_transpose_that_is_none_is_refused_whatever_the_rounding(rounding: float) -> None:
    wrong = LinearOperator((2, 2), lambda v: v, lambda v: 1.5 * v, rounding)
    with pytest.raises(ValueError, match="apply_transpose must be the transpose of apply"):
        probable_bounds(wrong, generator=torch.Generator().manual_seed(0))
