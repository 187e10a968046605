"""What is read of a journal of version 0.6 is all that was written."""

from pathlib import Path

import pytest

from ringfence.files.journal import read_journal
from tests.files.journals import line, write_journal
from tests.files.test_checkpoint import flipped_bit

HEADER, RECORDS = {"run": "a1"}, [{"step": 0, "sums": [0.1]}, {"text": 'é\n\r "'}, {}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "study.ledger"
    write_journal(path, HEADER, *RECORDS)
    return path


def test_the_header_and_the_records_come_back(path: Path) -> None:
    assert read_journal(path) == (HEADER, RECORDS)


def test_every_flipped_bit_is_refused(path: Path) -> None:
    path.with_name("study.ledger.lock").unlink()  # without help from the number of records
    for position in range(8 * path.stat().st_size):
        with (
            flipped_bit(path, position),
            pytest.raises(ValueError, match=r"is not a ringfence journal, or is damaged in line \d"),
        ):
            read_journal(path)


def test_records_that_are_gone_are_missed(path: Path) -> None:
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"line \d|cut short: \d of 3 records are left|not a ringfence"):
            read_journal(path)


@pytest.mark.parametrize("data", [b"", b"\n", b"text", b"text\nmore\n", line({})])
def test_other_files_are_not_journals(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"study\.ledger is not a ringfence journal"):
        read_journal(path)
