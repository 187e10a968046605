"""The file of a sweep: no row twice, other sweeps refused, broken files named."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.sweep.batch import Measured
from experiments.sweep.epsilons import Epsilons
from experiments.sweep.store import FILE, SweepStore, read_rows
from tests.experiments.sweep.sweeps import GRID

ABOUT = {"name": "toy", "delta": "1e-05", "grid": "a" * 64}
SETTINGS = GRID.settings("paper")
NUMBERS = Epsilons(1.0, 2.0, 3.0, 4.0, 5.0, float("inf"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = SweepStore(tmp_path / "new" / "folder", ABOUT)
    done = Measured(SETTINGS[-1], 3, 0.5, 0.75, eta_max=2.0, eta_median=1.0, seconds=0.1)
    store.add([(done, NUMBERS), (Measured(SETTINGS[0], 0, error="ValueError: no"), None)], ("0.2", "2.6"))
    failed, row = read_rows(store.path.parent)
    assert (row.data, row.mechanism, row.setting, row.seed, row.delta) == (
        "toy",
        "truncated",
        SETTINGS[-1],
        3,
        1e-5,
    )
    assert (row.validation_accuracy, row.test_accuracy, row.eta_max, row.eta_median) == (0.5, 0.75, 2.0, 1.0)
    assert (row.epsilon_pdp, row.epsilon_ex_post, row.epsilon_data_independent) == (1.0, 2.0, 3.0)
    assert row.gaussian_epsilon_data_independent == float("inf")
    assert (row.ringfence, row.torch, row.error) == ("0.2", "2.6", None)
    assert (failed.mechanism, failed.error, failed.test_accuracy) == ("Gaussian", "ValueError: no", None)


def test_rows_say_their_clip_and_rows_from_before_there_were_several_are_clamps(tmp_path: Path) -> None:
    store = SweepStore(tmp_path, ABOUT)
    shorter = replace(SETTINGS[0], clip_kind="norm")
    store.add([(Measured(one, 0), NUMBERS) for one in (shorter, SETTINGS[0])], ("", ""))
    with closing(sqlite3.connect(store.path)) as file, file:
        file.execute("""UPDATE rows SET settings = replace(settings, ', "clip_kind": "clamp"', '')""")
        file.execute("ALTER TABLE rows DROP COLUMN checksum")  # the oldest files have none
        file.execute("DELETE FROM sweep WHERE name = 'checksum'")
        assert file.execute("SELECT count(*) FROM rows WHERE settings NOT LIKE '%clip_kind%'").fetchone() == (
            1,
        )
    rows = read_rows(tmp_path)
    assert [row.setting for row in rows] == [SETTINGS[0], shorter]
    assert [row.mechanism for row in rows] == ["Gaussian", "Gaussian, L2 clip"]


def test_the_first_result_of_a_job_stays(tmp_path: Path) -> None:
    store = SweepStore(tmp_path, ABOUT)
    for accuracy in (0.25, 0.5):
        store.add([(Measured(SETTINGS[0], 0, test_accuracy=accuracy), NUMBERS)], ("", ""))
    assert [row.test_accuracy for row in read_rows(tmp_path)] == [0.25]
    assert store.done() == {(SETTINGS[0].key, 0)}


def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    store = SweepStore(tmp_path, ABOUT)
    with pytest.raises(AttributeError):
        store.add([(Measured(SETTINGS[0], 0), NUMBERS), (None, None)], ("", ""))  # type: ignore[list-item]
    assert store.done() == set()


def test_another_sweep_is_refused_by_name(tmp_path: Path) -> None:
    SweepStore(tmp_path, ABOUT)
    assert SweepStore(tmp_path, ABOUT).earlier == 1
    with pytest.raises(ValueError, match="holds a sweep with another name: 'toy', not 'other'"):
        SweepStore(tmp_path, {**ABOUT, "name": "other"})
    with pytest.raises(ValueError, match=r"holds a sweep with another grid: 'a{60}' \.\.\., not 'b{60}'"):
        SweepStore(tmp_path, {**ABOUT, "grid": "b" * 64})


def test_no_sweep_and_no_database(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no sweep: there is no sweep.sqlite in it"):
        read_rows(tmp_path)
    (tmp_path / FILE).write_text("this is not a database, whatever its name says" * 100)
    with pytest.raises(ValueError, match=r"sweep.sqlite cannot be read as a sweep: file is not a database"):
        read_rows(tmp_path)
