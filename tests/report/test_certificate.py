"""A certificate has what may be published, by its schema, and commits to the files it is about."""

import json
import re
import shutil
import stat
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import ringfence as rf
from ringfence.accounting.costs.cost import Cost
from ringfence.report.certificate import Certificate, verify
from ringfence.report.certificate_source import Source, read_source

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "certificate.schema.json").read_text())
COUNTS = np.array([4711, 3, 815])


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
    content = Certificate.of(Source("A mean.", Cost.of_pair(0.5, 1e-9), ()), 1e-5).content
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
        assert str(count) not in body


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
    for file in written.iterdir():
        shutil.copy(file, tmp_path / file.name)
    edited = tmp_path / "certificate.json"
    edited.write_text(json.dumps({**json.loads(edited.read_text()), name: value}))
    with pytest.raises(ValueError, match=r"certificate\.json says \w+ .*, and its source .*: it was changed"):
        verify(edited, read_source(written / "account.json"))


def test_an_edited_page_is_not_verified(written: Path, tmp_path: Path) -> None:
    for file in written.iterdir():
        shutil.copy(file, tmp_path / file.name)
    page = tmp_path / "certificate.html"
    text = page.read_text(encoding="utf-8")
    edited = re.sub(r"satisfies \([\d.]+, 1e-06\)", "satisfies (0.001, 1e-06)", text)
    assert edited != text
    page.write_text(edited, encoding="utf-8")
    with pytest.raises(ValueError, match=r"certificate\.html does not say what .*certificate\.json says"):
        verify(tmp_path / "certificate.json", read_source(written / "account.json"))


def test_the_page_needs_a_name_of_its_own() -> None:
    made = Certificate.of(Source("A mean.", Cost.of_pair(0.5, 0.0), ()), 1e-5)
    with pytest.raises(ValueError, match=r"--out must be the name of a page, such as certificate\.html"):
        made.write("certificate.json")
