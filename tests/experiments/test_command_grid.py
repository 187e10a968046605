"""``python -m experiments grid``: a copy of a shipped grid is the grid, and nothing is overwritten."""

from pathlib import Path

import pytest

from experiments.sweep.grid_file import read_grid, shipped_grids
from tests.shell import experiments


@pytest.mark.parametrize("name", shipped_grids())
def test_a_copy_is_the_grid_and_what_show_prints(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert experiments("grid", "copy", name).stdout == f"{name}.toml\n"
    file = tmp_path / f"{name}.toml"
    assert read_grid(file) == read_grid(name)
    assert experiments("grid", "show", name).stdout == file.read_text()


def test_a_file_that_is_there_stays_what_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("mine")
    run = experiments("grid", "copy", "digits", "--out", mine)
    assert run.returncode == 2
    assert run.stderr == f"experiments: File exists: {mine}\n"
    assert mine.read_text() == "mine"


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    run = experiments("grid", "show", "mnist")
    assert run.returncode == 2
    assert run.stderr == "experiments: grid must be one of cifar10, cifar100, digits, pets, got 'mnist'\n"
