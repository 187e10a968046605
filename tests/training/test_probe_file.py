"""A report of a probe says what the library says, tests on the test split only, and names what it assumes."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import ringfence as rf
from ringfence.data.features import Features
from ringfence.training.probe_file import probe_report, save_probe

RNG = np.random.default_rng(0)


def split(count: int) -> tuple[Any, Any]:
    labels = RNG.integers(0, 3, count)
    return RNG.normal(size=(count, 6)).astype(np.float32) + 2 * np.eye(3, 6, dtype=np.float32)[labels], labels


DATA = Features(*split(240), *split(90))
LAW = rf.TruncatedGaussian(1.0, 40.0)


class Row(dict[str, Any]):
    probe: rf.LinearProbe


def report(data: Features = DATA, **changes: Any) -> Row:
    """The report of a probe with these arguments of ``LinearProbe``, and the probe."""
    arguments = {
        "mechanism": LAW,
        "clip": 0.2,
        "learning_rate": 8.0,
        "steps": 4,
        "fit_intercept": False,
        "random_state": 3,
        **changes,
    }
    asked = {"delta": arguments.pop("delta", 1e-5), "examples": arguments.pop("examples", False)}
    probe = rf.LinearProbe(**arguments)
    row = Row(probe_report(probe.fit(data.train_features, data.train_labels), data, **asked))
    row.probe = probe
    return row


def by_hand(**changes: Any) -> rf.LinearProbe:
    arguments = {"clip": 0.2, "learning_rate": 8.0, "steps": 4, "random_state": 3, "fit_intercept": False}
    return rf.LinearProbe(LAW, **{**arguments, **changes}).fit(DATA.train_features, DATA.train_labels)


def test_the_row_is_what_the_library_says() -> None:
    options: dict[str, Any] = {"momentum": 0.5, "public_size": 250.0}
    options |= {"fit_intercept": True, "public_center": 0.5, "public_scale": 2.0}
    row = report(**options, delta=1e-4)
    probe = by_hand(**options)
    assert row["test_accuracy"] == probe.score(DATA.test_features, DATA.test_labels) > 0.6
    assert row["per_instance"] == asdict(probe.guarantee(1e-4).per_instance)
    assert np.array_equal(row.probe.coef_, probe.coef_)
    assert np.array_equal(row.probe.intercept_, probe.intercept_)
    assert (row["public_size"], row["training_examples"]) == (250.0, None)  # the number of records is private
    assert (row["features"], row.probe.classes_.tolist()) == (6, [0, 1, 2])


def test_without_a_test_split_there_is_no_accuracy() -> None:
    row = report(Features(DATA.train_features, DATA.train_labels.astype(str)))
    assert row["test_accuracy"] is None
    assert row["training_examples"] == 240


def test_single_examples() -> None:
    epsilons = by_hand().example_epsilons(1e-5)
    quantiles = report(examples=True)["example_epsilons"]
    assert quantiles is not None
    assert [*quantiles] == [0.0, 0.1, 0.5, 0.9, 1.0]
    assert quantiles[0.0] == epsilons.min()
    assert quantiles[1.0] == epsilons.max()
    for share, epsilon in quantiles.items():
        assert (epsilons <= epsilon).mean() >= share
    assert report()["example_epsilons"] is None


def test_what_is_taken_to_be_public_is_said() -> None:
    plain = report(random_state=None)["statement"]
    assert "The number of records counts as public" in plain
    assert "The set of classes counts as public" in plain
    assert "seed" not in plain
    declared = report(public_size=200, public_classes=range(4))
    assert "Taken to be public: the settings. The test split" in declared["statement"]
    assert "holds only against those who do not know that seed" in declared["statement"]
    assert declared.probe.classes_.tolist() == [0, 1, 2, 3]
    assert declared.probe.guarantee(1e-5).statement in declared["statement"]


def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    words = np.array(["cat", "dog", "owl"])
    data = Features(
        DATA.train_features, words[DATA.train_labels], DATA.test_features, words[DATA.test_labels]
    )
    row = report(data, fit_intercept=True, public_center=0.25, public_scale=2.0)
    for _ in range(2):  # the second time the folder is there
        save_probe(row.probe, tmp_path / "new" / "one" / "model.safetensors")
    with safe_open(tmp_path / "new" / "one" / "model.safetensors", framework="np") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    assert set(tensors) == {"coefficients", "intercepts"}
    assert set(metadata) == {"classes"}
    scores = DATA.test_features @ tensors["coefficients"].T + tensors["intercepts"]
    predicted = np.array(json.loads(metadata["classes"]))[scores.argmax(axis=1)]
    assert (predicted == data.test_labels).mean() == row["test_accuracy"]


def test_with_a_target_nothing_else_is_needed() -> None:
    target: dict[str, Any] = {"target_epsilon": 4.0, "target_delta": 1e-5, "random_state": 3}
    free = {**dict.fromkeys(("mechanism", "clip", "learning_rate", "steps")), "fit_intercept": True}
    row = report(**free, **target)
    probe = rf.LinearProbe(**target)
    probe.fit(DATA.train_features, DATA.train_labels)
    assert np.array_equal(row.probe.coef_, probe.coef_)
    assert row["test_accuracy"] == probe.score(DATA.test_features, DATA.test_labels) > 0.6
    plain = json.loads(json.dumps(row))
    assert 3.96 <= plain["epsilon"] <= 4.0
    assert (plain["mechanism"], plain["clip"]) == (repr(probe.mechanism_), "Norm(0.3)")
    assert (plain["learning_rate"], plain["private_scaling"]) == (probe.learning_rate_, True)


@pytest.mark.parametrize("divided", [False, True], ids=["as they are", "by magnitudes"])
def test_a_saved_model_of_unit_rows_says_what_becomes_of_a_row(tmp_path: Path, divided: bool) -> None:
    changes: dict[str, Any] = {"unit_rows": True}
    if divided:
        free = dict.fromkeys(("mechanism", "clip", "learning_rate", "steps"))
        changes = {**free, "target_epsilon": 0.5, "target_delta": 1e-5}
    row = report(**changes, fit_intercept=True, public_center=0.25, public_scale=2.0)
    assert (row.probe.magnitudes_ is not None) == divided
    save_probe(row.probe, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata()["unit_rows"] == "true"
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    rows = (DATA.test_features - tensors["center"]) / tensors["scale"]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = (rows @ tensors["coefficients"].T + tensors["intercepts"]).argmax(axis=1)
    assert (found == DATA.test_labels).mean() == row["test_accuracy"]


def test_a_saved_model_of_scaled_features_says_what_becomes_of_a_row_far_away(tmp_path: Path) -> None:
    arguments = {"target_epsilon": 4.0, "target_delta": 1e-5, "random_state": 3, "public_scale": 2.0}
    probe = rf.LinearProbe(**arguments).fit(DATA.train_features, DATA.train_labels)
    save_probe(probe, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        farthest = float(file.metadata()["farthest"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    features = DATA.test_features.astype(np.float64) * np.geomspace(0.1, 100, 90)[:, None]
    apart = features - tensors["center"]
    far = np.sqrt(np.mean(np.square(apart / tensors["scale"]), axis=1, keepdims=True))
    rows = tensors["center"] + apart * np.where(far > farthest, farthest / far, 1.0)
    assert 10 < (far > farthest).sum() < 80
    scores = rows @ tensors["coefficients"].T + tensors["intercepts"]
    assert np.allclose(scores, probe.decision_function(features))
