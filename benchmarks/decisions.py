"""The accounts of decisions: time and memory of tight profiles, and what is gained, all measured in one run.

    python -m benchmarks.decisions [DATA]

Without DATA the votes are made up. With the folder of the shared data they are those of two assemblies and of
teachers: 250 nearest-mean classifiers, each on its own 200 images of CIFAR-10, vote on test images.
"""

import csv
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.accounting.decisions import DecisionLaw, Neighbours, decision_profile

DELTA, DRAWS = 1e-5, 9
LEAST_SEEN = 50  # statements that fewer people saw are left out


def main() -> None:
    _time_of_profiles()
    print(f"\n{'votes':32} sigma  Gaussian  Rényi  tight  published (median of {DRAWS})")
    for name, votes, neighbours, laws in _votes(Path(sys.argv[1]) if len(sys.argv) > 1 else None):
        for law in laws:
            account = rf.DecisionAccountant(law, neighbours=neighbours)
            account.step(votes)
            claim = account.guarantee(DELTA)
            tight = decision_profile(law, votes, neighbours=neighbours).epsilon(DELTA)
            published = median(
                publishable_decision_epsilon(
                    law, votes, neighbours=neighbours, delta=DELTA
                ).per_instance_epsilon
                for _ in range(DRAWS)
            )
            print(
                f"{name:32} {float(law.sigma):5g} {claim.epsilon:9.3f} "
                f"{claim.per_instance.renyi_epsilon:6.3f} {tight:6.3f} {published:10.3f}",
                flush=True,
            )


def _time_of_profiles() -> None:
    generator = torch.Generator().manual_seed(0)
    cases: list[tuple[str, DecisionLaw, Tensor, Neighbours]] = [
        ("1,000 queries of 10 candidates", rf.NoisyWinner(20.0), _made_counts(1000, generator), "replaced"),
        (
            "10,000 yes/no questions",
            rf.StochasticSign(20.0),
            (400 * torch.randn(10_000, generator=generator, dtype=torch.float64)).round(),
            "added",
        ),
    ]
    for name, law, votes, neighbours in cases:

        def renyi(law: DecisionLaw = law, votes: Tensor = votes, neighbours: Neighbours = neighbours) -> None:
            rf.DecisionAccountant(law, neighbours=neighbours).step(votes)

        def tight(law: DecisionLaw = law, votes: Tensor = votes, neighbours: Neighbours = neighbours) -> None:
            decision_profile(law, votes, neighbours=neighbours).proofs["backward induction"](1.0)

        first, second = _seconds(renyi), _seconds(tight)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name}: a tight profile with its Rényi sums takes {second / first:.1f} times the time of the "
            f"Rényi account alone ({second:.1f} s against {first:.1f} s of CPU); {memory:.0f} MiB at most"
        )


def _seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _made_counts(queries: int, generator: torch.Generator) -> Tensor:
    """250 voters who mostly agree."""
    shares = torch.rand(queries, 10, generator=generator).pow(8)
    return torch.stack(
        [torch.multinomial(row, 250, True, generator=generator).bincount(minlength=10) for row in shares]
    )


def _votes(data: Path | None) -> Iterator[tuple[str, Tensor, Neighbours, list[DecisionLaw]]]:
    signs: list[DecisionLaw] = [rf.StochasticSign(sigma) for sigma in (10.0, 20.0, 40.0)]
    winners: list[DecisionLaw] = [rf.NoisyWinner(sigma) for sigma in (20.0, 40.0)]
    if data is None:
        yield "100 surpluses", torch.arange(100, dtype=torch.float64) * 7 + 3, "added", signs
        yield "100 winners", _made_counts(100, torch.Generator().manual_seed(1)), "replaced", winners
        return
    for file in ("vtaiwan_uberx_votes", "scoop_biodiversity_votes"):
        surpluses = _surpluses(data / "decisions" / f"{file}.csv")
        yield f"{file}, {len(surpluses)}", surpluses, "added", signs
    counts = _teachers(data / "cifar10_effnet_lite2_192_q8.npz")
    for queries in (100, 1000):
        yield f"teachers, {queries}", counts[:queries], "replaced", winners


def _surpluses(file: Path) -> Tensor:
    with file.open(newline="") as lines:
        header, *rows = csv.reader(lines)
    columns = [place for place, name in enumerate(header) if name.isdigit()]
    ballots = np.array([[float(row[place] or "nan") for place in columns] for row in rows])
    seen = (~np.isnan(ballots)).sum(axis=0)
    return torch.from_numpy(np.nansum(ballots, axis=0)[seen >= LEAST_SEEN])


def _teachers(file: Path) -> Tensor:
    with np.load(file) as stored:
        train, labels = torch.from_numpy(stored["q_train"]), torch.from_numpy(stored["y_train"]).long()
        test = torch.from_numpy(stored["q_test"][:1000])
    features, asked = (6 * (part.float() / 255).square() for part in (train, test))
    counts = torch.zeros(len(asked), 10, dtype=torch.int64)
    for some in torch.arange(len(features)).chunk(250):
        means = torch.stack([features[some][labels[some] == label].mean(dim=0) for label in range(10)])
        nearest = torch.cdist(asked, means.nan_to_num(nan=1e6)).argmin(dim=1)
        counts[torch.arange(len(asked)), nearest] += 1
    return counts


if __name__ == "__main__":
    main()
