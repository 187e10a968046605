"""The files around the package agree with each other: dependencies, extras, CI, hooks, citation."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import ringfence

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = sorted(path for folder in ("src", "experiments") for path in (ROOT / folder).rglob("*.py"))
# Names of packages on the index whose modules are called otherwise.
MODULES = {"ibis-framework": "ibis", "scikit-learn": "sklearn", "pillow": "PIL"}
# Imported only where another dependency brings it: triton comes with torch on a machine with a GPU.
BROUGHT = {"triton"}


def requirements(lines: list[str]) -> set[str]:
    """The names of the packages in a list of requirements.

    >>> sorted(requirements(["torch>=2.6", "dp-accounting>=0.6"]))
    ['dp-accounting', 'torch']
    """
    return {re.match(r"[\w-]+", line)[0].lower() for line in lines}


def imported() -> set[str]:
    """What the package imports, anywhere, other than itself and the standard library."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module)
    tops = {name.split(".")[0] for name in found}
    return tops - sys.stdlib_module_names - {"ringfence", "experiments", "_typeshed"}


def test_what_is_imported_is_declared() -> None:
    extras = [
        line for name, lines in PROJECT["optional-dependencies"].items() if name != "dev" for line in lines
    ]
    declared = requirements([*PROJECT["dependencies"], *extras])
    modules = {MODULES.get(name, name.replace("-", "_")) for name in declared}
    assert imported() - BROUGHT - modules == set()


def test_every_extra_that_a_message_or_a_page_names_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *SOURCES]
    named = {extra for page in pages for extra in re.findall(r"ringfence\[([\w,]+)\]", page.read_text())}
    assert {one for extra in named for one in extra.split(",")} <= PROJECT["optional-dependencies"].keys()


def test_every_dependency_has_a_version_the_tests_run_with() -> None:
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]}
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    assert requirements([*PROJECT["dependencies"], *extras]) - {"ringfence"} <= pinned


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_hooks_are_the_tools_of_make_lint_and_download_nothing() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    hooks = [hook["entry"].removeprefix(".venv/bin/").split() for hook in repository["hooks"]]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    commands = [line.split("/", 1)[1].split() for line in lint.splitlines()]
    assert [[word for word in words if word not in ("--check", ".")] for words in commands] == hooks
    assert all(hook["language"] == "system" for hook in repository["hooks"])


@pytest.mark.parametrize("name", ["bug_report.md", "feature_request.md"])
def test_issue_templates_have_a_name_and_a_purpose(name: str) -> None:
    _, head, body = (ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text().split("---\n", 2)
    assert yaml.safe_load(head).keys() == {"name", "about"}
    assert body.strip()


def test_the_citation_is_of_this_version_and_of_the_paper() -> None:
    """The fields that version 1.2.0 of the format asks for, of the file and of each reference."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == ringfence.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= paper.keys()
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert paper["title"] in readme
    for author in paper["authors"]:
        assert author["family-names"] in readme
