"""Images of four classes that a small network learns in one epoch, and settings that take no time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from experiments.information.network import METHODS, NetworkSettings
from experiments.information.networks import COLUMNS

RANGES: dict[str, Any] = {
    "clip": (0.5, 1.0),
    "noise_multiplier": (1.0, 2.0),
    "bound_over_sigma": (2.0, 4.0),
    "learning_rate": (0.05, 0.1),
    "norm_noise_multiplier": (0.1, 0.2),
    "norm_learning_rate": (0.5, 1.0),
}
COUNTS = {"batch_size": 50, "examples": 2, "moments": 1, "probes": 40}
SETTINGS = NetworkSettings(
    search=replace(NetworkSettings().search, **RANGES),
    **COUNTS,  # type: ignore[arg-type]
    epochs=(1,),
    seeds=(0, 1),
    model="small",
    least_accuracy=0.0,
)


def arrays() -> dict[str, Any]:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 4, 320)
    bright = np.eye(4)[labels].reshape(-1, 2, 2).repeat(4, axis=1).repeat(4, axis=2)[..., None]
    images = (draws.integers(0, 100, (320, 8, 8, 3)) + 100 * bright).astype(np.uint8)
    return {
        "x_train": images[:250], "y_train": labels[:250], "x_test": images[250:], "y_test": labels[250:],
    }  # fmt: skip


def image_file(folder: Path, **changed: Any) -> Path:
    np.savez(folder / "images.npz", **(arrays() | changed))
    return folder / "images.npz"


def row(
    method: str, number: int, accuracy: float | None, eta: float | None, seed: int = 0, **given: Any
) -> dict[str, Any]:
    etas = (f"{kind}_{which}" for kind in ("spectral", "trace", "estimate") for which in ("max", "median"))
    numbers = {"validation_accuracy": accuracy, "test_accuracy": accuracy, **dict.fromkeys(etas, eta)}
    setting = {"epochs": 10, "clip": 0.3, "noise_multiplier": 3.0, "learning_rate": 0.1}
    return {"method": method, "round": number, "seed": seed, **setting, **numbers, **given}


def whole_round(number: int, accuracy: float, eta: float) -> list[dict[str, Any]]:
    return [row(name, number, accuracy, eta) for name in METHODS]


def frame(rows: list[dict[str, Any]]) -> DataFrame:
    return DataFrame(rows, columns=COLUMNS)
