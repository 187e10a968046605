"""Grid files: what is wrong in one is said with the file and the key."""

from pathlib import Path

import pytest

from experiments.sweep.grid_file import read_grid

GOOD = """
name = "mine"
mechanisms = ["gaussian", "quantized"]
seeds = [0, 1, 2]
delta = 1e-6
fisher = true
[data]
classes = 3
public_statistics = "public.npz"
[paper]
clip = [1e-3, 1]
noise_multiplier = [10]
bound = [4]
levels = [5]
learning_rate = [8]
steps = [10]
[fair]
settings = 8
clip = [1e-3, 1]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def test_a_file_is_read_as_written(tmp_path: Path) -> None:
    grid = read_grid(written(tmp_path, GOOD))
    assert (grid.name, grid.delta, grid.fisher, grid.classes) == ("mine", 1e-6, True, 3)
    assert (grid.clip, grid.levels, grid.fair.settings, grid.fair.clip) == ((1e-3, 1.0), (5,), 8, (1e-3, 1.0))
    assert grid.public_statistics == str(tmp_path / "public.npz")
    assert [type(value) for value in grid.clip] == [float, float]
    assert len(grid.settings("paper")) == 4
    text = GOOD.replace("settings = 8", 'settings = 8\nclips = ["norm"]\nnorm = [1, 2]')
    text = text.replace("levels = [5]", "levels = [5]\nnorm = [3]").replace("classes = 3", "unit_rows = true")
    other = read_grid(written(tmp_path, text.replace("fisher = true", "")))
    assert (other.unit_rows, other.norm) == (True, (3.0,))
    assert (other.fair.clips, other.fair.norm) == (("norm",), (1.0, 2.0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("delta =", "dleta =", "grid.toml: dleta is not known; known are name, mechanisms"),
        ("classes", "labels", "grid.toml: data.labels is not known"),
        ("settings", "number", "grid.toml: fair.number is not known"),
        ("levels", "momentum", "grid.toml: paper.momentum is not known"),
        ("[10]\nbound", "[]\nbound", r"grid.toml: paper.noise_multiplier must be a list that is not empty"),
        ("bound = [4]", "bound = 4", "grid.toml: paper.bound must be a list that is not empty, got 4"),
        ("bound = [4]", 'bound = ["4"]', "grid.toml: paper.bound must be a number, got '4'"),
        ("steps = [10]", "steps = [1.5]", "grid.toml: paper.steps must be an integer, got 1.5"),
        ("steps = [10]", "steps = [true]", "grid.toml: paper.steps must be an integer, got True"),
        ("steps = [10]", "", "grid.toml: paper.steps is missing"),
        ('name = "mine"', "", "grid.toml: name is missing"),
        ("true", '"yes"', "grid.toml: fisher must be true or false, got 'yes'"),
        ('"quantized"', '"laplace"', "grid.toml: mechanisms must be among .* got 'laplace'"),
        ("clip = [1e-3, 1]\nnoise", "clip = [-1]\nnoise", "grid.toml: clip must be > 0, got -1.0"),
        ("settings = 8", "clip2 = [1]", "grid.toml: fair.clip2 is not known"),
        ("settings = 8", "steps = [1]", r"grid.toml: fair.steps must be \[low, high\], got \[1\]"),
        ("settings = 8", "steps = [9, 1]", r"grid.toml: fair.steps must be a range"),
        ("settings = 8", 'clips = "norm"', "grid.toml: fair.clips must be a list that is not empty"),
        ("settings = 8", "clips = [1, 2]", "grid.toml: fair.clips must be text, got 1"),
        ("settings = 8", 'clips = ["l2"]', "grid.toml: fair.clips must be among clamp, norm"),
        ("classes = 3", "unit_rows = 1", "grid.toml: data.unit_rows must be true or false, got 1"),
        ("[data]", "[data", "grid.toml is not TOML"),
        ("[data]\nclasses = 3\n", "data = 3\n", "grid.toml: data must be a table, got 3"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if old.startswith("[data]\n"):
        text = text.replace('public_statistics = "public.npz"\n', "")
    with pytest.raises(ValueError, match=message):
        read_grid(written(tmp_path, text))


def test_a_name_nobody_ships_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"grid must be a TOML file or one of cifar10, .*, got 'imagenet'"):
        read_grid("imagenet")
    with pytest.raises(FileNotFoundError):
        read_grid("imagenet.toml")
