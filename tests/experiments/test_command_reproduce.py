"""``python -m experiments reproduce``: its options reach the library, which has tests of its own."""

from pathlib import Path
from typing import Any

import pytest

from experiments import figures, reproduce
from tests.shell import experiments


def test_options_reach_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def fake(out: Path, **options: Any) -> list[Path]:
        asked.update(options, out=out)
        options["progress"]("audit", 0.5)
        return [out / "report.html"]

    monkeypatch.setattr(reproduce, "reproduce", fake)
    run = experiments("reproduce", "--out", tmp_path, "--publishable")
    assert run.stdout == f"{tmp_path / 'report.html'}\n"
    assert (asked["out"], asked["grid"], asked["features"]) == (tmp_path, "digits", None)
    assert asked["publishable"] is True
    assert asked["device"] == "cpu"


def test_one_figure_alone_and_images_for_figure_4_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "draw", lambda *asked: drawn.extend(asked[:2]) or [tmp_path / "x.csv"])
    run = experiments("reproduce", "--figure", "motivation", "--out", tmp_path / "out")
    assert drawn == ["motivation", tmp_path / "out"]
    assert run.stdout == f"{tmp_path / 'x.csv'}\n"
    for words, message in (
        (("--figure", "fil", "--data", "none.npz"), "No such file or directory: none.npz"),
        (("--data", "none.npz"), "--data none.npz is for --figure fil, got None"),
        (("--figure", "pdp"), "--figure must be one of motivation, mean-estimation, fil"),
    ):
        refused = experiments("reproduce", *words)
        assert refused.returncode == 2
        assert message in refused.stderr
        assert refused.stderr.count("\n") == 1
