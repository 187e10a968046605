"""Every export is in the reference and in a guide; every file that a page names is there."""

import ast
import re
from pathlib import Path

import ringfence as rf

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "ringfence"
OTHER = {"curvature.md", "design.md", "errata.md", "mutants.md", "performance.md"}
GUIDES = [
    ROOT / "README.md",
    *(page for page in (ROOT / "docs").glob("*.md") if page.name not in OTHER),
    *(ROOT / "examples").glob("*.py"),
]


def test_the_reference_has_every_export_once() -> None:
    folder = ROOT / "docs" / "reference"
    entries = re.findall(
        r"^::: ringfence\.(\w+)$", "\n".join(page.read_text() for page in folder.glob("*.md")), re.M
    )
    assert sorted(entries) == rf.__all__


def test_the_reference_has_what_the_integrations_export() -> None:
    """By their text: importing them takes longer than all of these tests."""
    exported = set()
    for name, file in {
        "opacus": "opacus.py",
        "huggingface": "huggingface.py",
        "lightning": "lightning.py",
    }.items():
        (names,) = re.findall(r"^__all__ = (\[.*?\])$", (PACKAGE / file).read_text(), re.M | re.S)
        exported |= {f"{name}.{one}" for one in ast.literal_eval(names)}
    page = (ROOT / "docs" / "reference" / "integrations.md").read_text()
    assert set(re.findall(r"^::: ringfence\.(.+)$", page, re.M)) == exported


def test_a_guide_uses_every_export() -> None:
    words = set(re.findall(r"\w+", " ".join(guide.read_text() for guide in GUIDES)))
    assert not set(rf.__all__) - words


def test_every_file_that_a_page_names_is_there() -> None:
    """Paths in backquotes: from the root of the project, of the package, or of the tests."""
    starts = (ROOT, PACKAGE, ROOT / "tests")
    examples = "ternary"  # the law that a reader adds
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if page.name == "CHANGELOG.md":  # which is about the past
            continue
        for path in re.findall(r"`([\w./]+/[\w.]+\.(?:py|md|csv|toml))`", page.read_text()):
            there = any((start / path).exists() for start in starts)
            assert there or examples in path, (page.name, path)


def test_every_test_that_a_page_names_is_there() -> None:
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {path.stem for path in files}
    known.update(re.findall(r"def (test_\w+)", " ".join(path.read_text() for path in files)))
    for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"):
        if page.name == "adding_a_mechanism.md":  # which has a test to be written
            continue
        named = set(re.findall(r"\btest_\w+", " ".join(re.findall(r"`[^`\n]+`", page.read_text()))))
        assert named - {"test_batch", "test_features", "test_labels"} <= known, page.name  # names in data
