"""Figure 2: the errors and costs behind it, and that the chart holds them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.mean_estimation import (
    MeanEstimationSettings,
    draw_mean_estimation,
    matched_sigma,
    mean_estimation,
    rectified_error,
    truncated_error,
)
from ringfence.accounting.per_instance import per_instance_rdp
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.truncated import TruncatedGaussian
from tests.report.samples import assert_readable

SMALL = MeanEstimationSettings(records=100, dimensions=5, trials=2, means=(0.0, 0.8), sigmas=(0.4,))


@pytest.fixture(scope="module")
def rows():
    return mean_estimation(SMALL)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("error", "law"), [(rectified_error, RectifiedGaussian), (truncated_error, TruncatedGaussian)]
)
@pytest.mark.parametrize(("theta", "sigma", "bound"), [(0.3, 0.5, 1.0), (1.4, 0.3, 0.5), (-0.2, 3.0, 0.25)])
def test_errors_are_those_of_the_sampler(error, law, theta, sigma, bound):
    draws = law(sigma, bound).sample(
        torch.full((200_000,), theta, dtype=torch.float64), generator=torch.Generator().manual_seed(3)
    )
    squares = (draws - 0.6).square()
    exact = float(error(double(theta), double(sigma), double(bound), 0.6))
    assert abs(exact - float(squares.mean())) < 5 * float(squares.std()) / 200_000**0.5


def test_a_matched_sigma_errs_as_much_as_asked():
    theta = torch.linspace(0.1, 0.7, 12, dtype=torch.float64).reshape(2, 6)
    targets = double(0.2, 0.1)
    for error, bound in itertools.product((rectified_error, truncated_error), (0.5, 1.0, 3.0)):
        for trial, sigma in enumerate(matched_sigma(error, theta, bound, 0.5, targets)):
            if sigma < 100:
                reached = error(theta[trial], sigma, double(bound), 0.5).mean()
                assert float(reached) == pytest.approx(float(targets[trial]), rel=1e-6)


def test_what_cannot_be_matched_says_so():
    far = matched_sigma(truncated_error, double(0.9).reshape(1, 1), 0.1, 0.9, double(0.01))
    assert bool(far.isnan())  # the support is 0.8 away from the mean
    free = matched_sigma(truncated_error, double(0.0).reshape(1, 1), 0.1, 0.0, double(0.5))
    assert float(free) == 100.0  # any value of the support errs less


def test_rows(rows):
    # a mean and a trial: 2 laws x 2 bounds at equal noise, 3 at equal error
    assert len(rows) == 2 * 2 * (4 + 3)
    noise, equal = (rows[rows.comparison == name] for name in ("equal noise", "equal error"))
    assert len(noise) + len(equal) == len(rows)
    assert (noise.sigma == noise.gaussian_sigma).all()
    assert (noise.renyi <= noise.gaussian_renyi * (1 + 1e-9)).all()
    assert (equal.bound == 1.0).all()
    np.testing.assert_allclose(equal.error, equal.gaussian_error, rtol=1e-6)
    # at equal error the rectified law is the clamped Gaussian at less cost
    clamped, rectified = (equal[equal.mechanism == name].reset_index() for name in ("Gaussian", "rectified"))
    assert clamped[["sigma", "error"]].equals(rectified[["sigma", "error"]])
    assert (rectified.renyi <= clamped.renyi * (1 + 1e-9)).all()


def test_accounts_are_the_accountants(rows):
    generator = torch.Generator().manual_seed(SMALL.seed)
    noise = torch.randn((2, 100, 5), generator=generator, dtype=torch.float64)
    theta = (0.8 + noise[1]).clamp(-1, 1).mean(dim=0)
    keys = ["comparison", "mechanism", "mean", "trial", "bound"]
    row = rows.set_index(keys).loc["equal noise", "truncated", 0.8, 1, 0.5]
    law = TruncatedGaussian(0.4, 0.5)
    assert row.renyi == pytest.approx(float(per_instance_rdp(law, theta, 2 / 100, [2.0]).worst), rel=1e-9)
    assert row.gaussian_renyi == pytest.approx(5 * (2 / 100) ** 2 / 0.4**2, rel=1e-9)


@pytest.mark.parametrize("extra", [-1.0, 1.0])
def test_the_sensitivity_is_that_of_a_mean(extra):
    others = np.full(899, -extra)
    whole = np.append(others, extra)
    moved = abs(whole.mean() - others.mean())
    assert moved == pytest.approx(MeanEstimationSettings().sensitivity)  # attained, and twice 1/n
    assert abs(np.append(-whole, -extra).mean() + whole.mean()) <= MeanEstimationSettings().sensitivity


def test_another_seed_gives_other_rows(rows):
    assert not mean_estimation(replace(SMALL, seed=1)).equals(rows)


def test_the_chart_has_three_panels_a_noise_level_but_for_those_that_are_flat() -> None:
    settings = MeanEstimationSettings(
        records=100, dimensions=3, trials=2, means=(0.0, 0.6, 1.0), sigmas=(0.1, 0.4)
    )
    drawn = draw_mean_estimation(settings)
    chart = drawn.chart
    assert_readable(chart)
    assert [panel.title.split("= ")[-1] for panel in chart.panels] == ["0.4"] * 3 + ["0.1"] * 2
    assert [len(panel.lines) for panel in chart.panels[:3]] == [5, 5, 3]
    assert all(panel.reference == 1.0 for panel in chart.panels)
    assert "flat at 1: Cost at equal error, a = 1, \N{GREEK SMALL LETTER SIGMA} = 0.1." in chart.details
    # lines are means of the trials within their band
    line = chart.panels[0].lines[3]
    assert (line.name, line.mechanism, line.dashed) == ("truncated, a = 0.5", "truncated", True)
    assert line.x == settings.means
    keys = ["comparison", "mechanism", "gaussian_sigma", "bound", "mean"]
    costs = (drawn.rows.renyi / drawn.rows.gaussian_renyi).set_axis(drawn.rows.set_index(keys).index)
    ratios = costs.sort_index().loc["equal noise", "truncated", 0.4, 0.5, 0.6]
    assert len(ratios) == 2
    assert line.y[1] == pytest.approx(sum(ratios) / 2)
    assert (line.low[1], line.high[1]) == (min(ratios), max(ratios))
    equal = costs.sort_index().loc["equal error", "truncated", 0.4]
    assert f"{equal.min():.2f} to {equal.max():.2f}" in chart.caption
