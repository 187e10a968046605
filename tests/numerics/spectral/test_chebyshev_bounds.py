"""Many largest singular values from products alone, and how often the upper bounds fail."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from ringfence.numerics.spectral import batched_operator, chebyshev_bounds
from ringfence.numerics.spectral.batched_operator import BatchedOperator
from ringfence.numerics.spectral.chebyshev_bounds import Search, rising_degrees, searched_bounds
from ringfence.numerics.spectral.singular_values import UNIT, SingularValueBounds
from tests.accounting.drawing import draw
from tests.numerics.spectral.operators import SPECTRA, diagonal, ends_hold, generator, matrices


def probable_bounds_of_many(
    operator: BatchedOperator,
    *,
    generator: torch.Generator,
    failure_probability: float = 1e-6,
    probes: int = 4,
    tolerance: float = 0.05,
    maximum_degree: int = 32,
) -> SingularValueBounds:
    """Polynomials of rising degree, with what rounding takes from t where each product errs by e."""

    def charge(degree: int, size: Tensor, threshold: float) -> Tensor:
        return 5 * (operator.rounding + 5 * UNIT) * degree * (degree + 1) * (size + threshold)

    search = Search(rising_degrees(4, 4, maximum_degree), tolerance, tolerance, charge)
    return searched_bounds(
        operator,
        lambda rows: batched_operator.standard_normal_probes(operator, rows, probes, generator),
        partial(chebyshev_bounds.chebyshev_ends, operator, search),
        failure_probability,
    )


@pytest.mark.parametrize("tolerance", [0.2, 0.02, 1e-3])
def test_ends_hold_and_close_for_every_spectrum_and_scale(tolerance: float) -> None:
    bounds = probable_bounds_of_many(
        BatchedOperator.of(matrices()), generator=generator(), tolerance=tolerance, maximum_degree=256
    )
    ends_hold(bounds, tolerance * (1 + 1e-12))


def test_finished_matrices_are_left_alone() -> None:
    seen = []
    whole = BatchedOperator.of(matrices())

    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(rows.tolist())
        return whole.gram(block, rows)

    operator = BatchedOperator(7, (60, 60), whole.squares, gram, whole.rounding)
    probable_bounds_of_many(operator, generator=generator(), tolerance=0.01, maximum_degree=64)
    assert seen[0] == list(range(7))
    assert all(6 not in rows for rows in seen[1:])  # the zero matrix
    assert len(seen[-1]) < 6
    assert len(seen) < 4 + 16 + 64


def test_errors_of_products_against_the_top_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst the premise allows, planted; stated as 0 it breaks the bound."""
    error, component = 2e-6, 0.06  # t is 0.0532 at 1e-6 and 4 probes
    values = torch.cat([torch.tensor([1.3]), torch.full((199,), 1.0)]).double()[None]

    def start(operator: BatchedOperator, rows: Tensor, *rest: object) -> Tensor:
        block = draw(1, 4, 200)
        block[:, :, 0] = 0
        block[:, 0, 0] = component
        return block

    monkeypatch.setattr(batched_operator, "standard_normal_probes", start)
    monkeypatch.setattr(chebyshev_bounds, "checked_product", _trusting)

    def upper(rounding: float, planted: float) -> float:
        operator = diagonal(values, rounding, planted)
        options = {"generator": generator(), "tolerance": 0.0, "maximum_degree": 12}
        return float(probable_bounds_of_many(operator, **options).upper)

    assert upper(0.0, 0.0) >= 1.3
    assert upper(0.0, 50 * error) < 1.3
    assert upper(error, error) >= 1.3


