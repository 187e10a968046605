"""``ringfence certificate``: a page, JSON and a key; and whether they are about a file."""

import json
from pathlib import Path

import ringfence as rf
from tests.shell import ringfence


def test_a_certificate_is_written_and_verified(tmp_path: Path) -> None:
    account = rf.PerInstanceAccountant(rf.Gaussian(2.0), sensitivity=1.0)
    account.step([0.0])
    source, page = tmp_path / "account.json", tmp_path / "pages" / "certificate.html"
    source.write_text(json.dumps(account.state_dict()))
    run = ringfence("certificate", source, "--out", page, "--delta", 1e-6, "--json")
    assert run.returncode == 0, run.stderr
    names = [Path(file).name for file in json.loads(run.stdout)["files"]]
    assert names == ["certificate.html", "certificate.json", "certificate.key"]
    content = json.loads(page.with_suffix(".json").read_text())
    assert content["epsilon"] == account.guarantee(1e-6).epsilon
    checked = ringfence("certificate", source, "--verify", page.with_suffix(".json"))
    assert checked.stdout.strip() == f"{page.with_suffix('.json')} is about {source}"
    source.write_text(source.read_text() + " ")
    refused = ringfence("certificate", source, "--verify", page.with_suffix(".json"))
    assert refused.returncode == 2
    assert "the commitment differs" in refused.stderr
