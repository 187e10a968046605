"""The whole audit, small: every claim stands and every planted flaw is seen."""

import json

import torch

from ringfence.audit.suite import Audit, planted_flaws, run_audit


def test_every_claim_stands() -> None:
    seen: list[tuple[str, float]] = []
    first = run_audit(
        10, trials=100, tight=1, probes=2, runs=10, seed=3, progress=lambda *at: seen.append(at)
    )
    assert first.holds
    assert {name for name, _ in seen} == {
        *("releases", "tight profiles", "training runs", "canaries and reconstruction", "decisions", "jobs")
    }
    assert len(first.attacks) == 10 + 1 + 2 + 6 + 1 + 6
    assert json.loads(json.dumps(first.as_dict()))["holds"] is True


def test_flaws_that_are_not_seen_fail_the_audit() -> None:
    flaws = planted_flaws(torch.Generator().manual_seed(0), 0.999)
    nothing: tuple[()] = ()
    assert Audit(nothing, nothing, nothing, nothing, nothing, flaws, 0.0, 0.99).holds
    assert not Audit(flaws, nothing, nothing, nothing, nothing, nothing, 0.0, 0.99).holds
    stands = Audit(nothing, nothing, nothing, nothing, nothing, nothing, 0.0, 0.99)
    assert stands.holds
