"""Sampled releases: a dataset of four records, all 16 batches, and the mixture they really make."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import ndtr

import ringfence as rf
from benchmarks.sampled_exact import Setting, ratios, whole_dataset
from ringfence.accounting import subsampling
from ringfence.accounting.subsampling import SampledDivergence, checked_integer_orders, subsampled_rdp
from ringfence.numerics.confidence import upper_confidence_bound
from tests.accounting.fixed_batch import fixed_batch_rdp
from tests.accounting.test_fixed_batch import rectified_masses, truncated_masses

ORDERS = [2, 4, 6]
RATE, C = 0.3, 0.4
RECORDS = np.array([[0.4, 0.4], [0.4, -0.3], [0.2, 0.4], [-0.4, 0.4]])
INSIDE = np.array(list(product((0, 1), repeat=4)))
PROBABILITIES = np.prod(np.where(INSIDE == 1, RATE, 1 - RATE), axis=1)
BATCHES = INSIDE @ RECORDS
TRUNCATED, RECTIFIED = rf.TruncatedGaussian(1.0, 1.0), rf.RectifiedGaussian(1.0, 1.0)
CASES = [(TRUNCATED, truncated_masses), (RECTIFIED, rectified_masses)]
Masses = Callable[[float], np.ndarray]


def sampled(masses: Masses, records: np.ndarray) -> np.ndarray:
    """The release of a Poisson sample of these records, as weights on a grid."""
    law = np.zeros(masses(0.0).size ** 2)
    for chosen in product((0, 1), repeat=len(records)):
        weight = np.prod(np.where(np.array(chosen) == 1, RATE, 1 - RATE))
        law += weight * np.outer(*(masses(t) for t in np.array(chosen) @ records)).ravel()
    return law


def excess(p: np.ndarray, q: np.ndarray, alpha: int) -> float:
    """exp((alpha - 1) D_alpha(p || q)) - 1."""
    return float((q * (p / q) ** alpha).sum()) - 1


@pytest.fixture(scope="module", params=CASES, ids=["truncated", "rectified"])
def enumerated(
    request: pytest.FixtureRequest,
) -> tuple[rf.Mechanism, Masses, SampledDivergence, torch.Tensor]:
    """log(E - 1) of each of the 16 batches: (batch, added or removed, direction, order)."""
    law, masses = request.param
    release = SampledDivergence(law, torch.zeros(2), C, RATE, checked_integer_orders(ORDERS))
    values = [release.log_excess(torch.tensor(theta)) for theta in BATCHES]
    return law, masses, release, torch.stack(values)


def average(log_excess: torch.Tensor) -> np.ndarray:
    return np.tensordot(PROBABILITIES, log_excess.exp().numpy(), axes=1)


def test_average_over_batches_covers_an_added_record(enumerated) -> None:
    _, masses, _, values = enumerated
    forward, backward = average(values[:, 0])
    without = sampled(masses, RECORDS)
    for record in ([0.4, 0.4], [-0.4, 0.4], [0.4, -0.4], [-0.4, -0.4], [0.2, 0.0]):
        with_record = sampled(masses, np.vstack([RECORDS, [record]]))
        for i, alpha in enumerate(ORDERS):
            assert excess(without, with_record, alpha) <= forward[i]
            assert excess(with_record, without, alpha) <= backward[i]


def test_average_over_batches_covers_a_removed_record(enumerated) -> None:
    """Batches are drawn from the dataset that holds the record, so it may be in theta already."""
    _, masses, _, values = enumerated
    forward, backward = average(values.amax(dim=1))
    with_record = sampled(masses, RECORDS)
    for index in range(len(RECORDS)):
        without = sampled(masses, np.delete(RECORDS, index, axis=0))
        for i, alpha in enumerate(ORDERS):
            assert excess(without, with_record, alpha) <= forward[i]
            assert excess(with_record, without, alpha) <= backward[i]


def test_removing_needs_more_than_the_bound_for_adding() -> None:
    """Two records, 3 and -3, almost always sampled: removing one is 8 times worse than adding any.

    Batches of the dataset are near theta = 0, batches without the second record near theta = 3.
    """
    law, rate, c = rf.StochasticSign(1.0), 0.99, 3.0
    counts = {0.0: rate**2 + (1 - rate) ** 2, c: rate * (1 - rate), -c: rate * (1 - rate)}
    rows = []
    for record in ("added", "removed"):
        each = [fixed_batch_rdp(law, theta, c, rate, [2], record=record).backward for theta in counts]
        rows.append([float(torch.expm1(one)) for one in each])
    added = float(np.dot(rows[0], list(counts.values())))
    either = float(np.dot(np.maximum(*rows), list(counts.values())))
    with_record = sum(weight * np.array([ndtr(-theta), ndtr(theta)]) for theta, weight in counts.items())
    without = (1 - rate) * np.array([0.5, 0.5]) + rate * np.array([ndtr(-c), ndtr(c)])
    truth = excess(with_record, without, 2)
    assert 8 * added < truth <= either


def test_bound_from_samples_covers_the_average(enumerated) -> None:
    """1,000 runs at failure probability 0.2: no entry of the bound misses more often than its share."""
    _, _, release, values = enumerated
    worse, truth = values.amax(dim=1), torch.tensor(average(values.amax(dim=1)))
    ceiling = release.ceilings
    assert bool((worse <= ceiling).all())
    generator = torch.Generator().manual_seed(3)
    missed = torch.zeros_like(truth)
    for _ in range(1000):
        drawn = torch.multinomial(torch.tensor(PROBABILITIES), 30, replacement=True, generator=generator)
        missed += upper_confidence_bound(worse[drawn], ceiling, 0.2).exp() < truth
    assert float(missed.max()) / 1000 < 0.2


def test_it_is_the_bound_of_the_batches_given(enumerated) -> None:
    law, _, release, values = enumerated
    drawn = torch.tensor([0, 15, 9, 5, 2, 13])
    rdp = subsampled_rdp(law, torch.tensor(BATCHES)[drawn], C, RATE, ORDERS, failure_probability=0.6)
    ceiling = release.ceilings
    added, removed = values[drawn].unbind(1)
    kinds = ((added, 0.01), (removed, 0.01), (torch.maximum(added, removed), 0.98))
    averages = [upper_confidence_bound(kind, ceiling, share * 0.6 / 6) for kind, share in kinds]
    expected = release.either_record(*averages)
    torch.testing.assert_close(torch.stack((rdp.forward, rdp.backward)), release.divergence(expected))
    assert rdp.failure_probability == 0.6
    assert bool((rdp.worst == torch.maximum(rdp.forward, rdp.backward)).all())


def test_any_iterable_and_the_table_agree() -> None:
    batches = torch.randn(8, 100, generator=torch.Generator().manual_seed(0)).double()
    one = subsampled_rdp(TRUNCATED, batches, 0.05, 0.1, [2, 3], failure_probability=1e-3)
    two = subsampled_rdp(TRUNCATED, iter(batches), 0.05, 0.1, [2, 3], failure_probability=1e-3)
    for exact, bound in ((one.forward, two.forward), (one.backward, two.backward)):
        ratio = bound / exact
        assert bool((ratio >= 1).all() and (ratio < 1.005).all())


def test_parameters_for_each_coordinate() -> None:
    batches = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    bound, c = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([[0.1], [0.2]]).double()
    law = rf.TruncatedGaussian(1.0, bound)
    rdp = subsampled_rdp(law, batches, c, 0.5, [2, 3], failure_probability=1e-3)
    assert bool((rdp.worst > 0).all())


def test_refusals_name_the_argument() -> None:
    def call(batches: object, **changes: object) -> None:
        arguments = {"sensitivity": 0.1, "sampling_rate": 0.1, "orders": [2], "failure_probability": 1e-6}
        subsampled_rdp(TRUNCATED, batches, **{**arguments, **changes})

    with pytest.raises(ValueError, match=r"at least 2 independent auxiliary batches.* never released, got 1"):
        call(torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"batches must hold at least 2 .* got 0"):
        call([])
    with pytest.raises(TypeError, match="batches must be a tensor or an iterable of thetas"):
        call(torch.zeros(()))
    with pytest.raises(ValueError, match=r"batches must all have one shape, got \[2\] and \[3\]"):
        call([torch.zeros(2), torch.zeros(3)])
    with pytest.raises(ValueError, match="batches must not be NaN"):
        call(torch.full((2, 2), torch.nan))
    with pytest.raises(ValueError, match=r"failure_probability must be in \(0, 1\), got 0"):
        call(torch.zeros(2, 2), failure_probability=0)
    with pytest.raises(ValueError, match=r"sampling_rate must be in \(0, 1\], got 0"):
        call(torch.zeros(2, 2), sampling_rate=0.0)


def test_the_averages_share_the_failure_probability_and_no_more() -> None:
    assert len(subsampling._SHARES) == 3
    assert math.fsum(subsampling._SHARES) == 1.0


LEAST = 1 - 1e-9  # the enumeration itself is in float64


@pytest.mark.parametrize(
    ("comparison", "median", "most"), [("known batch", 1.05, 3.0), ("all batches", 1.1, 30.0)]
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
