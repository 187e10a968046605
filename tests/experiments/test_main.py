"""``python -m experiments`` as a whole: help, errors in one line, and interrupts."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from tests.cli.test_app import DEEP, interrupted
from tests.shell import experiments


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["figure", "motivation", "--out", "/dev/null/x"],
            "Not a directory that may be written: /dev/null/x",
        ),
        (["figure", "nonsense"], "No such command 'nonsense'"),
        (["figure", "motivation", "--nope"], "No such option: --nope"),
        (["sweep", "cifar10", "--out", "o"], "--features is needed with cifar10"),
        (["sweep", "nowhere.toml", "--features", "f.npz", "--out", "o"], "nowhere.toml"),
        (["sweep", "deep.toml", "--features", "f.npz", "--out", "o"], "nested too deeply to be read"),
        (["compare", "nowhere"], "nowhere"),
        (["reproduce", "--data", "pets"], "--features is needed with pets"),
        (["figure", "pdp", "--public-statistics", "x.npz"], "digits are scaled by constants"),
        (["features", "nowhere", "--backbone", "nowhere", "--out", "new.npz"], "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deep.toml").write_text(f"steps = {DEEP}\n")
    np.savez("f.npz", features=np.eye(3, 40, dtype=np.float32), labels=np.arange(3))
    run = experiments(*arguments)
    assert run.returncode == 2
    assert run.stderr.startswith("experiments: ")
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["reproduce", "features", "sweep", "compare", "report"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    run = CliRunner().invoke(app, [command, "--help"])
    assert run.exit_code == 0
    assert f"Example: python -m experiments {command}" in " ".join(run.stdout.split())


@pytest.mark.parametrize("out", ["/dev/null/x", "file/x", "x" * 300])
def test_out_is_tried_before_anything_is_trained(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TrainedError(Exception):
        pass

    def trained(*args: object, **kwargs: object) -> None:
        raise TrainedError

    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setattr("experiments.sweep.probes.run_sweep", trained)
    with pytest.raises(TrainedError):
        experiments("sweep", "digits", "--out", "new")
    run = experiments("sweep", "digits", "--out", out)
    assert (run.returncode, run.stderr.count("\n")) == (2, 1), run.stderr


def test_an_interrupt_says_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "o" / "sweep.sqlite"
    (tmp_path / "o.other").write_text("of an earlier command")
    run = interrupted("experiments.__main__", ["sweep", "digits", "--out", "o"], file.exists)
    assert run.returncode == 130
    assert run.stderr.startswith(f"experiments: interrupted; saved: {file}")
    assert run.stderr.count("\n") == 1
    assert "other" not in run.stderr
