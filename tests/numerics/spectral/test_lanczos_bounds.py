"""Many largest singular values by Lanczos' recurrence: both ends, and how often the upper ones fail."""

import math

import mpmath
import pytest
import torch
from torch import Tensor

from ringfence.numerics.spectral import lanczos_bounds
from ringfence.numerics.spectral.batched_operator import BatchedOperator
from ringfence.numerics.spectral.lanczos_bounds import probable_bounds_of_many
from ringfence.numerics.spectral.operator_trace import probable_traces
from tests.accounting.drawing import draw
from tests.numerics.spectral.operators import SPECTRA, diagonal, ends_hold, generator, matrices


@pytest.mark.parametrize("probes", [1, 2, 5])
@pytest.mark.parametrize("tolerance", [0.2, 1e-3])
def test_ends_hold_and_close_for_every_spectrum_and_scale(tolerance: float, probes: int) -> None:
    options = {"tolerance": tolerance, "maximum_degree": 256, "probes": probes}
    bounds = probable_bounds_of_many(BatchedOperator.of(matrices()), generator=generator(), **options)
    ends_hold(bounds, tolerance * (1 + 1e-9))


def test_finished_matrices_are_left_alone() -> None:
    seen = []
    whole = BatchedOperator.of(matrices())

    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(rows.tolist())
        return whole.gram(block, rows)

    operator = BatchedOperator(7, (60, 60), whole.squares, gram, whole.rounding)
    bounds = probable_bounds_of_many(operator, generator=generator(), tolerance=0.01, maximum_degree=64)
    assert seen[0] == list(range(7))
    assert all(6 not in rows for rows in seen[1:])  # the zero matrix
    assert len(seen[-1]) < 6
    assert len(seen) < 32
    seen.clear()
    short = probable_bounds_of_many(operator, generator=generator(), tolerance=0.01, maximum_degree=3)
    assert len(seen) == 3
    assert bool((short.upper >= bounds.lower).all())


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
    start = blocks["bounds"][0] * math.sqrt(60)  # they are applied to unit vectors
    probable_traces(operator("traces"), generator=generator(), probes=10)
    drawn = torch.cat(blocks["traces"], dim=1)
    assert start.shape == (3, 1, 60)
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


@pytest.mark.parametrize("rounding", [0.0, 1e-12, 1e-4])
@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_what_is_no_gram_is_refused_whatever_the_rounding_and_the_scale(
    rounding: float, scale: float
) -> None:
    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return scale * block.square().sum(2), 1.5 * scale * block

    operator = BatchedOperator(1, (2, 2), lambda block, rows: gram(block, rows)[0], gram, rounding)
    with pytest.raises(ValueError, match=r"gram must be A\^T A"):
        probable_bounds_of_many(operator, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("spectrum", "probes"), [(1, 1), (1, 4), (3, 4), (5, 1)])
