"""Ten processes that charge one ledger as fast as they can, while some of them are killed.

    python -m benchmarks.ledger [sqlite:///study.db | postgresql://user@server/database] [--kills 20]
    python -m benchmarks.ledger --speed [postgresql://user@server/database]

Each of ten processes makes 200 charges, more than fit the budget, and writes down each release that follows
one; a killed process is replaced by another. Printed are the charges that fit, those that the ledger took,
the releases that were made, and the epsilon of all of them: no release may be missing from the ledger, and
epsilon stays below the budget. Without a URL it is an SQLite file in a temporary folder.

With --speed: how long a charge takes, and opening. SQLite files of 100, 1,000 and 10,000 entries, and the
ledger at the URL, take turns, because the load of a machine changes more than they differ. The claim is that
a charge takes as long at 10,000 entries as at 100.
"""

import argparse
import multiprocessing
import os
import random
import signal
import time
from bisect import bisect
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import ringfence as rf
from ringfence.accounting.ledger import BudgetExceededError

PROCESSES, CHARGES = 10, 200
SIZES = 100, 1_000, 10_000
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


def speed(folder: str, url: str | None) -> None:
    """Prints medians of charges in turns: what a clock shows, and the time of this process alone."""
    account, places = (
        cost(),
        {f"SQLite, {size:,} entries": (f"sqlite:///{folder}/{size}.db", size) for size in SIZES},
    )
    if url is not None:
        places["the URL"] = (url, 100)
    ledgers, row = {}, {"what": "a mean", "cost": account.privacy_loss().state()}
    for name, (place, size) in places.items():
        ledgers[name] = rf.Ledger(place, epsilon=1e3, delta=DELTA)
        with ledgers[
            name
        ]._table.transaction() as append:  # at once, since only the last charges are measured
            for _ in range(size - len(ledgers[name]._entries)):
                append(row)
    clock, own = ({name: list[float]() for name in ledgers} for _ in range(2))
    for _ in range(100):
        for name, ledger in ledgers.items():
            begin, used = time.perf_counter(), time.process_time()
            ledger.charge("a mean", account)
            clock[name].append(time.perf_counter() - begin)
            own[name].append(time.process_time() - used)
    for name, (place, _) in places.items():
        low, *_, high = (1e3 * value for value in quantiles(clock[name], n=10))
        middle, computed = 1e3 * median(clock[name]), 1e3 * median(own[name])
        begin = time.perf_counter()
        found = len(rf.Ledger(place)._entries)
        opening = time.perf_counter() - begin
        print(
            f"{name}: a charge {middle:.1f} ms ({low:.1f} to {high:.1f} in 8 of 10), {computed:.1f} computing"
        )
        print(f"    {found:,} opened in {opening:.2f} s")


def main() -> None:
    """Runs the processes and prints what the ledger holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        if arguments.speed:
            speed(folder, arguments.url)
            return
        url = arguments.url or f"sqlite:///{folder}/study.db"
        ledger = rf.Ledger(url, epsilon=EPSILON, delta=DELTA)
        fit = bisect(
            range(1, 10**4),
            EPSILON,
            key=lambda n: rf.PrivacyLoss.of_zcdp(*[n / SIGMA**2 / 2] * 2).epsilon(DELTA),
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


if __name__ == "__main__":
    main()
