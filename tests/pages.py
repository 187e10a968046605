"""The two blocks of the docs that are made from the source: ``python -m tests.pages`` writes them again.

The floor plan in ``docs/design.md`` lists every room, chapter and file with the first sentence of its
docstring. ``docs/reference.md`` groups the exports by hand; the line of each export, and those of its
methods, come from their docstrings. ``test_pages.py`` fails when a page differs from what this module writes.
"""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import ringfence as rf

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "ringfence"
DESIGN, REFERENCE = ROOT / "docs" / "design.md", ROOT / "docs" / "reference.md"
_PLAN = re.compile(r"```\nsrc/ringfence/\n.*?```", re.S)
_ENTRY = re.compile(r"^- \*\*`(\w+)`\*\*.*(?:\n  - .*)*", re.M)
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


def reference() -> str:
    """The reference page with the lines of every export written anew, and missing laws added."""
    page = REFERENCE.read_text()
    missing = sorted(_laws() - set(_ENTRY.findall(page)))
    page = page.replace(
        "- **`Mechanism`**", "".join(f"- **`{law}`**\n" for law in missing) + "- **`Mechanism`**"
    )
    return _ENTRY.sub(lambda entry: "\n".join(_export(entry[1])), page)


def exports_of_the_reference() -> list[str]:
    """The exports that have a line in the reference page."""
    return _ENTRY.findall(REFERENCE.read_text())


def _laws() -> set[str]:
    values = {name: getattr(rf, name) for name in rf.__all__}
    return {
        name
        for name, value in values.items()
        if isinstance(value, type) and issubclass(value, rf.Mechanism) and value is not rf.Mechanism
    }


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


def _export(name: str) -> Iterator[str]:
    thing = getattr(rf, name, None)
    if thing is None:
        yield f"- **`{name}`** is not exported by ringfence."
        return
    called = isinstance(thing, FunctionType)
    arguments = _arguments(thing) if called else ""
    yield f"- **`{name}`**{arguments and f' `{arguments}`'}: {first_sentence(thing.__doc__ or '')}"
    for member, value in [] if called else vars(thing).items():
        function = getattr(value, "__func__", value)
        if (
            member.startswith("_")
            or not isinstance(function, FunctionType | property)
            or not function.__doc__
        ):
            continue
        shown = member if isinstance(function, property) else f"{member}{_arguments(function)}"
        yield f"  - `{shown}`: {first_sentence(function.__doc__)}"


def _arguments(function: object) -> str:
    """The parameters by name; defaults only where they are short."""
    shown = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ("self", "cls"):
            continue
        text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + name
        if parameter.default is not parameter.empty:
            default = repr(parameter.default)
            text += "=" + (default if len(default) <= 18 else "...")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(one.startswith("*") for one in shown):
            shown.append("*")
        shown.append(text)
    return f"({', '.join(shown)})"


if __name__ == "__main__":
    DESIGN.write_text(_PLAN.sub(lambda _: plan(), DESIGN.read_text()))
    REFERENCE.write_text(reference())
