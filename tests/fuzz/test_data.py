"""Files: whole ones with a few bytes changed, and bytes that never were a file."""

import atexit
import io
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from hypothesis import strategies as st

from experiments.sweep.settings import read_grid
from ringfence.data.features import read_array, read_features, read_theta
from tests.fuzz import strategies as fuzz
from tests.fuzz.contract import calls_well
from tests.fuzz.properties import fuzzed

PLACE = Path(mkdtemp(prefix="ringfence-fuzz-"))
atexit.register(shutil.rmtree, PLACE, ignore_errors=True)
NAMES = ("changed",)  # a file is named by its path


def _written(write: Any) -> bytes:
    memory = io.BytesIO()
    write(memory)
    return memory.getvalue()


def _files() -> dict[str, list[bytes]]:
    import pyarrow
    import pyarrow.parquet

    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 1])
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    lists = pyarrow.table({"features": x.tolist(), "label": ["a", "b", "b"], "split": ["train"] * 3})
    columns = pyarrow.table({"height": [1.5, 2.5, 3.0], "label": [0, 1, 1]})
    return {
        ".npy": [_written(lambda file: np.save(file, x)), _written(lambda file: np.save(file, np.ones(3)))],
        ".npz": [
            _written(lambda file: np.savez(file, **arrays)),
            _written(lambda file: np.savez_compressed(file, features=x.astype(np.float16), labels=y)),
            _written(lambda file: np.savez(file, q_train=x.astype(np.uint8), y_train=y)),
        ],
        ".parquet": [
            _written(lambda file, table=table: pyarrow.parquet.write_table(table, file))
            for table in (lists, columns)
        ],
    }


FILES = _files()


@fuzzed("data", 3, 120, suffix=st.sampled_from([".npz", ".parquet"]), which=st.integers(0, 2), data=st.data())
def test_features_are_read_or_refused(suffix: str, which: int, data: Any) -> None:
    whole = FILES[suffix][which % len(FILES[suffix])]
    path = PLACE / f"changed{suffix}"
    path.write_bytes(data.draw(fuzz.mutated(whole)))
    found = calls_well(read_features, path, names=NAMES)
    if found is not None:
        assert found.train_features.dtype == np.float32
        assert np.isfinite(found.train_features).all()
        assert len(found.train_features) == len(found.train_labels) > 0


@fuzzed("data", share=2, few=40, which=st.integers(0, 1), data=st.data())
def test_arrays_are_read_or_refused(which: int, data: Any) -> None:
    path = PLACE / "changed.npy"
    path.write_bytes(data.draw(fuzz.mutated(FILES[".npy"][which])))
    # whether the numbers are finite is asked where they are used
    for function in (read_array, read_theta):
        try:
            calls_well(function, path, names=NAMES)
        except AssertionError as error:
            if "gave a NaN" not in str(error):
                raise


GRID = """
name = "toy"
mechanisms = ["gaussian", "quantized"]
delta = 1e-5
[data]
classes = 10
center = 8
[paper]
clip = [1e-2, 5e-2]
noise_multiplier = [100]
bound = [4, 16]
learning_rate = [2]
steps = [5, 10]
[fair]
clips = ["clamp", "norm"]
settings = 64
clip = [1e-3, 1.0]
"""
VALUES = ["nan", "inf", "-1", "0", "1e400", "true", '""', "[]", "{}", "[[1]]", "[nan]", "9" * 30]
VALUES += ["1979-05-27", '"é"']


@fuzzed(
    *("data", 3, 60),
    value=st.one_of(st.none(), st.sampled_from(VALUES)),
    line=st.integers(0, 40),
    data=st.data(),
)
def test_grids_are_read_or_refused(value: str | None, line: int, data: Any) -> None:
    path = PLACE / "changed.toml"
    if value is None:
        path.write_bytes(data.draw(fuzz.mutated(GRID.encode())))
    else:
        lines = GRID.splitlines()
        at = line % len(lines)
        lines[at] = f"{lines[at].split('=')[0]}= {value}"
        path.write_text("\n".join(lines))
    grid = calls_well(read_grid, path, names=NAMES)
    if grid is not None:
        assert repr(grid)
