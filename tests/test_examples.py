"""Every example runs as it stands, in an empty folder."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = {
    "release.py": "majorities right",
    "release_counts.py": "table.csv, table_wide.csv, statement.txt, chart.png, report.html",
    "release_means.py": "Without privacy",
    "release_votes.py": "What may be published about its cost",
    "release_winners.py": "labels right",
    "probe.py": "Fisher information loss",
    "grid.py": "Choosing among many runs",
    "engine.py": "test accuracy 0.",
    "resume.py": "90 steps, epsilon",
    "pate.py": "PATE protects everything that one teacher learned from",
}
SMALL = {"pate.py": ["--queries", "40", "--noise", "6"]}


def test_every_example_is_run_and_short() -> None:
    """Several processes run in training/test_distributed.py, and Spark in ``make engines``."""
    elsewhere = {"several_processes.py", "release_spark.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*EXPECTED, *elsewhere}
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 48, path.name


@pytest.mark.parametrize("name", EXPECTED)
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: each process of its own would spend its time importing torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name, *SMALL.get(name, [])])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert EXPECTED[name] in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((EXAMPLES / "audit").glob("*.py")), ids=lambda path: path.stem)
def test_a_flaw_is_seen_from_outside_and_a_true_claim_stands(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert (
        ("REFUTED" not in said and said.count("not refuted") >= 7)
        if path.stem == "holds"
        else ("is refuted at 99.9 %" in said)
    )
