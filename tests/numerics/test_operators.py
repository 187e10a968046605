"""Bounds of operators known by their products: both ends, how often the upper one fails, what is refused."""

import math
import re

import mpmath
import pytest
import scipy.stats
import torch
from mpmath import mp, mpf
from torch import Tensor

from ringfence.numerics import operators
from ringfence.numerics.operators import (
    BatchedOperator,
    LinearOperator,
    probable_bounds_of_many,
    probable_traces,
)
from ringfence.numerics.rounding import UNIT
from ringfence.numerics.singular_values import SingularValueBounds
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
    """diag(values) for each row; the Gram product errs by 2 ``error`` b |v| against the first vector."""

    def gram(block: Tensor) -> tuple[Tensor, Tensor]:
        image = values[:, None] * block
        back = values[:, None] * image
        back[:, 0, 0] -= 2 * error * values.square().amax(1) * block[:, 0].norm(dim=1)
        return image.square().sum(2), back

    count, width = values.shape
    return BatchedOperator(count, (width, width), lambda block: gram(block)[0], gram, rounding)


def ends_hold(bounds: SingularValueBounds, gap: float) -> None:
    """Both ends of the bounds for ``matrices`` hold, and are no further apart than ``gap``."""
    for index, matrix in enumerate(matrices()):
        truth = largest(ones(60), matrix)
        assert float(bounds.lower[index]) <= truth * (1 + SVD)
        assert float(bounds.upper[index]) >= truth * (1 - SVD)
    assert bool((bounds.gap <= gap).all())
    assert float(bounds.upper[-1]) == float(bounds.lower[-1]) == 0
    assert bounds.failure_probability == 1e-6


BATCHES = {  # gram of two matrices (3, 3), and what is wrong with it
    "gram must return shape [2, 1], got [2, 0]": lambda b: (b[:, :, :0].sum(2)[:, :0], b),
    "gram must return shape [2, 1, 3], got [2, 1, 2]": lambda b: (b.square().sum(2), b[..., :2]),
    "gram must return finite": lambda b: (b.square().sum(2), b * float64([1.0, 1.0, math.nan])),
    "gram must be A^T A": lambda b: (b.square().sum(2), 1.5 * b),
}
SINGLE = {  # apply and its transpose, and what is wrong with them
    "apply must return shape [3, 4], got [2, 4]": (lambda b: b[:2], lambda b: b),
    "apply_transpose must return shape [3, 4], got [1, 4]": (lambda b: b, lambda b: b[:1]),
    "apply must return finite": (lambda b: b * float64([[1.0], [math.nan], [1.0]]), lambda b: b),
    "apply_transpose must be the transpose": (lambda b: b, lambda b: 1.5 * b),
}


def test_bad_operators_are_refused_by_name() -> None:
    for rounding in (0.0, 1e-12, 1e-4):
        for message, gram in BATCHES.items():
            operator = BatchedOperator(2, (3, 3), lambda b: b.sum(2), gram, rounding)
            with pytest.raises(ValueError, match=re.escape(message)):
                probable_bounds_of_many(operator, generator=generator(), probes=1)
        for message, both in SINGLE.items():
            operator = LinearOperator((3, 3), *both, rounding).batch_of_one()
            with pytest.raises(ValueError, match=re.escape(message)):
                probable_bounds_of_many(operator, generator=generator(), probes=4)
    endless = BatchedOperator(2, (3, 3), lambda b: b.sum(2) * math.inf, lambda b: (b.sum(2), b))
    with pytest.raises(ValueError, match="squares must return finite"):
        probable_traces(endless, generator=generator())


def test_bad_arguments_are_refused_by_name() -> None:
    good = LinearOperator.of(draw(3, 3))
    for options, message in (
        ({"generator": None}, r"generator must be a torch\.Generator, got None"),
        ({"failure_probability": 0.0}, "failure_probability must"),
        ({"failure_probability": 1.0}, "failure_probability must"),
        ({"failure_probability": math.nan}, "failure_probability must"),
        ({"probes": 0}, "probes must be at least 1, got 0"),
        ({"maximum_degree": 0}, "maximum_degree must be at least 1, got 0"),
    ):
        given = {"generator": generator(), **options}
        with pytest.raises((ValueError, TypeError), match=message):
            probable_bounds_of_many(good.batch_of_one(), **given)
    for make in (
        lambda shape, rounding: LinearOperator(shape, good.apply, good.apply_transpose, rounding),
        lambda shape, rounding: BatchedOperator(1, shape, lambda b: b, lambda b: (b, b), rounding),
    ):
        with pytest.raises(ValueError, match=r"shape must be two positive numbers, got \(0, 3\)"):
            make((0, 3), 0.0)
        with pytest.raises(ValueError, match=r"rounding must be in \[0, 0.1\], got nan"):
            make((1, 3), math.nan)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        BatchedOperator(0, (3, 3), lambda b: b, lambda b: (b, b))


