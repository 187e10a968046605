"""``python -m experiments features``: the file of features is written by the library."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.features import extraction
from experiments.features.backbones import Backbone
from ringfence.data.features import read_features
from tests.shell import experiments


def test_the_file_is_written_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, pooling: str | None, device: str | None) -> Backbone:
        return Backbone(name, pooling or "mean", 3, "0" * 64, "cpu", lambda some: torch.ones(len(some), 3))

    monkeypatch.setattr(extraction, "load_backbone", load)
    pictures = np.zeros((10, 2, 2, 3), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x_train=pictures, y_train=np.arange(10) % 2)
    out = tmp_path / "features.npz"
    run = experiments("features", tmp_path / "images.npz", "--backbone", "any", "--out", out, "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"files": [str(out)]}
    assert read_features(out).train_features.shape == (10, 3)
