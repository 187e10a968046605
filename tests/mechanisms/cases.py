"""One row for each mechanism: everything in test_contract.py runs for each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import pytest

import ringfence as rf
from tests import oracle


@dataclass(frozen=True)
class Case:
    """How to build a law and its oracle from sigma and an interval (low, high).

    A row without ``defined`` has its oracle beside the law's test: the function ``name`` of test_``name``.py.
    """

    name: str
    make: Callable[..., rf.Mechanism]
    defined: Callable[..., oracle.Family] | None = None
    golden: str | None = None  # its name in golden.csv, if it has rows there
    uses_bound: bool = True
    has_density: bool = True
    unit: float = 37.0  # other units in which the law is the same; 1 where there are none

    def oracle(self, sigma: float, low: float, high: float) -> oracle.Family:
        """The law by definition."""
        if self.defined is not None:
            return self.defined(sigma, low, high)
        beside: Callable[..., oracle.Family] = getattr(
            import_module(f"tests.mechanisms.test_{self.name}"), self.name
        )
        return beside(sigma, low, high)


def every_case(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a test once for each row."""
    return pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)(test)


CASES = [
    Case(
        "gaussian",
        lambda sigma, low, high: rf.Gaussian(sigma),
        lambda sigma, low, high: oracle.gaussian(sigma),
        golden="gaussian",
        uses_bound=False,
    ),
    Case(
        "rectified",
        lambda sigma, low, high: rf.RectifiedGaussian(sigma, (low, high)),
        oracle.rectified,
        golden="rectified",
    ),
    Case(
        "truncated",
        lambda sigma, low, high: rf.TruncatedGaussian(sigma, (low, high)),
        oracle.truncated,
        golden="truncated",
    ),
    Case(
        "sign",
        lambda sigma, low, high: rf.StochasticSign(sigma),
        lambda sigma, low, high: oracle.sign(sigma),
        golden="sign",
        uses_bound=False,
        has_density=False,
    ),
    Case(
        "quantized",
        lambda sigma, low, high: rf.QuantizedGaussian(sigma, (low, high), levels=17),
        lambda sigma, low, high: oracle.quantized(sigma, low, high, 17),
        golden="quant16",
        has_density=False,
    ),
    Case(
        "laplace",
        lambda sigma, low, high: rf.Laplace(sigma=sigma, bound=(low, high)),
        has_density=False,
        unit=1.0,
    ),
]
