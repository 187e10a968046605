"""What a secure release costs, as a multiple of the plain sampler of the same law.

    python -m benchmarks.secure [--count 1000000]

Claim: at most 30 times the plain sampler, for every law, with theta inside the interval or far out.
"""

import argparse

import torch

import ringfence as rf
from benchmarks.timing import ratio, seconds
from ringfence.training.linear import train_linear

CPU = torch.device("cpu")
LAWS = {
    "gaussian": rf.Gaussian(sigma=1.0),
    "rectified, b = 2": rf.RectifiedGaussian(sigma=1.0, bound=2.0),
    "truncated, b = 2": rf.TruncatedGaussian(sigma=1.0, bound=2.0),
    "truncated, b = 0.001": rf.TruncatedGaussian(sigma=1.0, bound=1e-3),
    "sign": rf.StochasticSign(sigma=1.0),
    "quantised, 17 levels": rf.QuantizedGaussian(sigma=1.0, bound=2.0, levels=17),
}
EXAMPLES, WIDTH, CLASSES = 10_000, 256, 10
THETAS = {"theta ~ N(0, 4)": (2.0, 0.0), "theta ~ N(50, 1)": (1.0, 50.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    count = parser.parse_args().count
    generator = torch.Generator().manual_seed(0)
    print(f"{count:,} coordinates in float64: secure release over plain sample (seconds a release)")
    worst = 0.0
    for where, (spread, centre) in THETAS.items():
        theta = centre + spread * torch.randn(count, dtype=torch.float64, generator=generator)
        print(f"\n{where}")
        for name, law in LAWS.items():
            times, release = _row(law, theta, generator)
            worst = max(worst, times)
            print(f"  {name:22s}{times:6.1f} times ({release:.2f} s)", flush=True)
    print(f"\nlinear probe, {EXAMPLES:,} x {WIDTH} features, {CLASSES} classes: secure run over plain run")
    print(f"  {'truncated, b = 2':22s}{_probe(generator):6.1f} times", flush=True)
    print(f"\nworst release {worst:.1f} times: the claim of 30 {'holds' if worst <= 30 else 'FAILS'}")


def _probe(generator: torch.Generator) -> float:
    """A run of three steps: sums in float64, and secure releases."""
    features = torch.randn(EXAMPLES, WIDTH, generator=generator)
    labels = torch.randint(0, CLASSES, (EXAMPLES,), generator=generator)

    def run(secure: bool) -> object:
        return train_linear(
            features,
            labels,
            CLASSES,
            mechanism=LAWS["truncated, b = 2"],
            clip=rf.Clamp(1e-3),
            learning_rate=1.0,
            steps=3,
            public_size=EXAMPLES,
            seed=None if secure else 0,
            secure=secure,
        )

    return ratio(lambda: run(True), lambda: run(False), CPU)


def _row(law: rf.Mechanism, theta: torch.Tensor, generator: torch.Generator) -> tuple[float, float]:
    def release() -> torch.Tensor:
        return law.release(theta)

    times = ratio(release, lambda: law.sample(theta, generator=generator), CPU)
    return times, seconds(release, CPU)


if __name__ == "__main__":
    main()
