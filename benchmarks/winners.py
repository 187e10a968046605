"""What the law of noisy winners costs: every query, every candidate, every voter that may be replaced.

    python -m benchmarks.winners

Claims: a release takes less than 0.1 s, and its account, which is made when somebody asks for it, at most
15 s of CPU time on one thread for 10,000 queries of 10 candidates, 5 s for 1 of 1,000 and 30 s for 1,000 of
100, in less than 1 GiB. The votes of a million people on 100 questions are released in 2 s and 0.5 GiB.
log P and log P/Q of 10 candidates at all 90 moves take at most 60 passes of ``torch.special.log_ndtr`` over
as many numbers.
"""

import multiprocessing
import time
from collections.abc import Callable
from itertools import permutations

import numpy as np
import torch

import ringfence as rf
from benchmarks.timing import peak_memory, ratio

CPU = torch.device("cpu")
CANDIDATES, FEW = 10, 500
ACCOUNTS = {(10_000, 10): 15.0, (1, 1000): 5.0, (1000, 100): 30.0}  # seconds
_BUSY = 1.5  # as much more CPU time is an error: other processes take the cache
LARGEST, PEOPLE, QUESTIONS = 1024, 1_000_000, 100  # MiB


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time: the machine may be busy."""
    start = time.process_time()
    work()
    return time.process_time() - start


def account(queries: int, candidates: int, most: float) -> None:
    """Prints the time of a release and of its account, and the peak of this process."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shares = torch.rand(queries, candidates, generator=generator).pow(8)
    counts = torch.stack(
        [
            torch.multinomial(row, 250, True, generator=generator).bincount(minlength=candidates)
            for row in shares
        ]
    )
    law = rf.NoisyWinner(20.0)
    rf.release_winners(counts[:1], sigma=20.0), law.release(counts[:1])  # imports
    noise = cpu_seconds(lambda: law.release(counts))
    made: list[rf.Release] = []
    released = cpu_seconds(lambda: made.append(rf.release_winners(counts, sigma=20.0, delta=1e-5)))
    start = time.perf_counter()
    took = cpu_seconds(lambda: made[0].account.per_instance)
    wall, peak = time.perf_counter() - start, peak_memory(CPU)
    print(
        f"{queries:,} queries of {candidates:,} candidates: released in {released:.2f} s of CPU time, "
        f"{released / noise:.1f} times that of the noise alone; the account {took:.1f} s ({wall:.1f} s on "
        f"the clock), {took / released:.0f} times the release; {peak:.0f} MiB at most",
        flush=True,
    )
    if took > _BUSY * most or peak > LARGEST:
        raise SystemExit(f"more than {_BUSY * most:g} s or {LARGEST} MiB")


def votes() -> None:
    """Prints the time and memory of ``release_votes`` beside those of a sum."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    ballots = torch.randint(-1, 2, (PEOPLE, QUESTIONS), generator=generator, dtype=torch.int8).numpy()
    ballots = ballots.astype(np.float64)
    rf.release_votes(ballots[:9], neither=0, sigma=10.0)  # imports
    before = peak_memory(CPU)
    plain = cpu_seconds(lambda: ballots.sum(axis=0))
    took = cpu_seconds(lambda: rf.release_votes(ballots, sigma=10.0, delta=1e-5))
    more = peak_memory(CPU) - before
    print(
        f"release_votes of {PEOPLE:,} people and {QUESTIONS} questions: {took:.2f} s of CPU time, "
        f"{took / plain:.0f} times that of the sum ({plain:.3f} s), and {more:.0f} MiB beside the "
        f"{ballots.nbytes >> 20} of the ballots",
        flush=True,
    )
    if took > _BUSY * 2 or more > LARGEST / 2:
        raise SystemExit(f"more than {_BUSY * 2:g} s or {LARGEST // 2} MiB")


def main() -> None:
    torch.set_num_threads(1)
    jobs = [(account, (*size, most)) for size, most in ACCOUNTS.items()]
    for work, arguments in [*jobs, (votes, ())]:  # each in a process of its own, whose peak is its own
        process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 50, (FEW, 1, CANDIDATES), generator=generator)
    pairs = permutations(range(CANDIDATES), 2)
    moves = torch.tensor([[(k == up) - (k == down) for k in range(CANDIDATES)] for down, up in pairs])
    law = rf.NoisyWinner(sigma=8.0)
    numbers = torch.randn(CANDIDATES, FEW, len(moves), dtype=torch.float64)
    times = ratio(lambda: law.pair(counts, moves), lambda: torch.special.log_ndtr(numbers), CPU, rounds=5)
    print(f"{FEW} queries, {CANDIDATES} candidates, {len(moves)} moves: {times:.0f} passes of log_ndtr")
    if times > 60:
        raise SystemExit("more than 60 passes")


if __name__ == "__main__":
    main()
