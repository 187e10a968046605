"""The floor plan follows the source; every export is in the reference and in a guide."""

import ast
import re
from difflib import unified_diff

import ringfence as rf
from tests import pages

OTHER = {"curvature.md", "design.md", "errata.md", "mutants.md", "performance.md"}
GUIDES = [
    pages.ROOT / "README.md",
    *(page for page in (pages.ROOT / "docs").glob("*.md") if page.name not in OTHER),
    *(pages.ROOT / "examples").glob("*.py"),
]


def difference(page: str, source: str) -> str:
    lines = unified_diff(page.splitlines(), source.splitlines(), "the page", "the source", lineterm="", n=0)
    return "\n".join([*lines, "", "python -m tests.pages writes the page again"])


def test_the_floor_plan_is_that_of_the_tree() -> None:
    (page,) = re.findall(r"```\nsrc/ringfence/\n.*?```", pages.DESIGN.read_text(), re.S)
    assert page == pages.plan(), difference(page, pages.plan())


def test_every_room_and_file_says_what_it_is() -> None:
    assert not [line for line in pages.plan().splitlines()[2:-1] if len(line.split()) == 1]


def test_the_reference_has_every_export_once() -> None:
    folder = pages.ROOT / "docs" / "reference"
    entries = re.findall(
        r"^::: ringfence\.(\w+)$", "\n".join(page.read_text() for page in folder.glob("*.md")), re.M
    )
    assert sorted(entries) == rf.__all__


def test_the_reference_has_what_the_integrations_export() -> None:
    """By their text: importing them takes longer than all of these tests."""
    exported = set()
    for name, file in {
        "opacus": "opacus/__init__.py",
        "huggingface": "huggingface.py",
        "lightning": "lightning.py",
    }.items():
        (names,) = re.findall(r"^__all__ = (\[.*?\])$", (pages.PACKAGE / file).read_text(), re.M | re.S)
        exported |= {f"{name}.{one}" for one in ast.literal_eval(names)}
    page = (pages.ROOT / "docs" / "reference" / "integrations.md").read_text()
    assert set(re.findall(r"^::: ringfence\.(.+)$", page, re.M)) == exported


def test_a_guide_uses_every_export() -> None:
    words = set(re.findall(r"\w+", " ".join(guide.read_text() for guide in GUIDES)))
    assert not set(rf.__all__) - words


def test_every_file_that_a_page_names_is_there() -> None:
    """Paths in backquotes: from the root of the project, of the package, or of the tests."""
    starts = (pages.ROOT, pages.PACKAGE, pages.ROOT / "tests")
    examples = r"ternary|ROOM|NAME"  # what a reader puts in the place of them
    for page in (*pages.ROOT.glob("*.md"), *(pages.ROOT / "docs").rglob("*.md")):
        if page.name == "CHANGELOG.md":  # which is about the past
            continue
        for path in re.findall(r"`([\w./]+/[\w.]+\.(?:py|md|csv|toml))`", page.read_text()):
            there = any((start / path).exists() for start in starts)
            assert there or re.search(examples, path), (page.name, path)
