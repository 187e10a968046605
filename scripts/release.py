"""``make release VERSION=x.y.z``: the version in the package and in CITATION.cff, one commit, one tag.

The changelog comes first: its newest heading must be the version, with something below it. Nothing is pushed.
"""

import re
import subprocess
import sys
from pathlib import Path

PLACES = {"src/ringfence/__init__.py": r'^__version__ = "(.+)"$', "CITATION.cff": r"^version: (.+)$"}


def release(root: Path, version: str) -> str:
    """Writes the version, commits it and tags it; returns the name of the tag. Refuses before it writes."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"VERSION must be x.y.z, got {version!r}")
    tag = f"v{version}"
    if _git(root, "status", "--porcelain"):
        raise ValueError("the working tree must be clean: commit or stash what is changed")
    if _git(root, "tag", "--list", tag):
        raise ValueError(f"the tag {tag} exists already")
    _check_changelog((root / "CHANGELOG.md").read_text(), version)
    texts = {place: (root / place).read_text() for place in PLACES}
    for place, text in texts.items():
        (before,) = re.findall(PLACES[place], text, re.M)
        if _numbers(before) > _numbers(version):
            raise ValueError(f"VERSION must not be below the {before} of {place}, got {version!r}")
    for place, text in texts.items():
        (root / place).write_text(
            re.sub(PLACES[place], lambda found: found[0].replace(found[1], version), text, flags=re.M)
        )
    if _git(root, "status", "--porcelain"):
        _git(root, "commit", "--quiet", "--all", "--message", f"Version {version}")
    _git(root, "tag", "--annotate", tag, "--message", f"ringfence {version}")
    return tag


def _check_changelog(text: str, version: str) -> None:
    sections = re.split(r"^## (.+)$", text, flags=re.M)[1:]
    if not sections or sections[0].strip() != version:
        newest = sections[0].strip() if sections else "none"
        raise ValueError(f"the newest heading of CHANGELOG.md must be {version}, got {newest}")
    if not sections[1].strip():
        raise ValueError(f"CHANGELOG.md must say what is new in {version}, got an empty section")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _git(root: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


if __name__ == "__main__":
    try:
        tag = release(Path(__file__).parent.parent, " ".join(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"release: {error}")
    print(f"tagged {tag}; git push --follow-tags publishes it")
