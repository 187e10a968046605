"""Figure 5: what it shows is what the release says about these ballots, and the sampler errs as often."""

import pytest
import torch
from pandas import DataFrame

import ringfence as rf
from experiments.votes import DATA_INDEPENDENT, PUBLISHABLE, RENYI, TIGHT, votes, votes_chart
from ringfence.data.assembly.assembly import assembly_ballots
from tests.report.samples import assert_readable


@pytest.fixture(scope="module")
def rows():
    rows = votes(sigmas=(10.0, 40.0), draws=3)
    assert rows.epsilon.between(rows.low, rows.high).all()
    assert ((rows.low < rows.high) == (rows.statement == PUBLISHABLE)).all()  # only what is drawn has a range
    return rows


def at(rows, sigma):
    return rows[rows.sigma == sigma].set_index("statement")


def test_the_job_says_the_same(rows):
    """What the figure shows is what ``release_votes`` says about these ballots."""
    release = rf.release_votes(assembly_ballots(), sigma=40.0, delta=1e-5)
    here = at(rows, 40.0)
    assert here.epsilon[DATA_INDEPENDENT] == release.account.epsilon
    assert here.epsilon[TIGHT] == release.account.per_instance.epsilon
    assert here.epsilon[RENYI] == release.account.per_instance.renyi_epsilon
    assert here.error[TIGHT] == pytest.approx(float(release.errors.mean()), rel=1e-12)


def test_numbers_of_a_real_assembly(rows):
    """1,921 people, 99 statements, sigma = 10: 1.2 % wrong, 3.43 for every dataset, 1.09 by Rényi sums."""
    here = at(rows, 10.0)
    assert here.error[RENYI] == pytest.approx(0.0122, abs=5e-5)
    assert here.epsilon[DATA_INDEPENDENT] == pytest.approx(3.43, abs=5e-3)
    assert here.epsilon[RENYI] == pytest.approx(1.09, abs=5e-3)
    assert here.epsilon[TIGHT] < 0.9 * here.epsilon[RENYI]
    assert (
        here.epsilon[DATA_INDEPENDENT] / here.epsilon[PUBLISHABLE] > 2
    )  # drawn between 1.4 and 1.6, which is 2.1 to 2.5 times less


def test_errors_are_those_of_the_sampler(rows):
    surplus = assembly_ballots().sum(dim=0).double()
    told = rf.StochasticSign(40.0).sample(
        surplus.expand(2000, -1), generator=torch.Generator().manual_seed(5)
    )
    wrong = float((told * surplus < 0).double().mean())
    assert wrong == pytest.approx(at(rows, 40.0).error[TIGHT], abs=0.004)


def test_the_chart_holds_the_rows_and_says_what_is_sensitive():
    found = {DATA_INDEPENDENT: 4.0, PUBLISHABLE: 2.0, RENYI: 1.25, TIGHT: 1.0}
    rows = [
        (name, sigma, sigma / 1000, *(epsilon * k / sigma for k in (1, 0.8, 1.6)), 4 / sigma)
        for sigma in (8.0, 16.0)
        for name, epsilon in found.items()
    ]
    columns = ["statement", "sigma", "error", "epsilon", "low", "high", "data_independent_epsilon"]
    chart = votes_chart(DataFrame(rows, columns=columns))
    assert_readable(chart)
    errors, ratios = chart.panels
    assert (errors.lines[3].x, errors.lines[3].y) == ((1 / 16, 1 / 8), (0.016, 0.008))
    assert [line.y for line in ratios.lines] == [(2.0, 2.0), (3.2, 3.2), (4.0, 4.0)]
    assert ratios.lines[0].low == (1.25, 1.25)
    assert ratios.lines[0].high == (2.5, 2.5)
    assert [("sensitive" in line.name) for line in errors.lines] == [False, False, True, True]
    for said in (
        "0.8% of the answers",
        "ε is 0.5 for every dataset, 0.125 for this one (0.157 by",
        "and 0.25 if",
        "CC BY 4.0",
    ):
        assert said in chart.caption
