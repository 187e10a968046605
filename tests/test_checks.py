"""Arguments that fuzzing found to slip through, or to be refused without their name."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from ringfence import checks


@pytest.mark.parametrize(
    "value",
    [
        np.complex128(1.0),  # torch would drop the imaginary part with a warning
        np.ones(3, np.complex64),
        torch.ones(3).to_sparse(),
        torch.ones(3, device="meta"),
        10**400,
        [None],
    ],
    ids=str,
)
def test_what_holds_no_real_numbers_is_refused_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^theta must be"):
        checks.finite("theta", value)


def test_an_array_that_may_not_be_written_is_copied_without_a_warning() -> None:
    frozen = np.broadcast_to(2.0, (3,))
    assert checks.finite("theta", frozen).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("make", [np.array, torch.tensor, np.int64])
def test_an_integer_that_float64_rounds_is_refused(make: Any) -> None:
    """2^53 + 1 becomes 2^53: one record that adds 1 would move the number by 2."""
    assert float(checks.finite("theta", make(2**53 - 1))) == 2**53 - 1
    with pytest.raises(ValueError, match=r"^theta must be integers within 2\^53 of 0, or floats, got"):
        checks.finite("theta", make(2**53 + 1))


def test_a_number_is_one_number() -> None:
    assert checks.number("epsilon", np.array([0.5])) == 0.5
    assert checks.number("pure_epsilon", math.inf, checks.real) == math.inf
    for value in ([], torch.ones(3)):
        with pytest.raises(ValueError, match="epsilon must be a single number"):
            checks.number("epsilon", value)


def test_counts_have_an_end() -> None:
    with pytest.raises(ValueError, match="levels must be at most 5, got 6"):
        checks.count("levels", 6, at_least=1, at_most=5)
    with pytest.raises(ValueError, match="steps must be at most 9223372036854775807"):
        checks.count("steps", 2**63, at_least=1)


def test_a_rule_about_all_of_a_tensor_names_its_first_number() -> None:
    with pytest.raises(ValueError, match=r"theta must be small, got 4.0 at index \[0\]"):
        checks.require("theta", "must be small", torch.tensor([4.0, 5.0]), torch.tensor(False))


def test_seeds_have_256_bits() -> None:
    assert checks.seed(2**256 - 1) == 2**256 - 1
    with pytest.raises(ValueError, match="seed must be at most"):
        checks.seed(2**256)


def test_flags_and_words() -> None:
    for value in (1, None, torch.ones(3)):
        with pytest.raises(TypeError, match="secure must be True or False"):
            checks.flag("secure", value)
    for word in (["a"], np.array(["a"]), "b"):
        with pytest.raises(ValueError, match="kind must be one of"):
            checks.one_of("kind", word, {"a"})


def test_states_of_any_content_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown keys"):
        checks.keys("state", {1: 0, "b": 0}, {"a"})
    for kind in (np.array(["Account"]), ["Account"], None):
        with pytest.raises(ValueError, match="kind must be 'Account'"):
            checks.state("Account", 1, {"kind": kind, "version": 1}, set())
    with pytest.raises(ValueError, match="version must be 1, got True"):
        checks.state("Account", 1, {"kind": "Account", "version": True}, set())
    with pytest.raises(ValueError, match="settings must be a list of 3"):
        checks.listed("settings", [1, 2], length=3)


def test_a_tensor_is_no_list_of_names() -> None:
    with pytest.raises(ValueError, match="of must be a list, got tensor"):
        checks.listed("of", torch.ones(2))
    assert checks.listed("of", np.array(["a", "b"])) == ["a", "b"]
