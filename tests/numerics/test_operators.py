"""Bounds of operators known by their products: that they hold, how often they fail, what is refused."""

import math

import mpmath
import pytest
import scipy.stats
import torch
from mpmath import mp, mpf
from torch import Tensor

from ringfence.numerics import operators
from ringfence.numerics.operators import BatchedOperator, spectral_bounds, trace_bounds
from ringfence.numerics.rounding import UNIT
from tests.accounting.drawing import draw
from tests.accounting.matrices import SVD, batched, largest, ones
from tests.tensors import float64

SPECTRA = torch.stack(
    [
        torch.ones(60),
        torch.eye(60)[0],
        0.9 ** torch.arange(60),
        1 - torch.arange(60) / 600,
        torch.cat([torch.tensor([1.0, 1 - 1e-9]), torch.full((58,), 0.3)]),
        torch.cat([torch.tensor([1.0]), torch.full((59,), 0.97)]),
        torch.zeros(60),
    ]
).double()
SCALES = float64([1.0, 1e-9, 1e9, 3.0, 1e-80, 1e80, 1.0])


def matrices() -> Tensor:
    left, right = (torch.linalg.qr(draw(60, 60, seed=seed)).Q for seed in range(2))
    return SCALES[:, None, None] * (left @ torch.diag_embed(SPECTRA) @ right)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def diagonal(values: Tensor, rounding: float = 1e-12, error: float = 0.0) -> BatchedOperator:
    """diag(values) for each row; the transpose errs by 2 ``error`` b |v| against the first vector."""

    def back(vectors: Tensor) -> Tensor:
        result = values * vectors
        result[:, 0] -= 2 * error * values.square().amax(1) * vectors.norm(dim=1)
        return result

    count, width = values.shape
    return BatchedOperator(count, (width, width), lambda vectors: values * vectors, back, rounding)


def test_bad_arguments_are_refused_by_name() -> None:
    good = batched(draw(1, 3, 3))
    for options, message in (
        ({"generator": None}, r"generator must be a torch\.Generator, got None"),
        ({"failure_probability": 0.0}, "failure_probability must"),
        ({"failure_probability": 1.0}, "failure_probability must"),
        ({"failure_probability": math.nan}, "failure_probability must"),
        ({"probes": 0}, "probes must be at least 1, got 0"),
    ):
        for bounds in (spectral_bounds, trace_bounds):
            with pytest.raises((ValueError, TypeError), match=message):
                bounds(good, **{"generator": generator(), **options})
    with pytest.raises(ValueError, match="maximum_degree must be at least 1, got 0"):
        spectral_bounds(good, generator=generator(), maximum_degree=0)
    for bad in (math.nan, math.inf):
        endless = BatchedOperator(2, (3, 3), lambda v, bad=bad: v * bad, lambda v: v)
        late = BatchedOperator(2, (3, 3), lambda v: v, lambda v, bad=bad: v * bad)
        for call in (
            lambda one=endless: spectral_bounds(one, generator=generator()),
            lambda one=endless: trace_bounds(one, generator=generator()),
            lambda one=late: spectral_bounds(one, generator=generator()),
        ):
            with pytest.raises(ValueError, match="products of an operator must be finite"):
                call()


def test_every_matrix_has_probes_of_its_own_whatever_the_batch() -> None:
    whole = batched(matrices()[:3])
    vectors = operators._standard_normal_probes(whole, 10, generator()).reshape(-1, 60)
    assert len(torch.unique(vectors, dim=0)) == 30
    assert float(vectors.mean().abs()) < 5 / math.sqrt(vectors.numel())
    assert abs(float(vectors.var()) - 1) < 5 * math.sqrt(2 / vectors.numel())
    one = batched(matrices()[:1])
    alone = spectral_bounds(one, generator=generator(), failure_probability=1e-6 / 3)
    torch.testing.assert_close(alone, spectral_bounds(whole, generator=generator())[:1], rtol=1e-8, atol=0)


def test_what_is_charged_for_rounding() -> None:
    """A single 1 in a column of many: nothing is rounded, so the ends show the charge."""
    matrix = torch.zeros(1, 1000, 1).double()
    matrix[0, 0, 0] = 1.0
    operator = batched(matrix)
    assert operator.rounding == pytest.approx(1000 * UNIT, rel=1e-9, abs=0)
    assert batched(torch.ones(2, 3, 9)).rounding == pytest.approx(9 * UNIT * 3**0.5, rel=1e-9, abs=0)
    upper, _ = trace_bounds(operator, generator=generator(), probes=1)
    assert float(upper - 1) == pytest.approx(1e-12 + 2 * 1001 * UNIT + 2 * operator.rounding, abs=2e-15)


@pytest.mark.parametrize("probes", [1, 2, 5])
@pytest.mark.parametrize("tolerance", [0.2, 1e-3])
def test_bounds_hold_and_are_close_for_every_spectrum_and_scale(tolerance: float, probes: int) -> None:
    options = {"tolerance": tolerance, "maximum_degree": 256, "probes": probes}
    bounds = spectral_bounds(batched(matrices()), generator=generator(), **options).sqrt()
    for bound, matrix in zip(bounds.tolist(), matrices(), strict=True):
        truth = largest(ones(60), matrix)
        assert truth * (1 - SVD) <= bound <= truth * (1 + tolerance) * (1 + 1e-9)


