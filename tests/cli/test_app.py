"""The command line as a whole: help, errors in one line, and what it loads."""

import errno
import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ringfence import __version__
from ringfence.cli.app import app
from tests.afresh import SOURCE
from tests.shell import refused, ringfence


def test_the_command_and_the_module_are_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ringfence("--version").stdout == f"ringfence {__version__}\n"
    (command,) = entry_points(group="console_scripts", name="ringfence")
    monkeypatch.setattr(sys, "argv", ["ringfence", "--version"])
    with suppress(SystemExit):
        command.load()()
    assert capsys.readouterr().out == f"ringfence {__version__}\n"
    monkeypatch.setattr(sys, "argv", ["ringfence", "certificate", "nowhere"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("ringfence", run_name="__main__")


def test_no_arguments_shows_the_help() -> None:
    nothing = ringfence()
    assert nothing.returncode == 2
    assert "Usage: ringfence" in nothing.stdout + nothing.stderr


def test_every_command_has_help_with_an_example() -> None:
    for command in ("probe", "account", "certificate"):
        run = CliRunner().invoke(app, [command, "--help"])
        assert run.exit_code == 0
        assert f"Example: ringfence {command}" in " ".join(run.stdout.split())


def test_help_lists_every_command_and_begins_with_what_newcomers_need() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    names = ("release", "ledger", "probe", "account", "audit", "certificate")
    places = [shown.index(f"│ {name} ") for name in names]
    assert places == sorted(places)
    assert len(places) == len(app.registered_commands) + len(app.registered_groups)


DEEP = "[" * 20_000 + "]" * 20_000


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: features, a table, and files that are nested without end."""
    monkeypatch.chdir(tmp_path)
    labels = np.arange(3000) % 3
    np.savez("f.npz", features=np.eye(3, 40, dtype=np.float32)[labels], labels=labels)
    Path("people.csv").write_text("region,who\n" + "".join(f"n,{who}\n" for who in range(200_000)))
    Path("deep.toml").write_text(f"steps = {DEEP}\n")
    Path("deep.json").write_text(f'{{"region": {DEEP}}}')
    Path("account.json").write_text(DEEP)
    Path("folder").mkdir()
    return tmp_path


PROBE = ["probe", "f.npz", "--sigma", "1", "--bound", "4", "--clip", "0.1", "--learning-rate", "1"]
COUNTS = ["release", "counts", "people.csv", "--by", "region", "--person", "who", "--epsilon", "1"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["probe", "f.npz", "--epsilon", "1e308"], "target_epsilon must be at most 1e+12, got 1e+308"),
        ([*PROBE, "--steps", "1000000000000"], "steps must be at most 1000000, got 1000000000000"),
        ([*COUNTS, "--domain", "deep.json"], "--domain deep.json: maximum recursion depth exceeded"),
        ([*COUNTS, "--domain", "deep.toml"], "--domain deep.toml: maximum recursion depth exceeded"),
        (["certificate", "account.json"], "account.json"),
        (["release", "nonsense"], "No such command 'nonsense'"),
        (["release", "counts", "--nope"], "No such option: --nope"),
        (["certificate", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], complaint: str, files: Path) -> None:
    assert complaint in refused(*arguments)


@pytest.mark.parametrize("out", ["/dev/null/x", "people.csv/x", "folder", "x" * 300])
def test_out_is_tried_before_anything_is_trained(
    out: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TrainedError(Exception):
        pass

    def trained(*args: object, **kwargs: object) -> None:
        raise TrainedError

    monkeypatch.setattr("ringfence.training.probe.LinearProbe.fit", trained)
    with pytest.raises(TrainedError):
        ringfence(*PROBE, "--out", "new/model.safetensors")
    refused(*PROBE, "--out", out)


def test_a_full_disk_is_one_line_and_the_old_model_stays(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("model.safetensors").write_text("the old one")
    monkeypatch.setattr(os, "fsync", full)
    said = refused(*PROBE, "--out", "model.safetensors")
    assert said == "No space left on device: model.safetensors"
    assert Path("model.safetensors").read_text() == "the old one"


BEGUN = """
import signal
from ringfence.cli import app as commands
signal.signal(signal.SIGINT, signal.default_int_handler)
command = commands.app
commands.app = lambda **options: (print("begun", flush=True), command(**options))[1]
commands.main()
"""


def test_an_interrupt_is_one_line(files: Path) -> None:
    """A SIGINT for the whole process group, as it comes from a terminal."""
    words = [sys.executable, "-c", BEGUN, *PROBE, "--steps", "100000", "--out", "model.safetensors"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    path = {"PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(words, env=os.environ | path, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "ringfence: interrupted; files that were written are whole\n")
    assert not (files / "model.safetensors").exists()


def test_an_interrupt_inside_duckdb_is_one_too(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: object, **kwargs: object) -> None:
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr("ringfence.releases.budget.Budget.checked", stopped)
    run = ringfence(*COUNTS, "--out", "o")
    assert (run.returncode, run.stderr) == (
        130,
        "ringfence: interrupted; files that were written are whole\n",
    )
