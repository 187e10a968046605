import math
from itertools import pairwise

import pytest
import torch

from experiments.histogram.rows import HistogramSettings, absolute_error, histogram, shown_probability
from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.accounting.per_instance import per_instance_rdp
from ringfence.mechanisms.rectified import RectifiedGaussian

SMALL = HistogramSettings(thresholds=(3.0, 4.5, 8.0), plotted=40)


@pytest.fixture(scope="module")
def result():
    return histogram(SMALL)


def test_counts_are_sparse_and_falling():
    counts = HistogramSettings().counts()
    assert bool((counts.diff() <= 0).all())
    assert int((counts == 0).sum()) == 1500
    assert float(counts[499]) >= 1
    assert abs(float(counts.sum()) - 10_000) < 50


def test_utility_is_that_of_the_sampler(result):
    counts = SMALL.counts()
    law = SMALL.law(3.0)
    generator = torch.Generator().manual_seed(2)
    draws = torch.stack([law.sample(counts, generator=generator) for _ in range(300)])
    large, empty = counts >= 12, counts == 0
    row = result.utility[0]
    assert row.large_cells == int(large.sum())
    for mask, expected in (
        (large, row.large_shown),
        (empty, row.empty_shown),
        (~large & ~empty, row.small_shown),
    ):
        shown = (draws[:, mask] > 12).sum(dim=1).double()
        assert abs(float(shown.mean()) - expected) < 5 * float(shown.std()) / 300**0.5
    errors = (draws - counts)[:, large].abs().mean(dim=1)
    assert abs(float(errors.mean()) - row.absolute_error) < 5 * float(errors.std()) / 300**0.5


def test_error_at_the_upper_end_counts_too():
    law = RectifiedGaussian(4.0, (12.0, 100.0))
    low, high = (float(absolute_error(torch.tensor([at]), law)) for at in (15.0, 97.0))
    assert low == pytest.approx(high)
    assert low < 4 * math.sqrt(2 / math.pi)


def test_people(result):
    distinct = len(set(SMALL.counts().tolist()) | set(range(41)))
    assert len(result.people) == 3 * distinct
    gaussian = gaussian_epsilon(1 / 4, 1e-5)
    for row in result.people:
        assert 0 <= row.epsilon <= row.gaussian_epsilon == gaussian
        assert 0 <= row.renyi <= row.gaussian_renyi * (1 + 1e-9)
    assert sum(row.cells for row in result.people if row.threshold == 3.0) == 2000


def test_divergences_are_the_accountants(result):
    for row in result.people[::17]:
        exact = per_instance_rdp(SMALL.law(row.threshold), float(row.count), 1.0, [2.0]).worst
        assert row.renyi == pytest.approx(float(exact), rel=1e-8, abs=1e-280)


def test_all_or_nothing(result):
    by = {(row.threshold, row.count): row for row in result.people}
    assert by[3.0, 0].epsilon == pytest.approx(
        by[3.0, 0].gaussian_epsilon, rel=1e-6
    )  # 3 sigma protect nobody
    assert by[8.0, 0].epsilon == by[8.0, 10].epsilon == 0
    assert by[8.0, 32].epsilon == pytest.approx(by[8.0, 32].gaussian_epsilon, rel=1e-6)
    spared = [row.people_spared for row in result.utility]
    assert spared == sorted(spared)
    assert spared[0] == 0 < spared[-1] < 0.5


def test_epsilon_never_falls_with_the_count(result):
    for threshold in SMALL.thresholds:
        costs = [row.epsilon for row in result.people if row.threshold == threshold]
        assert all(later >= earlier - 1e-6 for earlier, later in pairwise(costs))


def test_shown_probability():
    shown = shown_probability(torch.tensor([0.0, 12.0, 24.0], dtype=torch.float64), 12.0, 4.0)
    assert shown.tolist() == pytest.approx([0.0013498980316301, 0.5, 0.99865010196837])
