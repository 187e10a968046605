"""The notebooks print what they show; ``python -m tests.test_notebooks`` writes their outputs again."""

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import output_from_msg

from tests.forks import ended

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def shown(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def run_again(folder: Path, into: Path) -> None:
    """Writes every notebook with the outputs of now: a Jupyter kernel in this process runs the cells."""
    from ipykernel.inprocess.manager import InProcessKernelManager

    os.chdir(folder)
    manager = InProcessKernelManager()
    manager.start_kernel()
    kernel = manager.client()
    kernel.start_channels()
    kernel.execute("%matplotlib inline")
    for name in NAMES:
        notebook = shown(name)
        for number, cell in enumerate([cell for cell in notebook.cells if cell.cell_type == "code"], 1):
            kernel.iopub_channel.get_msgs()
            kernel.execute(cell.source)
            cell.execution_count = number
            cell.outputs = outputs(kernel.iopub_channel.get_msgs(), number)
        kernel.execute("%reset -f")
        nbformat.write(notebook, into / f"{name}.ipynb")


def outputs(messages: list[dict[str, Any]], number: int) -> list[NotebookNode]:
    """What the messages of a kernel show below the cell of this number."""
    found: list[NotebookNode] = []
    for message in messages:
        if message["header"]["msg_type"] not in ("stream", "display_data", "execute_result", "error"):
            continue
        output = output_from_msg(message)
        if output.output_type == "error":
            raise RuntimeError("\n".join(output.traceback))
        if output.output_type == "stream" and found and found[-1].get("name") == output.name:
            found[-1].text += output.text
            continue
        if output.output_type == "execute_result":
            output.execution_count = number
        found.append(output)
    return found


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NotebookNode]:
    """In a process that has torch loaded: importing it takes longer than all cells."""
    folder = tmp_path_factory.mktemp("notebooks")
    assert ended(run_again, folder, folder) == 0
    return {name: nbformat.read(folder / f"{name}.ipynb", as_version=4) for name in NAMES}


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
    # in a process as the test's: another number of threads moves last digits, and with them the noise
    assert ended(run_again, FOLDER, FOLDER) == 0
