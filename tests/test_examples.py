"""Every example runs as it stands, in an empty folder."""

import os
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
    "several_processes.py": "for every dataset",
}


def test_every_example_is_run_and_short() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 42, path.name


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable]
    if name == "several_processes.py":
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ran = subprocess.run(
        [*command, str(EXAMPLES / name)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert EXPECTED[name] in ran.stdout
