"""The long run.

    python -m tests.fuzz [--cases 100000] [--seed 0] [--only SURFACE]

Every property of this folder, each with its share of the cases, none of them kept or shrunk from an
earlier run. Prints how many cases each surface had; the exit status is 1 if a property failed.
"""

import argparse
import functools
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.contract import as_in_the_tests
from tests.fuzz.properties import PROPERTIES, Property

ROUND = 1000  # cases of one search: a longer one only repeats itself more slowly


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Bad input, systematically.")
    parser.add_argument("--cases", type=int, default=100_000, help="how many at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a surface")
    options = parser.parse_args()
    as_in_the_tests()
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        import_module(f"tests.fuzz.{file.stem}")
    chosen = [one for one in PROPERTIES if options.only in (None, one.surface)]
    total = sum(one.share for one in chosen)
    counts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    failed = 0
    for one in chosen:
        start = time.perf_counter()
        done, failure = run(one, -int(-options.cases * one.share // total), options.seed)
        counts[one.surface] += done
        seconds[one.surface] += time.perf_counter() - start
        failed += failure is not None
        took = time.perf_counter() - start
        print(f"{one.surface:12} {done:8,} {took:7.1f} s  {one.name}", flush=True)
        if failure:
            print(f"FAILED\n{failure}", flush=True)
    print()
    for surface, count in counts.items():
        print(f"{surface:12} {count:8,} cases {seconds[surface]:8.1f} s")
    print(f"{'all':12} {sum(counts.values()):8,} cases {sum(seconds.values()):8.1f} s, {failed} failed")
    return 1 if failed else 0


def run(one: Property, cases: int, first_seed: int) -> tuple[int, str | None]:
    """How many cases were really run, at least ``cases`` unless one failed, and what failed."""
    done = 0

    def counted(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def wrapper(**arguments: Any) -> None:
            nonlocal done
            done += 1
            function(**arguments)

        return wrapper

    number = first_seed
    while done < cases:
        options = settings(
            max_examples=min(ROUND, cases - done),
            deadline=None,
            database=None,
            derandomize=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        test = options(seed(number)(given(**one.strategies)(counted(one.function))))
        number += 1
        try:
            test()
        except Exception:
            return done, traceback.format_exc(limit=-6)
    return done, None


if __name__ == "__main__":
    sys.exit(main())
