"""Counts of very many rows, against a plain GROUP BY of DuckDB over the same file in the same run.

    python -m benchmarks.tables [--rows 100000000] [--folder FOLDER]

Claims, at 100 million rows: without a person column a release takes at most 3 times as long as the GROUP BY,
and the peak of its memory is at most 1.5 times that at 10 million rows. With a person column the database
holds at most 4 GB and the rest goes to disk. Every measurement has a process of its own, which has released a
table of two rows before: imports are not timed. The files are made first (6 bytes per row on disk) and are
removed afterwards.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.timing import peak_memory

BY, REGIONS, EDGES = ["region", "age"], [f"region {number}" for number in range(20)], [0, 18, 40, 65, 100]
ROUNDS = 3  # each in turn, the smallest time of each
MAKE = """
COPY (
    SELECT 'region ' || (hash(i) % 20) AS region, CAST(hash(i + 1) % 100 AS UTINYINT) AS age,
           CAST(hash(i + 2) % {people} AS INTEGER) AS id
    FROM range({rows}) AS t(i)
) TO '{file}' (FORMAT parquet)
"""


def made(folder: Path, rows: int) -> Path:
    import duckdb

    file = folder / f"{rows}.parquet"
    duckdb.connect(config={"memory_limit": "4GB"}).execute(
        MAKE.format(rows=rows, people=max(1, rows // 10), file=file)
    )
    return file


def plain(file: str) -> None:
    import duckdb

    query = f"SELECT region, age // 25, count(*) FROM read_parquet('{file}') GROUP BY ALL"
    assert len(duckdb.connect().execute(query).fetchall()) == 80


def plain_people(file: str) -> None:
    import duckdb

    query = f"SELECT region, age // 25, count(DISTINCT id) FROM read_parquet('{file}') GROUP BY ALL"
    assert len(duckdb.connect(config={"memory_limit": "4GB"}).execute(query).fetchall()) == 80


def counts(file: str, person: str | None = None) -> None:
    import ringfence as rf

    domain = {"region": REGIONS}
    bins = {"age": EDGES}
    table = rf.release_counts(
        file, BY, domain=domain, bins=bins, person=person, epsilon=1.0, suppress_below=10
    )
    assert len(table.columns["count"]) == 80


WORK = {
    "GROUP BY": plain,
    "GROUP BY, DISTINCT people": plain_people,
    "counts": counts,
    "counts, at most 1 cell a person": lambda file: counts(file, "id"),
}


def measured(name: str, file: Path) -> tuple[float, float]:
    """Seconds and MiB at the peak, in a process of its own that has imported what it needs."""
    command = [sys.executable, "-m", "benchmarks.tables", "--work", name, "--file", str(file)]
    seconds, memory = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return seconds, memory


def work(name: str, file: str) -> None:
    import ringfence as rf

    # imports, and what is looked up once in a process, are not timed
    rf.release_counts(torch.zeros(2, 1), [0], domain={0: [0]}, sigma=1.0, suppress_below=10)
    start = time.perf_counter()
    WORK[name](file)
    print(json.dumps([time.perf_counter() - start, peak_memory(torch.device("cpu"))]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--work", choices=list(WORK))
    parser.add_argument("--file")
    asked = parser.parse_args()
    if asked.work:
        work(asked.work, asked.file)
        return
    peaks: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for rows in (asked.rows // 10, asked.rows):
            file = made(Path(folder), rows)
            print(f"{rows:,} rows, {file.stat().st_size / 2**20:,.0f} MiB of parquet, 80 cells")
            rounds = [{name: measured(name, file) for name in WORK} for _ in range(ROUNDS)]
            best = {name: min(one[name] for one in rounds) for name in WORK}  # on a quiet machine
            for name, (seconds, memory) in best.items():
                peaks.setdefault(name, []).append(memory)
                times = seconds / best["GROUP BY"][0]
                print(f"  {name:34s}{seconds:8.2f} s {times:6.1f} times {memory:8.0f} MiB", flush=True)
            file.unlink()
    for name, (small, large) in peaks.items():
        print(f"{name}: the peak grows by a factor of {large / small:.2f} with ten times the rows")


if __name__ == "__main__":
    main()
