"""``ringfence reproduce``: its options reach the library, which has tests of its own."""

from pathlib import Path
from typing import Any

import pytest

from ringfence.paper import reproduce
from tests.shell import ringfence


def test_options_reach_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def fake(out: Path, **options: Any) -> list[Path]:
        asked.update(options, out=out)
        options["progress"]("audit", 0.5)
        return [out / "report.html"]

    monkeypatch.setattr(reproduce, "reproduce", fake)
    run = ringfence("reproduce", "--out", tmp_path, "--publishable")
    assert run.stdout == f"{tmp_path / 'report.html'}\n"
    assert (asked["out"], asked["grid"], asked["features"]) == (tmp_path, "digits", None)
    assert asked["publishable"] is True
    assert asked["device"] == "cpu"
