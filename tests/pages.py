"""The floor plan, which is made from the source: ``python -m tests.pages`` writes it again.

It stands in ``docs/design.md`` and lists every room, chapter and file with the first sentence of its
docstring. ``test_pages.py`` fails when the page differs from what this module writes.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "ringfence"
DESIGN = ROOT / "docs" / "design.md"
_PLAN = re.compile(r"```\nsrc/ringfence/\n.*?```", re.S)
_COLUMN = 36  # where the sentences of the plan begin


def first_sentence(docstring: str) -> str:
    """The first sentence of a docstring, on one line.

    >>> first_sentence("One law. More\\nabout it.")
    'One law.'
    """
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.?]) (?=[A-Z`(])", paragraph)[0]


def plan() -> str:
    """The tree of the package: rooms from the bottom up, in each the files first and then the chapters."""
    return "\n".join(["```", "src/ringfence/", *_inside(PACKAGE, 1), "```"])


def _layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = (one["layers"] for one in contracts if one.get("containers") == ["ringfence"])
    return [name for layer in reversed(rooms) for name in re.findall(r"\w+", layer)]


def _inside(folder: Path, depth: int) -> Iterator[str]:
    here = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    order = _layers() if depth == 1 else []

    def place(path: Path) -> tuple[int, bool, str]:
        return (order.index(path.stem) if path.stem in order else -1, path.is_dir(), path.name)

    for path in sorted(here, key=place):
        if path.name != "__init__.py":
            name = "  " * depth + path.name + "/" * path.is_dir()
            yield f"{name:{_COLUMN}} {_docstring(path)}".rstrip()
            if path.is_dir():
                yield from _inside(path, depth + 1)


def _docstring(path: Path) -> str:
    file = path / "__init__.py" if path.is_dir() else path
    return first_sentence(ast.get_docstring(ast.parse(file.read_text())) or "")


if __name__ == "__main__":
    DESIGN.write_text(_PLAN.sub(lambda _: plan(), DESIGN.read_text()))
