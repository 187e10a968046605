"""The settings that tuning draws from, and what a file of them must be."""

from pathlib import Path

import pytest

import ringfence as rf
from ringfence.decisions.tuning_grid import read_tuning_grid, tuning_settings


def test_a_file_is_every_combination_of_its_lists(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text("clip_norm = [0.1, 1]\nclip = [1e-3]\nsteps = [8, 32]\n")
    clips = [0.001, rf.Norm(0.1), rf.Norm(1.0)]
    settings = tuning_settings(read_tuning_grid(file))
    assert len(settings) == 6
    assert all({"clip": clip, "steps": steps} in settings for clip in clips for steps in (8, 32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sigma = [1.0]", "sigma is not known; known are clip, clip_norm"),
        ("steps = 8", "steps must be a list that is not empty, got 8"),
        ("steps = []", "steps must be a list that is not empty"),
        ("steps = [8.5]", r"steps must hold integers, got 8\.5"),
        ("clip = [true]", "clip must hold numbers, got True"),
        ("steps = [", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_tuning_grid(file)


@pytest.mark.parametrize("grid", [{}, {"steps": 8}, {"steps": []}, {"mechanism": ["gaussian"]}, [8]])
def test_a_bad_grid_is_refused(grid: object) -> None:
    with pytest.raises(ValueError, match="grid"):
        tuning_settings(grid)  # type: ignore[arg-type]
