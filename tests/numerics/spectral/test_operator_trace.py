"""Bounds of traces from products alone, and how often they fail."""

import math

import pytest
import scipy.stats
import torch
from mpmath import mp, mpf
from torch import Tensor

from ringfence.numerics.spectral import operator_trace
from ringfence.numerics.spectral.batched_operator import BatchedOperator, standard_normal_probes
from ringfence.numerics.spectral.operator_trace import probable_traces
from ringfence.numerics.spectral.singular_values import UNIT
from tests.accounting.drawing import draw
from tests.numerics.spectral.operators import SPECTRA, diagonal, generator, matrices


@pytest.mark.parametrize("probes", [1, 7, 59, 60, 100])
def test_trace_ends_hold(probes: int) -> None:
    lower, upper, _ = probable_traces(BatchedOperator.of(matrices()), generator=generator(), probes=probes)
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
    monkeypatch.setattr(operator_trace, "checked_generator", lambda *_: None)
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
    low, high = operator_trace._tails(degrees, probability)
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


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("probes", [5, 30])
def test_trace_ends_allow_for_products_that_err_as_much_as_they_may(off: int, probes: int) -> None:
    """|A G|_F off by rounding |A|_F |G|_F, whichever way; both ends still hold, and only just."""
    matrix, rounding = draw(1, 9, 8), 0.02
    size = float(matrix.norm())

    def squares(block: Tensor, rows: Tensor) -> Tensor:
        image = (block @ matrix.mT).square().sum(2)
        moved = (image.sum(1).sqrt() + off * rounding * size * block.flatten(1).norm(dim=1)).square()
        return image * (moved / image.sum(1)).unsqueeze(1)

    lower, upper, _ = probable_traces(
        BatchedOperator(1, (9, 8), squares, None, rounding),
        generator=generator(),
        failure_probability=0.1,
        probes=probes,
        at_once=99,
    )
    assert float(lower) <= size**2 * (1 + 1e-12)
    assert float(upper) >= size**2 * (1 - 1e-12)
    if probes == 30:  # the unit vectors, |G|_F = sqrt 8: no chance in it, and one end is the truth
        assert min(abs(float(end) / size**2 - 1) for end in (lower, upper)) < 1e-8


def test_what_is_charged_for_many_probes() -> None:
    matrix = torch.zeros(1, 1, 1000).double()
    matrix[0, 0, 0] = 1.0
    operator = BatchedOperator.of(matrix)
    lower, upper, _ = probable_traces(operator, generator=generator(), probes=1000, at_once=1000)
    slack, moved = 1e-12 + 2 * 1001 * UNIT, operator.rounding * math.sqrt(1000)
    assert float(1 - lower) == pytest.approx(slack + 2 * moved, abs=1e-14)
    assert float(upper - 1) == pytest.approx(slack + 2 * moved, abs=1e-14)


def test_the_estimate_is_the_mean_over_the_probes() -> None:
    operator = BatchedOperator.of(matrices()[:3])
    rows = torch.arange(3)
    block = standard_normal_probes(operator, rows, 7, generator(5))
    found = probable_traces(operator, generator=generator(5), probes=7)
    torch.testing.assert_close(found.estimate, operator.squares(block, rows).mean(1), rtol=1e-12, atol=0)
    exact = probable_traces(operator, generator=generator(5), probes=60)
    torch.testing.assert_close(exact.estimate, exact.upper, rtol=1e-9, atol=0)
