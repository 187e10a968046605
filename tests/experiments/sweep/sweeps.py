"""A sweep small enough for tests: eight settings, three seeds, and laws whose accounts are quick."""

from typing import Any

import numpy as np

from experiments.sweep.settings import FairSearch, Grid
from ringfence.data.features import Features

GRID = Grid(
    "toy",
    ("gaussian", "sign"),
    clip=(0.1, 0.2),
    noise_multiplier=(5.0,),
    bound=(2.0, 20.0),
    learning_rate=(1.0, 4.0),
    steps=(2,),
    seeds=(0, 1, 2),
    fair=FairSearch(
        settings=4, validation=0.25, clip=(0.05, 0.5), noise_multiplier=(2.0, 1e6), steps=(1.0, 4.0)
    ),
)


def _split(count: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    return rng.normal(size=(count, 5)).astype(np.float32) + np.eye(3, 5, dtype=np.float32)[labels], labels


DATA = Features(*_split(120, 0), *_split(60, 1))


def comparable(rows: Any, *without: str) -> list[dict[str, Any]]:
    """The rows as plain data, without the named columns: ``seconds`` is never the same twice."""
    return rows.astype(object).where(rows.notna(), None).drop(columns=[*without]).to_dict("records")
