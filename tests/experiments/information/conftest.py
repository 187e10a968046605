"""One toy sweep, which several tests look at."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.afresh import afresh
from tests.experiments.information import toys

_PROGRAM = """
import sys
from pathlib import Path
from experiments.information.network import FairSearch, NetworkSettings
from experiments.information.networks import run_networks
images, out, settings = sys.argv[1:]
print(run_networks(Path(images), Path(out), eval(settings), rounds=1))
"""
_NOTHING_ELSE = ("sklearn", "dp_accounting", "scipy", "rich", "typer", "matplotlib", "pandas", "PIL")


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep of one round, made as on a machine with torch and nothing else."""
    folder = tmp_path_factory.mktemp("networks")
    settings = repr(replace(toys.SETTINGS, seeds=(0,)))
    run = afresh(_PROGRAM, toys.image_file(folder), folder, settings, without=_NOTHING_ELSE)
    assert run.returncode == 0, run.stderr
    (folder / "said.txt").write_text(run.stdout)
    return folder
