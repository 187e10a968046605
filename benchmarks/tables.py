"""Counts of very many rows, against a plain GROUP BY of DuckDB over the same file in the same run.

    python -m benchmarks.tables [--rows 100000000] [--format csv] [--folder FOLDER]

Claims, from 10 million rows on: without a person column a release takes at most 1.5 times as long as the
GROUP BY, and the peak of its memory is at most 1.5 times that of a tenth of the rows. With a person column
the database holds at most 4 GB and the rest goes to disk. Every measurement has a process of its own, which
has released a table of two rows before: imports are not timed, but those of the last line are, which is the
whole shell command with chart and page. Ratios are of processor time, of all threads together. The files are
made first (6 bytes per row of parquet) and are removed afterwards.
"""

import argparse
import json
import resource
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
) TO '{file}'
"""


def made(folder: Path, rows: int, kind: str) -> Path:
    import duckdb

    file = folder / f"{rows}.{kind}"
    duckdb.connect(config={"memory_limit": "4GB"}).execute(
        MAKE.format(rows=rows, people=max(1, rows // 10), file=file)
    )
    return file


def plain(file: str) -> None:
    import duckdb

    query = f"SELECT region, age // 25, count(*) FROM '{file}' GROUP BY ALL"
    assert len(duckdb.connect().execute(query).fetchall()) == 80


def plain_people(file: str) -> None:
    import duckdb

    query = f"SELECT region, age // 25, count(DISTINCT id) FROM '{file}' GROUP BY ALL"
    assert len(duckdb.connect(config={"memory_limit": "4GB"}).execute(query).fetchall()) == 80


def counts(file: str, person: str | None = None) -> None:
    import ringfence as rf

    domain = {"region": REGIONS}
    bins = {"age": EDGES}
    table = rf.release_counts(
        file, BY, domain=domain, bins=bins, person=person, epsilon=1.0, suppress_below=10
    )
    assert len(table.columns["count"]) == 80


def shell(file: str) -> None:
    cells = ["--by", ",".join(BY), "--domain", f"region={','.join(REGIONS)}", "--bins", "age=0,18,40,65,100"]
    with tempfile.TemporaryDirectory() as folder:
        words = [file, *cells, "--suppress-below", "10", "--epsilon", "1", "--out", f"{folder}/release"]
        subprocess.run(
            [sys.executable, "-m", "ringfence", "release", "counts", *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )


WORK = {
    "GROUP BY": plain,
    "GROUP BY, DISTINCT people": plain_people,
    "counts": counts,
    "counts, at most 1 cell a person": lambda file: counts(file, "id"),
    "counts, the whole command": shell,
}


def measured(name: str, file: Path) -> list[float]:
    """Seconds, those of processors, and MiB at the peak, in a process that has imported what it needs."""
    command = [sys.executable, "-m", "benchmarks.tables", "--work", name, "--file", str(file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return list(json.loads(done.stdout))


def work(name: str, file: str) -> None:
    import ringfence as rf

    # imports, and what is looked up once in a process, are not timed
    rf.release_counts(torch.zeros(2, 1), [0], domain={0: [0]}, epsilon=2.0, suppress_below=10)
    start, spent = time.perf_counter(), processor_time()
    WORK[name](file)
    seconds = [time.perf_counter() - start, processor_time() - spent]
    print(json.dumps([*seconds, peak_memory(torch.device("cpu"))]))


def processor_time() -> float:
    """Seconds of this process and of those that it waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--format", choices=["parquet", "csv"], default="parquet")
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
            file = made(Path(folder), rows, asked.format)
            print(f"{rows:,} rows, {file.stat().st_size / 2**20:,.0f} MiB of {asked.format}, 80 cells")
            rounds = [{name: measured(name, file) for name in WORK} for _ in range(ROUNDS)]
            best = {
                name: [min(of) for of in zip(*(one[name] for one in rounds), strict=True)] for name in WORK
            }
            for name, (seconds, spent, memory) in best.items():
                peaks.setdefault(name, []).append(memory)
                times = spent / best["GROUP BY"][1]
                print(f"  {name:34s}{seconds:8.2f} s {times:6.1f} times {memory:8.0f} MiB", flush=True)
            file.unlink()
    for name, (small, large) in peaks.items():
        print(f"{name}: the peak grows by a factor of {large / small:.2f} with ten times the rows")


if __name__ == "__main__":
    main()
