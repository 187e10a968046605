"""The README's examples run, and print what the README says they print."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_examples_print_what_they_say() -> None:
    text = (ROOT / "README.md").read_text()
    codes, outputs = (re.findall(rf"```{kind}\n(.*?)```", text, re.S) for kind in ("python", "text"))
    assert len(codes) == len(outputs) == 3
    for code, output in zip(codes, outputs, strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        assert printed.getvalue() == output


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
