"""A journal loses nothing that was announced, and takes nothing damaged for whole."""

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ringfence.files import journal as module
from ringfence.files.journal import Journal, locked, unlock
from tests.faults.conditions import put
from tests.files.test_atomic import full
from tests.files.test_checkpoint import flipped_bit
from tests.forks import ended

HEADER = {"run": "a1", "after": 7}
RECORDS = [{"step": 0, "sums": [0.1, math.inf]}, {"text": 'é\n\r\u2028 "'}, {}, {"step": 10**30}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.journal"


def write(path: Path, records: list[dict[str, Any]] = RECORDS) -> bytes:
    with Journal.start(path, HEADER) as journal:
        for record in records:
            journal.append(record)
    return path.read_bytes()


def test_the_header_and_the_records_come_back(path: Path) -> None:
    data = write(path)
    assert Journal.read(path) == (HEADER, RECORDS)
    assert data.count(b"\n") == 1 + len(RECORDS)
    with Journal(path) as journal:
        assert journal.header == HEADER
        journal.append({"more": True})
    assert Journal.read(path) == (HEADER, [*RECORDS, {"more": True}])


def test_a_record_is_on_disk_when_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    fsync = os.fsync

    def logged(descriptor: int) -> None:
        synced.append(path.read_bytes())
        fsync(descriptor)

    with Journal.start(path, HEADER) as journal:
        monkeypatch.setattr(os, "fsync", logged)
        journal.append({"step": 0})
    assert synced == [path.read_bytes()]


def test_a_last_line_cut_short_is_left_out_and_cut_off(path: Path) -> None:
    data = write(path)
    last = len(data.splitlines(keepends=True)[-1])
    for length in range(len(data) - last, len(data)):
        put(path, data[:length])
        counted(path, len(RECORDS) - 1)  # the last append never returned
        assert Journal.read(path) == (HEADER, RECORDS[:-1])
        with Journal(path) as journal:
            journal.append({"new": 1})
        assert Journal.read(path) == (HEADER, [*RECORDS[:-1], {"new": 1}])


def counted(path: Path, number: int) -> None:
    Path(f"{path}.lock").write_text(f"{number}\n")


def test_records_that_were_announced_and_are_gone_are_missed(path: Path) -> None:
    data = write(path)
    first = data.index(b"\n") + 1
    for length in range(first, len(data)):
        put(path, data[:length])
        for reader in (Journal.read, Journal):
            with pytest.raises(ValueError, match=r"run\.journal is cut short: \d of 4 records are left"):
                reader(path)
    path.write_bytes(data)
    with Journal(path) as journal:
        journal.restart(HEADER)  # begins to count anew
    assert Journal.read(path) == (HEADER, [])


def test_a_record_is_counted_after_it_is_on_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the two, there is one record more than was counted, and it is kept."""
    write(path)
    counted(path, len(RECORDS) - 1)
    assert Journal.read(path) == (HEADER, RECORDS)
    with Journal(path):
        assert int(Path(f"{path}.lock").read_text()) == len(RECORDS)
        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            Journal.start(path.with_name("other"), HEADER)
    with Journal(path) as journal:
        with pytest.raises(OSError, match="No space left"):
            journal.restart(HEADER)
        assert Journal.read(path) == (HEADER, RECORDS)  # counted down, and the old file is still there


@pytest.mark.parametrize("tail", [bytes(50), b"\0\r\0\x0b\0", b"1234567890abcdef 3 {\0\0\n"])
def test_a_last_line_that_a_power_cut_left_is_left_out(path: Path, tail: bytes) -> None:
    data = write(path)  # the length grew, the bytes did not arrive
    path.write_bytes(data + tail)
    assert Journal.read(path) == (HEADER, RECORDS)


def test_every_flipped_bit_is_refused(path: Path) -> None:
    data = write(path)
    Path(f"{path}.lock").unlink()  # without help from the number of records
    for position in range(8 * len(data)):
        with (
            flipped_bit(path, position),
            pytest.raises(ValueError, match=r"run\.journal is (damaged in line \d|not a ringfence journal)"),
        ):
            Journal.read(path)
    assert Journal.read(path) == (HEADER, RECORDS)


def test_the_line_is_named(path: Path) -> None:
    data = write(path)
    path.write_bytes(data.replace(b"\\r", b"\\t"))
    with pytest.raises(ValueError, match=r"run\.journal is damaged in line 3$"):
        Journal.read(path)
    with pytest.raises(ValueError, match=r"run\.journal is damaged in line 3$"):
        Journal(path)
    path.write_bytes(data)
    Journal(path).close()  # the refusal left no lock behind


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"text", b"text\n", b"text\nmore\n", module._line("record", {})]
)
def test_other_files_are_not_journals(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"run\.journal is not a ringfence journal"):
        Journal.read(path)


def test_a_newer_version_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = module._line("header", {"format": "ringfence journal", "version": 2, "header": HEADER})
    path.write_bytes(line)
    with pytest.raises(ValueError, match=r"run\.journal was written by a newer ringfence: version 2"):
        Journal.read(path)


def test_a_missing_journal_is_the_systems_error(path: Path) -> None:
    for reader in (Journal.read, Journal):
        with pytest.raises(FileNotFoundError):
            reader(path)
    assert list(path.parent.iterdir()) == []


def test_what_would_not_come_back_is_refused(path: Path) -> None:
    with Journal.start(path, HEADER) as journal:
        for record in ({"a": math.nan}, {"a": (1,)}, {1: 2}, {"a": {1}}, [1]):
            with pytest.raises((TypeError, ValueError), match=r"^record must be"):
                journal.append(record)  # type: ignore[arg-type]
        journal.append({"fine": 1})
    assert Journal.read(path) == (HEADER, [{"fine": 1}])
    for header in ({}, {"run": 3}, "a1"):
        with pytest.raises(ValueError, match="header must be a dict with a string 'run'"):
            Journal.start(path, header)  # type: ignore[arg-type]


def test_a_new_journal_takes_the_place_of_the_old(path: Path) -> None:
    write(path)
    with Journal.start(path, {"run": "b2"}) as journal:
        journal.append({"step": 1})
        assert Journal.read(path) == ({"run": "b2"}, [{"step": 1}])  # reading asks for no lock
        journal.restart({"run": "c3"})
        assert Journal.read(path) == ({"run": "c3"}, [])
        journal.append({"step": 2})
        with pytest.raises(BlockingIOError):
            Journal(path)
    assert Journal.read(path) == ({"run": "c3"}, [{"step": 2}])


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_new_journal_on_a_full_disk_leaves_the_old(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    write(path)
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        Journal.start(path, {"run": "b2"})
    monkeypatch.undo()
    with Journal(path) as journal:
        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            journal.restart({"run": "b2"})
        journal.append({"goes": "on"})
    assert Journal.read(path) == (HEADER, [*RECORDS, {"goes": "on"}])
    assert {file.name for file in path.parent.iterdir()} == {"run.journal", "run.journal.lock"}


def test_a_restart_whose_folder_is_not_synced_goes_on_in_the_new_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def no_folders(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(path.parent):
            full()
        fsync(descriptor)

    with Journal.start(path, HEADER) as journal:
        monkeypatch.setattr(os, "fsync", no_folders)
        with pytest.raises(OSError, match="No space left"):
            journal.restart({"run": "b2"})
        journal.append({"step": 0})
    assert Journal.read(path) == ({"run": "b2"}, [{"step": 0}])


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_after_an_append_on_a_full_disk_the_journal_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    genuine = os.write
    wrote: list[int] = []

    def partly(descriptor: int, data: Any) -> int:
        if wrote:
            full()
        wrote.append(genuine(descriptor, data[:5]))
        return 5

    journal = Journal.start(path, HEADER)
    journal.append({"step": 0})
    monkeypatch.setattr(os, call, partly if call == "write" else full)
    with pytest.raises(OSError, match="No space left"):
        journal.append({"step": 1})
    monkeypatch.undo()
    with pytest.raises(BlockingIOError):
        Journal(path)  # and nobody got in between
    journal.append({"step": 2})
    journal.close()
    steps = [record["step"] for record in Journal.read(path)[1]]
    assert steps == ([0, 2] if call == "write" else [0, 1, 2])  # announced twice is never too little


def holder(path: Path) -> None:
    """Another process that dies while it writes a record."""
    journal = Journal(path)
    journal.append({"by": "holder"})
    os.write(journal._file, b"torn")  # type: ignore[arg-type]
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_no_lock(path: Path) -> None:
    write(path)
    assert ended(holder, path) == -signal.SIGKILL
    with Journal(path) as journal:
        journal.append({"by": "heir"})
    assert Journal.read(path) == (HEADER, [*RECORDS, {"by": "holder"}, {"by": "heir"}])


def test_close_twice(path: Path) -> None:
    journal = Journal.start(path, HEADER)
    journal.close()
    journal.close()
    with pytest.raises(ValueError, match=r"run\.journal is closed"):
        journal.append({})


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    """Each has opened the lock for itself, as another process does."""
    path = tmp_path / "run"
    lock = locked(path)
    with pytest.raises(
        BlockingIOError, match=f"^{path} is in use by another process or engine: close that one first$"
    ):
        locked(path)
    copy = os.dup(lock)  # as a forked process has it
    unlock(lock)
    unlock(locked(path))
    os.close(copy)
    assert path.with_name("run.lock").stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def test_a_record_never_goes_to_a_file_that_got_the_number_of_a_closed_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal is interrupted while it closes its file, and is used again."""
    journal, close = Journal.start(path, HEADER), os.close

    def interrupted(number: int) -> None:
        close(number)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.close()
    monkeypatch.undo()
    with path.with_name("other").open("wb") as other:
        journal.append({"step": 0})
        assert other.seek(0, os.SEEK_END) == 0
    assert Journal.read(path)[1] == [{"step": 0}]
    journal.close()
