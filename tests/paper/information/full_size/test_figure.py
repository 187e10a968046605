"""From a finished sweep, or from its CSV file alone, to the files of the figure."""

from pathlib import Path

import pytest

from ringfence.paper.information.full_size.figure import (
    draw_rows,
    read_probe,
    reproduce_full_size,
    write_rows,
)
from ringfence.paper.information.full_size.rows import network_file
from tests.paper.information.full_size import toys

PROBE = Path(__file__).parents[4] / "docs" / "results" / "information_cifar10.csv"


def test_a_finished_sweep_is_drawn(swept: Path) -> None:
    files = reproduce_full_size(swept / "images.npz", swept, settings=toys.SETTINGS, rounds=1)
    assert [file.name for file in files] == [
        "network_information.png",
        "network_information.pdf",
        "network_information.txt",
        "network_information.csv",
    ]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    # epsilons, which the machine that trained could not make, are there now
    assert ",1e-05," in files[3].read_text()


def test_the_csv_file_is_enough(swept: Path, tmp_path: Path) -> None:
    file = write_rows(swept)
    assert len(draw_rows(file, tmp_path / "new", PROBE)) == 3
    assert len({row.mechanism for row in read_probe(PROBE)}) == 4
    with pytest.raises(ValueError, match="must hold rows of Figure 4, got"):
        read_probe(file)


def test_a_sweep_without_rows_is_refused(tmp_path: Path) -> None:
    network_file(tmp_path, {"examples": "1", "batch_size": "1", "parameters": "1", "delta": "1e-5"})
    with pytest.raises(ValueError, match="has no finished run yet"):
        write_rows(tmp_path)
