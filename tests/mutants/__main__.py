"""Changes the package in small ways, one at a time, and counts the changes that a test notices.

    make coverage                                       # once: which test runs which line
    python -m tests.mutants [--sample N] [--files ...]  # goes on where it stopped

Each mutant is given the tests that run its line, quickest first, until one fails. Results are lines of
JSON in out/mutants.jsonl. docs/mutants.md has the figures and the survivors.
"""

import argparse
import json
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from subprocess import TimeoutExpired

from tests.breakages import ROOT, copied, run_tests
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.selection import DURATIONS, Selection

PACKAGE = ROOT / "src/ringfence"
PACKAGES = ("numerics", "mechanisms", "accounting", "training", "releases")
KILLED = ("killed", "timeout")
_OPTIONS = "-x -q -rfE --tb=no -p no:cacheprovider --hypothesis-profile=first"  # a failure is enough
_SLACK = 60.0  # seconds to import and collect
_FACTOR = 4.0  # a mutant that takes so many times the usual time hangs
Job = tuple[Mutant, list[str], float]  # a mutant, its tests, and the seconds that they usually take


def target_files() -> list[str]:
    """noise.py and the packages on which every number rests, but for kernels that only a GPU runs."""
    files = [path for package in PACKAGES for path in sorted((PACKAGE / package).rglob("*.py"))]
    run = [path for path in (PACKAGE / "noise.py", *files) if not path.stem.endswith("_cuda")]
    return [str(path.relative_to(ROOT)) for path in run]


def sampled(everything: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """The same share of every file. A larger sample goes on where a smaller one ends."""
    share = count / max(sum(map(len, everything.values())), count)
    chosen = []
    for file, found in everything.items():
        order = random.Random(f"{seed} {file}").sample(found, len(found))
        chosen += [((i + 0.5) / len(found), one) for i, one in enumerate(order[: round(share * len(found))])]
    return [one for _, one in sorted(chosen, key=lambda pair: pair[0])]


def verdict(tree: Path, mutant: Mutant, tests: list[str], usual: float) -> tuple[str, str]:
    """What becomes of a mutant in a copy of the tree, and the test that noticed it.

    It is ``killed`` by a test, ``timeout``, ``survived``, ``uncovered`` (no test), or ``error``, which is
    none of the mutant's doing.
    """
    if not tests:
        return "uncovered", ""
    file = tree / mutant.file
    source = file.read_text()
    # numba would take what it compiled of the file as it is: constants are not in the name of its cache
    file.write_text(mutant.apply(source).replace("cache=True", "cache=False"))
    try:
        status, said = run_tests(tree, _OPTIONS, tests, _SLACK + _FACTOR * usual)
    except TimeoutExpired:
        return "timeout", ""
    finally:
        file.write_text(source)
    noticed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.M)
    if noticed:
        return "killed", noticed[1]
    return ("survived", "") if status == 0 else ("error", said[-500:])


def verdicts(jobs: Iterable[Job], root: Path, workers: int) -> Iterator[tuple[Mutant, str, str, float]]:
    """Each mutant with its verdict, the test that noticed it and the seconds, in the order of the jobs."""
    trees: SimpleQueue[Path] = SimpleQueue()

    def run(job: Job) -> tuple[Mutant, str, str, float]:
        tree, start = trees.get(), time.monotonic()
        try:
            return job[0], *verdict(tree, *job), round(time.monotonic() - start, 2)
        finally:
            trees.put(tree)

    with ExitStack() as copies, ThreadPoolExecutor(workers) as pool:
        for _ in range(workers):
            trees.put(copies.enter_context(copied(root)))
        yield from pool.map(run, jobs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--files", nargs="+", default=target_files())
    parser.add_argument("--sample", type=int, help="so many mutants, the same share of every file")
    parser.add_argument("--again", action="store_true", help="also those that were not killed before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for a mutant")
    parser.add_argument("--out", type=Path, default=Path("out/mutants.jsonl"))
    parser.add_argument("--coverage", type=Path, default=Path("out/coverage"))
    options = parser.parse_args()

    selection = Selection.measured(options.coverage, ROOT, options.files, DURATIONS)
    everything = {file: mutants(file, (ROOT / file).read_text()) for file in options.files}
    total = sum(map(len, everything.values()))
    chosen = sampled(everything, options.sample or total, options.seed)
    before = options.out.read_text().splitlines() if options.out.exists() else []
    results = {line["name"]: line["outcome"] for line in map(json.loads, before)}
    if options.again:
        results = {name: outcome for name, outcome in results.items() if outcome in KILLED}
    open_ones = [mutant for mutant in chosen if mutant.name not in results]
    print(f"{total} mutants, {len(chosen)} chosen, {len(open_ones)} to run", flush=True)

    chosen_tests = [selection.tests(one, options.budget) for one in open_ones]
    jobs = [(one, own, selection.usual(own)) for one, own in zip(open_ones, chosen_tests, strict=True)]
    with options.out.open("a") as file:
        for one, outcome, test, seconds in verdicts(jobs, ROOT, options.workers):
            results[one.name] = outcome
            line = {"name": one.name, "outcome": outcome, "test": test, "seconds": seconds}
            print(json.dumps({**line, **asdict(one)}), file=file, flush=True)
    sys.exit(report([(one.file, results[one.name]) for one in chosen if one.name in results]))


def report(pairs: list[tuple[str, str]]) -> int:
    """Prints outcomes by file and by package; status 1 where a package is below nine in ten."""
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for file, outcome in pairs:
        for place in (file, _package(file), "all"):
            places[place][outcome] += 1
    low = 0
    for place, counts in sorted(places.items()):
        killed = sum(counts[name] for name in KILLED)
        print(f"{killed:5d} of {counts.total():5d}  {killed / counts.total():6.1%}  {place}  {dict(counts)}")
        low += not place.endswith(".py") and killed < 0.9 * counts.total()
    return int(low > 0)


def _package(file: str) -> str:
    """The package of a file: ``accounting`` of src/ringfence/accounting/ledger.py."""
    return "/".join(Path(file).parent.parts[2:3]) or "ringfence"


if __name__ == "__main__":
    main()