def test_all_upper_ends_fail_no_more_often_than_stated(
    spectrum: int, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its share; and not idly: where only the top is there, failures are seen and drawn again."""
    count, each, drawn = 300, 0.1, []
    honest = lanczos_bounds.standard_normal_probes

    def counted(operator: BatchedOperator, rows: Tensor, *rest: object) -> Tensor:
        drawn.append(len(rows))
        return honest(operator, rows, *rest)

    monkeypatch.setattr(lanczos_bounds, "standard_normal_probes", counted)
    # shares above 1 / count cannot be asked for: the union is split by hand
    monkeypatch.setattr(lanczos_bounds, "checked_generator", lambda *_: None)
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
    failed = sum(drawn) - count + int((bounds.upper < 1).sum())
    allowed = each * sum(drawn) + 4 * math.sqrt(each * (1 - each) * sum(drawn))
    assert failed <= allowed
    if spectrum == 1:
        assert failed >= each * count / 3


def test_the_upper_end_is_that_of_the_proof() -> None:
    """det(b - T) by the definition of T: B between vectors that span the Krylov space, to forty digits."""
    values, degree = torch.linspace(0.05, 1.5, 12, dtype=torch.float64)[None].sqrt(), 4
    options = {"tolerance": 0.0, "probes": 2, "failure_probability": 1e-3, "maximum_degree": degree}
    found = probable_bounds_of_many(diagonal(values, 0.0), generator=generator(4), **options)
    starts, mp = torch.randn((2, 12), generator=generator(4), dtype=torch.float64), mpmath.mp.clone()
    mp.dps = 40
    b = mp.matrix(values[0].square().tolist())

    def reach(x: object) -> object:
        total = mp.mpf(0)
        for start in starts:
            krylov = mp.matrix(12, degree + 1)
            for row in range(12):
                for column in range(degree + 1):
                    krylov[row, column] = mp.mpf(float(start[row])) * b[row] ** column
            q, _ = mp.qr(krylov, mode="skinny")
            inside = q.T * mp.diag(list(b)) * q
            betas = mp.fprod(abs(inside[j, j + 1]) for j in range(degree))
            whole = mp.det(x * mp.eye(degree) - inside[:degree, :degree])
            total += mp.norm(mp.matrix(start.tolist())) ** 2 * (betas / whole) ** 2
        return total - threshold**2

    threshold = mp.sqrt(2 * mp.mpf("1e-3"))  # two probes: exp(-t^2 / 2) is at least 1 - t^2 / 2
    truth = mp.findroot(reach, float(found.upper) ** 2 * 1.01)
    assert float(found.upper) == pytest.approx(float(mp.sqrt(truth)), rel=1e-7, abs=0)


@pytest.mark.parametrize(("ceiling", "exactly"), [(math.inf, 2e-9), (1.6, 1e-6), (1.4999, None)])
def test_the_least_bound_is_searched_for_up_to_the_ceiling(ceiling: float, exactly: float | None) -> None:
    """One product, no rounding: h(x) = beta / (x - alpha), and |g| h(x) = t at x = alpha + |g| beta / t."""
    one, limit = torch.ones(1, 1, 1).double(), torch.tensor([ceiling]).double()
    for scale in (1.0, 1e60, 1e-60):
        x = lanczos_bounds._upper(scale * one, scale * one, 3 * one[0], 0.0, 6.0, scale * limit)
        assert float(x) / scale == (math.inf if exactly is None else pytest.approx(1.5, rel=exactly, abs=0))


def test_errors_of_products_against_the_top_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst the premise allows, planted; stated as 0 it breaks the bound."""
    error, component = 3e-4, 0.05  # t is 0.0447 at 1e-3 and 2 probes
    values = torch.cat([torch.tensor([1.3]), torch.linspace(0.9, 1.0, 199)]).double()[None]

    def start(operator: BatchedOperator, rows: Tensor, *rest: object) -> Tensor:
        block = draw(1, 2, 200)
        block[:, :, 0] = 0
        block[:, 0, 0] = component
        return block

    monkeypatch.setattr(lanczos_bounds, "standard_normal_probes", start)
    monkeypatch.setattr(lanczos_bounds, "checked_product", _trusting)

    def upper(rounding: float, planted: float) -> float:
        options = {"tolerance": 0.0, "maximum_degree": 3, "probes": 2, "failure_probability": 1e-3}
        operator = diagonal(values, rounding, planted)
        return float(probable_bounds_of_many(operator, generator=generator(), **options).upper)

    assert upper(0.0, 0.0) >= 1.3
    assert upper(0.0, error) < 1.3
    assert upper(error, error) >= 1.3


def _trusting(operator: BatchedOperator, block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A product without the check of the transpose."""
    squares, back = operator.gram(block, rows)
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

        def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            shapes.append(block.shape[1])
            return whole.gram(block, rows)

        operator = BatchedOperator(1, (60, 60), whole.squares, gram, rounding)
        probable_bounds_of_many(operator, generator=generator())
        return shapes[0]

    assert [drawn(rounding) for rounding in (1e-13, 2e-6, 5e-5, 3e-4, 1e-3)] == [1, 2, 4, 8, 16]


def test_the_reach_is_that_of_the_inverse_and_of_all_that_rounding_adds() -> None:
    """sum_i |g_i|^2 h_i(x)^2 with a matrix that is inverted as a whole, at degrees 1 to 4."""
    diagonal, beside, sizes = draw(2, 3, 4).abs(), draw(2, 3, 4, seed=1).abs(), draw(2, 3, seed=2).abs()
    x, rounding = torch.tensor([9.0, 12.0], dtype=torch.float64), 0.01
    for degree in range(1, 5):
        inside = lanczos_bounds._tridiagonal(diagonal[..., :degree], beside[..., :degree])
        whole = inside + inside.mT - torch.diag_embed(diagonal[..., :degree])
        eye = torch.eye(degree, dtype=torch.float64)
        first = torch.linalg.inv(x[:, None, None, None] * eye - whole)[..., 0]
        errors = math.sqrt(degree) * (2 * rounding + rounding**2 + 1e-14 * (degree + 1))
        lengths = (1 + (x[:, None] * first.norm(dim=2)).square()).sqrt()
        h = (beside[..., degree - 1] * first[..., -1] + errors * lengths) * (1 + 1e-9)
        found = lanczos_bounds._reach(diagonal[..., :degree], beside[..., :degree], sizes, rounding, x)
        torch.testing.assert_close(found, (sizes * h).square().sum(1), rtol=1e-12, atol=0)
    assert lanczos_bounds._charge(0.0, 3) == pytest.approx(math.sqrt(3) * 4e-14, rel=1e-12, abs=0)
    at_an_eigenvalue = lanczos_bounds._reach(*torch.ones(2, 1, 1, 1).double(), sizes[:1, :1], 0.0, x[:1] / 9)
    assert float(at_an_eigenvalue) == math.inf
