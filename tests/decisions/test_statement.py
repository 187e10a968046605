"""Sentences that jobs share."""

import numpy as np

import ringfence as rf
from ringfence.decisions.statement import attack, people_bounded, target


def test_privacy_numbers_are_rounded_up_and_targets_printed_as_they_are() -> None:
    account = rf.release_counts(np.ones(3), epsilon=1 / 3, delta=1e-6).account
    assert target(1 / 3, account) == "epsilon 0.3334, delta 1e-06"
    assert target(1.0, account) == "epsilon 1, delta 1e-06"
    assert float(target(None, account).split()[1][:-1]) >= account.epsilon


def test_who_is_protected_against_what() -> None:
    account = rf.release_counts(np.ones(3), sigma=4.0).account
    found = 100 * account.guarantee.true_positive_rate(1e-3)
    for replaced, word in ((False, "added or removed"), (True, "replaced by any others")):
        said = attack(account, "person", replaced)
        assert word in said
        assert float(said.split("at most ")[1].split()[0]) >= found
    assert "protected less" in people_bounded("rows", 1, "cell")
    assert "at most 1 cell," in people_bounded("aggregated", 1, "cell")
