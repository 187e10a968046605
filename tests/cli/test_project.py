"""``ringfence project``: the file that it writes is the library's, and a probe reads it."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from ringfence.data.projection import PublicProjection
from tests.shell import ringfence

SETTINGS = ("--sigma", 1, "--bound", 30, "--clip", 0.1, "--learning-rate", 4)


def test_from_public_features_to_a_probe(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    public, labels = rng.normal(size=(80, 5)).astype(np.float32), np.arange(300) % 3
    np.savez(tmp_path / "public.npz", features=public, labels=np.zeros(80, int))
    private = np.eye(3, 5, dtype=np.float32)[labels]
    arrays = {"x_train": private, "y_train": labels, "x_test": private, "y_test": labels}
    np.savez(tmp_path / "private.npz", **arrays)
    file = tmp_path / "P.npz"
    run = ringfence(
        "project", tmp_path / "public.npz", "--components", 3, "--whiten", "--out", file, "--json"
    )
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["files"] == [str(file)]
    assert (said["components"], said["features"], said["whitened"]) == (3, 5, True)
    assert 0.6 < said["share_of_variance"] < 1
    projection = PublicProjection.load(file)
    assert projection == PublicProjection.of(public, 3, whiten=True)

    model_file = tmp_path / "model.safetensors"
    options = [*SETTINGS, "--public-projection", file, "--out", model_file, "--seed", 0, "--json"]
    run = ringfence("probe", tmp_path / "private.npz", *options)
    assert run.returncode == 0, run.stderr
    row = json.loads(run.stdout)
    assert row["public_projection"]
    assert "the file that features were projected by" in row["statement"]
    model = load_file(model_file)
    assert model["coefficients"].shape == (3, 3)
    scores = ((private - model["mean"]) @ model["components"].T) @ model["coefficients"].T
    assert row["test_accuracy"] == (scores.argmax(axis=1) == labels).mean() > 0.9


def test_its_own_features_are_refused(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz", features=np.random.default_rng(0).normal(size=(80, 5)), labels=np.arange(80) % 2
    )
    assert (
        ringfence("project", tmp_path / "a.npz", "--components", 2, "--out", tmp_path / "P.npz").returncode
        == 0
    )
    run = ringfence("probe", tmp_path / "a.npz", *SETTINGS, "--public-projection", tmp_path / "P.npz")
    assert run.returncode == 2
    assert "public_projection must be of other features than the private ones" in run.stderr
