"""Does private tuning pay after it is charged? The same budget, spent on tuning and on one run.

Linear probes on features, every release Gaussian, every number an accuracy on the test split. Run it as

    python -m benchmarks.tune FEATURES.npz [FEATURES.npz ...] [--device cuda]

For each file and epsilon, at delta 1e-5, it prints what a probe reaches

    rule     whose settings follow from public numbers, as in LinearProbe(target_epsilon=...)
    any      whose setting is drawn from the grid
    tuned    by rf.tune: the best of about 3, 10 or 30 runs, by a noisy count of right answers
    apart    by tuning as well, about 10 runs, but scored on a tenth of the rows that is left out of training
    best     with the setting of the grid that is best on the test split, which nobody pays for

all at the same epsilon. The wide grid has 96 settings: clips, steps and learning rates that are the same for
every file and epsilon. The near grid has the learning rate of the rule times 1/4, 1/2, 1, 2 and 4.
Runs are trained once, in a pool; tuning is then repeated 4,000 times with runs of the pool.
"""

import argparse
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.default_settings import DELTA, MOMENTUM, Data, Settings, largest_mu, right_answers, splits
from benchmarks.default_settings import default_settings as rule_of
from ringfence.accounting.conversion import gaussian_delta
from ringfence.accounting.selection import selection_epsilon

EPSILONS = (0.1, 0.3, 1.0, 3.0)
CLIPS, STEPS, RATES = (0.03, 0.1, 0.3, 1.0), (8, 32, 96), tuple(4.0**k for k in range(8))
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
RUNS, REPEATS = (3, 10, 30), 4000
SHARE = 0.1  # of mu^2 of a run, for its score
HELD_OUT = 0.1  # of the rows, in the column "apart"


def grid(wide: bool, rule: Settings) -> list[Settings]:
    """The settings of a grid; what it does not name follows from the rule."""
    if not wide:
        return [replace(rule, movement=factor * rule.movement) for factor in FACTORS]
    return [
        Settings(rule.share, rule.unit_rows, clip, steps, rate * clip * steps / (1 - MOMENTUM))
        for clip, steps, rate in product(CLIPS, STEPS, RATES)
    ]


def pool(data: Data, scored: Data, mu: float, settings: list[Settings], seed: int) -> tuple[Tensor, Tensor]:
    """(right answers among the rows of ``scored``, accuracies on the test split), one run per setting."""
    generator = torch.Generator(data.features.device).manual_seed(seed)
    asked = (scored.features, scored.labels, data.test_features, data.test_labels)
    right, accuracy = right_answers(data, mu, settings, generator, *asked)
    return right * len(scored.labels), 100 * accuracy


def tuned(right: Tensor, accuracy: Tensor, sigma: float, runs: float, generator: torch.Generator) -> Tensor:
    """The test accuracies of many tunings, each with runs that are drawn from the pool."""
    counts = torch.empty(REPEATS).geometric_(1 / runs, generator=generator).long()
    result = torch.zeros(REPEATS)
    for place, count in enumerate(counts.tolist()):
        drawn = torch.randint(len(right), (count,), generator=generator)
        scores = right[drawn] + sigma * torch.randn(count, generator=generator)
        result[place] = accuracy[drawn[scores.argmax()]]
    return result


def line(data: Data, epsilon: float, wide: bool, seeds: int) -> str:
    """One row of the table."""
    generator = torch.Generator().manual_seed(0)
    (size, width), mu = data.features.shape, largest_mu(lambda mu: gaussian_delta(mu, epsilon) <= DELTA)

    def settings(size: int, mu: float, *, search: bool = True) -> list[Settings]:
        rule = rule_of(size, width, data.classes, mu)
        if not search:
            return [rule] * 8 * seeds
        return grid(wide, rule) * (seeds if wide else 4 * seeds)

    ruled = pool(data, data, mu, settings(size, mu, search=False), 0)[1].mean()
    whole = settings(size, mu)
    alone = pool(data, data, mu, whole, 1)[1]
    each = alone.view(-1, len(set(whole))).mean(dim=0)
    numbers = [ruled, alone.mean()]
    for runs in RUNS:
        run = largest_mu(lambda mu, runs=runs: selection_epsilon(mu, runs, DELTA) <= epsilon)
        training, sigma = run * math.sqrt(1 - SHARE), 1 / (run * math.sqrt(SHARE))
        numbers.append(
            tuned(*pool(data, data, training, settings(size, training), 2), sigma, runs, generator).mean()
        )
    run = largest_mu(lambda mu: selection_epsilon(mu, 10, DELTA) <= epsilon)
    kept = size - int(HELD_OUT * size)  # the rows of the files are in a random order
    first = replace(data, features=data.features[:kept], labels=data.labels[:kept])
    other = replace(data, features=data.features[kept:], labels=data.labels[kept:])
    numbers.append(tuned(*pool(first, other, run, settings(kept, run), 3), 1 / run, 10, generator).mean())
    numbers.append(each.max())
    return f"{epsilon:7g} {'wide' if wide else 'near':5}" + "".join(f" {float(x):6.1f}" for x in numbers)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", help="digits, breast_cancer, or a file of features")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=3, help="runs of every setting in a pool")
    parser.add_argument("--grids", nargs="+", choices=("wide", "near"), default=("wide", "near"))
    parser.add_argument("--rows", type=int, default=10**9, help="train on so many rows at most")
    options = parser.parse_args()
    print(
        f"{'data':16} epsilon grid    rule    any"
        + "".join(f"  ~{runs:<4}" for runs in RUNS)
        + "  apart   best"
    )
    for name in options.data:
        data = next(splits(name, 1, options.device))
        data = replace(data, features=data.features[: options.rows], labels=data.labels[: options.rows])
        for grid_name, epsilon in product(options.grids, options.epsilons):
            numbers = line(data, epsilon, grid_name == "wide", options.seeds)
            print(f"{Path(name).stem[:16]:16} {numbers}", flush=True)


if __name__ == "__main__":
    main()
