"""The whole audit, small: every claim stands and every planted flaw is seen."""

from dataclasses import replace

import pytest

from tests.audit.reconstruction import ReconstructionResult
from tests.audit.result import AuditResult
from tests.audit.suite import Audit, run_audit


@pytest.fixture(scope="module")
def audit() -> Audit:
    return run_audit(5, trials=100, tight=1, probes=1, runs=10, seed=3)


def test_every_claim_stands(audit: Audit) -> None:
    assert audit.holds
    assert [len(results) for results in audit.attacks.values()] == [5, 1, 1, 3, 1, 6]


def test_a_claim_that_falls_or_a_flaw_that_is_not_seen_fails_the_audit(audit: Audit) -> None:
    flaws = audit.planted
    assert [flaw.violated[0] for flaw in flaws] == [
        "one-sided", "data-independent", "quadrature", "data-independent",
    ]  # fmt: skip
    assert Audit({}, [], flaws).holds
    assert not Audit({"one release": list(flaws)}, [], ()).holds
    unseen = replace(flaws[0], epsilon_lower=0.0)
    assert not Audit({}, [], (unseen,)).holds
    wrong = ReconstructionResult("a law", 0.99, 100, variance=2.0, variance_high=2.2, claim=3.0)
    assert not Audit({}, [wrong], ()).holds


def test_lines_hold_the_numbers() -> None:
    releases = [
        AuditResult("a law", 1e-3, 0.99, 100, bound, {"per-instance": claim})
        for bound, claim in ((0.5, 1.0), (0.3, 2.0))
    ]
    training = AuditResult("training", 1e-2, 0.99, 10, 0.5, {"data-independent": 2.0}, exceeded=0.001)
    found = ReconstructionResult("a law(1)", 0.99, 100, variance=2.0, variance_high=2.2, claim=2.1)
    flaw = AuditResult("one side only", 1e-3, 0.99, 100, 1.7, {"one-sided": 0.5})
    audit = Audit({"one release": releases, "training run": [training]}, [found], (flaw,))
    assert audit.lines() == [
        "one release: per-instance: 2 settings, closest 50.0%, median 32.5%: holds",
        "training run: data-independent: 1 settings, closest 25.0%, median 25.0%: holds",
        "training run: ex-post, share of delta: 1 settings, closest 10.0%, median 10.0%: holds",
        "reconstruction: 1/eta² of variance, a law: 1 settings, closest 105.0%, median 105.0%: within error",
        "planted: one side only: claimed 0.5, proved 1.7: seen",
    ]
    assert "2 WRONG" in Audit({"x": [replace(one, epsilon_lower=9.0) for one in releases]}, [], ()).lines()[0]
