"""Which way is taken at the last number of coordinates, settings or steps, and which at the next."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

import ringfence as rf
from ringfence.accounting import divergence_sums, examples, per_instance
from ringfence.accounting.divergence_sums import DivergenceTable, Setting, split_by_setting
from ringfence.accounting.subsampling import subsampled_rdp
from ringfence.numerics.operators import BatchedOperator, spectral_bounds
from tests.accounting.fixed_batch import fixed_batch_rdp
from tests.tensors import float64

LAW = rf.StochasticSign(1.0)
TWO = float64([2.0])


class TakenError(Exception):
    """The way that was looked out for."""


def takes(call: Callable[[], object]) -> bool:
    try:
        call()
    except TakenError:
        return True
    return False


def refuse(*_: object, **__: object) -> None:
    raise TakenError


def sampled(coordinates: float) -> object:
    count = 4 if coordinates % 4 == 0 else 5
    batches = torch.zeros(count, int(coordinates) // count)
    return subsampled_rdp(LAW, batches, 0.1, 0.5, [2], failure_probability=1e-3)


def known(coordinates: float) -> object:
    return fixed_batch_rdp(LAW, torch.zeros(int(coordinates)), 0.1, 0.5, [2])


def settings(count: float) -> rf.Mechanism:
    return rf.StochasticSign(1 + torch.arange(count, dtype=torch.float64))


def spread(width: float) -> object:
    return DivergenceTable(TWO).sums(Setting.of(LAW, 0.1), float64([-1.0, width - 1.0]))


# what is called with a number, the last one, the next, and what only the first side or the other calls
SWITCHES: dict[str, tuple[Callable[[float], object], float, float, ModuleType | type, str, bool]] = {
    "few coordinates of a sample": (sampled, 1024, 1026, DivergenceTable, "sums", False),
    "few coordinates of a known batch": (known, 1024, 1025, DivergenceTable, "sums", False),
    "coordinates near each other": (spread, 256.0, 256.001, divergence_sums, "exact_sums", False),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_the_last_and_the_next(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, last, following, owner, way, up_to_the_last = SWITCHES[name]
    monkeypatch.setattr(owner, way, refuse)
    assert takes(lambda: call(last)) is up_to_the_last
    assert takes(lambda: call(following)) is not up_to_the_last


def test_settings_that_get_a_table_each() -> None:
    for count, tables in ((64, 64), (65, 0)):
        theta = torch.zeros(count, dtype=torch.float64)
        parts = split_by_setting(settings(count), theta, float64(0.1), per_instance._SETTINGS)
        assert len(list(parts or ())) == tables
        release = examples.TabulatedSums(settings(count), theta, TWO, examples.informations(TWO))
        assert len(release._parts) == tables


def test_one_matrix_without_a_bound_is_refused_beside_one_that_is_zero() -> None:
    scale = float64([0.0, 1.0])[:, None]
    operator = BatchedOperator(2, (5, 5), lambda v: scale * v, lambda v: scale * v, rounding=0.1)
    with pytest.raises(ValueError, match=r"rounding 0\.1 leaves nothing of 16 probes"):
        spectral_bounds(operator, generator=torch.Generator().manual_seed(0))
