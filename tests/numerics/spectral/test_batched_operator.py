"""What operators are refused, and what their products are charged for rounding."""

import math

import pytest
import torch

from ringfence.numerics.spectral import chebyshev_bounds
from ringfence.numerics.spectral.batched_operator import BatchedOperator
from ringfence.numerics.spectral.lanczos_bounds import probable_bounds_of_many
from ringfence.numerics.spectral.operator_trace import probable_traces
from ringfence.numerics.spectral.singular_values import UNIT
from tests.accounting.drawing import draw
from tests.numerics.spectral.operators import generator


def test_bad_operators_are_refused_by_name() -> None:
    good = BatchedOperator.of(draw(2, 3, 3))

    def refused(
        match: str, operator: BatchedOperator, error: type[Exception] = ValueError, **options: object
    ):
        with pytest.raises(error, match=match):
            probable_bounds_of_many(operator, **{"generator": generator(), **options})

    def made(squares: object, gram: object) -> BatchedOperator:
        return BatchedOperator(2, (3, 3), squares, gram)

    refused("generator must be a torch.Generator, got None", good, TypeError, generator=None)
    for bad in (0.0, 1.0, math.nan):
        refused("failure_probability must", good, failure_probability=bad)
    refused("probes must be at least 1, got 0", good, probes=0)
    refused("maximum_degree must be at least 1, got 0", good, maximum_degree=0)
    some = torch.ones(2, 1)
    refused(r"gram must return shape \[2, 1\], got \[2, 0\]", made(None, lambda b, r: (some[:, :0], b)))
    refused(
        r"gram must return shape \[2, 1, 3\], got \[2, 1, 2\]", made(None, lambda b, r: (some, b[..., :2]))
    )
    refused("gram must return finite", made(None, lambda b, r: (some, b * math.nan)))
    refused("gram must be A\\^T A", made(None, lambda b, r: (b.square().sum(2), 2 * b)))
    with pytest.raises(ValueError, match="squares must return finite"):
        probable_traces(made(lambda b, r: b.sum(2) * math.inf, None), generator=generator())
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        BatchedOperator(0, (3, 3), good.squares, good.gram)
    with pytest.raises(ValueError, match=r"shape must be two positive numbers, got \(0, 3\)"):
        BatchedOperator(1, (0, 3), good.squares, good.gram)
    with pytest.raises(ValueError, match=r"rounding must be in \[0, 0.1\], got nan"):
        BatchedOperator(1, (3, 3), good.squares, good.gram, math.nan)


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_a_vector_that_is_almost_lost_is_no_reason_to_refuse(scale: float) -> None:
    """|A v| is a millionth of |v|, and the product errs by half of what the premise allows it."""

    def gram(block: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        image = scale * block * torch.tensor([0.0, 1.0]).double()
        back = scale * image
        back[:, :, 0] = 0.5e-12 * back[:, :, 1]
        return image.square().sum(2), back

    operator = BatchedOperator(1, (2, 2), lambda block, rows: gram(block, rows)[0], gram)
    block = torch.tensor([[[1e6, 1.0]]]).double()
    quotients, _ = chebyshev_bounds.checked_product(operator, block, torch.tensor([0]))
    assert float(quotients) == pytest.approx(1e-12 * scale**2, rel=1e-9, abs=0)


def test_what_is_charged_for_rounding() -> None:
    """A single 1 in a column of many: nothing is rounded, so the ends show the charge."""
    matrix = torch.zeros(1, 1000, 1).double()
    matrix[0, 0, 0] = 1.0
    operator = BatchedOperator.of(matrix)
    assert operator.rounding == pytest.approx(1000 * UNIT, rel=1e-9, abs=0)
    assert BatchedOperator.of(torch.ones(2, 3, 9)).rounding == pytest.approx(
        9 * UNIT * 3**0.5, rel=1e-9, abs=0
    )
    lower, upper, _ = probable_traces(operator, generator=generator(), probes=1)
    slack = 1e-12 + 2 * 1001 * UNIT
    assert float(1 - lower) == pytest.approx(slack + 2 * operator.rounding, abs=2e-15)
    assert float(upper - 1) == pytest.approx(slack + 2 * operator.rounding, abs=2e-15)
    squares, _ = chebyshev_bounds.checked_product(operator, torch.ones(1, 1, 1).double(), torch.tensor([0]))
    assert float(1 - squares) == pytest.approx(2 * (operator.rounding + 1e-12 + 1001 * UNIT), abs=2e-15)
