"""The code in the docs runs: a law that is added as its page says, accounts with the numbers they say."""

import dataclasses
import doctest
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ringfence as rf
from experiments.sweep.settings import FairSearch, Grid, read_grid
from ringfence.numerics.rounding import rounded_up
from tests.afresh import afresh

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# What runs for the new law: all of its contract, and a test of every package.
SUITES = (
    "tests/mechanisms/test_contract.py",
    "tests/mechanisms/test_samplers.py",
    "tests/mechanisms/test_ternary.py",
    "tests/test_every_law.py",
    "src/ringfence/mechanisms/ternary.py",
)
# Plugins take time to load, and no test here needs one; what is loaded already cannot be rewritten.
OPTIONS = (
    *("-p", "no:cacheprovider", "--disable-plugin-autoload", "-k", "ternary"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
PROGRAM = """
import sys
from pathlib import Path
import pytest

class Counts:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        counts = [sum(law in item.nodeid for item in items) for law in ("ternary", "quantized")]
        Path("counts").write_text(" ".join(map(str, counts)))

sys.exit(pytest.main(sys.argv[1:], plugins=[Counts()]))
"""


def five_places() -> dict[str, str]:
    """Path and text of each numbered section of the page."""
    sections = re.split(r"^## \d\. ", (DOCS / "adding_a_mechanism.md").read_text(), flags=re.M)[1:]
    places = {}
    for section in sections:
        [text] = re.findall(r"^```\w+\n(.*?)^```", section, re.M | re.S)
        places[re.findall(r"`([\w/]+\.(?:py|md))`", section)[0]] = text
    return places


def add(tree: Path) -> None:
    """The law of the page, in the five places that the page names and nowhere else."""
    (file, code), (test, definition), (exports, line), (cases, row), (table, entry) = five_places().items()
    for path, text in ((file, code), (test, definition)):
        assert not (tree / path).exists()
        (tree / path).write_text(text)
    lines = (tree / exports).read_text().splitlines(keepends=True)
    line = f"    {line}"
    place = next(i for i, old in enumerate(lines) if old.startswith("    from ringfence.mech") and old > line)
    (tree / exports).write_text("".join([*lines[:place], line, *lines[place:]]))
    content = (tree / cases).read_text()
    assert content.endswith("\n]\n")
    (tree / cases).write_text(content.removesuffix("]\n") + f"    {row.strip()},\n]\n")
    laws, rest = (tree / table).read_text().split("\n\n**Words that clash", maxsplit=1)
    assert laws.splitlines()[-1].startswith("| `")
    (tree / table).write_text(f"{laws}\n{entry}\n**Words that clash{rest}")


def test_the_law_of_the_page_works_everywhere_when_it_is_added_in_five_places(tmp_path: Path) -> None:
    for part in ("src", "experiments", "tests", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("results"))
    for part in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / part, tmp_path)
    add(tmp_path)
    run = afresh(PROGRAM, *OPTIONS, *SUITES, tree=(tmp_path, tmp_path / "src"))
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr
    # every point of the contract and of the samplers, not a few of them: as many as the quantised law has,
    # and besides its own test and the example in its docstring
    ternary, quantized = map(int, (tmp_path / "counts").read_text().split())
    assert ternary >= quantized + 2 > 50
    assert re.findall(r"(\d+) passed", run.stdout)[-1] == str(ternary), run.stdout


def the_code_of(page: str, words: str = "") -> tuple[str, dict[str, Any]]:
    """The text of a page, and the names after its only block of code with these words was run."""
    text = (DOCS / f"{page}.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.S) if words in block)
    names: dict[str, Any] = {}
    exec(code, names)
    return text, names


def test_the_worked_example_of_the_guarantees_gives_its_numbers() -> None:
    text, names = the_code_of("guarantees")
    claim, theta, law = names["claim"], names["theta"], names["account"].mechanism
    tight = rf.privacy_profile(law, theta, 1e-3, steps=10).epsilon(1e-5)
    gaussian = rf.privacy_profile(rf.Gaussian(1.0), theta, 1e-3, steps=10).epsilon(1e-5)
    own = claim.per_instance
    for row, ours, theirs in (
        ("claim.epsilon", claim.epsilon, gaussian),
        ("claim.per_instance.ex_post_epsilon", own.ex_post_epsilon, own.gaussian_ex_post_epsilon),
        ("claim.per_instance.epsilon", own.epsilon, own.gaussian_epsilon),
        ("claim.per_instance.renyi_epsilon", own.renyi_epsilon, own.gaussian_renyi_epsilon),
        ("rf.privacy_profile(..., steps=10).epsilon(1e-5)", tight, gaussian),
    ):
        assert f"| `{row}` | {rounded_up(ours)} | {rounded_up(theirs)} |" in text


def test_the_training_loop_of_the_page_meets_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = the_code_of("train_a_model")[1]["engine"]
    assert engine.steps == engine.planned_steps == 45
    assert 2.99 < engine.guarantee(1e-5).epsilon <= 3
    assert Path("run.ckpt").exists()
    engine.close()


def test_the_pages_of_decisions_and_of_pate_cost_what_they_say() -> None:
    text, names = the_code_of("decisions")
    account = names["votes"].account
    assert f"# {rounded_up(account.epsilon)} for every dataset" in text
    assert f"# {rounded_up(account.per_instance.epsilon)} for this one" in text
    text, names = the_code_of("pate", "rf.Pate(")
    assert f"# {rounded_up(names['claim'].epsilon)} for every dataset" in text


def test_the_grid_of_the_page_of_files_has_every_key_and_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (DOCS / "files.md").read_text(), re.S)
    (tmp_path / "mine.toml").write_text(text)
    assert read_grid(tmp_path / "mine.toml").fair.clips == ("clamp", "norm")
    shown = tomllib.loads(text)
    assert set(shown.pop("fair")) == {field.name for field in dataclasses.fields(FairSearch)}
    keys = {*shown.pop("data"), *shown.pop("paper"), *shown, "fair"}
    assert keys == {field.name for field in dataclasses.fields(Grid)}


@pytest.mark.parametrize(("page", "most"), [("ledger", 8), ("accounting", 50)])
def test_the_session_of_a_guide_runs(page: str, most: int) -> None:
    session = doctest.testfile(str(DOCS / f"{page}.md"), module_relative=False)
    assert session.failed == 0
    assert session.attempted > most
