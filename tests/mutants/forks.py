"""Runs tests on a mutant in a forked process, where everything but the package is loaded already."""

import gc
import importlib.abc
import importlib.machinery
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from tests.mutants.mutations import Mutant

HEAVY = (
    *("torch", "torch.func", "torch.distributed", "hypothesis", "mpmath", "scipy.stats", "rich.console"),
    *("sklearn.datasets", "sklearn.linear_model", "dp_accounting.pld.privacy_loss_distribution"),
    "dp_accounting.rdp.rdp_privacy_accountant",
)
_OPTIONS = "-x -q --tb=no --doctest-modules -p no:cacheprovider --disable-plugin-autoload -o addopts="
_LOADED = "ignore::pytest.PytestAssertRewriteWarning"  # what forks find loaded, as they should
_MEMORY = 16 << 30
_SLACK = 60.0  # seconds to import and collect
_FACTOR = 4.0  # a mutant that takes so many times the usual time hangs


@dataclass(frozen=True)
class Outcome:
    """``killed`` by a test, ``timeout``, ``survived``, ``uncovered`` (no test), or ``error``, which
    is none of the mutant's doing."""

    mutant: Mutant
    outcome: str
    test: str
    seconds: float


def warm_up(modules: Iterable[str] = HEAVY) -> None:
    """Loads what takes long. The package itself is loaded by the forks, with the mutant in it."""
    for name in modules:
        try:
            __import__(name)
        except ImportError:
            continue
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # or every fork would walk through all of it
    assert not any(name.split(".")[0] == "ringfence" for name in sys.modules)


def outcomes(jobs: Iterable[tuple[Mutant, list[str], float]], root: Path, workers: int) -> Iterator[Outcome]:
    """Outcome of (mutant, tests, seconds these tests usually take), as they come."""
    running: dict[int, tuple[Mutant, int, float, float]] = {}
    waiting = iter(jobs)
    more = True
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # or what runs would outlive this process
    try:
        while more or running:
            while more and len(running) < workers:
                job = next(waiting, None)
                more = job is not None
                if job and job[1]:
                    allowed = _SLACK + _FACTOR * job[2]
                    child, reader = _start(job[0], job[1], root, allowed)
                    now = time.monotonic()
                    running[child] = (job[0], reader, now, now + allowed)
                elif job:
                    yield Outcome(job[0], "uncovered", "", 0.0)
            time.sleep(0.01)
            for child, (mutant, reader, start, deadline) in list(running.items()):
                done, _ = os.waitpid(child, os.WNOHANG)
                now = time.monotonic()
                if not done and now < deadline:
                    continue
                _end(child, waited=bool(done))
                del running[child]
                with os.fdopen(reader) as pipe:
                    said = json.loads(pipe.read() or '["killed", "the process died"]')
                outcome, test = said if done else ("timeout", "")
                yield Outcome(mutant, outcome, test, round(now - start, 2))
    finally:
        signal.signal(signal.SIGTERM, before)
        for child in running:
            _end(child)


def _start(mutant: Mutant, tests: list[str], root: Path, allowed: float) -> tuple[int, int]:
    """The fork, and where it will say what became of the mutant."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reader)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Whatever becomes of the process that counts seconds: what loops ends by itself.
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(allowed), math.ceil(allowed)))
        _child(mutant, tests, root, writer)
    os.close(writer)
    return child, reader


def _end(child: int, *, waited: bool = False) -> None:
    """Ends a fork and all that its tests started."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not waited:
        os.waitpid(child, 0)


def _child(mutant: Mutant, tests: list[str], root: Path, writer: int) -> None:
    """Never returns."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        os.chdir(root)
        sys.path[:0] = [str(root / "src"), str(root)]
        # Most mutants fall at once: do not collect every file for them.
        files = {test.split("::")[0] for test in tests[:10]}
        first = [test for test in tests if test.split("::")[0] in files]
        rest = [test for test in tests if test.split("::")[0] not in files]
        said = _run(first, _Importer(mutant, root))
        if said[0] == "survived" and rest:
            said = _run(rest, _Importer(mutant, root))
        os.write(writer, json.dumps(said).encode())
    except BaseException as error:
        os.write(writer, json.dumps(["error", repr(error)]).encode())
    finally:
        os._exit(0)


def _run(tests: list[str], importer: "_Importer") -> tuple[str, str]:
    """What became of the mutant, and the test that noticed it."""
    plugin = _Chosen(tests, importer)
    files = sorted({test.split("::")[0] for test in tests})
    sys.meta_path.insert(0, importer)  # already now: a conftest.py may import the package
    status = pytest.main([*_OPTIONS.split(), "-W", _LOADED, *files], plugins=[plugin])
    if plugin.failed:
        return "killed", plugin.failed
    passed = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return "survived" if passed else "error", "" if passed else f"status {status}"


class _Importer(importlib.abc.MetaPathFinder):
    """Finds the mutated module in place of the one on disk."""

    def __init__(self, mutant: Mutant, root: Path) -> None:
        self.name = mutant.file.removeprefix("src/").removesuffix(".py").replace("/", ".")
        self.path = root / mutant.file
        # numba would take what it compiled of the file as it is: constants are not in the name of its cache
        self.source = mutant.apply(self.path.read_text()).replace("cache=True", "cache=False")

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self.name:
            return None
        loader = _Loader(name, str(self.path))
        loader.source = self.source
        return spec_from_file_location(name, self.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    source: str

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _Chosen:
    """Only the chosen tests, in their order; the first that fails is remembered."""

    def __init__(self, tests: list[str], importer: _Importer) -> None:
        self.importer = importer
        self.order = {name: i for i, name in enumerate(tests)}
        self.failed = ""

    def pytest_configure(self) -> None:
        sys.meta_path.insert(0, self.importer)  # again: before pytest's own, which reads files named to it
        from hypothesis import Phase, settings

        # A failure is enough; the smallest example is not needed.
        settings.register_profile(
            "mutants", settings.get_profile("default"), phases=(Phase.explicit, Phase.generate), database=None
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.order]
        items.sort(key=lambda item: self.order[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = f"collecting {report.nodeid}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
