"""Times as ratios: candidate and yardstick take turns, so that a busy machine slows both."""

import statistics
import time
from collections.abc import Callable

import torch


def seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def ratio(
    work: Callable[[], object], yardstick: Callable[[], object], device: torch.device, rounds: int = 7
) -> float:
    """Median over rounds of the time of ``work`` over the time of ``yardstick`` just before."""
    work(), yardstick()
    return statistics.median(seconds(work, device) / seconds(yardstick, device) for _ in range(rounds))
