"""Faults from the shell: exit status 2 and one line that says what is wrong, never a traceback."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.conftest import GRID
from tests.faults.conditions import flipped, folder_for_anyone, no_room_beyond, read_only
from tests.shell import experiments


def complaint(*arguments: object) -> str:
    """What ``python -m experiments ARGUMENTS`` says when it fails as it should."""
    run = experiments(*arguments)
    assert run.returncode == 2, run.stderr
    [line] = run.stderr.splitlines()
    assert line.startswith("experiments: ")
    assert "Traceback" not in run.stdout
    return line


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid, features and a finished sweep of them."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "grid.toml").write_text(GRID)
    labels = np.arange(60) % 3
    features = np.eye(3, 5, dtype=np.float32)[labels]
    np.savez(folder / "f.npz", x_train=features, y_train=labels, x_test=features, y_test=labels)
    assert experiments(*sweep(folder, folder / "out")).returncode == 0
    return folder


def sweep(inputs: Path, out: Path) -> list[object]:
    return ["sweep", inputs / "grid.toml", "--features", inputs / "f.npz", "--out", out]


def damage(kind: str, file: Path) -> None:
    data = file.read_bytes()
    if kind == "truncated":
        file.write_bytes(data[: len(data) // 2])
    elif kind == "flipped":
        file.write_bytes(flipped(data, 8 * (data.index(b'"test_accuracy"') + 20)))
    elif kind == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
        file.mkdir()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("truncated", "sweep.journal is cut short"),
        ("flipped", "sweep.journal is damaged in line"),
        ("empty", "sweep.journal is not a ringfence journal"),
        ("a folder", "holds no sweep: there is no sweep.journal in it"),
    ],
)
def test_a_broken_sweep(inputs: Path, tmp_path: Path, kind: str, words: str) -> None:
    for name in ("sweep.journal", "sweep.journal.lock"):
        shutil.copy(inputs / "out" / name, tmp_path)
    damage(kind, tmp_path / "sweep.journal")
    assert words in complaint("compare", tmp_path)
    assert words in complaint("report", tmp_path, "--out", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    assert words in complaint(*sweep(inputs, tmp_path))


def test_a_full_disk(inputs: Path, tmp_path: Path) -> None:
    with no_room_beyond(4_000):
        assert "File too large" in complaint(*sweep(inputs, tmp_path))
        page = complaint("report", inputs / "out", "--out", tmp_path / "report.html")
    assert page == f"experiments: File too large: {tmp_path / 'report.html'}"
    if os.path.exists("/dev/full"):
        assert complaint("report", inputs / "out", "--out", "/dev/full").startswith(
            "experiments: No space left on device"
        )


def test_a_read_only_folder(inputs: Path) -> None:
    with folder_for_anyone() as folder:
        shutil.copytree(inputs, folder / "in")
        with read_only(folder):
            assert "Permission denied: " in complaint(*sweep(folder / "in", folder / "new"))
            assert "Permission denied: " in complaint(*sweep(folder / "in", folder / "in" / "out"))
            page = complaint("report", folder / "in" / "out", "--out", folder / "report.html")
    assert page == f"experiments: Permission denied: {folder / 'report.html'}"


def test_an_output_below_a_file(inputs: Path) -> None:
    below = inputs / "grid.toml" / "out"
    assert complaint(*sweep(inputs, below)).startswith("experiments: Not a directory that may be written: ")
    assert "Not a directory: " in complaint("report", inputs / "out", "--out", below / "report.html")


def test_damaged_inputs(inputs: Path, tmp_path: Path) -> None:
    data = (inputs / "f.npz").read_bytes()
    for damaged in (data[:-30], data[:300], flipped(data, 8 * 300)):
        (tmp_path / "f.npz").write_bytes(damaged)
        said = complaint("sweep", inputs / "grid.toml", "--features", tmp_path / "f.npz", "--out", tmp_path)
        assert f"{tmp_path / 'f.npz'}" in said
    for text in (b"name = 'caf\xe9'", b"\0", GRID.encode()[:-5]):
        (tmp_path / "grid.toml").write_bytes(text)
        said = complaint("sweep", tmp_path / "grid.toml", "--features", inputs / "f.npz", "--out", tmp_path)
        assert f"{tmp_path / 'grid.toml'} is not TOML: " in said
