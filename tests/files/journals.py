"""Journals as version 0.6 wrote them."""

import hashlib
import json
from pathlib import Path
from typing import Any


def line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":"))
    framed = f"{len(text)} {text}".encode()
    return hashlib.sha256(framed).hexdigest()[:16].encode() + b" " + framed + b"\n"


def write_journal(path: Path, header: dict[str, Any], *records: dict[str, Any]) -> None:
    first = {"format": "ringfence journal", "version": 1, "header": header}
    path.write_bytes(b"".join(map(line, (first, *records))))
    path.with_name(f"{path.name}.lock").write_bytes(b"%20d\n" % len(records))
