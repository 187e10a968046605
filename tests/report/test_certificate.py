"""Certificates have what may be published, by their schema, and commit to the files they are about."""

import json
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.report.certificate import Certificate, Source, read_source, verify

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "certificate.schema.json").read_text())
COUNTS = np.array([4711, 3, 815])
DELTA = 1e-5


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    account = rf.release_counts(COUNTS, suppress_below=10, epsilon=1.0, delta=1e-6).account
    account.to_json(folder / "account.json")
    Certificate.of(read_source(folder / "account.json")).write(folder / "certificate.html")
    return folder


def test_the_numbers_are_those_of_every_dataset_and_follow_the_schema(written: Path) -> None:
    content = json.loads((written / "certificate.json").read_text())
    jsonschema.validate(content, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert 0.99 < content["epsilon"] <= 1.0001
    assert content["delta"] == 1e-6  # of the release
    assert content["epsilon"] == json.loads((written / "account.json").read_text())["epsilon"]
    by_delta = {point["delta"]: point["epsilon"] for point in content["curve"]}
    assert list(by_delta.values()) == sorted(by_delta.values())
    assert by_delta[1e-6] == content["epsilon"]


def test_a_pair_has_no_mu_and_still_follows_the_schema() -> None:
    content = Certificate.of(Source("A mean.", PrivacyLoss.of_pair(0.5, 1e-9), ()), 1e-5).content
    jsonschema.validate(content, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert content["mu"] is None
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "epsilon_pdp": 0.1}, SCHEMA)


def test_nothing_private_is_on_the_page_or_in_the_json(written: Path) -> None:
    private = json.loads((written / "account.json").read_text())
    page = (written / "certificate.html").read_text(encoding="utf-8")
    content = (written / "certificate.json").read_text()
    body = page[page.index("<body") :].split("<script")[0] + content
    (commitment,) = json.loads(content)["commitments"].values()  # random: it may hold any three digits
    assert commitment in body
    body = body.replace(commitment, "")
    assert "Privacy certificate" in page
    for name in ("ex_post_epsilon", "renyi_epsilon", "gaussian_ex_post_epsilon"):
        assert private["per_instance"][name] != private["epsilon"]
        assert f"{private['per_instance'][name]:.4g}" not in body
    for count in COUNTS[COUNTS > 9]:
        assert not re.search(rf"(?<!\d){count}(?!\d)", body)  # digits of a longer number say nothing


def test_a_guess_of_the_private_file_cannot_be_checked_without_the_key(written: Path) -> None:
    again = Certificate.of(read_source(written / "account.json"), 1e-6)
    content = json.loads((written / "certificate.json").read_text())
    assert again.content["commitments"] != content["commitments"]
    key = written / "certificate.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert json.loads(key.read_text())["nonce"] not in (written / "certificate.json").read_text()


def test_a_file_that_changed_is_noticed(written: Path, tmp_path: Path) -> None:
    verify(written / "certificate.json", read_source(written / "account.json"))
    changed = tmp_path / "account.json"
    changed.write_text((written / "account.json").read_text() + " ")
    with pytest.raises(ValueError, match=r"is not about .* as it is now: the commitment differs"):
        verify(written / "certificate.json", read_source(changed))


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", 0.001), ("delta", 1e-9), ("mu", 0.0), ("curve", []), ("assumptions", []), ("releases", 7)],
)
def test_an_edited_certificate_is_not_verified(
    name: str, value: object, written: Path, tmp_path: Path
) -> None:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    edited = tmp_path / "certificate.json"
    edited.write_text(json.dumps({**json.loads(edited.read_text()), name: value}))
    with pytest.raises(ValueError, match=r"certificate\.json says \w+ .*, and its source .*: it was changed"):
        verify(edited, read_source(written / "account.json"))