def test_every_matrix_has_probes_of_its_own_whatever_the_batch() -> None:
    whole = batched(matrices()[:3])
    vectors = operators._standard_normal_probes(whole, 10, generator()).reshape(-1, 60)
    assert len(torch.unique(vectors, dim=0)) == 30
    assert float(vectors.mean().abs()) < 5 / math.sqrt(vectors.numel())
    assert abs(float(vectors.var()) - 1) < 5 * math.sqrt(2 / vectors.numel())
    one = batched(matrices()[:1])
    alone = probable_bounds_of_many(one, generator=generator(), failure_probability=1e-6 / 3)
    together = probable_bounds_of_many(whole, generator=generator())
    for mine, ours in ((alone.upper, together.upper), (alone.lower, together.lower)):
        torch.testing.assert_close(mine, ours[:1], rtol=1e-12, atol=0)


def test_what_is_charged_for_rounding() -> None:
    """A single 1 in a column of many: nothing is rounded, so the ends show the charge."""
    matrix = torch.zeros(1, 1000, 1).double()
    matrix[0, 0, 0] = 1.0
    operator = batched(matrix)
    assert operator.rounding == pytest.approx(1000 * UNIT, rel=1e-9, abs=0)
    assert batched(torch.ones(2, 3, 9)).rounding == pytest.approx(9 * UNIT * 3**0.5, rel=1e-9, abs=0)
    lower, upper, _ = probable_traces(operator, generator=generator(), probes=1)
    slack = 1e-12 + 2 * 1001 * UNIT
    assert float(1 - lower) == pytest.approx(slack + 2 * operator.rounding, abs=2e-15)
    assert float(upper - 1) == pytest.approx(slack + 2 * operator.rounding, abs=2e-15)
    squares, _ = operators._checked_product(operator, torch.ones(1, 1, 1).double())
    assert float(1 - squares) == pytest.approx(2 * (operator.rounding + 1e-12 + 1001 * UNIT), abs=2e-15)


@pytest.mark.parametrize(("rounding", "allowed"), [(0.0, 1e-9), (1e-12, 1e-9), (1e-5, 1e-3)])
def test_a_product_may_be_off_by_a_billionth_or_a_hundred_roundings(rounding: float, allowed: float) -> None:
    """Of |A v|^2 and of |v| |A^T A v|, which are the same for multiples of the identity."""
    block = draw(1, 2, 5)

    def product(off: float) -> None:
        def gram(block: Tensor) -> tuple[Tensor, Tensor]:
            return 4 * block.square().sum(2), 4 * (1 + off) * block

        operator = BatchedOperator(1, (5, 5), lambda block: gram(block)[0], gram, rounding)
        operators._checked_product(operator, block)

    product(1.99 * allowed)
    product(-1.99 * allowed)
    for off in (2.01 * allowed, -2.01 * allowed):
        with pytest.raises(ValueError, match=r"gram must be A\^T A"):
            product(off)


@pytest.mark.parametrize("probes", [1, 2, 5])
@pytest.mark.parametrize("tolerance", [0.2, 1e-3])
def test_ends_hold_and_close_for_every_spectrum_and_scale(tolerance: float, probes: int) -> None:
    options = {"tolerance": tolerance, "maximum_degree": 256, "probes": probes}
    bounds = probable_bounds_of_many(batched(matrices()), generator=generator(), **options)
    ends_hold(bounds, tolerance * (1 + 1e-9))


