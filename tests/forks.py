"""Other processes for the tests, without the seconds that importing torch takes in each of them.

A server imports once and forks from there: a process that has used OpenMP cannot be forked itself.
"""

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(
    # torch._dynamo is what the first optimizer of a process imports, and test_ledger what most forks begin in
    [
        *("dp_accounting", "torch._dynamo", "ringfence.training.kernels.outer_sum_cpu", "sqlalchemy"),
        *("tests.faults.jobs", "tests.accounting.test_ledger"),
    ]
)


def forked(target: Callable[..., object], *arguments: Any) -> Any:
    """A process that has begun with ``target``, a function of a module."""
    os.environ["OMP_NUM_THREADS"] = "1"
    process = FORK.Process(target=target, args=arguments)
    process.start()
    return process


def ended(target: Callable[..., object], *arguments: Any) -> int:
    """The exit status of a process that runs ``target``, as of a shell: negative if a signal ended it."""
    process = forked(target, *arguments)
    process.join(120)
    assert process.exitcode is not None, "the process does not end"
    return int(process.exitcode)
