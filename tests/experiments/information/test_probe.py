"""Figure 4's probe: rows are those of the public probe, and the frontier beats every other row."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.comparison import CLAMPED
from experiments.information.networks import frontier
from experiments.information.probe import ProbeSettings, probe_rows
from experiments.sweep.data import digits, sweep_data
from experiments.sweep.probes import linear_settings
from experiments.sweep.settings import FairSearch, read_grid
from ringfence.data.features import Features
from ringfence.training.probe import LinearProbe

SEARCH = FairSearch(
    settings=2,
    validation=0.2,
    clip=(0.05, 0.1),
    noise_multiplier=(30, 40),
    bound_over_sigma=(0.5, 2),
    learning_rate=(1, 2),
    steps=(2, 3),
)
SETTINGS = ProbeSettings(replace(read_grid("digits"), seeds=(0, 1, 2), fair=SEARCH))


@pytest.fixture(scope="module")
def data():
    """A sixth of the digits."""
    every = digits()
    train, test = slice(0, 210), slice(0, 90)
    few = Features(
        every.train_features[train],
        every.train_labels[train],
        every.test_features[test],
        every.test_labels[test],
    )
    return sweep_data(few, SETTINGS.grid, "fair")


@pytest.fixture(scope="module")
def rows(data):
    return probe_rows(SETTINGS, data)


def of(rows, mechanism):
    return rows[rows.mechanism == mechanism].reset_index()


def test_every_law_has_a_row_a_setting(rows):
    for name in ("Gaussian", "rectified", "truncated", CLAMPED):
        assert len(of(rows, name)) == 2
    assert (rows.median_eta > 0).all()
    assert (rows.max_eta > rows.median_eta).all()
    assert {*zip(rows.model, rows.kind, strict=True)} == {("linear probe", "spectral")}


@pytest.mark.parametrize("name", ["gaussian", "truncated"])
def test_a_probe_row_is_that_of_the_public_probe(data, rows, name, monkeypatch):
    setting = next(one for one in SETTINGS.grid.settings("fair") if one.mechanism == name)
    row = of(rows, {"gaussian": "Gaussian"}.get(name, name)).iloc[0]
    scores = []
    for seed in SETTINGS.grid.seeds:
        training = linear_settings(setting, seed)
        probe = LinearProbe(
            *(training.mechanism, training.clip, training.learning_rate, training.steps), fit_intercept=False
        )
        own = training.seed  # the very noise
        monkeypatch.setattr("ringfence.training.probe.seed_of", lambda _, own=own: own)
        probe.fit(data.train[0].numpy(), data.train[1].numpy())
        scores.append(probe.score(data.test[0].numpy(), data.test[1].numpy()))
        if seed == 0:
            eta = probe.fisher_information_loss() / 8  # of features that were divided by 8
    assert row.test_accuracy == pytest.approx(np.mean(scores))
    assert row.max_eta == pytest.approx(eta.max(), rel=1e-6)
    assert row.median_eta == pytest.approx(np.quantile(eta, 0.5, method="higher"), rel=1e-6)


def test_the_clamped_gaussian_is_the_rectified_run_at_the_gaussians_price(rows):
    rectified, clamped = of(rows, "rectified"), of(rows, CLAMPED)
    assert clamped.test_accuracy.equals(rectified.test_accuracy)
    assert (clamped.max_eta > rectified.max_eta).all()
    assert (clamped.median_eta > rectified.median_eta).all()


def test_settings_that_hardly_learn_are_left_out(data):
    noise = replace(SEARCH, settings=4, noise_multiplier=(30, 1e5))
    found = probe_rows(ProbeSettings(replace(SETTINGS.grid, fair=noise)), data)
    assert 0 < len(of(found, "Gaussian")) < 4
    assert found.validation_accuracy.min() >= found.validation_accuracy.max() / 2


def test_the_frontier_beats_every_other_row():
    etas, accuracies = np.random.default_rng(0).random((2, 50))
    best = frontier(etas, accuracies)
    beaten = ((etas < etas[:, None]) & (accuracies > accuracies[:, None])).any(axis=1)
    assert sorted(best) == np.flatnonzero(~beaten).tolist()
    assert etas[best].tolist() == sorted(etas[best])


def test_data_without_a_validation_part_are_refused(data):
    with pytest.raises(ValueError, match="data must have a validation part to choose by, got None"):
        probe_rows(SETTINGS, replace(data, validation=None))
