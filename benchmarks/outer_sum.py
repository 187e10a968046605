"""The clipped outer sum against chunked torch, in one run.

    python -m benchmarks.outer_sum [--device cuda]

Claims: 4 times chunked torch on two CPU cores, 25 times on an H200; extra memory of some 16 MiB there.
"""

import argparse

import torch

from benchmarks.timing import ratio, seconds
from ringfence.training.kernels.clipped_sums import clipped_outer_sum, plain_outer_sum

CLIP = 0.02
SIZES = {"cpu": [(20_000, 10, 1280), (5_000, 100, 1024)], "cuda": [(50_000, 100, 1024), (50_000, 10, 1280)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    generator = torch.Generator(device).manual_seed(0)
    print(
        f"{'examples':>9s}{'classes':>9s}{'features':>10s}{'times faster':>14s}{'ms':>9s}{'error / c':>12s}"
    )
    for count, classes, width in SIZES[device.type]:
        residuals = 0.1 * torch.randn(count, classes, device=device, generator=generator)
        features = torch.randn(count, width, device=device, generator=generator)

        def fused(r: torch.Tensor = residuals, x: torch.Tensor = features) -> torch.Tensor:
            return clipped_outer_sum(r, x, CLIP)

        def plain(r: torch.Tensor = residuals, x: torch.Tensor = features) -> torch.Tensor:
            return plain_outer_sum(r, x, CLIP)

        faster = 1 / ratio(fused, plain, device, rounds=5)
        took = min(seconds(fused, device) for _ in range(5)) * 1e3
        error = (fused() - plain_outer_sum(residuals.double(), features.double(), CLIP)).abs().max() / CLIP
        print(f"{count:9,}{classes:9d}{width:10d}{faster:14.1f}{took:9.2f}{float(error):12.1e}", flush=True)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            fused()
            torch.cuda.synchronize()
            print(f"          extra memory {(torch.cuda.max_memory_allocated() - held) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
