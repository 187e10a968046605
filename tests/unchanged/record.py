"""Numbers as they were written down, the work they took, and what has moved since."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ringfence.accounting.examples import information_polynomials
from tests.unchanged import conversions, divergences, information, mechanisms, sampling, single_examples
from tests.unchanged.cases import CASES, flat

# each lists its cases when it is imported
ROOMS = (conversions, divergences, information, mechanisms, sampling, single_examples)
PATH = Path(__file__).parent / "numbers.json"
TOLERANCE = 1e-12  # relative; with the oldest instructions torch knows the largest difference is 4e-13
_WORK = f"torch {torch.__version__.split('+')[0]}: tensors, entries"  # another torch may count differently

Numbers = dict[str, list[float]]


class Work(TorchFunctionMode):
    """Counts what torch is asked for: how many tensors, and how many entries they have."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = self.entries = 0

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        result = function(*given, **(named or {}))
        if isinstance(result, Tensor):
            self.tensors += 1
            self.entries += result.numel()
        return result


def computed(case: str) -> Numbers:
    torch.set_num_threads(1)
    information_polynomials._fit.cache_clear()  # so that it does not matter what ran before
    with Work() as work:
        numbers = {name: flat(values) for name, values in CASES[case]().items()}
    return {**numbers, _WORK: [float(work.tensors), float(work.entries)]}


def recorded() -> dict[str, Numbers]:
    found: dict[str, Numbers] = json.loads(PATH.read_text())
    return found


def moved(before: Numbers, after: Numbers) -> list[str]:
    """In words, what is no longer the same; the work only where torch is the same."""
    names = {name for name in before.keys() ^ after.keys() if not name.startswith("torch ")}
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
