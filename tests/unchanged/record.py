"""Numbers as they were written down, and what has moved since."""

import json
import math
from pathlib import Path

import torch

from tests.unchanged import conversions, divergences, information, sampling, single_examples
from tests.unchanged.cases import CASES, flat

ROOMS = (conversions, divergences, information, sampling, single_examples)
PATH = Path(__file__).parent / "numbers.json"
TOLERANCE = 1e-11  # relative: what other processors and other versions of torch may round differently

Numbers = dict[str, list[float]]


def computed(case: str) -> Numbers:
    torch.set_num_threads(1)
    return {name: flat(values) for name, values in CASES[case]().items()}


def recorded() -> dict[str, Numbers]:
    found: dict[str, Numbers] = json.loads(PATH.read_text())
    return found


def moved(before: Numbers, after: Numbers) -> list[str]:
    """In words, what is no longer the same."""
    if before.keys() != after.keys():
        return [f"names {sorted(before.keys() ^ after.keys())}"]
    found = []
    for name in before:
        if len(before[name]) != len(after[name]):
            found.append(f"{name}: {len(before[name])} numbers, now {len(after[name])}")
        found += [
            f"{name}[{i}]: {old!r}, now {new!r}"
            for i, (old, new) in enumerate(zip(before[name], after[name], strict=False))
            if not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=0.0)
        ]
    return found