@pytest.mark.parametrize(("spectrum", "probes"), [(1, 1), (1, 4), (3, 4), (5, 1)])
def test_all_upper_ends_fail_no_more_often_than_stated(
    spectrum: int, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its share; and not idly: where only the top is there, they do fail."""
    count, each = 300, 0.1
    # shares above 1 / count cannot be asked for
    monkeypatch.setattr(operators, "_checked_share", lambda *_: each)
    operator = diagonal(SPECTRA[spectrum].expand(count, -1))
    bounds = spectral_bounds(
        operator,
        generator=generator(5),
        probes=probes,
        tolerance=0.0,
        maximum_degree=1
        if spectrum == 1
        else 16,  # at degree 1 the bound of a single top is as close as can be
    )
    assert int((bounds < 1).sum()) <= each * count + 4 * math.sqrt(each * (1 - each) * count)
    if spectrum == 1:
        assert int((bounds < 1).sum()) >= each * count / 3


def test_errors_of_products_against_the_top_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst the premise allows, planted; stated as 0 it breaks the bound."""
    error, component = 3e-4, 0.05  # t is 0.0447 at 1e-3 and 2 probes
    values = torch.cat([torch.tensor([1.3]), torch.linspace(0.9, 1.0, 199)]).double()[None]

    def start(*_: object) -> Tensor:
        block = draw(1, 2, 200)
        block[:, :, 0] = 0
        block[:, 0, 0] = component
        return block

    monkeypatch.setattr(operators, "_standard_normal_probes", start)

    def upper(rounding: float, planted: float) -> float:
        options = {"tolerance": 0.0, "maximum_degree": 3, "probes": 2, "failure_probability": 1e-3}
        operator = diagonal(values, rounding, planted)
        return float(spectral_bounds(operator, generator=generator(), **options).sqrt())

    assert upper(0.0, 0.0) >= 1.3
    assert upper(0.0, error) < 1.3
    assert upper(error, error) >= 1.3


def test_rounding_loosens_the_bound_until_there_is_none() -> None:
    uppers = [
        float(
            spectral_bounds(
                diagonal(SPECTRA[3:4], e), generator=generator(), probes=2, tolerance=0.0, maximum_degree=32
            )
        )
        for e in (1e-15, 1e-7, 2e-6)
    ]
    assert uppers == sorted(uppers)
    with pytest.raises(
        ValueError, match=r"got 1e-06 for 1 matrices: rounding 0\.001 leaves nothing of 2 probes"
    ):
        spectral_bounds(diagonal(SPECTRA[3:4], 1e-3), generator=generator(), probes=2)


def test_as_few_probes_as_rounding_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, drawn = operators._standard_normal_probes, []

    def probes(operator: BatchedOperator, number: int, source: torch.Generator) -> Tensor:
        drawn.append(number)
        return honest(operator, number, source)

    monkeypatch.setattr(operators, "_standard_normal_probes", probes)
    for rounding in (1e-13, 4e-9, 1e-8, 2e-6):
        spectral_bounds(diagonal(SPECTRA[3:4], rounding), generator=generator())
    assert drawn == [1, 1, 2, 2]


def test_the_reach_is_that_of_the_inverse_and_of_all_that_rounding_adds() -> None:
    """sum_i |g_i|^2 h_i(x)^2 with a matrix that is inverted as a whole, at degrees 1 to 4."""
    diagonal, beside, sizes = draw(2, 3, 4).abs(), draw(2, 3, 4, seed=1).abs(), draw(2, 3, seed=2).abs()
    x, rounding = torch.tensor([9.0, 12.0], dtype=torch.float64), 0.01
    for degree in range(1, 5):
        inside = operators._tridiagonal(diagonal[..., :degree], beside[..., :degree])
        whole = inside + inside.mT - torch.diag_embed(diagonal[..., :degree])
        eye = torch.eye(degree, dtype=torch.float64)
        first = torch.linalg.inv(x[:, None, None, None] * eye - whole)[..., 0]
        errors = math.sqrt(degree) * (2 * rounding + rounding**2 + 1e-14 * (degree + 1))
        lengths = (1 + (x[:, None] * first.norm(dim=2)).square()).sqrt()
        h = (beside[..., degree - 1] * first[..., -1] + errors * lengths) * (1 + 1e-9)
        found = operators._reach(diagonal[..., :degree], beside[..., :degree], sizes, rounding, x)
        torch.testing.assert_close(found, (sizes * h).square().sum(1), rtol=1e-12, atol=0)
    assert operators._charge(0.0, 3) == pytest.approx(math.sqrt(3) * 4e-14, rel=1e-12, abs=0)
    at_an_eigenvalue = operators._reach(*torch.ones(2, 1, 1, 1).double(), sizes[:1, :1], 0.0, x[:1] / 9)
    assert float(at_an_eigenvalue) == math.inf


@pytest.mark.parametrize("probes", [1, 7, 59, 60, 100])
def test_bounds_of_traces_hold(probes: int) -> None:
    upper, _ = trace_bounds(batched(matrices()), generator=generator(), probes=probes)
    truth = matrices().square().sum((1, 2))
    assert bool((upper >= truth * (1 - 1e-13)).all())
    if probes >= 60:
        assert bool((upper <= truth * (1 + 1e-11)).all())


@pytest.mark.parametrize("probes", [1, 4, 20])
@pytest.mark.parametrize("spectrum", [0, 1, 2])
def test_traces_fail_no_more_often_than_stated(
    spectrum: int, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, each = 2000, 0.1
    monkeypatch.setattr(operators, "_checked_share", lambda *_: each)
    operator = diagonal(SPECTRA[spectrum].expand(count, -1))
    upper, _ = trace_bounds(operator, generator=generator(6), probes=probes)
    failed = int((upper < float(SPECTRA[spectrum].square().sum())).sum())
    assert failed <= each * count + 4 * math.sqrt(each * count)
    if spectrum == 1:  # rank one is the worst there is
        assert failed >= each * count / 10


@pytest.mark.parametrize("degrees", [1, 4, 64, 1000])
@pytest.mark.parametrize("probability", [0.1, 5e-9])
def test_the_tail_is_above_that_of_the_chi_squared_law(degrees: int, probability: float) -> None:
    y = operators._lower_tail(degrees, probability)
    assert probability / 200 <= scipy.stats.chi2(degrees).cdf(degrees * y) <= probability
    with mp.workdps(40):
        share = degrees * (1 - mpf(y) + mp.log(y)) / 2 / mp.log(probability)
        assert 0 <= share - 1 < 3e-11  # on the safe side, and no further


def test_rounding_that_leaves_nothing_of_a_trace_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rounding 0\.1 leaves nothing of 4 probes"):
        trace_bounds(diagonal(SPECTRA[:1], 0.1), generator=generator(), probes=4)


def test_the_estimate_is_the_mean_over_the_probes() -> None:
    operator = batched(matrices()[:3])
    block = operators._standard_normal_probes(operator, 7, generator(5))
    _, found = trace_bounds(operator, generator=generator(5), probes=7)
    torch.testing.assert_close(found, operator.squares(block).mean(1), rtol=1e-12, atol=0)
    upper, estimate = trace_bounds(operator, generator=generator(5), probes=60)
    torch.testing.assert_close(estimate, upper, rtol=1e-9, atol=0)


def test_rectangles_take_no_products_more_than_they_need() -> None:
    """Work ends at the tolerance: with one product less, the bound is farther away."""
    matrix, used = draw(30, 90), []

    def apply(vectors: Tensor) -> Tensor:
        used.append(vectors)
        return vectors @ matrix.mT

    operator = BatchedOperator(1, (30, 90), apply, lambda vectors: vectors @ matrix)
    truth = largest(ones(30), matrix) ** 2

    def gap(degree: int) -> float:
        options = {"probes": 4, "tolerance": 0.0125, "maximum_degree": degree}
        return float(spectral_bounds(operator, generator=generator(4), **options)) / truth - 1

    assert 0 < gap(256) <= 1.0125**2 - 1
    assert len(used) % 4 == 0
    assert gap(len(used) // 4 - 1) > 1.0125**2 - 1


@pytest.mark.parametrize("probes", [1, 2, 3, 8])
@pytest.mark.parametrize("stated", [0.3, 0.01])
def test_the_quantile_is_the_chi_squared_tail(probes: int, stated: float) -> None:
    """Step 1 of the proof on its own: P(|v^T G| < t) <= stated, and not by orders of magnitude."""
    threshold = operators.chi_threshold(stated, probes)
    tail = float(mpmath.gammainc(probes / 2, 0, threshold**2 / 2, regularized=True))
    assert tail <= stated
    assert tail > stated / 4


def test_a_start_blind_to_the_top_is_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one way to fail, planted; with a component above t the bound holds again."""
    values = torch.cat([torch.tensor([2.0]), torch.ones(99)]).double()[None]
    honest = operators._standard_normal_probes
    for component, holds in ((0.0, False), (0.06, True)):

        def blind(*arguments: object, component: float = component) -> Tensor:
            start = honest(*arguments)
            start[..., 0] = 0
            start[:, 0, 0] = component  # |v^T G|; t is 0.0532 at 1e-6 and 4 probes
            return start

        monkeypatch.setattr(operators, "_standard_normal_probes", blind)
        options = {"probes": 4, "maximum_degree": 8, "tolerance": 0.0}
        bound = spectral_bounds(diagonal(values), generator=generator(6), **options)
        assert (float(bound) >= 4) is holds


def test_one_matrix_without_a_bound_is_refused_beside_one_that_is_zero() -> None:
    scale = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None]
    operator = BatchedOperator(2, (5, 5), lambda v: scale * v, lambda v: scale * v, rounding=0.1)
    with pytest.raises(ValueError, match=r"rounding 0\.1 leaves nothing of 2 probes"):
        spectral_bounds(operator, generator=torch.Generator().manual_seed(0))
