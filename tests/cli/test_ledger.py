"""``ringfence ledger`` and ``--ledger``: one budget for the releases of a shell."""

import json
from pathlib import Path

import numpy as np
import pytest

import ringfence as rf
from tests.shell import ran, refused

REGIONS = ["--by", "region", "--domain", "region=north,south"]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(
        "id,region,income\n" + "".join(f"{row},north,{row}\n" for row in range(300))
    )
    return "sqlite:///study.db"


def test_a_budget_is_made_charged_shown_and_kept(url: str) -> None:
    said = ran("ledger", "create", url, "--epsilon", 1.5, "--delta", 1e-6)
    assert "All that this ledger lets through is (1.5, 1e-06)-differentially private" in said
    counts = ["release", "counts", "people.csv", *REGIONS, "--epsilon", 1]
    ran(*counts, "--ledger", url, "--what", "table 1", "--out", "one")
    shown = json.loads(ran("ledger", "show", url, "--json"))
    assert (shown["epsilon"], shown["delta"], shown["neighbours"]) == (1.5, 1e-6, "added")
    assert [entry["what"] for entry in shown["entries"]] == ["table 1"]
    assert shown["entries"][0]["epsilon"] == shown["spent"] == pytest.approx(1.0, rel=1e-4)
    assert "│ table 1 │" in (in_words := ran("ledger", "show", url))
    assert "Entries: table 1." in in_words
    left = json.loads(ran("ledger", "remaining", url, "--json"))["remaining"]["gaussian"]
    said = f"epsilon {float(str(left)[:5]):g} at delta 1e-06 with gaussian"  # rounded down
    assert ran("ledger", "remaining", url).startswith(said)
    means = ["release", "means", "people.csv", *REGIONS, "--of", "income", "--lower", 0, "--upper", 300]
    more = refused(*means, "--epsilon", 1.01 * left, "--ledger", url, "--what", "table 2", "--out", "two")
    assert "table 2 would bring epsilon to 1.5" in more
    assert not Path("two").exists()
    ran(*means, "--epsilon", left, "--ledger", url, "--out", "two")
    assert [entry.what for entry in rf.Ledger(url).entries] == ["table 1", "release_means"]


def test_votes_winners_and_labels_are_charged_too(url: str) -> None:
    ran("ledger", "create", url, "--epsilon", 9, "--neighbours", "replaced")
    Path("votes.csv").write_text("q\n" + "1\n" * 50)
    Path("counts.csv").write_text("cat,dog\n40,3\n9,8\n")
    np.save("teachers.npy", np.array([[240, 10], [5, 245]]))
    for job, file in (("votes", "votes.csv"), ("winners", "counts.csv"), ("labels", "teachers.npy")):
        ran("release", job, file, "--sigma", 20, "--ledger", url, "--what", f"the {job}", "--out", job)
    assert [entry.what for entry in rf.Ledger(url).entries] == ["the votes", "the winners", "the labels"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--ledger", "sqlite:///typo.db"], "typo.db holds no ledger"),
        (
            ["--ledger", "study.db"],
            "url must be like sqlite:///study.db or postgresql://user@server/database",
        ),
        (
            ["--ledger", "postgresql://a:secret@127.0.0.1:1/b"],
            "postgresql+psycopg://a:***@127.0.0.1:1/b cannot",
        ),
        (
            ["--what", "table 1"],
            "what must be some words, with the ledger whose entry it names, got 'table 1'",
        ),
        (["--ledger", "sqlite:///study.db", "--what", " "], "what must be some words, with the ledger"),
    ],
)
def test_a_ledger_that_is_not_there_is_one_line_and_nothing_is_made(
    url: str, options: list[str], complaint: str
) -> None:
    ran("ledger", "create", url, "--epsilon", 1)
    before = sorted(Path().iterdir())
    said = refused("release", "counts", "people.csv", *REGIONS, "--epsilon", 1, *options)
    assert complaint in said
    assert "secret" not in said
    assert sorted(Path().iterdir()) == before


def test_bad_budgets_are_one_line(url: str) -> None:
    assert "epsilon must be > 0, got -1.0" in refused("ledger", "create", url, "--epsilon", -1)
    assert "neighbours must be" in refused("ledger", "create", url, "--epsilon", 1, "--neighbours", "x")
    for command in ("show", "remaining"):
        assert "holds no ledger" in refused("ledger", command, url)
    ran("ledger", "create", url, "--epsilon", "inf")
    assert "is a ledger with epsilon None, not 2.0" in refused("ledger", "create", url, "--epsilon", 2)
    assert json.loads(ran("ledger", "remaining", url, "--json"))["remaining"] == {
        "gaussian": None,
        "laplace": None,
    }
    assert "epsilon inf at delta 1e-06 with laplace noise" in ran("ledger", "remaining", url)
