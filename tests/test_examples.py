"""Every example runs as it stands, in an empty folder."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = {
    "release.py": "majorities right",
    "probe.py": "Fisher information loss",
    "grid.py": "Choosing among many runs",
    "engine.py": "test accuracy 0.",
    "resume.py": "90 steps, epsilon",
}


def test_every_example_is_run_and_short() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*EXPECTED, "several_processes.py"}
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 42, path.name


@pytest.mark.parametrize("name", EXPECTED)
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: each process of its own would spend its time importing torch."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert EXPECTED[name] in capsys.readouterr().out


def test_several_processes(tmp_path: Path) -> None:
    """With the variables that torchrun sets, without torchrun's own process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / "several_processes.py")],
            cwd=tmp_path,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed, errors = zip(*(process.communicate(timeout=300) for process in processes), strict=True)
    assert [process.returncode for process in processes] == [0, 0], "".join(errors)[-2000:]
    assert "for every dataset" in printed[0]
