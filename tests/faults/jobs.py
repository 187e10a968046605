"""Two jobs to be killed: each works in a folder and tells what it has made known; a parent looks after.

``work`` runs in a process that may die at any moment, and tells the parent only what it has done.
``broken`` looks at the folder of a process that died, and names what should not be.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.sweep import runner
from experiments.sweep.probes import read_rows, run_sweep
from experiments.sweep.runner import FILE
from ringfence.files.checkpoint import read_checkpoint
from ringfence.training.engine.run_file import RunFile
from tests.experiments.sweep.sweeps import DATA, GRID, comparable
from tests.training.engine.runs import Run

Tell = Callable[[Any], None]


class Training:
    """Private training with a save every few steps, that moves to another file half way."""

    STEPS, EVERY, MOVE = 10, 2, 6
    SUMS = ("forward", "backward")

    def __init__(self) -> None:
        self.seen: set[str] = set()  # the models after each step, as the world saw them
        self.spent: list[float] = [0.0]

    def work(self, folder: Path, tell: Tell) -> None:
        files = [folder / "first.ckpt", folder / "second.ckpt"]
        run = Run(batch_size=30)
        there = [file for file in files if file.exists()]
        (run.engine.load if there else run.engine.save)(there[-1] if there else files[0])
        while run.engine.steps < self.STEPS:
            run.train(run.engine.steps + 1)
            step, account = run.engine.steps, run.engine.account.state_dict()
            tell((step, _digest(run.weights().numpy().tobytes()), [account["steps"], *_sums(account)]))
            if step % self.EVERY == 0:
                run.engine.save(files[step >= self.MOVE])
        run.engine.save(files[1])

    def broken(self, folder: Path, told: Sequence[Any]) -> list[str]:
        """No model is seen twice, and what is on disk has paid for all that was seen."""
        problems = []
        for step, model, spent in told:
            if model in self.seen:
                problems.append(f"step {step} was released twice, with the same noise")
            self.seen.add(model)
            self.spent = [max(pair) for pair in zip(spent, self.spent or spent, strict=False)]
        on_disk = _spent(folder)
        if any(disk < seen for disk, seen in zip(on_disk, self.spent, strict=False)):
            problems.append(f"spent on disk {on_disk[0]} is below what was released, {self.spent[0]}")
        if on_disk[0] < len(self.seen):
            problems.append(f"{on_disk[0]} releases are paid for on disk, {len(self.seen)} were seen")
        return problems

    def result(self, folder: Path) -> Any:
        return read_checkpoint(folder / "second.ckpt")[1]["steps"]


def _sums(account: dict[str, Any]) -> list[float]:
    return [value for name in Training.SUMS for value in account[name]]


def _spent(folder: Path) -> list[float]:
    """The largest account on disk: how many releases, and their sums; nothing before the first save."""
    files = [RunFile(path) for path in folder.glob("*.ckpt")]
    accounts = [file.spent(file.read())["account"] for file in files if file.journal.exists()]
    largest = max(accounts, key=lambda account: account["steps"], default=None)
    return [0] if largest is None else [largest["steps"], *_sums(largest)]


class Sweep:
    """A sweep of 12 jobs, one at a time."""

    def __init__(self) -> None:
        self.grid = replace(GRID, seeds=(0, 1, 2), clip=(0.1,))
        self.rows: dict[Any, Any] = {}

    def work(self, folder: Path, tell: Tell) -> None:
        def telling(batches: Iterable[Any], *_: Any) -> Iterator[Any]:
            for batch in batches:
                yield batch
                tell(len(read_rows(folder)))  # the rows of the batch are written

        runner.track = telling  # type: ignore[assignment]
        run_sweep(self.grid, DATA, folder, batch_size=1)

    def broken(self, folder: Path, told: Sequence[Any]) -> list[str]:
        """What was reported done is there, and what was there once is there unchanged."""
        problems = []
        rows = comparable(read_rows(folder)) if (folder / FILE).exists() else []
        now = {(row["setting"], row["seed"]): row for row in rows}
        if len(now) != len(rows):
            problems.append(f"{len(rows) - len(now)} rows are there twice")
        if len(rows) < max(told, default=0):
            problems.append(f"{max(told)} rows were done, {len(rows)} are there")
        lost = [job for job, row in self.rows.items() if now.get(job) != row]  # with its seconds
        if lost:
            problems.append(f"{len(lost)} finished rows are gone or were made again")
        self.rows = now
        return problems

    def result(self, folder: Path) -> Any:
        rows = comparable(read_rows(folder), "seconds")
        assert len(rows) == len(self.grid.jobs("paper"))
        return rows


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


JOBS: dict[str, type[Any]] = {"training": Training, "sweep": Sweep}
