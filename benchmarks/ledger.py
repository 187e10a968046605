"""Ten processes that charge one ledger as fast as they can, while some of them are killed.

    python -m benchmarks.ledger [sqlite:///study.db | postgresql://user@server/database] [--kills 20]

Each of ten processes makes 200 charges, more than fit the budget, and writes down each release that follows
one; a killed process is replaced by another. Printed are the charges that fit, those that the ledger took,
the releases that were made, and the epsilon of all of them: no release may be missing from the ledger, and
epsilon stays below the budget. Without a URL it is an SQLite file in a temporary folder.
"""

import argparse
import multiprocessing
import os
import random
import signal
import time
from bisect import bisect
from pathlib import Path
from tempfile import TemporaryDirectory

import ringfence as rf
from ringfence.accounting.ledger import BudgetExceededError

PROCESSES, CHARGES = 10, 200
EPSILON, DELTA, SIGMA = 1.5, 1e-6, 100.0


def cost() -> rf.PerInstanceAccountant:
    """A mean with noise of 100 times what one record moves."""
    account = rf.PerInstanceAccountant(rf.Gaussian(SIGMA), 1.0)
    account.step([0.0])
    return account


def charge(url: str, done: Path) -> None:
    """Charges 200 times, and writes a line for the release after each charge."""
    ledger, account = rf.Ledger(url), cost()
    with done.open("ab", buffering=0) as file:
        for _ in range(CHARGES):
            try:
                ledger.charge("a mean", account)
            except BudgetExceededError:
                file.write(b"r")  # refused
            else:
                file.write(b"+")


def main() -> None:
    """Runs the processes and prints what the ledger holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        url = arguments.url or f"sqlite:///{folder}/study.db"
        ledger = rf.Ledger(url, epsilon=EPSILON, delta=DELTA)
        fit = bisect(
            range(1, 10**4), EPSILON, key=lambda n: rf.PrivacyLoss(((1 / SIGMA, 1.0, n),)).epsilon(DELTA)
        )
        context, chance, done = (
            multiprocessing.get_context("forkserver"),
            random.Random(0),
            Path(folder, "done"),
        )
        context.set_forkserver_preload(["ringfence.accounting.ledger", "sqlalchemy"])
        begin, running, killed = time.perf_counter(), [], 0
        os.environ["OMP_NUM_THREADS"] = "1"
        for _ in range(PROCESSES):
            running.append(context.Process(target=charge, args=(url, done)))
            running[-1].start()
        while killed < arguments.kills:
            time.sleep(chance.uniform(0.5, 3.0))
            victim = running.pop(0)
            if victim.is_alive():
                os.kill(victim.pid, signal.SIGKILL)
                victim.join()
                killed += 1
            running.append(context.Process(target=charge, args=(url, done)))
            running[-1].start()
        for process in running:
            process.join()
        seconds = time.perf_counter() - begin
        lines = done.read_bytes()
        print(f"{PROCESSES} processes of {CHARGES} charges, {killed} killed: {seconds:.0f} s")
        print(f"{fit} charges fit epsilon {EPSILON:g}, {len(ledger.entries)} are in the ledger")
        print(f"{lines.count(b'+')} releases were made, {lines.count(b'r')} were refused")
        print(f"all together have epsilon {ledger.guarantee().epsilon:.6f}")
        print(f"{1e3 * seconds / len(lines):.0f} ms for each charge or refusal")


if __name__ == "__main__":
    main()
