"""One network: the same job gives the same numbers, and the moments are where they should be."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.information.full_size import training
from experiments.information.full_size.images import image_data
from experiments.information.full_size.information import RunEtas
from experiments.information.full_size.rows import read_network_rows
from experiments.information.full_size.training import fresh_model, steps_per_epoch, train_and_measure
from tests.experiments.information.full_size import toys


def test_the_same_job_gives_the_same_numbers(swept: Path) -> None:
    data = image_data(swept / "images.npz", toys.SETTINGS.search)
    setting = toys.SETTINGS.round(0, steps_per_epoch(data, toys.SETTINGS))[0]
    again = train_and_measure(data, toys.SETTINGS, (setting, 0))
    [row] = [one for one in read_network_rows(swept) if one.method == "Gaussian"]
    for name in ("validation_accuracy", "test_accuracy", "spectral_max", "trace_median", "estimate_max"):
        assert again[name] == pytest.approx(getattr(row, name), rel=1e-5), name


def test_what_is_measured(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = image_data(swept / "images.npz", toys.SETTINGS.search)
    settings = replace(toys.SETTINGS, moments=2, epochs=(2,))
    setting = settings.round(0, steps_per_epoch(data, settings))[3]
    seen: list[dict] = []  # type: ignore[type-arg]

    def note(
        model: object, law: object, clip: object, moments: object, *examples: object, **how: object
    ) -> RunEtas:
        seen.append({"moments": moments, "examples": examples, **how})
        return RunEtas(*[1.0] * 6)

    monkeypatch.setattr(training, "run_etas", note)
    steps: list[None] = []
    train_and_measure(data, settings, (setting, 0), lambda: steps.append(None))
    assert len(steps) == setting.steps == 10
    [call] = seen
    assert (call["steps"], call["sampling_rate"]) == (10, 50 / 225)
    images, labels = call["examples"]
    assert images.shape == (2, 3, 8, 8)
    assert torch.equal(labels, data.train[1][data.sample(2)])
    first, second = call["moments"]  # the middles of two halves
    assert all(float(moment.theta.norm()) <= setting.clip * 225 for moment in call["moments"])
    assert not torch.equal(first.weights["0.weight"], second.weights["0.weight"])
    assert not torch.equal(first.weights["0.weight"], fresh_model("small", data, 0).state_dict()["0.weight"])
    train_and_measure(data, replace(settings, least_accuracy=1.1), (setting, 0))
    assert len(seen) == 1  # what did not learn is not measured


def test_what_cannot_be_measured_keeps_its_accuracy(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> RunEtas:
        raise ValueError("rounding leaves nothing")

    data = image_data(swept / "images.npz", toys.SETTINGS.search)
    monkeypatch.setattr(training, "run_etas", refuse)
    setting = toys.SETTINGS.round(0, steps_per_epoch(data, toys.SETTINGS))[0]
    result = train_and_measure(data, toys.SETTINGS, (setting, 0))
    assert result["error"] == "not measured: rounding leaves nothing"
    assert 0 <= result["test_accuracy"] <= 1


def test_seeds_make_other_weights_and_unknown_models_are_refused(swept: Path) -> None:
    data = image_data(swept / "images.npz", toys.SETTINGS.search)
    one, other = (fresh_model("tanh-cnn", data, seed) for seed in (0, 1))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
    with pytest.raises(ValueError, match="model must be one of wrn-16-4, tanh-cnn, small, got 'vit'"):
        fresh_model("vit", data, 0)
