"""Private linear regression is a scikit-learn regressor, and private."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

import ringfence as rf
from ringfence.training.linear import clipped_gradients, train_linear
from ringfence.training.private_statistics import scaling_share
from ringfence.training.target import Target

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(800, 4)) * [1.0, 1e3, 1e-2, 5.0] + [3.0, -500.0, 0.0, 100.0]
NUMBERS = FEATURES @ [40.0, 0.05, 900.0, -3.0] + 10 * RNG.normal(size=800) + 300


def model(**changes: Any) -> rf.LinearRegression:
    return rf.LinearRegression(**{"target_epsilon": 3.0, "target_delta": 1e-5, "random_state": 0, **changes})


@parametrize_with_checks([model(target_epsilon=1e6)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_it_learns_whatever_the_units_and_says_what_it_cost() -> None:
    fitted = model().fit(FEATURES, NUMBERS)
    assert fitted.score(FEATURES, NUMBERS) > 0.8
    assert (fitted.coef_.shape, type(fitted.intercept_)) == ((4,), float)
    assert np.allclose(fitted.predict(FEATURES), FEATURES @ fitted.coef_ + fitted.intercept_)
    claim = fitted.guarantee(1e-5)
    assert 2.97 <= claim.epsilon <= 3.0
    assert claim.steps == 3 + 32
    assert fitted.planned_cost(FEATURES, NUMBERS).epsilon(1e-5) == pytest.approx(claim.epsilon, rel=1e-9)
    assert fitted.example_epsilons(1e-5).max() <= claim.per_instance.ex_post_epsilon * (1 + 1e-9)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(FEATURES), fitted.predict(FEATURES))
    assert again.guarantee(1e-5).statement == claim.statement


def test_what_is_predicted_is_scaled_like_a_feature() -> None:
    """The same model of other units of the same numbers, where units are powers of two."""
    few, other = model(target_epsilon=1e5), model(target_epsilon=1e5)
    one = few.fit(FEATURES, NUMBERS).predict(FEATURES)
    two = other.fit(FEATURES, 1024 * NUMBERS).predict(FEATURES)
    assert np.std(two / 1024 - one) < 0.05 * np.std(one)


def test_an_example_adds_its_clipped_gradient() -> None:
    """By autograd of half the squared error, and over neighbours."""
    features, numbers = torch.from_numpy(FEATURES[:20] / 1000), torch.from_numpy(NUMBERS[:20] / 5000)
    settings: dict[str, Any] = {"mechanism": rf.Gaussian(1.0), "clip": rf.Norm(0.2), "learning_rate": 1.0}
    run = train_linear(features, numbers, 1, **settings, steps=2, public_size=20, seed=0)
    for step in run.trajectory:
        weights = step.weights.clone().requires_grad_()
        total = torch.zeros_like(step.theta)
        for row, number in zip(features, numbers, strict=True):
            (gradient,) = torch.autograd.grad((weights[0] @ row - number).square() / 2, weights)
            total += gradient * min(1.0, 0.2 / float(gradient.norm()))
        assert torch.allclose(step.theta, total, rtol=1e-6)
        moved = torch.cat(list(clipped_gradients(step.weights, features, numbers, rf.Norm(0.2))))
        assert float(moved.norm(dim=1).max()) <= 0.2
        assert torch.allclose(moved.sum(dim=0), step.theta[0])


def test_missing_values_are_refused_without_scikit_learns_advice_to_fit_an_imputer() -> None:
    with pytest.raises(
        ValueError, match=r"^Input X contains NaN\. Fill it in with public constants, or leave"
    ):
        model().fit(np.where(FEATURES[3, 1] == FEATURES, np.nan, FEATURES), NUMBERS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_epsilon": None}, "target_epsilon must be given together with target_delta, got None"),
        (
            {"target_epsilon": None, "target_delta": None},
            "target_epsilon and target_delta must be given, or a mechanism with a sigma",
        ),
        ({"public_scale": 0.0}, "public_scale must be > 0"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(**changes).fit(FEATURES, NUMBERS)
    with pytest.raises(ValueError, match="labels must be 3 numbers, got shape"):
        train_linear(
            torch.ones(3, 2), torch.ones(2), 1, mechanism=rf.Gaussian(1.0), clip=rf.Norm(1.0),
            learning_rate=1.0, steps=1, public_size=3,
        )  # fmt: skip
    with pytest.raises(ValueError, match="classes must be at least 2 in a secure run"):
        train_linear(
            torch.ones(3, 2), torch.ones(3), 1, mechanism=rf.Gaussian(1.0), clip=rf.Norm(1.0),
            learning_rate=1.0, steps=1, public_size=3, secure=True,
        )  # fmt: skip


def test_weights_go_a_quarter_as_far_as_their_noise_or_to_the_cap() -> None:
    for epsilon in (0.3, 100.0):
        fitted = model(target_epsilon=epsilon).fit(FEATURES, NUMBERS)
        mu = Target(epsilon, 1e-5).mu
        movement = min((1 - scaling_share(mu, 800, 5)) ** 0.5 * mu * 800 / 4, 60.0)
        assert fitted.learning_rate_ * 0.2 * 32 / 0.5 == pytest.approx(movement)
