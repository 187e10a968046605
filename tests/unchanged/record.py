"""Numbers as they were written down, and what has moved since."""

import json
import math
from pathlib import Path

import torch

from ringfence.accounting.examples import information_polynomials
from tests.unchanged import conversions, divergences, information, mechanisms, sampling, single_examples
from tests.unchanged.cases import CASES, flat

# each lists its cases when it is imported
ROOMS = (conversions, divergences, information, mechanisms, sampling, single_examples)
PATH = Path(__file__).parent / "numbers.json"
TOLERANCE = 1e-12  # relative; with the oldest instructions torch knows the largest difference is 4e-13

Numbers = dict[str, list[float]]


def computed(case: str) -> Numbers:
    torch.set_num_threads(1)
    information_polynomials._fit.cache_clear()  # so that it does not matter what ran before
    return {name: flat(values) for name, values in CASES[case]().items()}


def recorded() -> dict[str, Numbers]:
    found: dict[str, Numbers] = json.loads(PATH.read_text())
    return found


def moved(before: Numbers, after: Numbers) -> list[str]:
    """In words, what is no longer the same."""
    names = before.keys() ^ after.keys()
    found = [f"names {sorted(names)}"] if names else []
    for name in filter(after.__contains__, before):
        if len(before[name]) != len(after[name]):
            found.append(f"{name}: {len(before[name])} numbers, now {len(after[name])}")
        found += [
            f"{name}[{i}]: {old!r}, now {new!r}"
            for i, (old, new) in enumerate(zip(before[name], after[name], strict=False))
            if not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=0.0)
        ]
    return found
