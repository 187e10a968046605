"""Kills training and sweeps with SIGKILL at random moments, and starts them again.

    python -m tests.faults.kills --kills 100 --seed 0

Nothing finished may be lost, no noise may come twice, a sweep must end as one nobody killed, and the spent
budget on disk must never be under what was released. The exit status is 1 where anything of that fails.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.forks import FORK, forked

_PATIENCE = 120.0  # seconds for what takes one
_EARLY = 0.2  # of the kills come while a child starts or finds its way back, the others while it works


@dataclass
class Outcome:
    """What came of the kills of one job; ``early`` ones came before the child had told anything."""

    kills: int = 0
    early: int = 0
    runs: int = 0
    told: int = 0
    problems: list[str] = field(default_factory=list)


def child(name: str, folder: Path, pipe: Connection) -> None:
    """A job until it ends or is killed."""
    import torch

    from tests.faults.jobs import JOBS

    torch.set_num_threads(1)
    JOBS[name]().work(folder, pipe.send)
    pipe.close()


@dataclass(frozen=True)
class Life:
    """How a child ended, what it told before that, and when: seconds to its first word, and from there."""

    status: int
    told: list[Any]
    start: float
    work: float


def attempt(name: str, folder: Path, early: float | None = None, late: float | None = None) -> Life:
    """A child, killed ``early`` seconds after its start, or ``late`` after its first word, or never."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = forked(child, name, folder, sender)
    sender.close()
    start = word = time.monotonic()
    end = start + (_PATIENCE if early is None else early)
    told: list[Any] = []
    try:
        while (left := end - time.monotonic()) > 0:
            if receiver.poll(left):
                told.append(receiver.recv())
                if len(told) == 1:
                    word = time.monotonic()
                    end = end if late is None else word + late
    except EOFError:
        process.join(_PATIENCE)
    work = time.monotonic() - word
    process.kill()
    process.join()
    try:
        while receiver.poll():
            told.append(receiver.recv())
    except (EOFError, OSError):  # the last message may be half a one
        pass
    receiver.close()
    assert process.exitcode is not None
    return Life(process.exitcode, told, word - start, work)


def killed(name: str, kills: int, moments: random.Random, scratch: Path) -> Outcome:
    """Runs a job, kills it again and again, and begins another when it gets to its end all the same."""
    from tests.faults.jobs import JOBS

    whole = scratch / f"{name}-whole"
    whole.mkdir(parents=True)
    life = attempt(name, whole)
    assert life.status == 0, f"{name} does not even run by itself"
    wanted, outcome = JOBS[name]().result(whole), Outcome()
    while outcome.kills < kills:
        outcome.runs += 1
        folder, job, finished = scratch / f"{name}-{outcome.runs}", JOBS[name](), False
        folder.mkdir()
        while not finished:
            early = late = None
            if outcome.kills < kills and moments.random() < _EARLY:
                early = moments.uniform(0, life.start)
            elif outcome.kills < kills:
                late = moments.uniform(0, life.work)
            one = attempt(name, folder, early, late)
            finished = one.status == 0
            outcome.told += len(one.told)
            if one.status == -signal.SIGKILL:
                outcome.kills += 1
                outcome.early += not one.told
            elif not finished:
                outcome.problems.append(f"{folder.name}: a child ended with status {one.status}")
                break
            outcome.problems += [f"{folder.name}: {text}" for text in job.broken(folder, one.told)]
        if finished and job.result(folder) != wanted:
            outcome.problems.append(f"{folder.name}: not the result of a run that nobody killed")
    return outcome


def killings(kills: int, seed: int, scratch: Path) -> dict[str, Outcome]:
    """``kills`` in all, shared out among the jobs."""
    names = ("training", "sweep")
    shares = [kills // len(names) + (place < kills % len(names)) for place in range(len(names))]
    return {
        name: killed(name, share, random.Random(f"{seed} {name}"), scratch)
        for name, share in zip(names, shares, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills jobs at random moments and looks at what is left.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    # numba's semaphores, which a killed process leaves behind and Python cleans up
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = killings(arguments.kills, arguments.seed, Path(scratch))
    for name, one in outcomes.items():
        print(
            f"{name:>10}: {one.kills} kills, {one.early} of them before the first word, in {one.runs} "
            f"runs; {one.told} results made known; {len(one.problems)} violations"
        )
    problems = [text for one in outcomes.values() for text in one.problems]
    total = sum(one.kills for one in outcomes.values())
    print(f"{total} kills in {time.monotonic() - start:.0f} s: {len(problems)} violations")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
