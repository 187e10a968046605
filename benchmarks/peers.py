"""The clipped sum of per-example gradients of a linear layer, against chunked torch and Opacus.

    python -m benchmarks.peers

Everybody starts from weights, features and labels and ends with sum_i clamp(gradient_i, -c, c). Opacus
computes per-sample gradients in physical batches, of the size that is fastest for it here.
Claims, on two CPU cores: 4 times chunked torch and 5 times Opacus.

On a machine that does other work too, threads that spin while they wait for each other slow torch far
more than one fused pass: set OMP_WAIT_POLICY=PASSIVE there, or the ratios flatter us.
"""

import contextlib
import ctypes
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numba
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.timing import peak_memory, ratio, seconds
from ringfence.training.kernels.clipped_sums import clipped_outer_sum, plain_outer_sum
from ringfence.training.linear import residuals

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus.grad_sample import GradSampleModule

CPU = torch.device("cpu")
CLIP = 2e-3
SIZES = ((20_000, 10, 1280), (5_000, 100, 1024), (20_000, 10, 784), (2_000, 10, 64))
BATCHES = (32, 128, 512, 2048)
GRADIENTS = 1 << 28  # numbers of a physical batch at most: 1 GiB


def fused(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    return clipped_outer_sum(residuals(weights, features, labels), features, CLIP)


def chunked(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    return plain_outer_sum(residuals(weights, features, labels), features, CLIP)


def opacus(layer: GradSampleModule, features: Tensor, labels: Tensor, batch: int) -> Tensor:
    (weight,) = layer.parameters()
    total = torch.zeros_like(weight, requires_grad=False)
    for some, theirs in zip(features.split(batch), labels.split(batch), strict=True):
        cross_entropy(layer(some), theirs, reduction="sum").backward()
        total += weight.grad_sample.clamp_(-CLIP, CLIP).sum(dim=0)
        weight.grad_sample = weight.grad = None
    return total


def opacus_layer(weights: Tensor) -> GradSampleModule:
    layer = torch.nn.Linear(weights.shape[1], weights.shape[0], bias=False)
    layer.weight.data.copy_(weights)
    return GradSampleModule(layer, loss_reduction="sum")


def extra_memory(work: Callable[[], object]) -> float:
    """MiB that the process grows by at the peak; nan where the peak cannot be reset (Linux, glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # else memory kept from earlier runs would not count
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_memory(CPU)
        work()
        return peak_memory(CPU) - before
    return float("nan")


def main() -> None:
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus, as it is meant
    generator = torch.Generator().manual_seed(0)
    if torch.get_num_threads() != numba.get_num_threads():
        raise SystemExit("set OMP_NUM_THREADS and NUMBA_NUM_THREADS to the same number")
    print(f"{torch.get_num_threads()} threads each")
    print(f"{'':29s}{'times':>9s}{'times':>8s}{'':18s}{'extra MiB at the peak':>28s}")
    print(f"{'examples':>9s}{'classes':>9s}{'features':>10s}{'chunked':>10s}{'Opacus':>8s}", end="")
    print(f"{'ms':>8s}{'batch':>7s}{'apart/c':>9s}{'ours':>8s}{'chunked':>9s}{'Opacus':>8s}")
    for count, classes, width in SIZES:
        features = torch.randn(count, width, generator=generator)
        labels = torch.randint(classes, (count,), generator=generator)
        weights = 0.05 * torch.randn(classes, width, generator=generator)
        layer = opacus_layer(weights)
        theirs = {
            batch: partial(opacus, layer, features, labels, batch)
            for batch in BATCHES
            if batch * classes * width <= GRADIENTS
        }
        batch = min(theirs, key=lambda size: seconds(theirs[size], CPU))
        works = [
            partial(fused, weights, features, labels),
            partial(chunked, weights, features, labels),
            theirs[batch],
        ]
        ours, plain, peer = works
        faster = [1 / ratio(ours, other, CPU, rounds=5) for other in (plain, peer)]
        took = min(seconds(ours, CPU) for _ in range(5)) * 1e3
        apart = max(float((ours() - other()).abs().max()) for other in (plain, peer)) / CLIP
        print(f"{count:9,}{classes:9d}{width:10d}{faster[0]:10.1f}{faster[1]:8.1f}", end="")
        print(f"{took:8.2f}{batch:7d}{apart:9.0e}", end="")
        memory = [extra_memory(work) for work in works]
        print(f"{memory[0]:8.0f}{memory[1]:9.0f}{memory[2]:8.0f}", flush=True)


if __name__ == "__main__":
    main()
