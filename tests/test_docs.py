"""The code in the docs runs: a mechanism that passes the contract, accounts with the numbers they say."""

import doctest
import re
from pathlib import Path

import pytest

import ringfence as rf
from ringfence.numerics.rounding import rounded_up
from tests.mechanisms import test_contract as contract
from tests.mechanisms.cases import Case

PAGE = Path(__file__).parent.parent / "docs" / "adding_a_mechanism.md"
FILE, TEST, ROW = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture(scope="module")
def case() -> Case:
    names: dict[str, object] = {"Case": Case}
    exec(FILE, names)
    exec(TEST, names)
    return eval(ROW, names)


def test_the_docstring_of_the_page_is_true() -> None:
    names: dict[str, object] = {}
    exec(FILE, names)
    docstring = names["TernaryGaussian"].__doc__
    example = doctest.DocTestParser().get_doctest(docstring, names, PAGE.name, None, None)
    assert doctest.DocTestRunner().run(example) == doctest.TestResults(failed=0, attempted=1)


def test_the_law_of_the_page_passes_the_contract(case: Case) -> None:
    for point in contract.POINTS[:4]:
        contract.test_renyi_is_the_integral(case, point)
        contract.test_fisher_information_is_the_integral(case, point)
        contract.test_hockey_stick_is_the_integral(case, point)
        contract.test_log_prob_is_the_log_of_density_and_mass(case, point)
        contract.test_loss_moments_are_the_integrals(case, point)
        contract.test_mass_is_one(case, point)
        contract.test_near_neighbours_give_the_fisher_information(case, point)
    for bound in contract.WIDTHS:
        contract.test_never_above_the_gaussian(case, bound)
    contract.test_divergence_grows_with_alpha_and_with_the_shift(case)
    contract.test_mirror_symmetry(case)
    contract.test_parameters_broadcast(case)
    for varied in ("theta", "sigma", "bound", "shift", "alpha", "epsilon", "value"):
        contract.test_any_one_argument_may_be_the_tensor(case, varied)


def test_the_worked_example_of_the_guarantees_gives_its_numbers() -> None:
    text = (PAGE.parent / "guarantees.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, object] = {}
    exec(code, names)
    claim, theta, law = names["claim"], names["theta"], names["account"].mechanism
    tight = rf.privacy_profile(law, theta, 1e-3, steps=10).epsilon(1e-5)
    gaussian = rf.privacy_profile(rf.Gaussian(1.0), theta, 1e-3, steps=10).epsilon(1e-5)
    for row, pair in {
        "`claim.epsilon_data_independent`": (claim.epsilon_data_independent, gaussian),
        "`claim.epsilon`": (claim.epsilon, claim.gaussian_epsilon),
        "`claim.epsilon_pdp`": (claim.epsilon_pdp, claim.gaussian_epsilon_pdp),
        "`claim.epsilon_renyi`": (claim.epsilon_renyi, claim.gaussian_epsilon_renyi),
        "`rf.privacy_profile(..., steps=10).epsilon(1e-5)`": (tight, gaussian),
    }.items():
        assert f"| {row} | {rounded_up(pair[0])} | {rounded_up(pair[1])} |" in text


def test_the_session_of_the_accounting_guide_runs() -> None:
    session = doctest.testfile(str(PAGE.parent / "accounting.md"), module_relative=False)
    assert session.failed == 0
    assert session.attempted > 50
