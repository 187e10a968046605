import json
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence import __version__


def ringfence(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfence"]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_figure_motivation_leaves_png_pdf_and_csv(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    run = ringfence("figure", "motivation", "--out", out)
    assert run.returncode == 0, run.stderr
    files = [Path(line) for line in run.stdout.split()]
    assert [file.name for file in files] == ["motivation.png", "motivation.pdf", "motivation.csv"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert files[1].read_bytes().startswith(b"%PDF")
    assert files[2].read_text().startswith("mechanism,sigma,theta,fisher_information_loss,")
    assert run.stderr == ""  # no spinner into a pipe


def test_json_is_one_object(tmp_path: Path) -> None:
    run = ringfence("figure", "motivation", "--out", tmp_path, "--json")
    assert len(json.loads(run.stdout)["files"]) == 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["figure", "motivation", "--out", "/dev/null/x"], "Not a directory: /dev/null/x"),
        (["figure", "nonsense"], "No such command 'nonsense'"),
        (["figure", "motivation", "--nope"], "No such option: --nope"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], complaint: str) -> None:
    run = ringfence(*arguments)
    assert run.returncode == 2
    assert run.stderr.startswith("ringfence: ")
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1


def test_help_has_an_example_and_no_arguments_shows_it() -> None:
    assert "Example: ringfence figure motivation" in ringfence("figure", "motivation", "-h").stdout
    nothing = ringfence()
    assert nothing.returncode == 2
    assert "Usage: ringfence" in nothing.stdout + nothing.stderr
    assert ringfence("--version").stdout == f"ringfence {__version__}\n"


def test_the_library_alone_needs_neither_typer_nor_matplotlib() -> None:
    """Accelerator machines may have torch and nothing else."""
    code = (
        "import sys; sys.modules.update(typer=None, rich=None, matplotlib=None)\n"
        "import ringfence; print(float(ringfence.Gaussian(1.0).fisher_information(0.0)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "1.0\n", run.stderr


def test_a_missing_matplotlib_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['matplotlib.figure'] = None\n"
        "sys.argv = ['ringfence', 'figure', 'motivation']\n"
        "from ringfence.cli import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr == "ringfence: figures need matplotlib: pip install 'ringfence[plots]'\n"
