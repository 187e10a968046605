"""How much is held or kept at once changes no result."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import ringfence as rf
from experiments import grid_accounts
from ringfence.accounting import divergence_sums, examples, per_instance
from ringfence.accounting.divergence_sums import Setting, exact_sums
from ringfence.mechanisms import pieces
from ringfence.numerics import normal, singular_values
from tests.accounting.drawing import draw
from tests.mutants.mutations import SIZES
from tests.tensors import float64

ORDERS = float64([1.5, 8.0, 256.0])
SIGN = rf.StochasticSign(0.5)
LAW = rf.RectifiedGaussian(0.5, 1.0)


def evaluated() -> Tensor:
    return exact_sums(LAW, draw(50), float64(0.1), ORDERS)


def tabulated() -> Tensor:
    return divergence_sums.DivergenceTable(ORDERS).sums(Setting.of(LAW, 0.1), 0.2 * draw(300))


def paged() -> Tensor:
    table = grid_accounts.GridTable(ORDERS)
    settings = [Setting.of(LAW, size) for size in (0.1, 0.2, 0.1)]
    thetas = [0.2 * draw(3, 30, seed=seed) for seed in (0, 1, 0)]
    return torch.stack([grid_accounts.block_sums(table, settings, theta) for theta in thetas])


def by_settings() -> Tensor:
    account = rf.PerInstanceAccountant(LAW, 0.1, ORDERS)
    for bound in (1.0, 2.0, 1.0):
        account.step(draw(300).clamp(0, 0.4), mechanism=rf.RectifiedGaussian(0.5, bound))
    return account.worst


def by_norms() -> Tensor:
    account = rf.PerInstanceAccountant(LAW, rf.Sensitivity(norm=0.3), ORDERS)
    account.step(draw(50))
    return account.worst


def single_examples(law: rf.Mechanism = SIGN) -> Tensor:
    account = rf.ExampleAccountant(law, ORDERS)
    for seed in (0, 1):
        account.step(draw(4), 0.1 * draw(5, 4, seed=seed))
    return account.sums


def examples_of_a_family() -> Tensor:
    return single_examples(rf.TruncatedGaussian(0.5, 1.0))


def norms() -> Tensor:
    weights, matrices = draw(12).abs() + 0.1, draw(3, 12, 5, seed=1)
    both = [singular_values.squared_norms(weights, matrices[..., :width]) for width in (5, 2)]
    tall = singular_values.squared_norms(draw(5).abs(), matrices.mT)  # by the Gram matrix of its rows
    return torch.cat((*both, tall, singular_values.squared_norms(weights, matrices, trace=True)))


CASES: list[tuple[ModuleType, str, Callable[[], Tensor]]] = [
    (divergence_sums, "_EVALUATED_TOGETHER", evaluated),
    (divergence_sums, "_COUNTED_AT_ONCE", tabulated),
    (divergence_sums, "_COUNTED_AT_ONCE_ELSEWHERE", tabulated),
    (per_instance, "_TOGETHER", by_norms),
    (divergence_sums, "_FILLED_TOGETHER", by_settings),
    (grid_accounts, "_FILLED_TOGETHER", paged),
    (grid_accounts, "_READ_TOGETHER", paged),
    (grid_accounts, "_KEPT", paged),
    (divergence_sums, "_KEPT", by_settings),
    (examples, "_BLOCK", single_examples),
    (examples, "_BLOCK", examples_of_a_family),
    (examples, "_BLOCK_ELSEWHERE", single_examples),
    (examples, "_ANCHORS_AT_ONCE", examples_of_a_family),
    (normal, "_SHORT", evaluated),
    (pieces, "_SHORT", evaluated),
    (singular_values, "_NUMBERS", norms),
]


@cache
def usually(result: Callable[[], Tensor]) -> Tensor:
    return result()


@pytest.mark.parametrize(("module", "name", "result"), CASES)
def test_the_same_however_much_is_held(
    module: ModuleType, name: str, result: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    # examples have 4 coordinates, and norms are searched at 152
    size = 3 if "example" in module.__name__ else 50 if result is by_norms else 7
    usual = usually(result)
    if name.endswith("_ELSEWHERE"):  # what is taken where no device has a size of its own
        monkeypatch.setattr(module, name.removesuffix("_ELSEWHERE"), {})
    by_device = isinstance(getattr(module, name), dict)
    monkeypatch.setattr(module, name, {"cpu": size} if by_device else size)
    torch.testing.assert_close(result(), usual, rtol=2e-13, atol=0)


# tried where it is used, or in the tests of the file
OTHERS = (
    *("decisions._NUMBERS", "ballots._KEPT"),
    *("clipped_sums._CHUNK_ENTRIES", "clipped_sums._FORMED_ENTRIES", "outer_sum_cpu._SHORT"),
    *("linear._CHUNK_ENTRIES", "linear._FEW", "linear_information._CPU_ENTRIES, _GPU_ENTRIES"),
)


def test_every_size_that_no_mutant_moves_is_among_them() -> None:
    tried = [*(f"{module.__name__}.{name}" for module, name, _ in CASES), *OTHERS]
    for file, names in SIZES.items():
        for name in names:
            place = f"{Path(file).stem}.{name}"
            assert any(one.endswith(place) for one in tried), place
