"""A target instead of a sigma: met and never over, by a rule of public numbers, with a private mean."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

import ringfence as rf
from ringfence.training.probe import DefaultSettings, PrivateMean, default_settings, unit_rows
from ringfence.training.target import Target

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 300)
FEATURES = RNG.normal(size=(300, 6)) + 2 * np.eye(3, 6)[LABELS] + 1.0
CHOSEN = ("clip_", "learning_rate_", "steps_", "momentum_", "unit_rows_")


def probe(**changes: Any) -> rf.LinearProbe:
    return rf.LinearProbe(**{"target_epsilon": 2.0, "target_delta": 1e-5, "random_state": 0, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mechanism": "gaussian", "clip": rf.Norm(1.0), "fit_intercept": True},
        {"mechanism": rf.TruncatedGaussian(90.0, 3.0), "clip": 0.05, "steps": 5},
        {"mechanism": "sign", "clip": rf.Norm(0.2, each=0.1), "unit_rows": False},
        {"secure": True, "public_size": 280, "random_state": None},
        {"target_epsilon": 0.01, "public_classes": [0, 1, 2, 9]},
        {"target_epsilon": 30.0, "public_center": 1.0},
    ],
    ids=["default", "norm", "clamp", "each", "secure", "little", "much"],
)
def test_the_target_is_met_and_never_exceeded(changes: dict[str, Any]) -> None:
    fitted = probe(**changes).fit(FEATURES, LABELS)
    target = fitted.target_epsilon
    assert 0.99 * target <= fitted.guarantee(1e-5).epsilon <= target
    given = changes.get("mechanism")
    if isinstance(given, rf.Mechanism):
        assert fitted.mechanism_.parameters()["upper"] == given.parameters()["upper"]
        assert fitted.mechanism is given


def test_what_is_chosen_follows_from_public_numbers_alone() -> None:
    one = probe().fit(FEATURES, LABELS)
    other = probe().fit(100 - 7 * FEATURES**3, (LABELS + 1) % 3)
    for name in CHOSEN:
        assert getattr(one, name) == getattr(other, name)
    assert one.mechanism_.sigma == other.mechanism_.sigma
    declared = [probe(public_size=400).fit(FEATURES[:n], LABELS[:n]) for n in (250, 300)]
    assert declared[0].learning_rate_ == declared[1].learning_rate_


def test_the_learning_rate_moves_the_weights_as_far_as_the_rule_says_whatever_the_clip() -> None:
    mu = Target(2.0, 1e-5).mu
    movement = default_settings(mu, 300, 6, 3, centred=False, unit_rows=True).movement
    for clip, length in (
        (rf.Norm(0.3), 0.3),
        (rf.Clamp(0.1), 0.1 * 18**0.5),
        (rf.Norm(9.0, each=0.1), 0.1 * 18**0.5),
    ):
        fitted = probe(clip=clip, steps=7, momentum=0.2).fit(FEATURES, LABELS)
        assert fitted.learning_rate_ * length * 7 / 0.8 == pytest.approx(movement)


def test_what_is_given_is_kept() -> None:
    given = {"clip": rf.Scale(0.2), "learning_rate": 3.0, "steps": 4, "momentum": 0.1, "unit_rows": False}
    fitted = probe(**given).fit(FEATURES, LABELS)
    assert {name: getattr(fitted, f"{name}_") for name in given} == given
    assert fitted.mean_ is None
    again = clone(fitted)
    assert (again.target_epsilon, again.learning_rate) == (2.0, 3.0)


def test_without_a_target_the_settings_are_what_they_were() -> None:
    law = rf.RectifiedGaussian(0.1, 2.0)
    short = rf.LinearProbe(law, random_state=0).fit(FEATURES, LABELS)
    written = {"clip": rf.Clamp(1e-3), "learning_rate": 1.0, "steps": 10, "momentum": 0.0, "unit_rows": False}
    assert np.array_equal(
        short.coef_, rf.LinearProbe(law, random_state=0, **written).fit(FEATURES, LABELS).coef_
    )
    assert {name: getattr(short, f"{name}_") for name in written} == written


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_delta": None}, "target_delta must be given together with target_epsilon, got None"),
        ({"target_epsilon": None}, "target_epsilon must be given together with target_delta, got None"),
        (
            {"target_epsilon": None, "target_delta": None},
            "target_epsilon must be given where mechanism is None",
        ),
        ({"target_epsilon": 0.0}, r"target_epsilon must be > 0, got 0\.0"),
        ({"mechanism": "truncated"}, "mechanism 'truncated' needs bound: give a mechanism with any sigma"),
        ({"mechanism": "cauchy"}, r"mechanism must be one of .* got 'cauchy'"),
        ({"clip": rf.Norm(1e14)}, r"target_epsilon must be attainable, got 2\.0"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        probe(**changes).fit(FEATURES, LABELS)
    with pytest.raises(TypeError, match="unit_rows must be True or False, got 1"):
        probe(unit_rows=1).fit(FEATURES, LABELS)


def rule(mu: float, size: float = 1000, features: int = 100, **changes: bool) -> DefaultSettings:
    return default_settings(mu, size, features, 10, **{"centred": False, "unit_rows": True, **changes})


@pytest.mark.parametrize(
    ("mu", "share", "centred_share"),
    # norm of the noise of the mean, sqrt(100) / (1000 mu): 0.6, 0.4, 0.1 and 0.01
    [(1 / 60, 0.0, 0.0), (1 / 40, 0.15, 0.0), (0.1, 0.1, 0.05), (1.0, 0.05, 0.05)],
)
def test_the_share_of_the_mean_falls_with_its_noise(mu: float, share: float, centred_share: float) -> None:
    assert rule(mu).share == pytest.approx(share)
    assert rule(mu, centred=True).share == pytest.approx(centred_share)
    assert rule(mu, unit_rows=False).share == 0.0


def test_the_weights_go_until_the_noise_in_a_score_is_1_4_or_to_the_cap() -> None:
    assert rule(0.1).movement == pytest.approx(1.4 * math.sqrt(0.9) * 0.1 * 1000)
    assert rule(100.0).movement == 30_000
    assert (rule(0.1).clip, rule(0.1).steps, rule(0.1).momentum) == (rf.Norm(0.1), 32, 0.5)


ROWS = unit_rows(torch.randn(400, 8, generator=torch.Generator().manual_seed(0)).double() + 0.5)[0].float()


def mean(rows: torch.Tensor = ROWS, sigma: float = 20.0, **changes: object) -> PrivateMean:
    settings = {"public_size": 400.0, "seed": 0, **changes}
    return PrivateMean.released(rows, rf.Gaussian(sigma), **settings)  # type: ignore[arg-type]


def test_no_row_moves_the_sum_by_more_than_a_norm_of_1() -> None:
    long = torch.cat((ROWS, torch.full((1, 8), 1e6)))
    moved = float(torch.linalg.vector_norm(mean(long).theta - mean().theta))
    assert 0.99 < moved <= 1.0
    assert mean().sensitivity == rf.Sensitivity(norm=1.0)


def test_the_noise_is_the_laws_and_belongs_to_seed_and_data() -> None:
    drawn = torch.stack([mean(sigma=1e-3, seed=seed).center * 400 - mean().theta for seed in range(200)])
    assert float(drawn.std()) == pytest.approx(1e-3, rel=0.1)
    assert torch.equal(mean().center, mean().center)
    others = mean(ROWS.flip(0))  # the same sum but for rounding, and other noise
    assert not torch.allclose(others.center, mean().center)
    assert not torch.equal(mean(seed=None).center, mean(seed=None).center)


def test_shrinking_is_closer_to_the_mean_where_noise_is_large_and_nothing_where_it_is_small() -> None:
    truth = ROWS.double().mean(dim=0)
    for sigma, most in ((300.0, 0.9), (0.01, 1.0 + 1e-6)):
        errors = []
        for seed in range(40):
            found = mean(sigma=sigma, seed=seed).center
            noise = mean(rows=ROWS * 0, sigma=sigma, seed=seed)  # of these rows all that is left is noise
            assert float(noise.center.norm()) <= 4 * sigma * 8**0.5 / 400
            errors.append(float((found - truth).square().sum()))
        plain = 8 * (sigma / 400) ** 2
        assert sum(errors) / 40 < most * plain * (1 if sigma > 1 else 1.5)


def test_a_secure_mean_lies_on_the_public_grid_and_is_charged_for_rounding() -> None:
    one = mean(seed=None, secure=True, sigma=2.0)
    assert 1.0 < one.sensitivity.norm < 1 + 1e-5  # type: ignore[operator]
    assert not torch.equal(one.center, mean(seed=None, secure=True, sigma=2.0).center)
