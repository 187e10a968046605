"""Transactions happen one after the other, whatever thread or process they are of, and nothing is lost."""

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringfence.files.shared_table import SharedTable, first_bytes
from tests.forks import FORK


def count(path: Path, times: int, together: Any = None) -> None:
    """Appends numbers, each one more than the last one in the table."""
    numbers: list[int] = []
    table = SharedTable(path, [], lambda row: numbers.append(row["number"]))
    if together is not None:
        together.wait(60)
    for _ in range(times):
        with table.transaction() as append:
            number = len(numbers)
            time.sleep(0.002)  # for another one to read the same
            append({"number": number})


def append_both(table: SharedTable, *records: dict[str, object]) -> None:
    with table.transaction() as append:
        for record in records:
            append(record)


def written(path: Path) -> list[int]:
    numbers: list[int] = []
    with SharedTable(path, [], lambda row: numbers.append(row["number"])).transaction():
        pass
    return numbers


def test_processes_take_turns(tmp_path: Path) -> None:
    together = FORK.Barrier(3)
    processes = [FORK.Process(target=count, args=(tmp_path / "table", 20, together)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 3
    assert written(tmp_path / "table") == list(range(60))


@pytest.mark.parametrize("name", ["table", None])
def test_threads_take_turns(name: str | None, tmp_path: Path) -> None:
    numbers: list[int] = []
    table = SharedTable(name and tmp_path / name, [], lambda row: numbers.append(row["number"]))

    def count_on() -> None:
        for _ in range(20):
            with table.transaction() as append:
                number = len(numbers)
                time.sleep(0.001)
                append({"number": number})

    threads = [threading.Thread(target=count_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers == list(range(80))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_fork_waits_for_a_transaction(tmp_path: Path) -> None:
    """A child of a process in a transaction would inherit a lock that it does not hold."""
    table, begun, go = (
        SharedTable(tmp_path / "table", [], lambda _: None),
        threading.Event(),
        threading.Event(),
    )

    def slowly() -> None:
        with table.transaction() as append:
            begun.set()
            go.wait(10)
            append({"number": 0})

    thread = threading.Thread(target=slowly)
    thread.start()
    begun.wait(10)
    threading.Timer(0.2, go.set).start()
    child = os.fork()
    if not child:  # pragma: no cover
        signal.alarm(20)  # rather than wait for ever
        os._exit(0 if written(tmp_path / "table") == [0] else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_opening_and_looking_wait_for_a_transaction(tmp_path: Path) -> None:
    """Closing the file ends the locks that this process has on it."""
    path, order = tmp_path / "table", []
    table = SharedTable(path, [], lambda _: None)

    def other(look: Any) -> None:
        look(path)
        order.append("looked")

    looks = (first_bytes, lambda path: SharedTable(path, [], lambda _: None))
    with table.transaction() as append:
        threads = [threading.Thread(target=other, args=(look,)) for look in looks]
        for thread in threads:
            thread.start()
            thread.join(0.2)
        append({"number": 0})
        order.append("ended")
    for thread in threads:
        thread.join()
    assert order == ["ended", "looked", "looked"]


def test_what_fails_writes_nothing_and_the_next_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "table"
    count(path, 2)
    table = SharedTable(path, [], lambda _: None)
    for bad in ({"number": float("nan")}, {"number": {1, 2}}):
        with pytest.raises((ValueError, TypeError), match="record must be plain data"):
            append_both(table, {"number": 2}, bad)
    with pytest.raises(ZeroDivisionError), table.transaction() as append:
        append({"number": 1 // 0})
    assert written(path) == [0, 1]
    count(path, 1)
    assert written(path) == [0, 1, 2]


def test_a_full_disk_charges_nothing_and_the_table_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, numbers = tmp_path / "table", []
    table = SharedTable(path, [], numbers.append)
    opened = table._engine.pool._invoke_creator

    def full(record: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = opened(record)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    count(path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(table._engine.pool, "_invoke_creator", full)
        with pytest.raises(OSError, match="cannot be read or written: database or disk is full"):
            append_both(table, {"number": 1}, {"text": "x" * 10_000})
    with table.transaction() as append:
        append({"number": 1})
    assert numbers == [{"number": 0}, {"number": 1}]


def test_other_tables_of_a_database_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rows (seed INTEGER)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(FileNotFoundError, match=r"other\.sqlite holds no ledger: give epsilon to make one"):
        SharedTable(path, None, lambda _: None)
    assert path.read_bytes() == before
    count(path, 2)
    assert written(path) == [0, 1]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT sql FROM sqlite_master").fetchone()[0].endswith("(seed INTEGER)")
    with pytest.raises(FileNotFoundError, match="missing"):
        written(tmp_path / "missing" / "table")


def test_the_note_of_the_last_row_may_be_behind(tmp_path: Path) -> None:
    """A process that dies between a transaction and its note leaves an older one."""
    path, note = tmp_path / "table", tmp_path / "table.lock"
    count(path, 2)
    old = note.read_bytes()
    count(path, 1)
    note.write_bytes(old)
    assert written(path) == [0, 1, 2]
    assert note.read_bytes() != old
    note.write_bytes(old.replace(b"2 ", b"3 "))
    with pytest.raises(
        ValueError, match="was removed, cut short, or replaced by an older or another one since its row 3"
    ):
        written(path)
    note.write_bytes(b"")  # what locking alone leaves there
    assert written(path) == [0, 1, 2]
