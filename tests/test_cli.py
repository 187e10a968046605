import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ringfence as rf
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


@pytest.fixture(scope="module")
def theta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("theta") / "theta.npy"
    np.save(file, np.linspace(-3, 3, 500))
    return file


SETTINGS = ["--mechanism", "rectified", "--sigma", 1, "--bound", 2, "--sensitivity", 5e-3, "--steps", 10]


def test_account_prints_every_number_and_what_it_promises(theta: Path) -> None:
    run = ringfence("account", theta, *SETTINGS)
    assert run.returncode == 0, run.stderr
    for words in ("data-independent", "ex-post", "per-instance", "tight", "500 coordinates", "releases: 10"):
        assert words in run.stdout
    assert "must not be published" in run.stdout


def test_account_as_json_is_what_the_library_says(theta: Path) -> None:
    run = ringfence("account", theta, *SETTINGS, "--json")
    row = json.loads(run.stdout)
    account = rf.PerInstanceAccountant(rf.RectifiedGaussian(1.0, 2.0), 5e-3)
    account.step(torch.linspace(-3, 3, 500, dtype=torch.float64), count=10)
    claim = account.guarantee(1e-5)
    assert row["epsilon_pdp"] == pytest.approx(claim.epsilon_pdp, rel=1e-6)
    assert row["epsilon_profile"] <= row["epsilon_pdp"]
    assert claim.statement.split("\n\n")[1][:40] in row["statement"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            ["--mechanism", "laplace"],
            "mechanism must be one of gaussian, quantized, rectified, sign, truncated",
        ),
        (["--mechanism", "sign"], "mechanism sign does not take bound"),
        (["--mechanism", "quantized"], "mechanism quantized needs levels"),
        (["--sigma", -1], "sigma must be > 0, got -1.0"),
        (["--sensitivity", -1], "sensitivity must be >= 0, got -1.0"),
        (["--delta", 2], "delta must be in (0, 1), got 2.0"),
        (["--steps", 0], "steps must be at least 1, got 0"),
    ],
)
def test_account_refuses_bad_settings_in_one_line(theta: Path, change: list[object], complaint: str) -> None:
    run = ringfence("account", theta, *SETTINGS, *change)
    assert run.returncode == 2
    assert complaint in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_account_refuses_files_that_are_not_arrays(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "empty.npy", np.zeros(0))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    for name, complaint in (
        ("text.npy", "is not a .npy file of numbers"),
        ("empty.npy", "must hold at least one coordinate, got none"),
        ("words.npy", "must hold numbers, got <U1"),
        ("missing.npy", "No such file or directory"),
    ):
        run = ringfence("account", tmp_path / name, *SETTINGS)
        assert run.returncode == 2
        assert complaint in run.stderr


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