def test_an_edited_page_is_not_verified(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    page = tmp_path / "certificate.html"
    text = page.read_text(encoding="utf-8")
    edited = re.sub(r"satisfies \([\d.]+, 1e-06\)", "satisfies (0.001, 1e-06)", text)
    assert edited != text
    page.write_text(edited, encoding="utf-8")
    with pytest.raises(ValueError, match=r"certificate\.html does not say what .*certificate\.json says"):
        verify(tmp_path / "certificate.json", read_source(written / "account.json"))


def test_the_page_needs_a_name_of_its_own() -> None:
    made = Certificate.of(Source("A mean.", PrivacyLoss.of_pair(0.5, 0.0), ()), 1e-5)
    with pytest.raises(ValueError, match=r"--out must be the name of a page, such as certificate\.html"):
        made.write("certificate.json")
    with pytest.raises(ValueError, match=r"got certificate\.pdf$"):  # the page is HTML
        made.write("certificate.pdf")


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


SECURE = {"secure": True, "public_size": 41, "loss": nn.functional.cross_entropy}


ALLOCATED = {"sampling": "random_allocation"}


@pytest.mark.parametrize("changes", [{"seed": 7}, SECURE, ALLOCATED, {"max_batch_size": 13}])
def test_a_run_with_what_was_released_after_it_was_saved(changes: Any, tmp_path: Path) -> None:
    engine = saved_run(tmp_path / "run.ckpt", **changes)
    source = read_source(tmp_path / "run.ckpt")
    assert source.cost.steps == engine.account.steps > 0
    ours, theirs = source.cost.guarantee(DELTA), engine.guarantee(DELTA)
    assert ours.epsilon == pytest.approx(theirs.epsilon, rel=1e-3)
    assert source.assumptions == engine.run.releases.assumptions
    assert dict(source.settings)["mechanism"] == "TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0))"
    batches = dict(source.settings)["batches"]
    assert batches.startswith(
        "each example once in 4 batches" if changes == ALLOCATED else "each example with"
    )
    assert (", at most 13" in batches) == ("max_batch_size" in changes)
    if "public_size" in changes:  # the number of examples is private then
        assert "37" not in json.dumps([source.what, source.settings])


def test_the_account_of_a_table_with_its_statement(tmp_path: Path) -> None:
    table = rf.release_counts(
        np.array([4711, 3]), suppress_below=10, epsilon=1.0, delta=1e-6, noise="gaussian"
    )
    table.save(tmp_path / "public", private=tmp_path / "own")
    source = read_source(tmp_path / "own" / "account.json")
    assert source.what.startswith("These counts are protected by differential privacy")
    assert source.delta == 1e-6
    alone = source.cost.guarantee(1e-6)
    assert alone == replace(table.account.guarantee, per_instance=alone.per_instance)
    assert "4711" not in repr(source)
    (tmp_path / "own" / "statement.txt").write_text(
        "These counts satisfy (0.001, 1e-6)-differential privacy."
    )
    assert read_source(tmp_path / "own" / "account.json") == source


def test_an_account_in_which_a_digit_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    rf.release_counts(np.array([4711, 3]), epsilon=1.0, delta=1e-6).account.to_json(path)
    text = path.read_text()
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    for place in digits[:: max(1, len(digits) // 50)]:
        other = str((int(text[place]) + 1) % 10)
        changed = text[:place] + other + text[place + 1 :]
        if json.loads(changed) == json.loads(text):
            continue  # a seventeenth digit, and the same number
        path.write_text(changed)
        with pytest.raises(ValueError, match=r"its checksum does not match|it has no sha256"):
            read_source(path)
    state = json.loads(text)
    for name in ("sha256", "cost"):  # as 0.6 wrote it
        path.write_text(json.dumps({key: value for key, value in state.items() if key != name}))
        with pytest.raises(ValueError, match=f"it has no {name}. Nothing in earlier ones tells"):
            read_source(path)


def test_the_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    for name in ("run.ckpt", "other.ckpt"):
        saved_run(tmp_path / name, seed=7)
    shutil.copy(tmp_path / "other.ckpt.journal", tmp_path / "run.ckpt.journal")
    with pytest.raises(ValueError, match="belongs to another run than"):
        read_source(tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match="is the journal of a run: give the run itself"):
        read_source(tmp_path / "run.ckpt.journal")


def test_accounts_as_they_are_saved(tmp_path: Path) -> None:
    decided = rf.DecisionAccountant(rf.NoisyWinner(20.0), neighbours="replaced")
    decided.step([[230, 12, 8]])
    sampled = rf.SampledAccountant(rf.Gaussian(1.0), sensitivity=1.0, sampling_rate=0.1)
    sampled.step_worst_case([0.0], count=3)
    for account in (decided, sampled):
        path = tmp_path / "account.json"
        path.write_text(json.dumps(account.state_dict()))
        source = read_source(path)
        assert source.cost == account.privacy_loss()
        assert "no checksum" in source.assumptions[0]


def test_a_ledger_says_whether_releases_were_chosen_along_the_way(tmp_path: Path) -> None:
    for planned, said in ((True, "planned beforehand"), (False, "the ledger's budget that holds")):
        path = tmp_path / f"{planned}.ledger"
        with rf.Ledger(epsilon=1.0, planned=planned, path=path) as ledger:
            ledger.release(rf.Gaussian(20.0), 0.0, 1.0, what="a mean age")
        source = read_source(path)
        assert (source.what, source.cost, source.delta) == ("a mean age.", ledger.total, ledger.delta)
        assert said in source.assumptions[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "is no account of ringfence 0.7 or later: it has no cost, delta, private, sha256"),
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
