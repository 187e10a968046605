"""Many largest singular values from products alone, and how often the upper bounds fail."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ringfence.numerics.spectral import chebyshev_bounds
from ringfence.numerics.spectral.batched_operator import BatchedOperator
from ringfence.numerics.spectral.chebyshev_bounds import probable_bounds_of_many
from ringfence.numerics.spectral.operator_trace import probable_traces
from ringfence.numerics.spectral.singular_values import UNIT
from tests.accounting.drawing import draw
from tests.accounting.matrices import SVD, largest, ones
from tests.numerics.spectral.operators import SPECTRA, diagonal, generator, matrices


@pytest.mark.parametrize("tolerance", [0.2, 0.02, 1e-3])
def test_ends_hold_and_close_for_every_spectrum_and_scale(tolerance: float) -> None:
    bounds = probable_bounds_of_many(
        BatchedOperator.of(matrices()), generator=generator(), tolerance=tolerance, maximum_degree=256
    )
    for index, matrix in enumerate(matrices()):
        truth = largest(ones(60), matrix)
        assert float(bounds.lower[index]) <= truth * (1 + SVD)
        assert float(bounds.upper[index]) >= truth * (1 - SVD)
    assert bool((bounds.gap <= tolerance * (1 + 1e-12)).all())
    assert float(bounds.upper[-1]) == float(bounds.lower[-1]) == 0
    assert bounds.failure_probability == 1e-6


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


def test_every_matrix_has_probes_of_its_own_whatever_the_batch() -> None:
    blocks = {"bounds": [], "traces": []}
    whole = BatchedOperator.of(matrices()[:3])

    def operator(name: str) -> BatchedOperator:
        def squares(block: Tensor, rows: Tensor) -> Tensor:
            blocks[name].append(block)
            return whole.squares(block, rows)

        def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            blocks[name].append(block)
            return whole.gram(block, rows)

        return BatchedOperator(3, (60, 60), squares, gram)

    probable_bounds_of_many(operator("bounds"), generator=generator())
    start = blocks["bounds"][0]
    probable_traces(operator("traces"), generator=generator(), probes=10)
    drawn = torch.cat(blocks["traces"], dim=1)
    assert start.shape == (3, 4, 60)
    assert drawn.shape == (3, 10, 60)
    for block in (start, drawn):
        vectors = block.reshape(-1, 60)
        assert len(torch.unique(vectors, dim=0)) == len(vectors)
        assert float(vectors.mean().abs()) < 5 / math.sqrt(vectors.numel())
        assert abs(float(vectors.var()) - 1) < 5 * math.sqrt(2 / vectors.numel())
    one = BatchedOperator.of(matrices()[:1])
    alone = probable_bounds_of_many(one, generator=generator(), failure_probability=1e-6 / 3)
    together = probable_bounds_of_many(whole, generator=generator())
    torch.testing.assert_close(alone.upper, together.upper[:1], rtol=1e-12, atol=0)


@pytest.mark.parametrize("probes", [1, 4])
@pytest.mark.parametrize("spectrum", [1, 3, 5])
def test_all_upper_ends_fail_no_more_often_than_stated(
    spectrum: int, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its share; and not idly: where only the top is there, failures are seen and drawn again."""
    count, each, drawn = 300, 0.1, []
    honest = chebyshev_bounds.standard_normal_probes

    def counted(operator: BatchedOperator, rows: Tensor, *rest: object) -> Tensor:
        drawn.append(len(rows))
        return honest(operator, rows, *rest)

    monkeypatch.setattr(chebyshev_bounds, "standard_normal_probes", counted)
    # shares above 1 / count cannot be asked for: the union is split by hand
    monkeypatch.setattr(chebyshev_bounds, "checked_generator", lambda *_: None)
    operator = diagonal(SPECTRA[spectrum].expand(count, -1))
    bounds = probable_bounds_of_many(
        operator,
        generator=generator(5),
        failure_probability=each * count,
        probes=probes,
        tolerance=0.0,
        maximum_degree=16,
    )
    failed = sum(drawn) - count + int((bounds.upper < 1).sum())
    allowed = each * sum(drawn) + 4 * math.sqrt(each * (1 - each) * sum(drawn))
    assert failed <= allowed
    if spectrum == 1:
        assert failed >= each * count / 3


def test_errors_of_products_against_the_top_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst the premise allows, planted; stated as 0 it breaks the bound."""
    error, component = 2e-6, 0.06  # t is 0.0532 at 1e-6 and 4 probes
    values = torch.cat([torch.tensor([1.3]), torch.full((199,), 1.0)]).double()[None]

    def start(operator: BatchedOperator, rows: Tensor, *rest: object) -> Tensor:
        block = draw(1, 4, 200)
        block[:, :, 0] = 0
        block[:, 0, 0] = component
        return block

    monkeypatch.setattr(chebyshev_bounds, "standard_normal_probes", start)
    monkeypatch.setattr(chebyshev_bounds, "_product", _trusting)

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
    monkeypatch.setattr(chebyshev_bounds, "_squares", lambda *_: (one, one))
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


@pytest.mark.parametrize("rounding", [0.0, 1e-12, 1e-4])
def test_what_is_no_gram_is_refused_whatever_the_rounding(rounding: float) -> None:
    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return block.square().sum(2), 1.5 * block

    operator = BatchedOperator(1, (2, 2), lambda block, rows: gram(block, rows)[0], gram, rounding)
    with pytest.raises(ValueError, match=r"gram must be A\^T A"):
        probable_bounds_of_many(operator, generator=torch.Generator().manual_seed(0))
