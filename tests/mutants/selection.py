"""Which tests run a line, and how long they take: from a run under coverage with a context a test.

As a pytest plugin (``-p tests.mutants.selection``) it writes down how long each test took.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.mutants.mutations import Mutant

DURATIONS = Path("out/durations.jsonl")


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
    def measured(cls, data: list[Path], root: Path, files: list[str], durations: Path) -> "Selection":
        """From coverage's data and the durations."""
        from coverage import CoverageData

        seconds: dict[str, float] = defaultdict(float)
        for line in durations.read_text().splitlines():
            name, outcome, duration = json.loads(line)
            seconds[name] += duration if outcome == "passed" else float("inf")
        found: dict[str, dict[int, set[str]]] = {file: defaultdict(set) for file in files}
        for path in data:
            reader = CoverageData(str(path))
            reader.read()
            for file in files:
                for line, contexts in reader.contexts_by_lineno(str(root / file)).items():
                    names = {context.rpartition("|")[0] for context in contexts} - {""}
                    found[file][line] |= {name for name in names if seconds.get(name, 1e9) < 1e9}
        return cls(dict(seconds), {file: dict(lines) for file, lines in found.items()})

    def tests(self, mutant: Mutant, budget: float) -> list[str]:
        """Tests that run the statement: those that name the file or the law first, then the quickest.

        What takes effect on import, or is kept between calls, is given every test of the file.
        """
        lines = self.files.get(mutant.file, {})
        first, last = mutant.lines
        at = lines if mutant.everywhere else [line for line in range(first, last + 1) if line in lines]
        names = set().union(*(lines[line] for line in at))
        stem = Path(mutant.file).stem  # in the path of the file's own tests, and of a law's contract
        order = sorted(names, key=lambda name: (stem not in name, self.seconds[name], name))
        chosen, spent = [], 0.0
        for name in order:
            spent += self.seconds[name]
            if chosen and spent > budget:
                break
            chosen.append(name)
        return chosen

    def usual(self, tests: list[str]) -> float:
        return sum(self.seconds[name] for name in tests)

    def save(self, path: Path) -> None:
        names = sorted(self.seconds)
        at = {name: i for i, name in enumerate(names)}
        files = {
            file: {line: sorted(at[name] for name in tests) for line, tests in lines.items()}
            for file, lines in self.files.items()
        }
        path.write_text(json.dumps({"tests": [(name, self.seconds[name]) for name in names], "files": files}))

    @classmethod
    def load(cls, path: Path) -> "Selection":
        saved = json.loads(path.read_text())
        names = [name for name, _ in saved["tests"]]
        files = {
            file: {int(line): {names[i] for i in tests} for line, tests in lines.items()}
            for file, lines in saved["files"].items()
        }
        return cls(dict(saved["tests"]), files)
