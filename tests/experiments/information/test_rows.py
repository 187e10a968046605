from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from experiments.comparison import CLAMPED
from experiments.digits import digits
from experiments.information.network import NetworkSettings
from experiments.information.rows import InformationRow, InformationSettings, frontier, information
from experiments.sweep.batch import linear_settings
from experiments.sweep.data import sweep_data
from experiments.sweep.fair_search import FairSearch
from experiments.sweep.grid_file import read_grid
from ringfence.data.features import Features
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.training.clipping import Clamp
from ringfence.training.engine.engine import PrivacyEngine
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
NETWORK = NetworkSettings(
    filters=2, noise_multipliers=(8.0,), learning_rates=(0.3, 1e-4), steps=3, batch_size=40
)
SETTINGS = InformationSettings(replace(read_grid("digits"), seeds=(0, 1, 2), fair=SEARCH), NETWORK)


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
def told():
    return []


@pytest.fixture(scope="module")
def rows(data, told):
    return list(information(SETTINGS, lambda *part: told.append(part), data))


def of(rows, model, mechanism):
    return [row for row in rows if (row.model, row.mechanism) == (model, mechanism)]


def test_every_law_has_a_row_a_setting(rows):
    for name in ("Gaussian", "rectified", "truncated", CLAMPED):
        assert len(of(rows, "linear probe", name)) == 2
        assert len(of(rows, "network", name)) == (name != CLAMPED)
    for row in rows:
        assert 0 <= row.median_eta < row.max_eta
        assert row.median_eta > 0 or row.model == "network"  # most images were in none of three batches
        assert row.kind == ("trace" if row.model == "network" else "spectral")


def test_progress_rises_to_one(rows, told):
    for part in ("fil, linear probe", "fil, network"):
        shares = [share for name, share in told if name == part]
        assert 0 < shares[0] < 0.5
        assert shares == sorted(shares)
        assert shares[-1] == 1


@pytest.mark.parametrize("name", ["gaussian", "truncated"])
def test_a_probe_row_is_that_of_the_public_probe(data, rows, name, monkeypatch):
    setting = next(one for one in SETTINGS.grid.settings("fair") if one.mechanism == name)
    row = of(rows, "linear probe", {"gaussian": "Gaussian"}.get(name, name))[0]
    scores = []
    for seed in SETTINGS.grid.seeds:
        training = linear_settings(setting, seed)
        probe = LinearProbe(training.mechanism, training.clip, training.learning_rate, training.steps)
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
    pairs = zip(of(rows, "linear probe", "rectified"), of(rows, "linear probe", CLAMPED), strict=True)
    for rectified, clamped in pairs:
        assert clamped.test_accuracy == rectified.test_accuracy
        assert clamped.max_eta > rectified.max_eta
        assert clamped.median_eta > rectified.median_eta


def test_a_network_row_is_that_of_the_engine_at_the_better_rate(data, rows):
    images = [part[0].reshape(-1, 1, 8, 8) for part in (data.train, data.test)]
    [row] = of(rows, "network", "Gaussian")
    assert "learning rate 0.3" in row.setting  # 1e-4 learns nothing
    scores = []
    for seed in SETTINGS.grid.seeds:
        model = NETWORK.fresh(10)
        engine = PrivacyEngine(
            Gaussian(8 * 0.02), Clamp(0.02), seed=seed, loss=nn.functional.cross_entropy, fisher_every=1
        )
        engine.fisher_kind = "trace"
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(images[0], data.train[1]), batch_size=40
        )
        private, optimizer, loader = engine.make_private(
            model, torch.optim.SGD(model.parameters(), lr=0.3 / 0.02), loader
        )
        for _, (x, y) in zip(range(3), loader, strict=False):
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(x), y).backward()
            optimizer.step()
        assert engine.steps == engine.run.fisher.measured == 3
        scores.append(float((model(images[1]).argmax(1) == data.test[1]).double().mean()))
        if seed == 0:
            eta = engine.fisher_information_loss() / 8
    assert row.test_accuracy == pytest.approx(np.mean(scores))
    unmeasured = int(eta.isnan().sum())
    assert row.max_eta == pytest.approx(float(eta.nan_to_num().max()), rel=1e-9)
    assert f"{unmeasured} examples in no batch" in row.setting


def test_settings_that_hardly_learn_are_left_out(data):
    noise = replace(SEARCH, settings=4, noise_multiplier=(30, 1e5))
    settings = InformationSettings(replace(SETTINGS.grid, fair=noise), None)
    found = list(information(settings, data=data))
    assert 0 < len(of(found, "linear probe", "Gaussian")) < 4
    best = max(row.validation_accuracy for row in found)
    assert min(row.validation_accuracy for row in found) >= best / 2


def test_the_frontier_beats_every_other_row():
    generator = np.random.default_rng(0)
    rows = [
        InformationRow("network", "sign", "", accuracy, 0.0, "trace", eta, eta)
        for accuracy, eta in generator.random((50, 2)).tolist()
    ]
    best = frontier(rows, lambda row: row.max_eta)
    beaten = [
        any(
            other.max_eta < row.max_eta and other.validation_accuracy > row.validation_accuracy
            for other in rows
        )
        for row in rows
    ]
    assert {id(row) for row in best} == {
        id(row) for row, is_beaten in zip(rows, beaten, strict=True) if not is_beaten
    }
    assert [row.max_eta for row in best] == sorted(row.max_eta for row in best)
