"""``ringfence tune``: the library's numbers, a model that can be used, and one line for bad input."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import ringfence as rf
from ringfence.training.tune import TuningPlan
from tests.shell import ringfence


def test_tune_as_json_and_in_words_is_what_the_library_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TuningPlan, "for_target", cache(TuningPlan.for_target))  # three times the same plan
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    values = (rng.normal(size=(400, 6)) + 2 * np.eye(3, 6)[labels]).astype(np.float32)
    file, grid, model = (tmp_path / name for name in ("features.npz", "grid.toml", "model.safetensors"))
    np.savez(file, x_train=values[:300], y_train=labels[:300], x_test=values[300:], y_test=labels[300:])
    grid.write_text("clip_norm = [0.1, 1.0]\nsteps = [4, 8]\n")
    options = ("--features", file, "--epsilon", 3, "--delta", 1e-4, "--expected-runs", 4, "--seed", 5)
    run = ringfence("tune", grid, *options, "--public-classes", 3, "--out", model, "--json")
    assert run.returncode == 0, run.stderr
    row = json.loads(run.stdout)
    tuned = rf.tune(
        *(values[:300], labels[:300], {"clip": [rf.Norm(0.1), rf.Norm(1.0)], "steps": [4, 8]}),
        target_epsilon=3.0,
        target_delta=1e-4,
        expected_runs=4,
        random_state=5,
        public_classes=[0, 1, 2],
    )
    assert (row["epsilon"], row["right"]) == (tuned.epsilon, tuned.right)
    assert row["setting"]["steps"] == tuned.setting["steps"]
    assert row["test_accuracy"] == tuned.probe.score(values[300:], labels[300:])
    np.testing.assert_allclose(load_file(model)["coefficients"], tuned.probe.coef_, rtol=1e-6)
    words = ringfence("tune", grid, *options, "--public-classes", 3).stdout
    assert tuned.statement in words
    assert f"clip {tuned.setting['clip']}" in words
    assert "on the test split" in words
    bad = ringfence("tune", grid, *options[:2], "--epsilon", 0)
    assert bad.returncode == 2
    assert bad.stderr == "ringfence: target_epsilon must be > 0, got 0.0\n"
