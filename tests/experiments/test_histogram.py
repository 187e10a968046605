"""Figure 5b: costs are the accountants', utility is the sampler's, and the chart holds both."""

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
    row = utility(people).set_index("threshold").loc[3.0]
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
    assert people.epsilon.between(0, gaussian).all()
    assert (people.gaussian_epsilon == gaussian).all()
    assert people.renyi.between(0, people.gaussian_renyi * (1 + 1e-9)).all()
    for row in people.rename(columns={"count": "people"})[::17].itertuples():
        exact = per_instance_rdp(suppressing_law(row.threshold), float(row.people), 1.0, [2.0]).worst
        assert row.renyi == pytest.approx(float(exact), rel=1e-8, abs=1e-280)
    assert (people.groupby("threshold").cells.sum() == 2000).all()


def test_all_or_nothing(people):
    epsilon = people.set_index(["threshold", "count"]).epsilon
    gaussian = people.gaussian_epsilon[0]
    assert epsilon[3.0, 0] == pytest.approx(gaussian, rel=1e-6)  # 3 sigma protect nobody
    assert epsilon[8.0, 0] == epsilon[8.0, 10] == 0
    assert epsilon[8.0, 32] == pytest.approx(gaussian, rel=1e-6)
    spared = utility(people).people_spared
    assert spared.is_monotonic_increasing
    assert spared.iloc[0] == 0 < spared.iloc[-1] < 0.5
    assert not (epsilon.groupby("threshold").diff() < -1e-6).any()  # it never falls with the count


def test_the_chart_holds_the_rows():
    drawn = draw_histogram((3.0, 4.0, 5.0, 8.0), plotted=30)
    chart = drawn.chart
    assert_readable(chart)
    assert (chart.name, len(chart.panels), chart.columns) == ("histogram", 6, 3)
    assert [panel.shaded for panel in chart.panels[:3]] == [(0.0, 12.0), (0.0, 20.0), (0.0, 32.0)]
    gaussian, rectified = chart.panels[1].lines
    assert rectified.x == gaussian.x == tuple(float(count) for count in range(31))
    assert rectified.y == tuple(drawn.rows.query("threshold == 5.0 and count <= 30").epsilon)
    assert len(set(gaussian.y)) == 1  # the same for everyone
    last = utility(drawn.rows).iloc[-1]
    assert f"{last.people_spared:.0%} of the people" in chart.details
    assert f"{last.large_shown:.0f} of {last.large_cells:.0f} cells" in chart.details
    assert "τ = 4 " not in chart.details
