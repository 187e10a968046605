"""Sampled bounds against enumeration: never below the exact cost, and how far above it."""

import numpy as np
import pytest
import torch

import ringfence as rf
from benchmarks.sampled_exact import Setting, ratios, whole_dataset
from ringfence.accounting.subsampling import SampledDivergence, checked_integer_orders

LEAST = 1 - 1e-9  # the enumeration itself is in float64


@pytest.mark.parametrize(
    ("comparison", "median", "most"), [("known batch", 1.001, 1.02), ("all batches", 1.1, 30.0)]
)
def test_never_below_the_exact_cost_and_close_to_it(comparison: str, median: float, most: float) -> None:
    """A short run of ``python -m benchmarks.sampled_exact``."""
    found = [ratio for _, _, ratio in ratios(10, 5, comparison, smallest=0.1, records=2)]
    assert min(found) >= LEAST
    assert np.median(found) < median
    assert max(found) < most


def test_a_removed_record_is_not_charged_by_batches_that_cannot_hold_it() -> None:
    """One record of 2 sigma, sampled once in a hundred times, and the sign.

    Removing another record from the batch that holds this one would cost much, but hardly a batch holds any.
    The worse of added and removed in every batch, which used to be the bound, is 782 times the exact cost.
    """
    setting = Setting("sign", 1.0, 2, size=2.0, rate=0.01, order=8, records=np.full((1, 1), 2.0))
    release = setting.release([8])
    for _, exact, bound in whole_dataset(setting, release):
        assert LEAST <= bound / exact < 1.2


def test_each_of_the_three_averages_is_the_smallest_somewhere() -> None:
    def covered(rate: float, *averages: float) -> float:
        release = SampledDivergence(
            rf.StochasticSign(1.0), torch.zeros(1), 1.0, rate, checked_integer_orders([2])
        )
        return float(release.either_record(*(torch.tensor(x).double().log() for x in averages)).exp())

    assert covered(0.1, 0.9, 5.0, 5.5) == pytest.approx(1.0)  # batches that lack the record
    assert covered(0.8, 0.9, 1.6, 2.4) == pytest.approx(2.0)  # batches that hold it
    assert covered(0.8, 2.1, 1.6, 2.4) == pytest.approx(2.1)  # an added record costs that much
    assert covered(0.5, 0.9, 1.0, 1.1) == pytest.approx(1.1)  # the worse in every batch
    assert covered(1.0, 0.9, 1.0, 1.1) == pytest.approx(1.1)
