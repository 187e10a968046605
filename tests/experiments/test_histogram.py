"""Figure 5b: costs are the accountants', utility is the sampler's, and the chart holds both."""

from itertools import pairwise

import pytest
import torch

from experiments.histogram import cell_counts, draw_histogram, histogram, suppressing_law, utility
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.per_instance import per_instance_rdp
from tests.report.samples import assert_readable

THRESHOLDS = (3.0, 4.5, 8.0)


@pytest.fixture(scope="module")
def people():
    return histogram(THRESHOLDS, plotted=40)


def test_counts_are_sparse_and_falling():
    counts = cell_counts()
    assert bool((counts.diff() <= 0).all())
    assert int((counts == 0).sum()) == 1500
    assert float(counts[499]) >= 1
    assert abs(float(counts.sum()) - 10_000) < 50


def test_utility_is_that_of_the_sampler(people):
    counts = cell_counts()
    law = suppressing_law(3.0)
    generator = torch.Generator().manual_seed(2)
    draws = torch.stack([law.sample(counts, generator=generator) for _ in range(300)])
    large, empty = counts >= 12, counts == 0
    row = utility(people, 3.0)
    assert row.large_cells == int(large.sum())
    for mask, expected in (
        (large, row.large_shown),
        (empty, row.empty_shown),
        (~large & ~empty, row.small_shown),
    ):
        shown = (draws[:, mask] > 12).sum(dim=1).double()
        assert abs(float(shown.mean()) - expected) < 5 * float(shown.std()) / 300**0.5


def test_rows(people):
    distinct = len(set(cell_counts().tolist()) | set(range(41)))
    assert len(people) == 3 * distinct
    gaussian = gaussian_epsilon(1 / 4, 1e-5)
    for row in people:
        assert 0 <= row.epsilon <= row.gaussian_epsilon == gaussian
        assert 0 <= row.renyi <= row.gaussian_renyi * (1 + 1e-9)
    for row in people[::17]:
        exact = per_instance_rdp(suppressing_law(row.threshold), float(row.count), 1.0, [2.0]).worst
        assert row.renyi == pytest.approx(float(exact), rel=1e-8, abs=1e-280)
    assert sum(row.cells for row in people if row.threshold == 3.0) == 2000


def test_all_or_nothing(people):
    by = {(row.threshold, row.count): row for row in people}
    assert by[3.0, 0].epsilon == pytest.approx(
        by[3.0, 0].gaussian_epsilon, rel=1e-6
    )  # 3 sigma protect nobody
    assert by[8.0, 0].epsilon == by[8.0, 10].epsilon == 0
    assert by[8.0, 32].epsilon == pytest.approx(by[8.0, 32].gaussian_epsilon, rel=1e-6)
    spared = [utility(people, threshold).people_spared for threshold in THRESHOLDS]
    assert spared == sorted(spared)
    assert spared[0] == 0 < spared[-1] < 0.5
    for threshold in THRESHOLDS:  # epsilon never falls with the count
        costs = [row.epsilon for row in people if row.threshold == threshold]
        assert all(later >= earlier - 1e-6 for earlier, later in pairwise(costs))


def test_the_chart_holds_the_rows():
    drawn = draw_histogram((3.0, 4.0, 5.0, 8.0), plotted=30)
    chart = drawn.chart
    assert_readable(chart)
    assert (chart.name, len(chart.panels), chart.columns) == ("histogram", 6, 3)
    assert [panel.shaded for panel in chart.panels[:3]] == [(0.0, 12.0), (0.0, 20.0), (0.0, 32.0)]
    gaussian, rectified = chart.panels[1].lines
    assert rectified.x == gaussian.x == tuple(float(count) for count in range(31))
    assert rectified.y == tuple(row.epsilon for row in drawn.rows if row.threshold == 5.0 and row.count <= 30)
    assert len(set(gaussian.y)) == 1  # the same for everyone
    last = utility(drawn.rows, 8.0)
    assert f"{last.people_spared:.0%} of the people" in chart.details
    assert f"{last.large_shown:.0f} of {last.large_cells} cells" in chart.details
    assert "τ = 4 " not in chart.details
