"""The rows of a sweep of linear probes, and the file that keeps them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from experiments.sweep.epsilons import Epsilons, epsilons
from experiments.sweep.job_file import FILE as FILE
from experiments.sweep.job_file import JobFile, read_jobs
from experiments.sweep.measured import Measured, Sums
from experiments.sweep.settings import SweepSetting

_EPSILONS = tuple(field.name for field in fields(Epsilons))
_NUMBERS = ("validation_accuracy", "test_accuracy", *_EPSILONS, "eta_max", "eta_median", "seconds")
_TEXTS = ("ringfence", "torch", "error", "sums")


@dataclass(frozen=True)
class SweepRow:
    """One finished job. The numbers are None where it ended with an ``error``.

    ``epsilon_pdp``, ``epsilon_ex_post`` and the etas are computed from the private data and must not be
    published. ``validation_accuracy`` is None where nothing was kept back to choose by.
    """

    data: str
    mechanism: str
    setting: SweepSetting
    seed: int
    delta: float
    validation_accuracy: float | None = None
    test_accuracy: float | None = None
    epsilon_pdp: float | None = None
    epsilon_ex_post: float | None = None
    epsilon_data_independent: float | None = None
    gaussian_epsilon_pdp: float | None = None
    gaussian_epsilon_ex_post: float | None = None
    gaussian_epsilon_data_independent: float | None = None
    eta_max: float | None = None
    eta_median: float | None = None
    seconds: float = 0.0
    ringfence: str = ""
    torch: str = ""
    error: str | None = None
    classes: int | None = None  # None in sweeps of earlier versions, which did not write it down


class SweepStore:
    """The ``JobFile`` of a sweep of probes.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     first = SweepStore(Path(folder), {"data": "a", "delta": "1e-5"})
    ...     SweepStore(Path(folder), {"data": "b", "delta": "1e-5"})
    Traceback (most recent call last):
    ValueError: ... holds a sweep with another data: 'a', not 'b'
    """

    def __init__(self, folder: Path, identity: Mapping[str, str]) -> None:
        self._file = JobFile(folder, identity, _NUMBERS, _TEXTS)
        self.path, self.earlier, self.done = self._file.path, self._file.earlier, self._file.done

    def add(self, results: Sequence[tuple[Measured, Epsilons | None]], versions: tuple[str, str]) -> None:
        """Writes the rows of a batch, all of them or none."""
        self._file.add([_values(measured, epsilon, versions) for measured, epsilon in results])


def read_rows(folder: Path) -> list[SweepRow]:
    """Reads every finished row of a sweep, in an order that does not depend on who finished which job when.

    Rows that were made without dp-accounting get their epsilons here. Damage to the file raises a ValueError.
    """
    about, found = read_jobs(folder, _NUMBERS, _TEXTS)
    rows = [_row(about, values) for values in found]
    return sorted(rows, key=lambda row: (setting_order(row.setting), row.seed))


def setting_order(setting: SweepSetting) -> tuple[str | float, ...]:
    """What settings are sorted by.

    >>> setting_order(SweepSetting("sign", 0.1, 10.0, learning_rate=1.0, steps=5))
    ('clamp', 'sign', 0.1, 10.0, 1.0, 5.0, 0.0, 0.0)
    """
    numbers = [value for name, value in asdict(setting).items() if name not in ("mechanism", "clip_kind")]
    return (
        setting.clip_kind,
        setting.mechanism,
        *(0.0 if value is None else float(value) for value in numbers),
    )


def _values(measured: Measured, epsilon: Epsilons | None, versions: tuple[str, str]) -> dict[str, Any]:
    return {
        "setting": measured.setting.key,
        "seed": measured.seed,
        "settings": json.dumps(asdict(measured.setting)),
        "sums": None if measured.sums is None else json.dumps(asdict(measured.sums)),
        **{name: getattr(measured, name) for name in _NUMBERS if name not in _EPSILONS},
        **({} if epsilon is None else asdict(epsilon)),
        **dict(zip(("ringfence", "torch"), versions, strict=True)),
        "error": measured.error,
    }


def _row(about: Mapping[str, str], values: dict[str, Any]) -> SweepRow:
    setting = SweepSetting(**json.loads(values.pop("settings")))
    sums, delta = values.pop("sums"), float(about["delta"])
    if values["epsilon_pdp"] is None and sums is not None and values["error"] is None:
        kept = json.loads(sums)
        kept = Sums(tuple(kept.pop("orders")), tuple(kept.pop("worst")), **kept)
        values |= asdict(epsilons(kept, setting.steps, delta))
    del values["setting"]
    classes = int(about["classes"]) if "classes" in about else None
    seed = values.pop("seed")
    return SweepRow(about["name"], setting.label, setting, seed, delta, **values, classes=classes)
