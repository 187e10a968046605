"""One toy sweep, which several tests look at."""

from pathlib import Path

import pytest

from tests.afresh import afresh
from tests.experiments.information import toys

_PROGRAM = """
import sys
from experiments.information.__main__ import main
main(sys.argv[1:])
"""
_NOTHING_ELSE = ("sklearn", "dp_accounting", "scipy", "rich", "typer", "matplotlib", "pandas", "PIL")


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep of one round, made as on a machine with torch and nothing else."""
    folder = tmp_path_factory.mktemp("networks")
    asked = toys.words(toys.image_file(folder), folder)
    run = afresh(_PROGRAM, *asked, "--rounds", "1", without=_NOTHING_ELSE)
    assert run.returncode == 0, run.stderr
    (folder / "said.txt").write_text(run.stdout)
    return folder
