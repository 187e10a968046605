"""Every golden value, all four divergences and the information, in float64 and float32."""

import csv
from decimal import Decimal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.mechanisms.cases import CASES, Case

GOLDEN = list(csv.DictReader((Path(__file__).parent / "golden.csv").read_text().splitlines()))
COLUMNS = ["D_fwd_plus", "D_bwd_plus", "D_fwd_minus", "D_bwd_minus", "fisher"]


def computed(
    case: Case, column: str, rows: list[dict[str, str]], dtype: torch.dtype, device: str = "cpu"
) -> Tensor:
    theta, sigma, a, c, alpha = (
        torch.tensor([float(row[name]) for row in rows], dtype=torch.float64).to(device, dtype)
        for name in ("theta", "sigma", "a", "c", "alpha")
    )
    law = case.make(sigma, -a, a)
    if column == "fisher":
        return law.fisher_information(theta)
    shift = c if column.endswith("plus") else -c
    if column.startswith("D_fwd"):
        return law.renyi_divergence(theta, shift, alpha)
    return law.renyi_divergence(theta + shift, -shift, alpha)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("case", [case for case in CASES if case.golden], ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("dtype", "tolerance", "smallest"),
    [(torch.float64, Decimal("1e-12"), Decimal("1e-290")), (torch.float32, Decimal("1e-4"), 1e-30)],
    ids=["float64", "float32"],
)
def test_golden(case: Case, column: str, dtype: torch.dtype, tolerance: Decimal, smallest: Decimal) -> None:
    rows = [row for row in GOLDEN if row["mechanism"] == case.golden]
    values = computed(case, column, rows, dtype)
    checked = 0
    for row, value in zip(rows, values.tolist(), strict=True):
        truth, got = Decimal(row[column]), Decimal(value)
        if truth >= smallest:
            assert abs(got - truth) <= tolerance * truth, (row, value)
            checked += 1
        elif dtype == torch.float64:
            assert 0 <= value <= 1e-280, (row, value)
        else:
            assert 0 <= value < 1.01e-30, (row, value)
    assert checked >= len(rows) // 2


def test_golden_covers_every_mechanism() -> None:
    assert {row["mechanism"] for row in GOLDEN} == {case.golden for case in CASES if case.golden}
    assert len(GOLDEN) == 1212


@pytest.mark.parametrize(
    ("mechanism", "off", "absurd"), [("truncated", 0.26, 0.16), ("rectified", 0.44, 0.41)]
)
def test_the_textbook_forms_do_not_get_there(mechanism: str, off: float, absurd: float) -> None:
    """Equations 5 and (corrected) 6 in plain float64: why this package is not three lines long."""
    rows = [row for row in GOLDEN if row["mechanism"] == mechanism]
    theta, sigma, a, c, alpha, truth = (
        torch.tensor([float(row[name]) for row in rows], dtype=torch.float64)
        for name in ("theta", "sigma", "a", "c", "alpha", "D_fwd_plus")
    )

    def cdf(x: Tensor) -> Tensor:
        return 0.5 * torch.erfc(-x / sigma / 2**0.5)

    def delta(x: Tensor) -> Tensor:
        return cdf(a - x) - cdf(-a - x)

    gaussian = 0.5 * alpha * (c / sigma) ** 2
    if mechanism == "truncated":
        ratio = torch.log(delta(theta + (1 - alpha) * c) / delta(theta)) / (alpha - 1)
        naive = gaussian + torch.log(delta(theta + c) / delta(theta)) + ratio
    else:
        middle = torch.exp((alpha - 1) * gaussian) * delta(theta + (1 - alpha) * c)
        low = cdf(-a - theta) ** alpha * cdf(-a - theta - c) ** (1 - alpha)
        high = cdf(theta - a) ** alpha * cdf(theta + c - a) ** (1 - alpha)
        naive = torch.log(middle + low + high) / (alpha - 1)

    small = (c / sigma <= 2e-3) & (truth > 1e-290)
    wrong = ~((naive / truth - 1).abs() <= 0.01)
    useless = ~torch.isfinite(naive) | (naive <= 0)
    assert float(wrong[small].double().mean()) == pytest.approx(off, abs=0.01)
    assert float(useless[small].double().mean()) == pytest.approx(absurd, abs=0.01)
