"""Two processes that train together, started once for all tests of a file."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed

from tests.afresh import written_to
from tests.forks import forked


def worker(rank: int, work: Callable[[int, Path], None], folder: Path) -> None:
    """One of two processes. Never returns."""
    written_to((folder / f"printed {rank}", folder / f"errors {rank}"))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    work(rank, folder)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads abort a process that ends, now and then: end without


def trained_by_two(work: Callable[[int, Path], None], folder: Path) -> Path:
    """The folder in which two processes did ``work(rank, folder)``. The server of forks never began CUDA."""
    processes = [forked(worker, rank, work, folder) for rank in (0, 1)]
    for process in processes:
        process.join(110)
        process.kill()  # if it still waits for the other
        process.join()
    failed = any(process.exitcode for process in processes)
    assert not failed, "".join(file.read_text() for file in folder.glob("errors *"))[-3000:]
    return folder
