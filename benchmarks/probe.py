"""What a fit of a linear probe takes, and what its account takes when somebody asks, in CPU seconds.

    python -m benchmarks.probe [--examples 14000] [--width 40] [--classes 10] [--steps 32]

Claim: a rectified fit of 14,000 x 40 takes less than a second; before, every fit paid for its account too.
The first fit in a process also loads and compiles what it needs.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

import ringfence as rf


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("examples", 14_000), ("width", 40), ("classes", 10), ("steps", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    labels = rng.integers(0, given.classes, given.examples)
    centres = 0.3 * rng.normal(size=(given.classes, given.width))
    features = centres[labels] + rng.normal(size=(given.examples, given.width))
    given_law = {"clip": 2e-2, "learning_rate": 16.0, "steps": given.steps}
    probes = {
        "rectified": rf.LinearProbe(rf.RectifiedGaussian(4.0, 8.0), **given_law),
        "rectified again": rf.LinearProbe(rf.RectifiedGaussian(4.0, 8.0), **given_law),
        "target": rf.LinearProbe(target_epsilon=1.0, target_delta=1e-5),
    }
    for name, probe in probes.items():
        fit = cpu_seconds(lambda probe=probe: probe.fit(features, labels))
        account = cpu_seconds(lambda probe=probe: probe.account_)
        claim = cpu_seconds(lambda probe=probe: probe.guarantee(1e-5))
        print(f"{name:16s} fit {fit:.2f} s, account {account:.2f} s, guarantee {claim:.2f} s", flush=True)


if __name__ == "__main__":
    main()
