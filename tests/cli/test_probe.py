"""``ringfence probe``: the numbers of the library's probe, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import ringfence as rf
from tests.shell import ringfence


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
    for words in ("on the test split", "DP, every dataset", "ex-post", "per-instance", "the largest"):
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
        *(
            "probe",
            features,
            *PROBE,
            "--mechanism",
            "rectified",
            "--momentum",
            0.5,
            "--fit-intercept",
            "--json",
        ),
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


def test_a_target_is_enough_and_what_was_chosen_is_said(features: Path) -> None:
    run = ringfence("probe", features, "--epsilon", 4, "--clip-norm", 0.3, "--steps", 8)
    assert run.returncode == 0, run.stderr
    said = " ".join(run.stdout.split())
    assert "for epsilon 4: clip Norm(0.3), learning rate" in said
    assert "8 steps, momentum 0.5, rows of norm 1, a private mean" in said
    assert "releases: 9" in said
    row = json.loads(ringfence("probe", features, "--epsilon", 4, "--delta", 1e-6, "--json").stdout)
    assert (row["target_epsilon"], row["delta"], row["clip"]) == (4.0, 1e-6, "Norm(0.1)")
    assert 3.96 <= row["epsilon"] <= 4.0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--clip", 1, "--learning-rate", 1], "--sigma must be given unless --target-epsilon is"),
        (["--sigma", 1, "--learning-rate", 1], "--clip or --clip-norm must be given unless --target"),
        (["--sigma", 1, "--clip", 1], "--learning-rate must be given unless --target-epsilon is"),
        (["--sigma", 1, "--epsilon", 1], "--sigma must be left out where --target-epsilon is given, got 1.0"),
        (["--epsilon", 1, "--clip", 1, "--clip-norm", 2], "--clip-norm must be left out where --clip is"),
        (["--epsilon", -1], "target_epsilon must be > 0, got -1.0"),
        (["--epsilon", 1, "--mechanism", "rectified"], "mechanism rectified needs bound"),
    ],
)
def test_what_is_missing_or_too_much_is_named(features: Path, words: list[object], complaint: str) -> None:
    run = ringfence("probe", features, *words)
    assert run.returncode == 2
    assert complaint in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--clip", 0], "clip must be > 0, got 0.0"),
        (["--secure"], "public_size must be given where releases are secure, got None"),
        (["--device", "tpu"], "device must be cpu, or one that torch has here, got 'tpu'"),
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


def test_a_file_name_with_a_line_break_is_still_one_line() -> None:
    run = ringfence("probe", "a\nb.npy", *PROBE)
    assert run.returncode == 2
    assert run.stderr == "ringfence: No such file or directory: a b.npy\n"
