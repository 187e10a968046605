"""The notebooks print what they show; ``python -m tests.test_notebooks`` writes their outputs again."""

import os
from pathlib import Path
from unittest import mock

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def shown(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def run_again(folder: Path) -> dict[str, NotebookNode]:
    """Every notebook with the outputs of now, in one process: importing torch takes longer than they do."""
    notebooks = {name: shown(name) for name in NAMES}
    together = shown(NAMES[0])
    together.cells = [cell for one in notebooks.values() for cell in [*one.cells, new_code_cell("%reset -f")]]
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        NotebookClient(
            together,
            timeout=120,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    for one in notebooks.values():
        for number, cell in enumerate([cell for cell in one.cells if cell.cell_type == "code"], 1):
            cell.execution_count = number
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = number
    return notebooks


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NotebookNode]:
    return run_again(tmp_path_factory.mktemp("notebooks"))


def printed(notebook: NotebookNode) -> list[str]:
    """The texts that it shows; pictures are drawn by matplotlib and differ from version to version."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [output.get("text") or output["data"]["text/plain"] for output in outputs]


@pytest.mark.parametrize("name", ["network", "private_probe", "suppressed_table"])
def test_a_notebook_prints_what_it_shows(name: str, again: dict[str, NotebookNode]) -> None:
    assert printed(again[name]) == printed(shown(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_small_and_has_a_picture(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert len(text) < 200_000
    assert '"image/png"' in text
    nbformat.validate(shown(name))


if __name__ == "__main__":
    for name, notebook in run_again(FOLDER).items():
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")
