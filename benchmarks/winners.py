"""What the law of noisy winners costs: every query, every candidate, every voter that may be replaced.

    python -m benchmarks.winners [--queries 100000]

Claim: log P and log P/Q of 10 candidates at all 90 moves take at most 60 passes of ``torch.special.log_ndtr``
over as many numbers, and divergences of any number of queries are evaluated in flat memory.
"""

import argparse
from itertools import permutations

import torch

import ringfence as rf
from benchmarks.timing import peak_memory, ratio, seconds

CPU = torch.device("cpu")
CANDIDATES, FEW = 10, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    queries = parser.parse_args().queries
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 50, (queries, 1, CANDIDATES), generator=generator)
    pairs = permutations(range(CANDIDATES), 2)
    moves = torch.tensor([[(k == up) - (k == down) for k in range(CANDIDATES)] for down, up in pairs])
    law = rf.NoisyWinner(sigma=8.0)
    numbers = torch.randn(CANDIDATES, FEW, len(moves), dtype=torch.float64)
    times = ratio(
        lambda: law.pair(counts[:FEW], moves), lambda: torch.special.log_ndtr(numbers), CPU, rounds=5
    )
    print(f"{FEW} queries, {CANDIDATES} candidates, {len(moves)} moves: {times:.0f} passes of log_ndtr")
    before = peak_memory(CPU)
    took = seconds(lambda: law.renyi_divergence(counts, moves, 8.0), CPU)
    result = 8 * queries * len(moves) / 2**20
    print(f"{queries:,} queries: {took:.0f} s for every divergence of order 8")
    print(f"{peak_memory(CPU) - before:.0f} MiB more than before, of which the result has {result:.0f}")
    if times > 60:
        raise SystemExit("more than 60 passes")


if __name__ == "__main__":
    main()
