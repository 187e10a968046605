"""Runs the jobs of a sweep and keeps their rows in a table: killed at any moment, the same call goes on.

A job is a setting and a seed. What is trained and measured is a function from jobs to rows, plain
dictionaries; Figure 3 (``probes``) and the networks of Figure 4 (``information.networks``) each have one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import ringfence
from experiments.progress import track
from experiments.sweep.settings import Job, SweepSetting
from ringfence.files.locks import locked, unlock
from ringfence.files.shared_table import SharedTable

FILE = "sweep.db"
Work = Callable[[Sequence[Job]], list[dict[str, Any]]]


@contextmanager
def opened(folder: Path, identity: Mapping[str, Any]) -> Iterator[SharedTable]:
    """The table of a sweep, begun where there is none, for one process at a time.

    ``identity`` describes the sweep; the file of another one is refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    lock = locked(folder / "sweep")
    try:
        records: list[dict[str, Any]] = []
        table = SharedTable(path, [{"identity": dict(identity)}], records.append)
        known = records[0]["identity"]
        for name, value in identity.items():
            if known.get(name) != value:
                raise ValueError(
                    f"{path} holds a sweep with another {name}: {known.get(name)!r:.60}, not {value!r:.60}"
                )
        yield table
    finally:
        unlock(lock)


def read_file(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The identity of the sweep in a folder, and its rows: setting, seed, and what was measured.

    Rows come in an order that does not depend on who finished which job when. Damage raises a ValueError.
    """
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no sweep: there is no {FILE} in it")
    records: list[dict[str, Any]] = []
    SharedTable(path, None, records.append)
    rows = [
        {**row, "setting": SweepSetting(**row["setting"])} for record in records[1:] for row in record["rows"]
    ]
    return records[0]["identity"], sorted(rows, key=lambda row: (row["setting"].order, row["seed"]))


def run_jobs(
    work: Work,
    batches: Sequence[Sequence[Job]],
    folder: Path,
    identity: Mapping[str, Any],
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    name: str = "sweep",
) -> None:
    """Adds the rows of ``work(batch)`` to the sweep in the folder, for what is not finished of every batch.

    All rows of a batch are on the disk, or none is. ``notes`` are further columns of rows, by the key of
    their setting. ``name`` stands at the progress bar.
    """
    with opened(folder, identity) as table:
        done = {(row["setting"].key, row["seed"]) for row in read_file(folder)[1]}
        # Batches are cut from all jobs, finished or not, so that the same jobs are always trained together.
        waiting = [[job for job in batch if (job[0].key, job[1]) not in done] for batch in batches]
        waiting = [batch for batch in waiting if batch]
        about = {"ringfence": ringfence.__version__, "torch": torch.__version__}
        for jobs in track(waiting, name):
            whole = [
                {"setting": asdict(one), "seed": seed, **about, **(notes or {}).get(one.key, {}), **row}
                for (one, seed), row in zip(jobs, attempt(work, jobs), strict=True)
            ]
            with table.transaction() as append:
                append({"rows": whole})


def attempt(work: Work, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """The rows of the jobs; where they fail, each half is tried, down to a single job and its error.

    Errors of the device, and of its memory with a single job, are raised: they are no fault of a setting.
    """
    try:
        return work(jobs)
    except (ValueError, ArithmeticError, RuntimeError) as error:
        alone = len(jobs) == 1
        if "CUDA error" in str(error) or (alone and "out of memory" in str(error)):
            raise
        if alone:
            return [{"error": f"{type(error).__name__}: {error}"}]
    middle = len(jobs) // 2
    return [*attempt(work, jobs[:middle]), *attempt(work, jobs[middle:])]
