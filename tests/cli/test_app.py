import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import ringfence as rf
from ringfence import __version__
from tests.shell import ringfence


def test_the_command_is_there() -> None:
    """In a process of its own, once; the rest of these tests share one."""
    command = [sys.executable, "-m", "ringfence"]
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"ringfence {__version__}\n"
    wrong = subprocess.run([*command, "compare", "nowhere"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("ringfence: ")


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


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("features") / "features.npz"
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    values = rng.normal(size=(400, 6)) + 2 * np.eye(3, 6)[labels]
    np.savez(file, x_train=values[:300], y_train=labels[:300], x_test=values[300:], y_test=labels[300:])
    np.savez(file.with_name("alone.npz"), features=values, labels=labels)
    return file


PROBE = ["--sigma", 1, "--bound", 40, "--clip", 0.2, "--learning-rate", 8, "--steps", 4]


def test_probe_prints_accuracy_every_number_and_what_it_promises(features: Path) -> None:
    run = ringfence("probe", features, *PROBE, "--examples")
    assert run.returncode == 0, run.stderr
    for words in ("on the test split", "data-independent", "ex-post", "per-instance", "the largest"):
        assert words in run.stdout
    for words in ("300 training examples", "releases: 4", "must not be published", "Taken to be public"):
        assert words in run.stdout
    assert "training split" not in run.stdout


def test_probe_without_a_test_split_says_so(features: Path) -> None:
    run = ringfence("probe", features.with_name("alone.npz"), *PROBE)
    assert run.returncode == 0, run.stderr
    assert "not reported" in run.stdout
    assert "400 training examples" in run.stdout


def test_probe_as_json_is_what_the_library_says(features: Path, tmp_path: Path) -> None:
    model = tmp_path / "new" / "model.safetensors"
    alone = features.with_name("alone.npz")
    run = ringfence(
        *("probe", features, *PROBE, "--mechanism", "rectified", "--momentum", 0.5, "--intercept", "--json"),
        *("--seed", 7, "--out", model, "--public-statistics", alone, "--public-size", 310, "--delta", 1e-4),
    )
    row = json.loads(run.stdout)
    data, public = np.load(features), np.load(alone)["features"].astype(np.float32).astype(np.float64)
    probe = rf.LinearProbe(
        *(rf.RectifiedGaussian(1.0, 40.0), 0.2, 8.0, 4),
        momentum=0.5,
        fit_intercept=True,
        public_center=public.mean(axis=0),
        public_scale=public.std(axis=0),
        public_size=310,
        random_state=7,
    ).fit(data["x_train"], data["y_train"])
    assert row["test_accuracy"] == probe.score(data["x_test"], data["y_test"])
    assert row["epsilon"] == pytest.approx(probe.guarantee(1e-4).epsilon, rel=1e-6)
    assert load_file(model)["coefficients"] == pytest.approx(probe.coef_, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--clip", 0], "clip must be > 0, got 0.0"),
        (["--secure"], "public_size must be given where releases are secure, got None"),
        (["--device", "tpu"], "device must be cpu or cuda, got 'tpu'"),
        (
            ["--public-statistics", "FILE"],
            "public statistics must be of other features than the private ones",
        ),
        (["--public-statistics", "missing.npz"], "No such file or directory: missing.npz"),
    ],
)
def test_probe_refuses_bad_settings_in_one_line(features: Path, change: list[object], complaint: str) -> None:
    run = ringfence("probe", features, *PROBE, *(features if word == "FILE" else word for word in change))
    assert run.returncode == 2
    assert complaint in run.stderr
    assert len(run.stderr.splitlines()) == 1


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
    assert "Example: ringfence probe features.npz" in ringfence("probe", "-h").stdout
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
        "from ringfence.cli.app import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr == "ringfence: figures need matplotlib: pip install 'ringfence[plots]'\n"


def test_a_file_name_with_a_line_break_is_still_one_line() -> None:
    run = ringfence("probe", "a\nb.npy", *PROBE)
    assert run.returncode == 2
    assert run.stderr == "ringfence: No such file or directory: a b.npy\n"


def test_what_floats_do_not_hold_is_one_line(tmp_path: Path) -> None:
    """A FloatingPointError was a traceback."""
    np.save(tmp_path / "theta.npy", np.full(3, 1.7e308))
    run = ringfence(
        "account", tmp_path / "theta.npy", "--mechanism", "quantized", "--levels", 3, *SETTINGS[:-2]
    )
    assert (run.returncode, run.stderr.count("\n")) in ((2, 1), (0, 0)), run.stderr
    assert "Traceback" not in run.stderr
