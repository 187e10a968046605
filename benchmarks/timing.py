"""Times as ratios: candidate and yardstick take turns, so that a busy machine slows both."""

import resource
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


def peak_memory(device: torch.device) -> float:
    """MiB at the peak so far: on the device, or of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def ratio(
    work: Callable[[], object], yardstick: Callable[[], object], device: torch.device, rounds: int = 7
) -> float:
    """Median over rounds of the time of ``work`` over the time of ``yardstick`` just before."""
    work(), yardstick()
    return statistics.median(seconds(work, device) / seconds(yardstick, device) for _ in range(rounds))
