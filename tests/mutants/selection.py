"""Which tests run a line, and how long they take: from a run under coverage with a context a test.

It may be older than the package and the tests: lines that only moved keep their tests, a line that is
new is given every test of its file, and so are tests that are new in the file's folder.

As a pytest plugin (``-p tests.mutants.selection``) it writes down how long each test took.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from tests.mutants.mutations import Mutant

DURATIONS = Path("out/durations.jsonl")
_QUICK, _OWN = 1.0, 5.0  # seconds: tests that come first, and those that name the file or the law
_UNKNOWN = 0.5  # seconds a new test may take
_LOOKS = "tests/test_defaults.py"  # at values made on import, without running a line
_COLLECT = (
    "--collect-only -q --doctest-modules -p no:cacheprovider --disable-plugin-autoload -o addopts= "
    "tests src experiments"
)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        DURATIONS.parent.mkdir(exist_ok=True)
        with DURATIONS.open("a") as file:
            print(json.dumps([report.nodeid, report.outcome, report.duration]), file=file)


class Selection:
    """Tests in seconds, for each file the tests of each line, and what the file was like then."""

    def __init__(
        self,
        seconds: dict[str, float],
        files: dict[str, dict[int, set[str]]],
        sources: dict[str, list[str]] | None = None,
    ) -> None:
        self.seconds, self.files, self.sources = seconds, files, sources or {}

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
        sources = {file: (root / file).read_text().splitlines() for file in files}
        return cls(dict(seconds), {file: dict(lines) for file, lines in found.items()}, sources)

    def moved(self, root: Path) -> "Selection":
        """For the files as they are now."""
        files = {}
        for file, lines in self.files.items():
            now = (root / file).read_text().splitlines() if (root / file).exists() else []
            every = set().union(*lines.values())
            files[file] = moved = dict.fromkeys(range(1, len(now) + 1), every)
            matcher = SequenceMatcher(None, self.sources.get(file, now), now, autojunk=False)
            for old, new, length in matcher.get_matching_blocks():
                for k in range(1, length + 1):
                    moved[new + k] = lines.get(old + k, set())
        return Selection(self.seconds, files, {file: [] for file in files})

    def with_tests(self, names: list[str]) -> "Selection":
        """Tests that are gone left out; those not known here given to every line of their folder."""
        seconds = {name: self.seconds.get(name, _UNKNOWN) for name in names}
        new = [name for name in names if name not in self.seconds]
        files = {}
        for file, lines in self.files.items():
            folder = Path("tests", *Path(file).parent.parts[2:])
            theirs = {name for name in new if Path(name.split("::")[0]).parent in (folder, *folder.parents)}
            files[file] = {line: (tests & seconds.keys()) | theirs for line, tests in lines.items()}
        return Selection(seconds, files, self.sources)

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

    def save(self, path: Path) -> None:
        names = sorted(self.seconds)
        at = {name: i for i, name in enumerate(names)}
        files = {
            file: {line: sorted(at[name] for name in tests) for line, tests in lines.items()}
            for file, lines in self.files.items()
        }
        tests = [(name, self.seconds[name]) for name in names]
        path.write_text(json.dumps({"tests": tests, "files": files, "sources": self.sources}))

    @classmethod
    def load(cls, path: Path) -> "Selection":
        saved = json.loads(path.read_text())
        names = [name for name, _ in saved["tests"]]
        files = {
            file: {int(line): {names[i] for i in tests} for line, tests in lines.items()}
            for file, lines in saved["files"].items()
        }
        return cls(dict(saved["tests"]), files, saved["sources"])


def collected(root: Path) -> list[str]:
    """The tests there are."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *_COLLECT.split()],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in run.stdout.splitlines() if "::" in line]
