"""Figure 3: a sweep of linear probes, many settings trained together on one data set."""

import math
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.linear_grid import accuracies, train_linear_grid
from experiments.sweep.data import OnDevice, SweepData, sweep_data
from experiments.sweep.runner import FILE, HERE, Workers, read_file, run_jobs
from experiments.sweep.settings import Grid, Job, Search, SweepSetting, digest, job_seed, label
from ringfence import checks
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.data.features import Features
from ringfence.training.linear import LinearSettings

if TYPE_CHECKING:
    from pandas import DataFrame

_BATCH = {"cpu": 48, "cuda": 240}  # how many jobs are trained together


# Of a finished job; the numbers are missing where it ended with an error. ``epsilon_pdp`` is the paper's
# number, converted from Rényi sums for every mechanism in the same way; ``epsilon_data_independent`` is the
# claim's promise. ``epsilon_pdp`` and ``epsilon_ex_post`` are computed from the private data and must not be
# published. The ``gaussian_`` numbers are those of the Gaussian with the same sigma. ``validation_accuracy``
# is missing where nothing was kept back to choose by.
NUMBERS = [
    *("validation_accuracy", "test_accuracy"),
    *("epsilon_pdp", "epsilon_ex_post", "epsilon_data_independent"),
    *("gaussian_epsilon_pdp", "gaussian_epsilon_ex_post", "gaussian_epsilon_data_independent", "seconds"),
]


def run_sweep(
    grid: Grid,
    features: Features,
    out: Path,
    workers: Workers = HERE,
    search: Search = "paper",
    *,
    public: Features | None = None,
    batch_size: int | None = None,
) -> Path:
    """Runs the jobs that are not finished yet and returns the path of the rows, ``out``/sweep.db.

    The same call continues where another one ended, however it ended. ``public`` are features declared
    public (see ``sweep_data``). Without dp-accounting rows hold accounts, which ``read_rows`` converts.

    Guarantee: that of ``measure``. The rows hold numbers that depend on private data.
    """
    size = _BATCH[workers.device] if batch_size is None else batch_size
    checks.count("batch_size", size, at_least=1)
    jobs, data = grid.jobs(search), sweep_data(features, grid, search, public)
    split = [grid.fair.validation, grid.fair.seed] if search == "fair" else None
    identity = {  # what must not change between two runs in one folder
        "name": grid.name,
        "search": search,
        "delta": grid.delta,
        "classes": data.classes,
        "data file (SHA-256)": data.fingerprint,
        "grid (SHA-256)": digest([[(setting.key, seed) for setting, seed in jobs], split]),
    }
    batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    work = OnDevice(partial(measure, delta=grid.delta), data, workers.device)
    run_jobs(work, batches, out, identity, workers, name=f"sweep, {search}")
    return out / FILE


def read_rows(folder: Path) -> "DataFrame":
    """Reads every finished row of a sweep, in an order that does not depend on who finished which job when.

    Rows that were made without dp-accounting get their epsilons here. Damage to the file raises a ValueError.
    """
    about, rows = read_file(folder)
    for row in rows:
        if "account" in row:
            row |= _epsilons(PerInstanceAccountant.from_state_dict(row.pop("account")), about["delta"])
    return frame_of(rows, about["name"], about["delta"], about["classes"])


def frame_of(rows: Sequence[dict[str, Any]], data: str, delta: float, classes: int | None) -> "DataFrame":
    """Rows as a frame, with what is known of the sweep and the law and the kind of clip of each setting."""
    from pandas import DataFrame

    columns = ["setting", "seed", *NUMBERS, "ringfence", "torch", "error"]
    found = DataFrame(rows, columns=columns).astype(dict.fromkeys(NUMBERS, float))
    laws = [label(setting.mechanism) for setting in found.setting]
    clips = [setting.clip_kind for setting in found.setting]
    return found.assign(law=laws, clip_kind=clips, data=data, delta=delta, classes=classes)


def linear_settings(setting: SweepSetting, seed: int) -> LinearSettings:
    """How the probe of a job is trained. Its noise depends on setting and seed alone."""
    noise = job_seed((setting, seed))
    return LinearSettings(setting.law, setting.gradient_clip, setting.learning_rate, setting.steps, noise)


def measure(data: SweepData, jobs: Sequence[Job], delta: float) -> list[dict[str, Any]]:
    """Trains and tests every job, and returns their rows in the order given.

    Guarantee: each job has the guarantee of ``train_linear_grid``. All jobs read the same data: if all
    of them are published their costs add up, and choosing one by its accuracy is not accounted for.
    """
    start = time.perf_counter()
    training = [linear_settings(*job) for job in jobs]
    features, labels = data.train
    runs = train_linear_grid(features, labels, data.classes, training, public_size=len(features))
    tested = accuracies(runs, *data.test).tolist()
    chosen = [None] * len(runs) if data.validation is None else accuracies(runs, *data.validation).tolist()
    seconds = (time.perf_counter() - start) / sum(setting.steps for setting, _ in jobs)
    convert = find_spec("dp_accounting") is not None
    return [
        {
            "validation_accuracy": chosen[i],
            "test_accuracy": tested[i],
            "seconds": seconds * setting.steps,
            **(_epsilons(run.account, delta) if convert else {"account": run.account.state_dict()}),
        }
        for i, (run, (setting, _)) in enumerate(zip(runs, jobs, strict=True))
    ]


def _epsilons(account: PerInstanceAccountant, delta: float) -> dict[str, float]:
    """The epsilons of a row."""
    with np.errstate(divide="ignore"):  # dp-accounting takes log 0 on its way to an epsilon of 0
        claim = account.guarantee(delta)
    return {
        "epsilon_pdp": claim.per_instance.renyi_epsilon,
        "epsilon_ex_post": claim.per_instance.ex_post_epsilon,
        "epsilon_data_independent": claim.epsilon,
        "gaussian_epsilon_pdp": claim.per_instance.gaussian_renyi_epsilon,
        "gaussian_epsilon_ex_post": claim.per_instance.gaussian_ex_post_epsilon,
        "gaussian_epsilon_data_independent": gaussian_epsilon(math.sqrt(2 * account.gaussian_zcdp), delta),
    }
