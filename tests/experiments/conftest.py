"""A small sweep that the tests of several commands share."""

from pathlib import Path

import numpy as np
import pytest

from tests.shell import experiments

GRID = """
name = "toy"
mechanisms = ["gaussian", "truncated"]
seeds = [0, 1]

[data]
center = 0.5

[paper]
clip = [0.1]
noise_multiplier = [10, 30]
bound = [4, 30]
learning_rate = [4]
steps = [3]
"""


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    labels = np.arange(300) % 3
    features = np.eye(3, 5, dtype=np.float32)[labels]
    np.savez(
        folder / "features.npz",
        **{"x_train": features, "y_train": labels, "x_test": features, "y_test": labels},
    )
    (folder / "grid.toml").write_text(GRID)
    run = experiments(
        "sweep", folder / "grid.toml", "--features", folder / "features.npz", "--out", folder / "out"
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(folder / "out" / "sweep.db")
    assert run.stderr == ""
    return folder
