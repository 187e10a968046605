"""One toy sweep, which several tests look at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paper.information.full_size import toys

_PROGRAM = """
import sys
for name in ("sklearn", "dp_accounting", "scipy", "rich", "typer", "matplotlib", "plotly", "PIL"):
    sys.modules[name] = None
from ringfence.paper.information.full_size.__main__ import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep of one round, made as on a machine with torch and nothing else."""
    folder = tmp_path_factory.mktemp("full_size")
    asked = toys.words(toys.image_file(folder), folder)
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *asked, "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    (folder / "said.txt").write_text(run.stdout)
    return folder
