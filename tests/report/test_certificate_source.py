"""What a certificate reads from a run, an account or a ledger, and what it leaves there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.accounting.costs.budget import composed_guarantee
from ringfence.report.certificate_source import read_source

DELTA = 1e-5


def saved_run(path: Path, **changes: Any) -> rf.PrivacyEngine:
    engine = rf.PrivacyEngine(rf.TruncatedGaussian(1.0, bound=2.0), rf.Clamp(0.1), **changes)
    model = nn.Linear(3, 2)
    data = TensorDataset(torch.randn(37, 3), torch.randint(0, 2, (37,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = engine.make_private(model, optimizer, DataLoader(data, batch_size=10))
    engine.save(path)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    engine.close()
    return engine


@pytest.mark.parametrize("changes", [{"seed": 7}, {"secure": True, "public_size": 41}, {"sampling": "full"}])
def test_a_run_with_what_was_released_after_it_was_saved(changes: Any, tmp_path: Path) -> None:
    engine = saved_run(tmp_path / "run.ckpt", **changes)
    source = read_source(tmp_path / "run.ckpt")
    assert source.cost.steps == engine.account.steps > 0
    ours, theirs = composed_guarantee(source.cost, DELTA), engine.guarantee(DELTA)
    assert ours.epsilon_data_independent == pytest.approx(theirs.epsilon_data_independent, rel=1e-3)
    assert source.assumptions == engine.run.assumptions
    assert dict(source.settings)["mechanism"] == "TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0))"
    if "public_size" in changes:  # the number of examples is private then
        assert "37" not in json.dumps([source.what, source.settings])


def test_the_account_of_a_table_with_its_statement(tmp_path: Path) -> None:
    table = rf.release_counts(np.array([4711, 3]), suppress_below=10, epsilon=1.0, delta=1e-6)
    table.save(tmp_path)
    source = read_source(tmp_path / "account.json")
    assert source.what.startswith("These counts are protected by differential privacy")
    claim = composed_guarantee(source.cost, 1e-6)
    assert claim.epsilon_data_independent == pytest.approx(table.account.epsilon, rel=1e-6)
    assert "4711" not in repr(source)


def test_accounts_as_they_are_saved(tmp_path: Path) -> None:
    decided = rf.DecisionAccountant(rf.NoisyWinner(20.0), neighbours="replaced")
    decided.step([[230, 12, 8]])
    sampled = rf.SampledAccountant(rf.Gaussian(1.0), sensitivity=1.0, sampling_rate=0.1)
    sampled.step_of_any([0.0], count=3)
    for account in (decided, sampled):
        path = tmp_path / "account.json"
        path.write_text(json.dumps(account.state_dict()))
        assert read_source(path).cost == account.cost()


def test_a_ledger_says_whether_releases_were_chosen_along_the_way(tmp_path: Path) -> None:
    for planned, said in ((True, "planned beforehand"), (False, "the ledger's budget that holds")):
        path = tmp_path / f"{planned}.ledger"
        with rf.Ledger(epsilon=1.0, planned=planned, path=path) as ledger:
            ledger.release(rf.Gaussian(20.0), 0.0, 1.0, what="a mean age")
        source = read_source(path)
        assert (source.what, source.cost) == ("a mean age.", ledger.total)
        assert said in source.assumptions[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "is no account: it has no change, delta, epsilon_data_independent, mu, private, steps"),
        ("{", "is not JSON"),
        ("hello", "is truncated or not a ringfence checkpoint"),
        ('{"kind": "Other"}', "kind must be one of"),
    ],
)
def test_other_files_are_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_source(path)


def test_the_journal_of_a_run_is_not_the_run(tmp_path: Path) -> None:
    saved_run(tmp_path / "run.ckpt", seed=0)
    with pytest.raises(ValueError, match="is the journal of a run: give the run itself"):
        read_source(tmp_path / "run.ckpt.journal")
