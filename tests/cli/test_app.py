"""The command line as a whole: help, errors in one line, and what it loads."""

import runpy
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfence import __version__
from ringfence.cli.app import PANELS, app, main
from tests.shell import ringfence


def test_the_command_and_the_module_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ringfence("--version").stdout == f"ringfence {__version__}\n"
    (command,) = entry_points(group="console_scripts", name="ringfence")
    assert command.load() is main
    monkeypatch.setattr(sys, "argv", ["ringfence", "compare", "nowhere"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("ringfence", run_name="__main__")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["figure", "motivation", "--out", "/dev/null/x"], "Not a directory: /dev/null/x"),
        (["figure", "nonsense"], "No such command 'nonsense'"),
        (["figure", "motivation", "--nope"], "No such option: --nope"),
        (["nonsense"], "No such command 'nonsense'"),
        (["sweep", "cifar10", "--out", "o"], "--features is needed with cifar10"),
        (["sweep", "nowhere.toml", "--features", "f.npz", "--out", "o"], "nowhere.toml"),
        (["compare", "nowhere"], "nowhere"),
        (["reproduce", "--data", "pets"], "--features is needed with pets"),
        (["figure", "pdp", "--public-statistics", "x.npz"], "digits are scaled by constants"),
        (["features", "nowhere", "--backbone", "nowhere", "--out", "f.npz"], "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ringfence(*arguments)
    assert run.returncode == 2
    assert run.stderr.startswith("ringfence: ")
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1


def test_help_has_an_example_and_no_arguments_shows_it() -> None:
    assert "Example: ringfence probe features.npz" in ringfence("probe", "-h").stdout
    assert "Example: ringfence figure motivation" in ringfence("figure", "motivation", "-h").stdout
    nothing = ringfence()
    assert nothing.returncode == 2
    assert "Usage: ringfence" in nothing.stdout + nothing.stderr
    assert ringfence("--version").stdout == f"ringfence {__version__}\n"


def test_every_command_has_help_with_an_example() -> None:
    for command in ("reproduce", "features", "sweep", "compare", "report", "probe", "account", "audit"):
        run = CliRunner().invoke(app, [command, "--help"])
        assert run.exit_code == 0
        assert f"Example: ringfence {command}" in " ".join(run.stdout.split())


def test_help_lists_every_command_and_begins_with_what_newcomers_need() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    places = [shown.index(f"│ {name} ") for names in PANELS.values() for name in names]
    assert places == sorted(places)
    assert len(places) == len(app.registered_commands) + len(app.registered_groups)