@pytest.mark.parametrize(("spectrum", "probes"), [(1, 1), (1, 4), (3, 4), (5, 1)])
def test_all_upper_ends_fail_no_more_often_than_stated(
    spectrum: int, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its share; and not idly: where only the top is there, they do fail."""
    count, each = 300, 0.1
    # shares above 1 / count cannot be asked for: the union is split by hand
    monkeypatch.setattr(operators, "_checked_generator", lambda source, *_: source)
    operator = diagonal(SPECTRA[spectrum].expand(count, -1))
    bounds = probable_bounds_of_many(
        operator,
        generator=generator(5),
        failure_probability=each * count,
        probes=probes,
        tolerance=0.0,
        maximum_degree=1
        if spectrum == 1
        else 16,  # at degree 1 the bound of a single top is as close as can be
    )
    assert int((bounds.upper < 1).sum()) <= each * count + 4 * math.sqrt(each * (1 - each) * count)
    if spectrum == 1:
        assert int((bounds.upper < 1).sum()) >= each * count / 3


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
    monkeypatch.setattr(operators, "_checked_product", _trusting)

    def upper(rounding: float, planted: float) -> float:
        options = {"tolerance": 0.0, "maximum_degree": 3, "probes": 2, "failure_probability": 1e-3}
        operator = diagonal(values, rounding, planted)
        return float(probable_bounds_of_many(operator, generator=generator(), **options).upper)

    assert upper(0.0, 0.0) >= 1.3
    assert upper(0.0, error) < 1.3
    assert upper(error, error) >= 1.3


def _trusting(operator: BatchedOperator, block: Tensor) -> tuple[Tensor, Tensor]:
    """A product without the check of the transpose."""
    squares, back = operator.gram(block)
    return squares.amax(1), back


def test_rounding_loosens_the_bound_until_there_is_none() -> None:
    uppers = [
        float(
            probable_bounds_of_many(
                diagonal(SPECTRA[3:4], e), generator=generator(), probes=2, tolerance=0.0, maximum_degree=32
            ).upper
        )
        for e in (1e-15, 1e-6, 1e-5)
    ]
    assert uppers == sorted(uppers)
    with pytest.raises(
        ValueError, match=r"got 1e-06 for 1 matrices: rounding 0\.001 leaves nothing of 2 probes"
    ):
        probable_bounds_of_many(diagonal(SPECTRA[3:4], 1e-3), generator=generator(), probes=2)


def test_as_few_probes_as_rounding_allows() -> None:
    def drawn(rounding: float) -> int:
        shapes = []
        whole = diagonal(SPECTRA[3:4], rounding)

        def gram(block: Tensor) -> tuple[Tensor, Tensor]:
            shapes.append(block.shape[1])
            return whole.gram(block)

        operator = BatchedOperator(1, (60, 60), whole.squares, gram, rounding)
        probable_bounds_of_many(operator, generator=generator())
        return shapes[0]

    assert [drawn(rounding) for rounding in (1e-13, 2e-6, 5e-5, 3e-4, 1e-3)] == [1, 2, 4, 8, 16]


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
def test_trace_ends_hold(probes: int) -> None:
    lower, upper, _ = probable_traces(batched(matrices()), generator=generator(), probes=probes)
    truth = matrices().square().sum((1, 2))
    assert bool((lower <= truth * (1 + 1e-13)).all())
    assert bool((upper >= truth * (1 - 1e-13)).all())
    if probes >= 60:
        assert bool((upper <= truth * (1 + 1e-11)).all())
        assert bool((lower >= truth * (1 - 1e-11)).all())


@pytest.mark.parametrize("probes", [1, 4, 20])
@pytest.mark.parametrize("spectrum", [0, 1, 2])
def test_traces_fail_no_more_often_than_stated(
    spectrum: int, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, each = 2000, 0.2
    monkeypatch.setattr(operators, "_checked_generator", lambda source, *_: source)
    operator = diagonal(SPECTRA[spectrum].expand(count, -1))
    lower, upper, _ = probable_traces(
        operator, generator=generator(6), failure_probability=each * count, probes=probes
    )
    truth = float(SPECTRA[spectrum].square().sum())
    allowed = each / 2 * count + 4 * math.sqrt(each / 2 * count)
    assert int((upper < truth).sum()) <= allowed
    assert int((lower > truth).sum()) <= allowed
    if spectrum == 1:  # rank one is the worst there is
        assert int((upper < truth).sum()) >= each / 2 * count / 10


@pytest.mark.parametrize("degrees", [1, 4, 64, 1000])
@pytest.mark.parametrize("probability", [0.1, 5e-9])
def test_tails_are_above_those_of_the_chi_squared_law(degrees: int, probability: float) -> None:
    low, high = operators._tails(degrees, probability)
    law = scipy.stats.chi2(degrees)
    for y, tail in ((low, law.cdf(degrees * low)), (high, law.sf(degrees * high))):
        assert tail <= probability
        assert tail >= probability / 200
        with mp.workdps(40):
            share = degrees * (1 - mpf(y) + mp.log(y)) / 2 / mp.log(probability)
            assert 0 <= share - 1 < 2e-12  # on the safe side, and no further


def test_rounding_that_leaves_nothing_of_a_trace_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rounding 0\.1 leaves nothing of 4 probes"):
        probable_traces(diagonal(SPECTRA[:1], 0.1), generator=generator(), probes=4)


def test_the_estimate_is_the_mean_over_the_probes() -> None:
    operator = batched(matrices()[:3])
    block = operators._standard_normal_probes(operator, 7, generator(5))
    found = probable_traces(operator, generator=generator(5), probes=7)
    torch.testing.assert_close(found.estimate, operator.squares(block).mean(1), rtol=1e-12, atol=0)
    exact = probable_traces(operator, generator=generator(5), probes=60)
    torch.testing.assert_close(exact.estimate, exact.upper, rtol=1e-9, atol=0)


def test_rectangles_take_no_products_more_than_they_need() -> None:
    """Work ends at the tolerance: with one product less, the two ends are farther apart."""
    matrix, used = draw(30, 90), []

    def apply(block: Tensor) -> Tensor:
        used.append(block.shape[1])
        return matrix @ block

    operator = LinearOperator((30, 90), apply, lambda block: matrix.mT @ block).batch_of_one()

    def gap(degree: int) -> float:
        options = {"probes": 4, "tolerance": 0.0125, "maximum_degree": degree}
        bounds = probable_bounds_of_many(operator, generator=generator(4), **options)
        assert float(bounds.lower) <= largest(ones(30), matrix) <= float(bounds.upper)
        return float(bounds.upper / bounds.lower) - 1

    assert gap(256) <= 0.0125
    assert used[:-1] == [4] * (len(used) - 1)
    assert used[-1] == 1  # the Ritz vector
    assert gap(len(used) - 2) > 0.0125


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
        bounds = probable_bounds_of_many(diagonal(values), generator=generator(6), **options)
        assert (float(bounds.upper) >= 2) is holds


def test_matrices_that_are_seen_to_fail_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start almost blind to the top: few products prove too little, and many find the top nevertheless."""
    values = torch.cat([torch.tensor([2.0]), torch.ones(99)]).double().expand(2, -1)
    honest, drawn = operators._standard_normal_probes, []

    def blind(*arguments: object) -> Tensor:
        drawn.append(honest(*arguments))
        if len(drawn) == 1:
            drawn[0][1, :, 0] = 1e-7
        return drawn[-1]

    monkeypatch.setattr(operators, "_standard_normal_probes", blind)
    options = {"generator": generator(6), "maximum_degree": 16, "tolerance": 0.0, "probes": 1}
    bounds = probable_bounds_of_many(diagonal(values), **options)
    assert len(drawn) == 2
    assert bool(((bounds.lower <= 2) & (bounds.upper >= 2)).all())


def test_weighted_and_stacked_operators_are_the_matrices() -> None:
    first, second, weights = draw(4, 6), draw(5, 6, seed=1), draw(4, seed=2).abs()
    stack = LinearOperator.stacked([LinearOperator.of(first).weighted(weights), LinearOperator.of(second)])
    whole = torch.cat([weights[:, None] * first, second])
    assert stack.shape == (9, 6)
    torch.testing.assert_close(stack.apply(torch.eye(6).double()), whole)
    torch.testing.assert_close(stack.apply_transpose(torch.eye(9).double()), whole.mT)
    squares, back = stack.batch_of_one().gram(probes := draw(1, 3, 6, seed=3))
    torch.testing.assert_close(squares, (probes @ whole.mT).square().sum(2))
    torch.testing.assert_close(back, probes @ whole.mT @ whole)
