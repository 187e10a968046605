"""What a release tells without noise, a statement names; a secure run refuses it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.noise import Noise
from ringfence.training.assumptions import APART, FLOATS, LOSS, OUTSIDE, PASSES
from tests.training.engine.runs import CLIP, LAW, Run

RNG = np.random.default_rng(0)
LABELS = np.arange(201) % 2
FEATURES = RNG.normal(size=(201, 3)) + LABELS[:, None]
SIZE = "The number of records counts as public"
CLASSES = "The set of classes counts as public"
SEED = "holds only against those who do not know that seed"


def probe(mechanism: rf.Mechanism, **changes: Any) -> rf.LinearProbe:
    return rf.LinearProbe(mechanism, **{"clip": 0.1, "learning_rate": 0.5, "steps": 1, **changes})


def sizes_that_fit(weights: Any, bound: float) -> list[int]:
    """The attack: a release lies on the bound somewhere, and weights are learning_rate / n times it."""
    return [n for n in (200, 201) if np.abs(weights).max() == pytest.approx(0.5 * bound / n, rel=1e-6)]


@pytest.mark.parametrize("mechanism", [rf.StochasticSign(1.0), rf.RectifiedGaussian(1.0, 1.0)], ids=repr)
def test_the_number_of_records_is_read_off_the_release_and_the_statement_says_so(
    mechanism: rf.Mechanism,
) -> None:
    with_it = probe(mechanism).fit(FEATURES, LABELS)
    without = probe(mechanism).fit(FEATURES[:200], LABELS[:200])
    assert sizes_that_fit(with_it.coef_, 1.0) == [201]
    assert sizes_that_fit(without.coef_, 1.0) == [200]
    assert SIZE in with_it.guarantee(1e-5).statement
    declared = probe(mechanism, public_size=200, public_classes=[0, 1]).fit(FEATURES, LABELS)
    assert sizes_that_fit(declared.coef_, 1.0) == [200]
    assert declared.guarantee(1e-5).assumptions == (FLOATS, OUTSIDE)


def test_last_bits_tell_neighbours_apart_and_a_plain_run_says_so() -> None:
    """The attack: 1 + noise is a multiple of 2^-53 wherever it is, and 0 + noise near 0 has finer bits."""
    for draw in range(20):
        noise = Noise().at("attack", draw)
        one, zero = (rf.Gaussian(1.0).sample(torch.full((64,), x).double(), generator=noise) for x in (1, 0))
        assert not bool((one % 2.0**-53).any())
        assert bool((zero % 2.0**-53).any())
    plain, secure = (
        Run(seed=None, public_size=60, secure=secure).train(1).engine for secure in (False, True)
    )
    assert FLOATS in plain.guarantee(1e-3).statement
    assert FLOATS not in secure.guarantee(1e-3).statement
    settings = {"public_size": 200, "public_classes": [0, 1]}
    assert FLOATS in probe(LAW, **settings).fit(FEATURES, LABELS).guarantee(1e-5).statement
    assert FLOATS not in probe(LAW, **settings, secure=True).fit(FEATURES, LABELS).guarantee(1e-5).statement


def test_a_loss_that_is_not_given_is_assumed_and_passes_that_examples_share_in_a_secure_run() -> None:
    def said(**settings: Any) -> set[str]:
        claim = Run(seed=None, public_size=60, **settings).engine.guarantee(1e-3)
        return {APART, LOSS, PASSES, FLOATS} & set(claim.assumptions)

    own: dict[str, Any] = {"loss": torch.nn.functional.cross_entropy}
    assert said() == {APART, LOSS, FLOATS}
    assert said(**own) == {APART, FLOATS}
    assert said(secure=True, **own) == {APART, PASSES}
    assert said(secure=True, memory_budget=1, **own) == {APART}


def test_a_statement_is_about_the_fit_and_not_about_later_settings() -> None:
    fitted = probe(LAW).fit(FEATURES, LABELS)
    said = fitted.guarantee(1e-5).statement
    assert fitted.set_params(public_size=200, public_classes=[0, 1]).guarantee(1e-5).statement == said


def test_a_given_seed_is_named(tmp_path: Path) -> None:
    seeded, fresh = (probe(LAW, random_state=state).fit(FEATURES, LABELS) for state in (0, None))
    assert SEED in seeded.guarantee(1e-5).statement
    assert SEED not in fresh.guarantee(1e-5).statement
    run = Run(seed=3).train(1)
    assert SEED in run.engine.guarantee(1e-3).statement
    assert SIZE in run.engine.guarantee(1e-3).statement
    run.engine.save(tmp_path / "run")
    run.engine.close()
    resumed = Run(seed=None)
    assert SEED not in resumed.engine.guarantee(1e-3).statement
    resumed.engine.load(tmp_path / "run")  # the file's seed is the one that was given
    assert SEED in resumed.engine.guarantee(1e-3).statement
    resumed.engine.close()


def test_a_secure_run_needs_a_public_size() -> None:
    complaint = "public_size must be given where releases are secure, got None"
    for refused in (
        lambda: probe(LAW, secure=True).fit(FEATURES, LABELS),
        lambda: rf.PrivacyEngine(LAW, CLIP, secure=True),
    ):
        with pytest.raises(ValueError, match=complaint):
            refused()
    fitted = probe(LAW, secure=True, public_size=200).fit(FEATURES, LABELS)
    assert SIZE not in fitted.guarantee(1e-5).statement
    assert CLASSES in fitted.guarantee(1e-5).statement
