"""What noise with a long key costs, as a multiple of torch's generator, which keeps 32 bits of its seed.

    python -m benchmarks.noise [--device cuda] [--count 10000000]

Claim: normal numbers cost at most 1.5 times ``torch.randn`` in float64.
"""

import argparse

import torch

from benchmarks.timing import peak_memory, ratio
from ringfence.noise import Noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=10_000_000)
    arguments = parser.parse_args()
    device, count = torch.device(arguments.device), arguments.count
    noise, generator = Noise(), torch.Generator(device).manual_seed(0)
    options = {"generator": generator, "dtype": torch.float64, "device": device}

    def draws() -> object:
        return noise.draws("benchmark", device=device)

    def reading(values: torch.Tensor) -> torch.Tensor:
        return values.sum()

    theta = torch.randn(count, dtype=torch.float32, device=device)
    rows = {
        "normal numbers / torch.randn": (
            lambda: draws().normals((count,)),
            lambda: torch.randn(count, **options),
        ),
        "uniform numbers / torch.rand": (
            lambda: draws().uniforms((count,)),
            lambda: torch.rand(count, **options),
        ),
        "digest of float32 / a read": (lambda: noise.digest(theta), lambda: reading(theta)),
    }
    print(f"{count:,} numbers on {device.type}, {torch.get_num_threads()} threads")
    times = {name: ratio(ours, theirs, device) for name, (ours, theirs) in rows.items()}
    for name, value in times.items():
        print(f"  {name:32s}{value:8.2f} times", flush=True)
    holds = times["normal numbers / torch.randn"] <= 1.5
    print(f"peak memory {peak_memory(device):.0f} MiB; the claim of 1.5 {'holds' if holds else 'FAILS'}")


if __name__ == "__main__":
    main()
