"""Commands that print what the library says: account, probe and certificate."""

import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import ringfence as rf
from ringfence.accounting.moving import bounded_noise_epsilon
from ringfence.cli import common
from tests.shell import ran, refused

ACCOUNT = ["--mechanism", "rectified", "--sigma", 1, "--bound", 2, "--sensitivity", 5e-3, "--steps", 10]
PROBE = ["--sigma", 1, "--bound", 40, "--clip", 0.2, "--learning-rate", 8, "--steps", 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """theta.npy, features.npz with a test split, and alone.npz, other features without one."""
    made = tmp_path_factory.mktemp("files")
    np.save(made / "theta.npy", np.linspace(-3, 3, 50))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    values = (rng.normal(size=(400, 6)) + 2 * np.eye(3, 6)[labels]).astype(np.float32)
    split = {"x_train": values[:300], "y_train": labels[:300], "x_test": values[300:], "y_test": labels[300:]}
    np.savez(made / "features.npz", **split)
    np.savez(made / "alone.npz", features=rng.normal(size=(400, 6)).astype(np.float32), labels=labels)
    return made


def test_account_prints_every_number_and_what_it_promises(folder: Path) -> None:
    said = ran("account", folder / "theta.npy", *ACCOUNT)
    for words in ("DP, every dataset", "ex-post", "per-instance", "Rényi", "50 coordinates", "releases: 10"):
        assert words in said
    assert "must not be published" in said
    assert "One record moves every coordinate by at most 0.005." in said


def test_account_of_noise_bounded_around_the_value(folder: Path) -> None:
    asked = shlex.split("account --sigma 1 --norm 1 --coordinates 100 --steps 10")
    row = json.loads(ran(*asked, "--noise-bound=-8,7", "--sampling-rate", 0.1, "--json"))
    expected = bounded_noise_epsilon(
        1.0, (-8.0, 7.0), norm=1.0, coordinates=100, delta=1e-5, steps=10, sampling_rate=0.1
    )
    assert row["epsilon"] == expected
    assert "data-independent" in row["statement"]
    assert "wider" in refused(*asked, "--noise-bound", 3)
    assert "such as 8 or -8,6" in refused(*asked, "--noise-bound", "x")
    assert "no theta" in refused(*asked, "--noise-bound", 8, folder / "theta.npy")
    assert "no other law" in refused(*asked, "--noise-bound", 8, "--mechanism", "sign")
    assert "THETA must be given" in refused(*asked)


def test_account_as_json_is_what_the_library_says(folder: Path) -> None:
    row = json.loads(ran("account", folder / "theta.npy", *ACCOUNT, "--json"))
    account = rf.PerInstanceAccountant(rf.RectifiedGaussian(1.0, 2.0), 5e-3)
    account.step(torch.linspace(-3, 3, 50, dtype=torch.float64), count=10)
    own, ours = row["per_instance"], account.guarantee(1e-5).per_instance
    assert own["renyi_epsilon"] == pytest.approx(ours.renyi_epsilon, rel=1e-6)
    assert own["epsilon"] <= ours.epsilon
    assert ours.statement[:40] in own["statement"]
    assert (row["mechanism"], row["coordinates"]) == ("RectifiedGaussian(sigma=1.0, bound=(-2.0, 2.0))", 50)
    assert "every_dataset" not in row


def test_one_person_sits_in_one_cell(folder: Path) -> None:
    """Sigma 4, delta 1e-6: epsilon 1.06, where every cell used to be charged."""
    shared = ["account", folder / "theta.npy", "--mechanism", "gaussian", "--sigma", 4, "--delta", 1e-6]
    row = json.loads(ran(*shared, "--sensitivity", 1, "--at-most", 1, "--json"))
    assert row["sensitivity"] == {"each": 1.0, "at_most": 1, "norm": None}
    assert row["per_instance"]["epsilon"] == pytest.approx(1.0607, abs=1e-3)
    by_norm = json.loads(ran(*shared, "--norm", 1, "--json"))
    assert by_norm["per_instance"]["epsilon"] == pytest.approx(row["per_instance"]["epsilon"], rel=1e-6)
    assert "--sensitivity or --norm must be given" in refused(*shared, "--at-most", 1)


def test_what_floats_do_not_hold_is_one_line(tmp_path: Path) -> None:
    """A FloatingPointError was a traceback."""
    np.save(tmp_path / "theta.npy", np.full(3, 1.7e308))
    law = ["--mechanism", "quantized", "--sigma", 1e-300, "--bound", 2, "--levels", 3, "--sensitivity", 1e-3]
    assert refused("account", tmp_path / "theta.npy", *law)


def test_probe_prints_accuracy_every_number_and_what_it_promises(folder: Path) -> None:
    said = ran("probe", folder / "features.npz", *PROBE, "--examples")
    for words in ("on the test split", "DP, every dataset", "ex-post", "per-instance", "the largest"):
        assert words in said
    for words in ("300 training examples", "releases: 4", "must not be published", "Taken to be public"):
        assert words in said
    assert "training split" not in said
    assert "not reported" in ran("probe", folder / "alone.npz", *PROBE)


def test_probe_as_json_is_what_the_library_says(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "new" / "model.safetensors"
    options = ["--mechanism", "rectified", "--momentum", 0.5, "--fit-intercept", "--seed", 7, "--delta", 1e-4]
    public = ["--public-center", 0.5, "--public-scale", 2, "--public-classes", 3, "--public-size", 310]
    probed = ran("probe", folder / "features.npz", *PROBE, *options, *public, "--out", model, "--json")
    row = json.loads(probed)
    data = np.load(folder / "features.npz")
    probe = rf.LinearProbe(
        *(rf.RectifiedGaussian(1.0, 40.0), 0.2, 8.0, 4),
        momentum=0.5,
        fit_intercept=True,
        public_center=0.5,
        public_scale=2.0,
        public_classes=[0, 1, 2],
        public_size=310,
        random_state=7,
    ).fit(data["x_train"], data["y_train"])
    assert row["test_accuracy"] == probe.score(data["x_test"], data["y_test"])
    assert row["epsilon"] == pytest.approx(probe.guarantee(1e-4).epsilon, rel=1e-6)
    assert load_file(model)["coefficients"] == pytest.approx(probe.coef_, rel=1e-4)


def test_a_target_is_enough_and_what_was_chosen_is_said(folder: Path) -> None:
    chosen = ran("probe", folder / "features.npz", "--epsilon", 4, "--clip-norm", 0.3, "--steps", 8)
    said = " ".join(chosen.split())
    assert "for epsilon 4: clip Norm(0.3), learning rate" in said
    assert "8 steps, momentum 0.5, features scaled privately" in said
    assert "releases: 12" in said
    row = json.loads(ran("probe", folder / "features.npz", "--epsilon", 4, "--delta", 1e-6, "--json"))
    assert (row["target_epsilon"], row["delta"], row["clip"]) == (4.0, 1e-6, "Norm(0.3)")
    assert 3.96 <= row["epsilon"] <= 4.0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["account", "theta.npy", *ACCOUNT, "--mechanism", "cauchy"], "mechanism must be one of gaussian, "),
        (["account", "theta.npy", *ACCOUNT, "--mechanism", "quantized"], "mechanism quantized needs levels"),
        (["account", "theta.npy", *ACCOUNT, "--sensitivity", -1], "sensitivity must be >= 0, got -1.0"),
        (["account", "theta.npy", *ACCOUNT, "--at-most", 0], "at_most must be at least 1, got 0"),
        (["account", "theta.npy", *ACCOUNT, "--norm", "nan"], "norm must not be NaN"),
        (["account", "theta.npy", *ACCOUNT, "--delta", 2], "delta must be in (0, 1), got 2.0"),
        (["account", "theta.npy", *ACCOUNT, "--steps", 0], "steps must be at least 1, got 0"),
        (["probe", "features.npz", *PROBE[2:]], "--sigma must be given unless --target-epsilon is"),
        (["probe", "features.npz", *PROBE[:4], *PROBE[6:]], "--clip or --clip-norm must be given unless"),
        (["probe", "features.npz", *PROBE[:6]], "--learning-rate must be given unless --target-epsilon is"),
        (["probe", "features.npz", "--sigma", 1, "--epsilon", 1], "--sigma must be left out where --target"),
        (["probe", "features.npz", *PROBE, "--clip-norm", 2], "--clip-norm must be left out where --clip is"),
        (["probe", "features.npz", "--epsilon", -1], "target_epsilon must be > 0, got -1.0"),
        (["probe", "features.npz", *PROBE, "--secure"], "public_size must be given where releases"),
        (["probe", "features.npz", *PROBE, "--device", "tpu"], "device must be cpu, or one that torch has"),
        (["probe", "a\nb.npz", *PROBE], "No such file or directory: a b.npz"),
    ],
)  # fmt: skip
def test_bad_settings_are_one_line(
    words: list[object], complaint: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert complaint in refused(*words)


def test_a_certificate_is_written_and_verified(tmp_path: Path) -> None:
    account = rf.PerInstanceAccountant(rf.Gaussian(2.0), sensitivity=1.0)
    account.step([0.0])
    source, page = tmp_path / "account.json", tmp_path / "pages" / "certificate.html"
    source.write_text(json.dumps(account.state_dict()))
    files = json.loads(ran("certificate", source, "--out", page, "--delta", 1e-6, "--json"))["files"]
    names = [Path(file).name for file in files]
    assert names == ["certificate.html", "certificate.json", "certificate.key"]
    made = page.with_suffix(".json")
    assert json.loads(made.read_text())["epsilon"] == account.guarantee(1e-6).epsilon
    assert ran("certificate", source, "--verify", made).strip() == f"{made} is about {source}"
    source.write_text(source.read_text() + " ")
    assert "the commitment differs" in refused("certificate", source, "--verify", made)


def test_a_name_that_looks_like_markup_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_table(common.Table("[b]law", title="[red]toy"))
    shown = capsys.readouterr().out
    assert "[red]toy" in shown
    assert "[b]law" in shown


def test_statements_are_broken_between_words_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    for terminal, lines in (
        ("1", ["epsilon holds for", "every dataset"]),
        ("0", ["epsilon holds for every dataset"]),
    ):
        monkeypatch.setenv("TTY_COMPATIBLE", terminal)
        monkeypatch.setattr("sys.stdout", shown := io.StringIO())
        common.print_statement("epsilon holds for every dataset")
        assert [line.rstrip() for line in shown.getvalue().splitlines()] == lines
