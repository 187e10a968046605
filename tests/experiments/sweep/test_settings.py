"""Settings are counted as in the paper, the fair search is fair, and errors in grids are named."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.settings import GRIDS, FairSearch, Grid, SweepSetting, read_grid

TOY = Grid("toy", ("gaussian", "truncated"), (0.1,), (10.0,), (1.0,), (4.0,), (5,))


def counts(settings: list[SweepSetting]) -> dict[str, int]:
    names = [setting.mechanism for setting in settings]
    return {name: names.count(name) for name in dict.fromkeys(names)}


@pytest.mark.parametrize(
    ("name", "gaussian", "bounded"), [("cifar10", 80, 400), ("cifar100", 80, 400), ("pets", 135, 540)]
)
def test_the_papers_grids_have_the_papers_size(name: str, gaussian: int, bounded: int) -> None:
    settings = read_grid(name).settings("paper")
    assert counts(settings) == {"gaussian": gaussian, "rectified": bounded, "truncated": bounded}
    assert len({setting.key for setting in settings}) == len(settings) == gaussian + 2 * bounded
    assert {s.bound is None for s in settings if s.mechanism == "gaussian"} == {True}
    assert {s.bound for s in settings if s.mechanism == "truncated"} == set(read_grid(name).bound)
    assert all(float(s.law.sigma) == s.noise_multiplier * s.clip for s in settings[:50])


@pytest.mark.parametrize("name", GRIDS)
def test_the_fair_search_is_fair_and_wide(name: str) -> None:
    grid = replace(read_grid(name), mechanisms=("gaussian", "rectified", "truncated", "sign", "quantized"))
    settings = grid.settings("fair")
    kinds = [(s.clip_kind, s.mechanism) for s in settings]
    assert {kinds.count(kind) for kind in kinds} == {grid.fair.settings}
    assert set(kinds) == {(clip, law) for clip in ("clamp", "norm") for law in grid.mechanisms}
    assert len(grid.seeds) >= 3
    for clip in ("clamp", "norm"):
        truncated = [s for s in settings if (s.clip_kind, s.mechanism) == (clip, "truncated")]
        assert_wide(truncated, grid.fair.ranges(clip))
    widest = grid.fair.ranges()
    assert widest["noise_multiplier"][1] >= 1e6
    assert widest["bound_over_sigma"] == (1e-2, 20.0)
    assert widest["learning_rate"][0] <= 1e-3


def assert_wide(truncated: list[SweepSetting], ranges: dict[str, tuple[float, float]]) -> None:
    seen: dict[str, list[float]] = {
        "clip": [s.clip for s in truncated],
        "noise_multiplier": [s.noise_multiplier for s in truncated],
        "bound_over_sigma": [(s.bound or 0) / s.sigma for s in truncated],
        "learning_rate": [s.learning_rate for s in truncated],
        "steps": [s.steps for s in truncated],
    }
    for key, (low, high) in ranges.items():
        assert min(seen[key]) >= low * 0.999
        assert max(seen[key]) <= high * 1.001
        # log-uniform: every quarter of the logarithms holds about a quarter
        places = [math.log(value / low) / math.log(high / low) for value in seen[key]]
        if key != "steps":  # rounded to whole numbers
            for quarter in range(4):
                share = sum(quarter <= 4 * place < quarter + 1 for place in places) / len(places)
                assert share == pytest.approx(0.25, abs=0.03)


def test_every_mechanism_gets_the_same_points() -> None:
    settings = read_grid("digits").settings("fair")
    gaussian, rectified = (
        [replace(s, mechanism="", bound=None) for s in settings if s.mechanism == name]
        for name in ("gaussian", "rectified")
    )
    assert gaussian == rectified


def test_settings_of_the_papers_clip_keep_the_names_that_stored_rows_have() -> None:
    settings = read_grid("digits").settings("fair")
    assert settings[5].key == "f9c48153dc367aafdecc13f43e5ec3a3"
    assert len({setting.key for setting in settings}) == len(settings)
    assert replace(settings[5], clip_kind="norm").key != settings[5].key


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mechanisms": ("cauchy",)}, "mechanisms must be among gaussian, .*, got 'cauchy'"),
        ({"clip": ()}, r"clip must not be empty, got \[\]"),
        ({"clip": (0.1, -1.0)}, "clip must be > 0, got -1.0"),
        ({"seeds": (1, 1)}, r"seeds must not hold a value twice, got \[1, 1\]"),
        ({"steps": (0,)}, "steps must be at least 1, got 0"),
        ({"delta": 1.0}, r"delta must be in \(0, 1\), got 1.0"),
        ({"scale": 0.0}, "scale must be > 0, got 0.0"),
    ],
)
def test_bad_grids_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TOY, **changes)


def test_a_fair_search_wants_three_seeds_and_proper_ranges() -> None:
    with pytest.raises(ValueError, match="seeds must be at least three for a fair search"):
        replace(TOY, seeds=(0, 1)).settings("fair")
    with pytest.raises(ValueError, match="search must be paper or fair, got 'best'"):
        TOY.settings("best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"steps must start at 1 or more, got 0.5"):
        FairSearch(steps=(0.5, 3))
    with pytest.raises(ValueError, match=r"norm_learning_rate must be a range \(low, high\)"):
        FairSearch(norm_learning_rate=(1.0, 1.0))
    for clips in ((), ("norm", "norm"), ("l2",)):
        with pytest.raises(ValueError, match="clips must be among clamp, norm, each once, got"):
            FairSearch(clips=clips)


GOOD = """
name = "mine"
mechanisms = ["gaussian", "quantized"]
seeds = [0, 1, 2]
delta = 1e-6
[data]
classes = 3
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
clips = ["norm"]
norm = [1, 2]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def test_a_file_is_read_as_written(tmp_path: Path) -> None:
    grid = read_grid(written(tmp_path, GOOD))
    assert (grid.name, grid.delta, grid.classes) == ("mine", 1e-6, 3)
    assert (grid.clip, grid.levels) == ((1e-3, 1.0), (5,))
    assert [type(value) for value in grid.clip] == [float, float]
    assert (grid.fair.settings, grid.fair.clip) == (8, (1e-3, 1.0))
    assert (grid.fair.clips, grid.fair.norm) == (("norm",), (1.0, 2.0))
    assert len(grid.settings("paper")) == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("delta =", "dleta =", "grid.toml: dleta is not known; known are name, mechanisms"),
        ("bound = [4]", "bound = []", r"grid.toml: bound must not be empty, got \[\]"),
        ("bound = [4]", "bound = 4", "grid.toml: bound must be a list, got 4"),
        ("bound = [4]", 'bound = ["4"]', "grid.toml: bound must be a number, got '4'"),
        ("steps = [10]", "steps = [true]", "grid.toml: steps must be an integer, got True"),
        ("steps = [10]", "", "grid.toml: .* missing .*steps"),
        ('"quantized"', '"cauchy"', "grid.toml: mechanisms must be among .* got 'cauchy'"),
        ("settings = 8", "steps = [1]", r"grid.toml: steps must be \[low, high\], got \[1\]"),
        ("settings = 8", "steps = [9, 1]", r"grid.toml: steps must be a range"),
        ('clips = ["norm"]', 'clips = "norm"', "grid.toml: clips must be a list, got 'norm'"),
        ('clips = ["norm"]', "clips = [1, 2]", "grid.toml: clips must be text, got 1"),
        ("[data]", "[data", "grid.toml is not TOML"),
        ("[data]\nclasses = 3\n", "data = 3\n", "grid.toml: data must be a table, got 3"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ValueError, match=message):
        read_grid(written(tmp_path, GOOD.replace(old, new, 1)))


def test_a_name_that_no_grid_has_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(ValueError, match=r"grid must be a TOML file or one of cifar10, .*, got 'imagenet'"):
        read_grid("imagenet")
    with pytest.raises(FileNotFoundError):
        read_grid("imagenet.toml")
