"""Journals as version 0.6 wrote them, of which ledgers are read."""

import hashlib
import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_journal(path: Path) -> tuple[Record, list[Record]]:
    """Returns the header and the records of a journal; damage and records that are gone are a ValueError.

    A line is the first 16 hex digits of the SHA-256 of its rest, the length of the record, and the record as
    JSON. PATH.lock holds the number of records, where it is there.
    """
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        checksum, _, framed = line.removesuffix(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != hashlib.sha256(framed).hexdigest()[:16].encode():
            raise ValueError(
                f"{path} is not a ringfence journal, or is damaged in line {number}: where a crash left half "
                "a line, open it once with version 0.6"
            )
        records.append(json.loads(framed.partition(b" ")[2]))
    lock = path.with_name(f"{path.name}.lock")
    announced = int(lock.read_bytes() or 0) if lock.exists() else 0
    if not records or records[0].get("format") != "ringfence journal":
        raise ValueError(f"{path} is not a ringfence journal")
    if len(records) - 1 < announced:
        raise ValueError(f"{path} is cut short: {len(records) - 1} of {announced} records are left")
    return records[0]["header"], records[1:]
