"""The three doors: a function, scores, a training run; claims that are true stand, flaws fall."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from typer.testing import CliRunner

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.cli.app import app

RNG = np.random.default_rng(1)


def laplace(x: float, count: int) -> np.ndarray:
    return x + RNG.laplace(size=count)


def gaussian(x: np.ndarray, count: int) -> np.ndarray:
    return x + RNG.normal(size=(count, len(x)))


def ratio(y: np.ndarray) -> np.ndarray:
    """Of 1 against 0; rounded, since the last digits of floating-point noise tell more than the law."""
    return (np.abs(y) - np.abs(y - 1)).round(9)


def response(x: int) -> str:
    return "yes" if RNG.random() < (0.75 if x else 0.25) else "no"


FAST: dict[str, Any] = {"draws": 8000, "batched": True, "floating_point": False}
AT, BESIDE = np.zeros(3), np.array([0.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("mechanism", "datasets", "epsilon", "delta", "options"),
    [
        (laplace, (0.0, 1.0), 1.0, 0.0, FAST),
        (laplace, (1.0, 0.0), 1.0, 0.0, FAST | {"log_ratio": ratio}),
        (gaussian, (AT, BESIDE), gaussian_epsilon(1.0, 0.01), 0.01, FAST),
        (response, (1, 0), math.log(3), 0.0, {"draws": 8000}),
    ],
)
def test_a_true_claim_stands_and_half_of_it_falls(
    mechanism: Any, datasets: Any, epsilon: float, delta: float, options: dict[str, Any]
) -> None:
    whole = rf.audit(mechanism, *datasets, claim=(epsilon, delta), **options)
    assert not whole.refuted
    assert 0.5 * epsilon < whole.epsilon_lower_bound
    half = rf.audit(mechanism, *datasets, claim=(epsilon / 2, delta), **options)
    assert half.refuted
    assert half.draws <= whole.draws == 16_000
    usual = ("other datasets and neighbours", "events that no learned test names", "timing")
    digits = () if mechanism is response or "log_ratio" in options else ("last digits",)
    assert whole.not_tried == (*usual, *digits)


def test_rounds_share_the_significance_and_judge_by_fresh_draws() -> None:
    """All draws differ: what is proved is what the last 500 of a round can. Then equal laws."""
    told = rf.audit(lambda x: x, "a", "b", claim=(50.0, 0.0), draws=1000, significance=0.1)
    rate = (0.1 / 4) ** (1 / 500)  # two rounds, two ends
    assert told.epsilon_lower_bound == pytest.approx(math.log(rate / (1 - rate)))
    small: dict[str, Any] = FAST | {"draws": 1000, "significance": 0.5, "claim": (0.0, 0.0)}
    equal = np.random.default_rng(2)
    fallen = sum(
        rf.audit(lambda x, n: equal.normal(size=(n, 8)), 0, 1, seed=seed, **small).refuted
        for seed in range(6)
    )
    assert fallen <= 3


def test_the_worst_neighbour_is_found_and_floating_point_is_seen() -> None:
    others = [AT, BESIDE / 10, 3 * BESIDE, BESIDE]
    found = rf.audit(gaussian, AT, neighbours=others, claim=(3.0, 1e-3), **FAST)
    assert found.refuted
    assert "4 neighbours" in found.statement
    seen = rf.audit(laplace, 0.0, 1.0, claim=(1.0, 0.0), draws=8000, batched=True)  # Mironov 2012
    assert seen.refuted
    assert seen.not_tried[-1] == "a law without its last digits (floating_point=False)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"draws": 999}, "draws must be at least 1000, got 999"),
        ({"mechanism": lambda x, n: [0.0] * n}, "mechanism must not be constant, got 0.0"),
        ({"claim": 1.0}, r"claim must be a pair \(epsilon, delta\), got 1.0"),
        ({"claim": (-1.0, 0.0)}, "epsilon"),
        ({"neighbour": None}, "neighbour or neighbours must be given"),
        ({"mechanism": lambda x, n: [1.0]}, "must return as many outputs, got 1"),
        ({"log_ratio": lambda y: [math.nan] * len(y)}, "log_ratio"),
    ],
)
def test_bad_input_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    given = {"mechanism": laplace, "data": 0.0, "neighbour": 1.0, "claim": (1.0, 0.0), **FAST} | changes
    with pytest.raises(ValueError, match=said):
        rf.audit(**given)


def test_outputs_that_are_neither_numbers_nor_few_labels_are_refused() -> None:
    with pytest.raises(TypeError, match="numbers or vectors"):
        rf.audit(lambda x: f"label {RNG.random()}", 0, 1, claim=(1.0, 0.0), draws=1000)


def trained(sigma: float, canaries: int = 600) -> Any:
    """One run of a linear model with ringfence's own engine."""
    engine = rf.PrivacyEngine(rf.Gaussian(sigma), rf.Norm(1.0), sampling="full", public_size=500, seed=1)

    def train(model: nn.Module, dataset: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        private, stepping, batches = engine.make_private(model, optimizer, DataLoader(dataset, batch_size=64))
        for _ in range(3):
            for inputs, labels in batches:
                nn.functional.cross_entropy(private(inputs), labels).backward()
                stepping.step()

    data = torch.randn(50, 4), torch.randint(3, (50,))
    found = rf.audit_training(lambda: nn.Linear(4, 3), train, data, delta=1e-5, canaries=canaries)
    return found, engine.guarantee(1e-5).epsilon


def test_a_training_run_keeps_its_claim_and_less_noise_is_seen() -> None:
    honest, claim = trained(1.0)
    assert claim / 5 < honest.epsilon_lower_bound < claim
    assert not honest.refutes(mu=math.sqrt(3.0))
    less, _ = trained(0.1)
    assert less.refutes(epsilon=3.0)
    assert less.epsilon_lower_bound > honest.epsilon_lower_bound


def test_what_training_cannot_be_audited_on_is_refused() -> None:
    inputs, labels = torch.zeros(4, 2), torch.zeros(4).long()
    for data, said in (
        ((inputs.long(), labels), "float32 or float64"),
        ((inputs - 1e6, labels), "inputs must be"),
    ):
        with pytest.raises(ValueError, match=said):
            rf.audit_training(lambda: nn.Linear(2, 2), lambda *_: None, data, delta=1e-5)
    with pytest.raises(ValueError, match="train must return the model"):
        rf.audit_training(lambda: nn.Linear(2, 2), lambda *_: nn.Linear(2, 2), (inputs, labels), delta=1e-5)


def test_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0).normal(size=(2, 2000))
    draws[0] += 2
    rows = [f"{score},{side}" for side, column in ((1, draws[0]), (0, draws[1])) for score in column]
    Path("scores.csv").write_text("\n".join(["score,in", *rows]))
    Path("noisy.py").write_text("import numpy\ndef mean(x):\n    return x.sum() + numpy.random.normal()\n")
    for name, values in (("a.npy", [1.0, 1.0]), ("b.npy", [1.0, 0.0])):
        np.save(name, values)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["audit", *arguments])

    shown = run("scores.csv", "--claim", "1,1e-6", "--out", "page.html", "--json")
    assert shown.exit_code == 1  # the claim fell
    state = json.loads(shown.stdout)
    assert state["refuted"]
    assert state["epsilon_lower_bound"] > 2
    assert Path("page.html").read_text().count("<img") >= 1
    assert json.loads(Path("page.json").read_text())["observed"]
    assert run("scores.csv", "--delta", "1e-6").exit_code == 0
    function = ("noisy:mean", "--data", "a.npy", "--neighbour", "b.npy", "--draws", "2000")
    assert "not refuted" in run(*function, "--claim", "20,1e-6").stdout
    numpys = ("noisy:mean", "--data", "a.npy", "--neighbour", "b.npy", "--claim", "9,0", "--no-digits")
    assert "last digits" in run(*numpys, "--draws", "1000").stdout.split("Not tried")[1]
    for arguments, said in (
        (
            ("noisy:mean", "--data", "scores.csv", "--neighbour", "b.npy", "--claim", "1,0"),
            "must hold numbers",
        ),
        (
            ("noisy:mean", "--data", "a.npy", "--neighbour", "b.npy", "--claim", "1,0", "--delta", "0.1"),
            "scores",
        ),
        (("scores.csv",), "--delta or --claim"),
        (("noisy:mean", "--claim", "1,0"), "--data and --neighbour"),
        (("scores.csv", "--claim", "x"), "--claim must be EPSILON,DELTA"),
        (("scores.csv", "--delta", "1e-6", "--significance", "0"), "significance must be in (0, 1)"),
        ((*function[:5], "--claim", "1"), "--claim must be"),
    ):
        assert said in str(run(*arguments).exception)
