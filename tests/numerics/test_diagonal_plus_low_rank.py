"""A diagonal plus a matrix of low rank: against the eigenvalues of the dense matrices."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ringfence.numerics import diagonal_plus_low_rank as subject
from ringfence.numerics.diagonal_plus_low_rank import DiagonalPlusLowRank
from ringfence.numerics.rounding import UNIT
from tests.accounting.drawing import draw

COUNT, CLASSES, WIDTH = 20, 3, 12


def drawn(rows: int, *, peaked: bool) -> tuple[DiagonalPlusLowRank, Tensor]:
    """Matrices with M = [[positive, R^T], [R, 0]], which has at most K negative eigenvalues; and dense."""
    diagonal = draw(COUNT, WIDTH).square()
    if peaked:
        diagonal[:, :2] *= 50
    shared, own = draw(CLASSES, WIDTH, seed=1), draw(COUNT, rows + CLASSES, WIDTH, seed=2)
    base = CLASSES + rows
    corner, block = draw(COUNT, base, base, seed=3), draw(COUNT, CLASSES, base, seed=4)
    middle = torch.zeros(COUNT, base + CLASSES, base + CLASSES).double()
    middle[:, :base, :base] = corner @ corner.mT
    middle[:, base:, :base], middle[:, :base, base:] = block, block.mT
    every = torch.cat((shared.expand(COUNT, -1, -1), own), dim=1)
    dense = torch.diag_embed(diagonal) + every.mT @ middle @ every
    return DiagonalPlusLowRank(diagonal, shared, own, middle), dense


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("peaked", [False, True])
def test_both_numbers_are_above_the_dense_ones_and_near(rows: int, peaked: bool) -> None:
    matrix, dense = drawn(rows, peaked=peaked)
    truth = torch.linalg.eigvalsh(dense)[:, -1]
    largest, trace = matrix.largest_eigenvalue(), matrix.trace()
    assert bool((largest >= truth * (1 - 1e-13)).all())
    assert bool((largest <= truth * 1.005).all())
    torch.testing.assert_close(trace, dense.diagonal(dim1=1, dim2=2).sum(1), rtol=1e-10, atol=1e-9)


def test_what_is_charged_for_rounding() -> None:
    """Where nothing is rounded, what is left is the charge: the trace of e_1 e_1^T - e_2 e_2^T is 0."""
    unit = torch.eye(64).double()
    middle = torch.diag(torch.tensor([-1.0, 1.0])).double()
    matrix = DiagonalPlusLowRank(0 * unit[:1], unit[1:2], unit[None, :1], middle[None])
    charge = 4 * (64 + 2**2 + 8)
    assert float(matrix._low_rank_norm()) == 2 * (1 + charge * UNIT)
    assert float(matrix.trace()) / UNIT == pytest.approx(charge, rel=1e-12)
    flat = replace(matrix, diagonal=torch.ones(1, 64).double())
    assert float(flat.trace() - 64) / UNIT == pytest.approx(charge + 64 * 64, rel=0.02)

    # the largest eigenvalue of -e_1 e_1^T is 0: 160 u are proposed, the proof may miss 12 u, and the product
    # with the factor is charged 48 u
    below = replace(matrix, middle=torch.diag(torch.tensor([0.0, -1.0])).double()[None])
    ratio, quotient = below._trial(torch.ones(1).double())
    assert float(ratio) / UNIT == pytest.approx(160 + 12 + 48, rel=0.01)
    assert float(quotient) == 0
    longer = replace(below, middle=4 * below.middle)
    assert float(longer._trial(torch.ones(1).double())[0]) == pytest.approx(4 * float(ratio), rel=0.01, abs=0)
    negative = replace(matrix, middle=-torch.eye(2).double()[None])
    assert float(negative._trial(torch.ones(1).double())[1]) == 0

    norms, scale, factor, is_above = subject._factor_above(4 * torch.eye(2).double()[None], 5)
    assert (float(norms[0, 0]), float(scale[0, 0, 1]), bool(is_above)) == (2.0, 4.0, True)
    assert float(factor[0, 0, 0] ** 2 - 1) / UNIT == pytest.approx(8 * 2 * (5 + 2 + 16), rel=0.01)


def test_a_matrix_that_is_a_diagonal_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, _ = drawn(0, peaked=True)
    monkeypatch.setattr(DiagonalPlusLowRank, "_trial", None)
    alone = replace(matrix, middle=0 * matrix.middle).largest_eigenvalue()
    assert torch.equal(alone, matrix.diagonal.amax(dim=1))
