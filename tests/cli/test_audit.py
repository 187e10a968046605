"""``ringfence audit``: the exit status is the result, and the page is written where it is asked for."""

import json
from pathlib import Path

import pytest

from ringfence.audit import suite
from tests.audit.test_page import audit as small_audit
from tests.shell import ringfence


def test_the_page_and_the_figure_are_left_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(suite, "run_audit", lambda *_, **options: asked.update(options) or small_audit())
    run = ringfence("audit", "--trials", 7, "--confidence", 0.9, "--out", tmp_path)
    assert run.returncode == int(not small_audit().holds)
    assert (asked["trials"], asked["confidence"]) == (7, 0.9)
    assert {file.name for file in tmp_path.iterdir()} == {"audit.html", "audit.png", "audit.pdf"}
    assert "attacks" in run.stdout
    assert json.loads(ringfence("audit", "--json").stdout)["holds"] == small_audit().holds
