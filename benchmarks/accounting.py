"""What an account costs, as multiples of a pass over theta measured in the same run.

    python -m benchmarks.accounting [--device cuda] [--count 100000000]

Claims, 100 million float32 coordinates and 60 orders: on two CPU cores the first step at most 12
passes of torch.special.log_ndtr and every later one at most 2; on a GPU a later step at most 12
reads. Where a record moves one coordinate (at_most), a length in all (norm) or a length with at most
so much in each coordinate, a later step takes at most twice as long as where it moves every
coordinate. A tight profile of 10,240 coordinates in under 30 s, of a million in under 3 minutes. The
memory an account needs does not grow with theta.
"""

import argparse
import statistics
import time
from unittest.mock import patch

import torch

import ringfence as rf
from benchmarks.timing import peak_memory, seconds
from ringfence.accounting import per_instance

SIZES = {
    "each": rf.Sensitivity(1e-3),
    "at most 1": rf.Sensitivity(1e-3, at_most=1),
    "norm": rf.Sensitivity(norm=1.0),
    "norm, each": rf.Sensitivity(1e-3, norm=1.0),
}
LAWS = {
    "rectified": rf.RectifiedGaussian(1.0, bound=2.0),
    "truncated": rf.TruncatedGaussian(1.0, bound=2.0),
    "sign": rf.StochasticSign(1.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=100_000_000)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    generator = torch.Generator(device).manual_seed(0)

    theta = torch.randn(arguments.count, device=device, generator=generator).mul_(2)
    before = peak_memory(device)
    rf.PerInstanceAccountant(LAWS["rectified"], sensitivity=1e-3).step(theta)
    grown = peak_memory(device) - before
    cpu = device.type == "cpu"
    yardstick, work = ("log_ndtr", lambda: torch.special.log_ndtr(theta)) if cpu else ("read", theta.sum)
    work()
    print(f"{arguments.count:,} float32 coordinates, theta ~ N(0, 4), 60 orders: passes of {yardstick}")
    print(f"  {'':24s}{'first step':>12s}{'later step':>12s}{'above exact':>13s}")
    for name, law in LAWS.items():
        for what, size in SIZES.items():
            _row(f"{name:12s}{what}", law, size, theta, work)
    print(f"a step's memory beside theta's {theta.numel() * 4 / 2**20:.0f} MiB: {grown:.0f} MiB at the peak")
    if device.type == "cpu":
        _profiles()


def _row(name: str, law: rf.Mechanism, size: rf.Sensitivity, theta: torch.Tensor, work: object) -> None:
    account = rf.PerInstanceAccountant(law, size)
    first = seconds(lambda: account.step(theta), theta.device) / seconds(work, theta.device)
    later = statistics.median(
        seconds(lambda: account.step(theta), theta.device) / seconds(work, theta.device) for _ in range(5)
    )
    some = theta[: 20_000 if size.norm is None else 1_000]
    bound = rf.per_instance_rdp(law, some, size).worst
    with patch.object(per_instance, "split_by_setting", lambda *_: None):  # every coordinate is evaluated
        exact = rf.per_instance_rdp(law, some, size).worst
    print(f"  {name:24s}{first:12.2f}{later:12.2f}{float((bound / exact - 1).max()):13.2%}", flush=True)


def _profiles() -> None:
    print("\ntight profile, ten steps, delta 1e-5: seconds, and epsilon over the Gaussian's")
    generator = torch.Generator().manual_seed(0)
    for count, size in ((10_240, 1e-3), (1_000_000, 1e-4)):
        theta = torch.randn(count, generator=generator, dtype=torch.float64)
        for name, law in LAWS.items():
            start = time.perf_counter()
            epsilon = rf.privacy_profile(law, theta, size, steps=10).epsilon(1e-5)
            took = time.perf_counter() - start
            gaussian = rf.privacy_profile(rf.Gaussian(1.0), theta, size, steps=10).epsilon(1e-5)
            print(f"  d = {count:9,} {name:10s}{took:7.1f} s   {epsilon / gaussian:.3f}", flush=True)


if __name__ == "__main__":
    main()
