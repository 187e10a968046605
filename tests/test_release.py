"""``make release`` in a repository of its own: version, commit and tag, or a refusal that changes nothing."""

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
release = runpy.run_path(str(ROOT / "scripts" / "release.py"))["release"]
FILES = ("src/ringfence/__init__.py", "CITATION.cff", "CHANGELOG.md")


def git(repository: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(repository: Path) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "change")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a name")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "name@example.org")
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    git(tmp_path, "init", "--quiet")
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("# Changes\n", "# Changes\n\n## 99.0.0\n\n- New.\n"))
    commit(tmp_path)
    return tmp_path


def test_version_commit_and_tag(repository: Path) -> None:
    assert release(repository, "99.0.0") == "v99.0.0"
    assert '\n__version__ = "99.0.0"\n' in (repository / FILES[0]).read_text()
    assert "\nversion: 99.0.0\n" in (repository / FILES[1]).read_text()
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "describe", "--exact-match") == "v99.0.0"
    assert git(repository, "log", "-1", "--format=%s") == "Version 99.0.0"
    assert git(repository, "diff", "--shortstat", "HEAD~1") == (
        "2 files changed, 2 insertions(+), 2 deletions(-)"
    )
    with pytest.raises(ValueError, match=r"the tag v99\.0\.0 exists already"):
        release(repository, "99.0.0")


def test_a_version_that_stands_already_is_tagged(repository: Path) -> None:
    for file in FILES[:2]:
        text = (repository / file).read_text()
        (repository / file).write_text(text.replace('"0.', '"99.').replace(": 0.", ": 99."))
    text = (repository / FILES[0]).read_text()
    version = text.split('__version__ = "')[1].split('"')[0]
    changelog = repository / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("99.0.0", version))
    commit(repository)
    before = git(repository, "rev-parse", "HEAD")
    assert release(repository, version) == f"v{version}"
    assert git(repository, "rev-parse", "HEAD") == before


@pytest.mark.parametrize(
    ("version", "old", "new", "message"),
    [
        ("99.0", "", "", r"VERSION must be x\.y\.z, got '99\.0'"),
        ("", "", "", r"VERSION must be x\.y\.z, got ''"),
        ("98.0.0", "", "", r"the newest heading of CHANGELOG\.md must be 98\.0\.0, got 99\.0\.0"),
        ("99.0.0", "- New.\n", "", r"CHANGELOG\.md must say what is new in 99\.0\.0"),
        ("0.0.1", "99.0.0", "0.0.1", "VERSION must not be below"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_changes_nothing(
    repository: Path, version: str, old: str, new: str, message: str
) -> None:
    if old:
        changelog = repository / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace(old, new))
        commit(repository)
    before = git(repository, "rev-parse", "HEAD")
    with pytest.raises(ValueError, match=message):
        release(repository, version)
    assert git(repository, "rev-parse", "HEAD") == before
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "tag") == ""


def test_changes_that_are_not_committed_are_refused(repository: Path) -> None:
    (repository / "new.txt").write_text("new")
    with pytest.raises(ValueError, match="the working tree must be clean"):
        release(repository, "99.0.0")
