"""Which tests run a line, and how long they take: from a run under coverage with a context a test.

A file that was changed since then is given all of its tests for each of its lines.

As a pytest plugin (``-p tests.mutants.selection``) it writes down how long each test took.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.mutants.mutations import Mutant

DURATIONS = Path("out/durations.jsonl")
_QUICK, _OWN = 1.0, 5.0  # seconds: tests that come first, and those that name the file or the law
_LOOKS = "tests/test_defaults.py"  # at values made on import, without running a line


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        DURATIONS.parent.mkdir(exist_ok=True)
        with DURATIONS.open("a") as file:
            print(json.dumps([report.nodeid, report.outcome, report.duration]), file=file)


class Selection:
    """Tests in seconds, and for each file the tests of each line."""

    def __init__(self, seconds: dict[str, float], files: dict[str, dict[int, set[str]]]) -> None:
        self.seconds, self.files = seconds, files

    @classmethod
    def measured(cls, data: Path, root: Path, files: list[str], durations: Path) -> "Selection":
        """From coverage's data and the durations, of tests that are still there."""
        from coverage import CoverageData

        seconds: dict[str, float] = defaultdict(float)
        for line in durations.read_text().splitlines():
            name, outcome, duration = json.loads(line)
            there = outcome == "passed" and (root / name.split("::")[0]).exists()
            seconds[name] += duration if there else float("inf")
        reader, found = CoverageData(str(data)), {}
        reader.read()
        for file in files:
            tests: dict[int, set[str]] = defaultdict(set)
            for line, contexts in reader.contexts_by_lineno(str(root / file)).items():
                names = {context.rpartition("|")[0] for context in contexts} - {""}
                tests[line] = {name for name in names if seconds.get(name, 1e9) < 1e9}
            found[file] = dict(tests)
            if (root / file).stat().st_mtime > data.stat().st_mtime:
                count = len((root / file).read_text().splitlines())
                found[file] = dict.fromkeys(range(1, count + 1), set().union(*tests.values()))
        return cls(dict(seconds), found)

    def tests(self, mutant: Mutant, budget: float) -> list[str]:
        """Tests that run the statement: those that name the file or the law first, then quick ones.

        What takes effect on import, or is kept between calls, is given every test of the file.
        """
        lines = self.files.get(mutant.file, {})
        first, last = mutant.lines
        at = lines if mutant.everywhere else [line for line in range(first, last + 1) if line in lines]
        names = set().union(*(lines[line] for line in at))
        names |= {name for name in self.seconds if mutant.everywhere and name.startswith(_LOOKS)}
        stem = Path(mutant.file).stem  # in the path of the file's own tests, and of a law's contract
        order = sorted(
            names,
            key=lambda name: (
                self.seconds[name] > (_OWN if stem in name else _QUICK),
                stem not in name,
                self.seconds[name],
                name,
            ),
        )
        chosen, spent = [], 0.0
        for name in order:
            spent += self.seconds[name]
            if chosen and spent > budget:
                break
            chosen.append(name)
        return chosen

    def usual(self, tests: list[str]) -> float:
        return sum(self.seconds[name] for name in tests)
