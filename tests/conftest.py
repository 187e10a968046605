import gc
import linecache
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

# Modules that are imported make nothing that is garbage; looking for it took a fifth of the collection.
gc.disable()

_approx = pytest.approx


def _relative(expected: Any, rel: Any = None, abs: Any = None, nan_ok: bool = False) -> Any:
    """``pytest.approx`` without the 1e-12 that it adds to a relative tolerance: small numbers count too."""
    return _approx(expected, rel, 0.0 if abs is None and rel is not None else abs, nan_ok)


pytest.approx = _relative  # type: ignore[misc]

settings.register_profile(
    "default",
    deadline=None,  # machines here are shared; speed is shown in benchmarks/
    derandomize=True,
    max_examples=30,  # `make fuzz` and the profile "long" try thousands
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("default"), derandomize=False, max_examples=4000)
# of a mutant: a failure is enough, and the smallest example is not needed
settings.register_profile(
    "first", settings.get_profile("default"), phases=(Phase.explicit, Phase.generate), database=None
)
settings.load_profile("default")

# Files that begin processes (tests/forks.py). One worker runs them all, so that only one needs a server of
# forks, which takes seconds to import what they need. Together they take the longest: they begin.
FORKING = (
    *("tests/test_huggingface.py", "tests/test_lightning.py"),
    *("tests/training/test_linear_information.py", "tests/training/engine/test_engine.py"),
    *("tests/accounting/test_ledger.py", "tests/accounting/test_ledger_server.py"),
    *("tests/cli/test_app.py", "tests/cli/test_release.py", "tests/experiments/test_main.py"),
    *("tests/faults/test_kills.py", "tests/files/test_journal.py", "tests/files/test_shared_table.py"),
    *("tests/releases/test_release.py", "tests/experiments/information/"),
    *("tests/experiments/sweep/", "tests/test_docs.py", "tests/test_noise.py", "tests/test_notebooks.py"),
    *("tests/test_public_api.py", "tests/training/test_distributed.py", "tests/training/test_sharding.py"),
)
# Other files that take more than a few seconds, the longest first (out/durations.jsonl of `make coverage` has
# what each test takes). Short ones end, so that no worker of `make test` waits long for another.
LONG = (
    *("tests/training/test_probe.py", "tests/training/per_example/test_memory.py"),
    *("tests/releases/test_engines.py", "tests/training/engine/test_allocation.py"),
    *("tests/training/test_regression.py", "tests/training/test_secure_run.py"),
    *("tests/training/engine/test_run.py", "tests/training/test_probe_target.py"),
    *("tests/accounting/test_cut_samples.py", "tests/training/test_information.py"),
    *("tests/training/test_tune.py", "tests/releases/test_votes.py", "src/ringfence/accounting/"),
    *("tests/accounting/test_decision_publication.py", "tests/accounting/test_allocation.py"),
    *("tests/test_examples.py", "tests/releases/test_reader.py", "tests/training/test_target.py"),
    *("tests/training/engine/test_units.py", "tests/test_errata.py", "tests/releases/test_winners.py"),
    *("tests/report/", "tests/releases/test_shares_sums_quantiles.py", "tests/training/per_example/"),
    *("tests/training/", "tests/test_opacus.py", "tests/audit/", "tests/accounting/test_contract.py"),
    *("tests/experiments/test_reproduce.py", "tests/test_unchanged.py"),
)
FIRST = (*FORKING, *LONG)


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("dist", "no") != "no":
        return  # this process only hands tests to workers, and needs no torch
    import torch

    # Many small operations: threads that wait for each other made them ten times slower on a busy machine.
    torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrFork(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "forks" if nodeid.startswith(FORKING) else super()._split_scope(nodeid)

    return ByFileOrFork(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return  # one process takes the tests in the order that it was given
    items.sort(
        key=lambda item: next((i for i, name in enumerate(FIRST) if item.nodeid.startswith(name)), len(FIRST))
    )


def pytest_collection_finish() -> None:
    """What was imported stays, so that the garbage collector need not look at it again and again.

    And the lines of all modules, in which examples were looked for, are forgotten: each example would ask
    for every file whether it has changed.
    """
    linecache.clearcache()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)  # tests make little that is garbage and much that is not
    gc.enable()
