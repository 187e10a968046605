"""The README is short, its three examples run, and they print what the README says they print."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = ("Release a statistic", "Train a model", "Account for or audit a release")


def example(name: str) -> tuple[str, str]:
    """The code under a heading, and what it prints."""
    (section,) = re.findall(rf"^## {name}\n(.*?)^## ", README, re.M | re.S)
    (code,), (output,) = (re.findall(rf"```{kind}\n(.*?)```", section, re.S) for kind in ("python", "text"))
    return code, output


def without_noise(printed: str) -> str:
    """The releases are drawn anew each time: counts lose their last two digits, and accuracies theirs."""
    return re.sub(r"\d\d\.0|accuracy 0\.\d\d", "?", printed)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_five_lines_and_prints_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = example(name)
    assert len([line for line in code.splitlines() if line and not re.match("import|from", line)]) <= 5
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert without_noise(printed.getvalue()) == without_noise(output)
    for accuracy in re.findall(r"accuracy (.*)", printed.getvalue() + output):
        assert 0.8 < float(accuracy) < 0.95


def test_it_is_two_screens() -> None:
    assert len(README.splitlines()) <= 120


def test_every_link_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            if target.startswith("http"):
                continue
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            assert file.exists(), (page.name, target)
            if anchor:
                headings = re.findall(r"^#+ (.+)$", file.read_text(), re.M)
                slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in slugs, (page.name, target)


def test_the_version_is_in_the_changelog() -> None:
    import ringfence

    assert f"## {ringfence.__version__}" in (ROOT / "CHANGELOG.md").read_text()
