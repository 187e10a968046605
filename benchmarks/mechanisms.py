"""What the laws cost, as multiples of one torch.special.log_ndtr pass over the same tensor.

    python -m benchmarks.mechanisms [--device cuda] [--count 10000000]

Claims: the information of float32 coordinates at most 6 such passes; one order of the exact
rectified divergence in float64 at most 100.
"""

import argparse

import torch

import ringfence as rf
from benchmarks.timing import peak_memory, ratio

LAWS = {
    "gaussian": lambda bound: rf.Gaussian(sigma=1.0),
    "rectified": lambda bound: rf.RectifiedGaussian(sigma=1.0, bound=bound),
    "truncated": lambda bound: rf.TruncatedGaussian(sigma=1.0, bound=bound),
    "sign": lambda bound: rf.StochasticSign(sigma=1.0),
    "quantised, 17": lambda bound: rf.QuantizedGaussian(sigma=1.0, bound=bound, levels=17),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=10_000_000)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    generator = torch.Generator(device).manual_seed(0)

    for dtype in (torch.float32, torch.float64):
        theta = 2 * torch.randn(arguments.count, dtype=dtype, device=device, generator=generator)
        print(f"\n{dtype}, theta ~ N(0, 4), sigma 1, bound b: passes of log_ndtr")
        print(f"  {'':14s}{'b':>5s}{'information':>13s}{'D, 8':>9s}{'D, 64':>9s}{'sample':>9s}")
        for name, make in LAWS.items():
            for bound in (0.1, 2.0, 10.0) if name not in ("gaussian", "sign") else (2.0,):
                row = _row(make(bound), theta, generator, many="quantised" in name)
                print(f"  {name:14s}{bound:5.1f}{row[0]:13.1f}", end="")
                print("".join(f"{cell:9.1f}" for cell in row[1:]), flush=True)
    where = "on the device" if device.type == "cuda" else "with theta and torch itself"
    print(f"\npeak memory {peak_memory(device):.0f} MiB, {where}")


def _row(law: rf.Mechanism, theta: torch.Tensor, generator: torch.Generator, many: bool) -> list[float]:
    """On a CPU a tenth of the coordinates does for what takes long, a hundredth for many levels."""
    share = 1 if theta.device.type != "cpu" else 100 if many else 10
    few = theta[: theta.numel() // share]
    information = few if many else theta
    works = [
        (lambda: law.fisher_information(information), information),
        (lambda: law.renyi_divergence(few, 1e-3, 8.0), few),
        (lambda: law.renyi_divergence(few, 1e-3, 64.0), few),
        (lambda: law.sample(few, generator=generator), few),
    ]
    return [
        ratio(work, lambda on=on: torch.special.log_ndtr(on), theta.device, rounds=5) for work, on in works
    ]


if __name__ == "__main__":
    main()
