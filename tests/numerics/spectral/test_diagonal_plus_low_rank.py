"""A diagonal plus a matrix of low rank: against the eigenvalues of the dense matrices."""

import pytest
import torch
from torch import Tensor

from ringfence.numerics.spectral import diagonal_plus_low_rank as subject
from ringfence.numerics.spectral.diagonal_plus_low_rank import DiagonalPlusLowRank
from tests.accounting.drawing import draw

COUNT, CLASSES, WIDTH = 20, 3, 12


def drawn(units: int, *, peaked: bool) -> tuple[DiagonalPlusLowRank, Tensor]:
    """Matrices with M = [[positive, R^T], [R, 0]], which has at most K negative eigenvalues; and dense."""
    diagonal = draw(COUNT, WIDTH).square()
    if peaked:
        diagonal[:, :2] *= 50
    shared, own = draw(CLASSES, WIDTH, seed=1), draw(COUNT, CLASSES, WIDTH, seed=2)
    places = torch.arange(COUNT * units).reshape(COUNT, units) % WIDTH
    base = CLASSES + units
    corner, block = draw(COUNT, base, base, seed=3), draw(COUNT, CLASSES, base, seed=4)
    middle = torch.zeros(COUNT, base + CLASSES, base + CLASSES).double()
    middle[:, :base, :base] = corner @ corner.mT
    middle[:, base:, :base], middle[:, :base, base:] = block, block.mT
    rows = torch.cat((shared.expand(COUNT, -1, -1), torch.eye(WIDTH).double()[places], own), dim=1)
    dense = torch.diag_embed(diagonal) + rows.mT @ middle @ rows
    return DiagonalPlusLowRank(diagonal, shared, places, own, middle), dense


@pytest.mark.parametrize("units", [0, 1])
@pytest.mark.parametrize("peaked", [False, True])
def test_both_numbers_are_above_the_dense_ones_and_near(units: int, peaked: bool) -> None:
    matrix, dense = drawn(units, peaked=peaked)
    truth = torch.linalg.eigvalsh(dense)[:, -1]
    largest, trace = matrix.largest_eigenvalue(), matrix.trace()
    assert bool((largest >= truth * (1 - 1e-13)).all())
    assert bool((largest <= truth * 1.005).all())
    torch.testing.assert_close(trace, dense.diagonal(dim1=1, dim2=2).sum(1), rtol=1e-10, atol=1e-9)


def test_a_matrix_that_is_a_diagonal_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, _ = drawn(0, peaked=True)
    monkeypatch.setattr(DiagonalPlusLowRank, "_trial", None)
    alone = DiagonalPlusLowRank(
        matrix.diagonal, matrix.shared, matrix.units, matrix.own, 0 * matrix.middle
    ).largest_eigenvalue()
    assert torch.equal(alone, matrix.diagonal.amax(dim=1))


def test_a_library_that_gives_up_is_asked_again_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.tensor([[[2.0, 1.0], [1.0, 2.0]]], dtype=torch.float64)
    solve, calls = torch.linalg.eigh, []

    def stubborn(values: torch.Tensor) -> object:
        calls.append(values)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("the algorithm failed to converge")
        return solve(values)

    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    values, vectors = subject._eigenvectors(matrix)
    assert len(calls) == 2
    torch.testing.assert_close(values, torch.tensor([[1.0, 3.0]], dtype=torch.float64))
    torch.testing.assert_close(matrix @ vectors, vectors * values[:, None])
