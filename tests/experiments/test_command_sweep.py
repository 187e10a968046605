"""``python -m experiments sweep``: what it leaves behind and what is refused."""

from pathlib import Path

from experiments.sweep.probes import read_rows
from tests.experiments.conftest import sweep_arguments
from tests.shell import experiments


def test_the_same_sweep_again_changes_nothing(swept: Path) -> None:
    before = read_rows(swept / "out")
    assert len(before) == 12  # 2 settings of the Gaussian and 4 of the truncated law, 2 seeds
    assert experiments(*sweep_arguments(swept)).returncode == 0
    assert read_rows(swept / "out") == before