def _trusting(operator: BatchedOperator, block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A product without the check of the transpose, and with a lower end that does not see the top."""
    return torch.ones(len(rows)).double(), operator.gram(block, rows)[1]


def test_rounding_loosens_the_bound_until_there_is_none() -> None:
    uppers = [
        float(probable_bounds_of_many(diagonal(SPECTRA[3:4], e), generator=generator(), tolerance=0.0).upper)
        for e in (1e-15, 1e-6, 1e-5)
    ]
    assert uppers == sorted(uppers)
    assert uppers[-1] > uppers[0] + 1e-3
    with pytest.raises(
        ValueError, match=r"got 1e-06 for 1 matrices: rounding 0\.001 leaves nothing of 4 probes"
    ):
        probable_bounds_of_many(diagonal(SPECTRA[3:4], 1e-3), generator=generator())


def test_roots_are_rounded_outwards(monkeypatch: pytest.MonkeyPatch) -> None:
    one = torch.ones(1).double()
    monkeypatch.setattr(chebyshev_bounds, "chebyshev_ends", lambda *_: (one, one))
    bounds = probable_bounds_of_many(BatchedOperator.of(torch.ones(1, 2, 2)), generator=generator())
    assert (float(bounds.lower), float(bounds.upper)) == (1 - 2 * UNIT, 1 + 2 * UNIT)


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
@pytest.mark.parametrize("rounding", [0.0, 1e-6])
def test_the_ends_are_those_of_the_proof(tolerance: float, rounding: float) -> None:
    """T_k(2 b / c - 1) of the eigenvalues themselves, matrix by matrix, each until its ends are close."""
    values = torch.stack([torch.linspace(low, 1.5, 40, dtype=torch.float64) for low in (0.2, 1.4, 1e-3)])

    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        back = values[rows].square().unsqueeze(1) * block
        return (block * back).sum(2), back

    operator = BatchedOperator(3, (40, 40), lambda block, rows: gram(block, rows)[0], gram, rounding)
    options = {"failure_probability": 3e-3, "probes": 3, "tolerance": tolerance, "maximum_degree": 20}
    got = probable_bounds_of_many(operator, generator=torch.Generator().manual_seed(11), **options)

    starts = torch.Generator().manual_seed(11)
    t = math.sqrt(2) * (1e-3 * math.gamma(3 / 2 + 1)) ** (1 / 3)  # a third of the failures each
    down, up = (1 + rounding + 1e-12 + 80 * 2.0**-53) ** -2, 1 + 1e-12 + 120 * 2.0**-53
    for row, found in zip(values, zip(got.lower, got.upper, strict=True), strict=True):
        start = torch.randn((3, 40), generator=starts, dtype=torch.float64).numpy()
        lower, upper = _by_the_proof(row.square().numpy(), start, t, down, up, tolerance, rounding)
        assert [float(end) for end in found] == pytest.approx([lower**0.5, upper**0.5], rel=2e-13, abs=0)


def _by_the_proof(
    b: np.ndarray, start: np.ndarray, t: float, down: float, up: float, tolerance: float, rounding: float
) -> tuple[float, float]:
    def quotient(block: np.ndarray) -> float:
        return float(((b * block**2).sum(1) / (block**2).sum(1)).max()) * down

    size = np.linalg.norm(start) * up
    lower, upper, previous = quotient(start), math.inf, start
    for degree in (4, 16, 20):
        cut = lower
        for k in range(1, degree + 1):
            if upper <= lower * (1 + tolerance) ** 2:
                return lower, upper
            block = np.polynomial.chebyshev.chebval(2 * b / cut - 1, [0.0] * k + [1.0]) * start
            if k > 1:
                lower = max(lower, quotient(previous))
            sure = t - 5 * (rounding + 5 * 2.0**-53) * k * (k + 1) * (size + t)
            if sure <= 0:
                break
            angle = math.acosh(max(1.0, np.linalg.norm(block) * up / sure)) / k
            upper = min(upper, cut * (1 + math.cosh(angle)) / 2 * (1 + 1e-12))
            previous = block
    return lower, upper


def test_bounds_and_their_margins_where_the_arithmetic_is_exact() -> None:
    """A norm of 2 that is sure to be at least 2: the cut itself is the bound."""
    two, cut = torch.ones(1, 2, 2).double(), torch.full((1,), 4.0).double()
    norm = chebyshev_bounds._norms(two)
    many = chebyshev_bounds._norms(torch.ones(1, 128, 128).double())
    assert float(many) / 128 - 1 == pytest.approx(1e-12 + 128**2 * UNIT, rel=1e-3, abs=0)
    bound, usable = chebyshev_bounds._upper_bound(cut, two, norm, 3)
    assert float(bound) / 4 - 1 == pytest.approx(1e-12, rel=1e-3, abs=0)
    assert bool(usable)
    for polynomial, sure in (
        (two, 0 * norm),
        (5e99 * two, norm),
    ):  # nothing is left of t, or digits were lost
        bound, usable = chebyshev_bounds._upper_bound(cut, polynomial, sure, 3)
        assert (float(bound), bool(usable)) == (math.inf, False)


@pytest.mark.parametrize(("rounding", "allowed"), [(0.0, 1e-9), (1e-12, 1e-9), (1e-5, 1e-3)])
def test_a_product_may_be_off_by_a_billionth_or_a_hundred_roundings(rounding: float, allowed: float) -> None:
    """Of |A v|^2 and of |v| |A^T A v|, which are the same for multiples of the identity."""
    block, rows = draw(1, 2, 5), torch.arange(1)

    def product(off: float) -> None:
        def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return 4 * block.square().sum(2), 4 * (1 + off) * block

        operator = BatchedOperator(1, (5, 5), lambda block, rows: gram(block, rows)[0], gram, rounding)
        chebyshev_bounds.checked_product(operator, block, rows)

    product(1.99 * allowed)
    product(-1.99 * allowed)
    for off in (2.01 * allowed, -2.01 * allowed):
        with pytest.raises(ValueError, match=r"gram must be A\^T A"):
            product(off)


def test_degrees_grow_up_to_the_largest_that_is_allowed() -> None:
    assert rising_degrees(4, 4, 1) == (1,)
    assert rising_degrees(4, 4, 4) == (4,)
    assert rising_degrees(4, 4, 5) == (4, 5)
    assert rising_degrees(4, 2, 17) == (4, 8, 16, 17)
    with pytest.raises(ValueError, match="maximum_degree must be at least 1, got 0"):
        rising_degrees(4, 4, 0)
