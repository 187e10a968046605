"""The unit does not matter: everything scaled by a power of two costs the same to the last bit.

Whatever is a length (theta, sigma, bounds, sensitivity, a gradient) is divided by sigma before it is
used, and dividing by a power of two is exact.
"""

from collections.abc import Callable

import pytest
import torch

import ringfence as rf
from experiments.grid_accounts import GridAccountant, GridTable
from tests.accounting.drawing import draw
from tests.accounting.evaluation import EvaluatedSums
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64, seeded_releases

every_case = pytest.mark.parametrize(
    "case", [case for case in CASES if case.unit != 1], ids=lambda case: case.name
)
ORDERS = [1.5, 8.0, 256.0]
FAR = torch.cat((draw(4), 9.0 + draw(4), -30.0 + draw(4)))


def few(law: rf.Mechanism, unit: float) -> object:
    return rf.per_instance_rdp(law, FAR * unit, 0.3 * unit, ORDERS).worst


def many(law: rf.Mechanism, unit: float) -> object:
    theta = torch.cat((draw(300), float64([300.0])))
    return rf.per_instance_rdp(law, theta * unit, 0.01 * unit, ORDERS).worst


def examples(law: rf.Mechanism, unit: float) -> object:
    account, theta = rf.ExampleAccountant(law, ORDERS), FAR[::4] * unit
    gradients = draw(6, 3, seed=1) * float64([1e-4, 1e-2, 0.1, 0.3, 2.0, 0.0]).unsqueeze(1) * unit
    account.step(theta, gradients)
    return torch.stack((account.sums, EvaluatedSums(law, theta, account.orders).charge(gradients)[0]))


def grid(law: rf.Mechanism, unit: float) -> object:
    sums = []
    for count in (20, 300):
        table = GridTable(float64(ORDERS))
        accounts = GridAccountant([law, law], [0.01 * unit, 0.02 * unit], [count], table)
        accounts.step(draw(2, count) * unit)
        sums += [account.worst for account in accounts.accounts()]
    return torch.stack(sums)


def profile(law: rf.Mechanism, unit: float) -> object:
    curves = []
    for theta in (float64([0.3]), float64([0.3, -1.2])):
        proofs = rf.privacy_profile(law, theta * unit, 0.5 * unit).proofs
        curves.append([proof(0.1) for proof in proofs.values()])
    return curves


def published(law: rf.Mechanism, unit: float) -> object:
    thetas = [FAR * unit, 2 * FAR * unit]
    given = {"delta": 1e-5, "publishing_zcdp": 1e-3, "failure_probability": 1e-3}
    with seeded_releases():
        return rf.publishable_epsilon(law, thetas, 0.01 * unit, **given)


def sampled(law: rf.Mechanism, unit: float) -> object:
    account = rf.SampledAccountant(law, 0.1 * unit, 0.2)
    account.step_worst_case(FAR * unit)
    return account.releases


def information(law: rf.Mechanism, unit: float) -> object:
    loss = rf.fisher_information_loss(law, FAR * unit, draw(12, 3) * unit)
    account = rf.FisherAccountant(law)
    account.step(FAR * unit, draw(12, 3) * unit)
    return [float(loss), float(account.fisher_information_loss())]


@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case.name)
@pytest.mark.parametrize(
    "numbers", [few, many, examples, grid, profile, published, sampled, information], ids=lambda f: f.__name__
)
def test_a_unit_that_is_a_power_of_two(case: Case, numbers: Callable[[rf.Mechanism, float], object]) -> None:
    here, there = (numbers(case.make(0.5 * unit, -unit, 1.5 * unit), unit) for unit in (1.0, 8.0))
    assert torch.equal(here, there) if isinstance(here, torch.Tensor) else here == there


def test_what_is_calibrated_is_in_the_unit() -> None:
    found = []
    for unit in (1.0, 8.0):
        question = {"epsilon": 0.8, "delta": 1e-5}
        law, theta, size = rf.TruncatedGaussian(unit, 2.0 * unit), float64([0.0, 1.0]) * unit, 0.15 * unit
        sigma = rf.calibrate_sigma(law, theta, size, **question)
        bound = rf.calibrate_bound(law, theta, size, **question)
        steps = rf.calibrate_steps(law, theta, size / 4, **question)
        found.append((sigma / unit, bound / unit, steps))
    assert found[0] == found[1]


def _outputs_have_units(case: Case) -> bool:
    """Whether the support grows with the unit; that of a sign, for one, does not."""
    one, eight = (case.make(0.5 * unit, -unit, 1.5 * unit).support for unit in (1.0, 8.0))
    return all(
        torch.equal(8 * here, there)
        for here, there in zip(one.interval or one.atoms, eight.interval or eight.atoms, strict=True)
    )


@every_case
def test_draws_and_divergences_of_a_law_are_in_the_unit(case: Case) -> None:
    def of(unit: float) -> list[torch.Tensor]:
        law = case.make(0.5 * unit, -unit, 1.5 * unit)
        theta, shift = FAR * unit, 0.3 * unit
        drawn = law.sample(theta, generator=torch.Generator().manual_seed(1))
        moments = law.loss_moments(theta, shift)
        return [
            drawn / unit if _outputs_have_units(case) else drawn,
            law.renyi_divergence(theta, shift, 3.0),
            law.hockey_stick(theta, -shift, 0.1),
            law.fisher_information(theta) * unit**2,
            *(moments.variance, moments.third, moments.fourth, moments.extent),
        ]

    for here, there in zip(of(1.0), of(8.0), strict=True):
        assert torch.equal(here, there)
