"""The probe is a scikit-learn classifier, and private."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import ringfence as rf

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 240)
FEATURES = RNG.normal(size=(240, 6)).astype(np.float32) + 2 * np.eye(3, 6)[LABELS]


def probe(**changes: Any) -> rf.LinearProbe:
    arguments = {
        "mechanism": rf.TruncatedGaussian(1.0, 40.0),
        "clip": 0.2,
        "learning_rate": 8.0,
        "steps": 6,
        "random_state": 0,
    }
    return rf.LinearProbe(**{**arguments, **changes})


# hardly any noise, so that what the checks learn is what they put in
@parametrize_with_checks(
    [
        rf.LinearProbe(
            rf.Gaussian(1e-6), clip=1.0, learning_rate=1.0, steps=15, fit_intercept=True, random_state=0
        )
    ]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_it_learns_and_says_what_it_cost() -> None:
    fitted = probe().fit(FEATURES, LABELS)
    assert fitted.score(FEATURES, LABELS) > 0.7
    claim = fitted.guarantee(delta=1e-5)
    assert claim.steps == 6
    assert claim.epsilon_pdp <= claim.gaussian_epsilon_pdp
    assert fitted.coef_.shape == (3, 6)
    assert np.allclose(fitted.predict_proba(FEATURES).sum(axis=1), 1)


def test_every_examples_own_epsilon_is_below_the_worst_records() -> None:
    fitted = probe(steps=2).fit(FEATURES[:40], LABELS[:40])
    epsilons = fitted.example_epsilons(delta=1e-5)
    assert epsilons.shape == (40,)
    assert epsilons.min() > 0
    assert epsilons.max() <= fitted.guarantee(1e-5).epsilon * (1 + 1e-9)
    assert len(np.unique(epsilons)) > 30


def test_grid_search_pipelines_and_clones() -> None:
    search = GridSearchCV(
        probe(steps=2), {"clip": [0.1, 0.3], "mechanism": [rf.Gaussian(1.0), rf.StochasticSign(1.0)]}
    )
    search.fit(FEATURES, LABELS)
    assert search.best_score_ > 0.5
    pipeline = make_pipeline(FunctionTransformer(np.tanh), probe()).fit(FEATURES, LABELS)
    assert pipeline.score(FEATURES, LABELS) > 0.5
    assert repr(clone(probe()).mechanism) == repr(probe().mechanism)


def test_scaling_is_by_public_constants_only() -> None:
    center, scale = np.full(6, 0.5), np.arange(1.0, 7.0)
    law = rf.TruncatedGaussian(1e-6, 1e3)  # other features, other noise
    given = probe(mechanism=law, public_center=center, public_scale=scale).fit(FEATURES, LABELS)
    by_hand = probe(mechanism=law).fit((FEATURES - center) / scale, LABELS)
    assert np.allclose(given.coef_, by_hand.coef_, atol=1e-5)
    assert np.array_equal(given.predict(FEATURES), by_hand.predict((FEATURES - center) / scale))
    with pytest.raises(ValueError, match="public_scale must be > 0"):
        probe(public_scale=0.0).fit(FEATURES, LABELS)


def test_the_divisor_and_the_classes_may_be_declared() -> None:
    one = probe(public_size=240).fit(FEATURES, LABELS)
    assert np.array_equal(one.coef_, probe().fit(FEATURES, LABELS).coef_)
    more = probe(public_classes=[0, 1, 2, 7]).fit(FEATURES, LABELS)
    assert more.coef_.shape == (4, 6)
    with pytest.raises(ValueError, match="y must hold public_classes only, got 2 at index"):
        probe(public_classes=[0, 1]).fit(FEATURES, LABELS)


def test_a_saved_probe_does_not_carry_the_training_data() -> None:
    fitted = probe().fit(FEATURES, LABELS)
    data = pickle.dumps(fitted)
    assert FEATURES.astype(np.float32)[0].tobytes() not in data
    again = pickle.loads(data)
    assert np.array_equal(again.predict(FEATURES), fitted.predict(FEATURES))
    assert again.guarantee(1e-5) == fitted.guarantee(1e-5)
    with pytest.raises(ValueError, match="needs the training data, which a saved probe does not hold"):
        again.example_epsilons(1e-5)


def test_the_random_state_decides() -> None:
    assert np.array_equal(probe().fit(FEATURES, LABELS).coef_, probe().fit(FEATURES, LABELS).coef_)
    drawn = [probe(random_state=None).fit(FEATURES, LABELS).coef_ for _ in range(2)]
    assert not np.array_equal(*drawn)


def test_a_bias_is_a_feature_that_is_always_one() -> None:
    with_bias = probe(fit_intercept=True).fit(FEATURES, LABELS)
    column = np.concatenate((FEATURES, np.ones((240, 1))), axis=1)
    by_hand = probe().fit(column, LABELS)
    assert np.allclose(with_bias.intercept_, by_hand.coef_[:, -1])


@pytest.mark.parametrize("clip", [0.0, -1.0])
def test_a_clip_of_zero_is_refused(clip: float) -> None:
    with pytest.raises(ValueError, match="clip must be > 0"):
        probe(clip=clip).fit(FEATURES, LABELS)


def test_scale_as_the_clip() -> None:
    fitted = probe(clip=rf.Scale(0.2), steps=20, mechanism=rf.Gaussian(torch.tensor(0.5))).fit(
        FEATURES, LABELS
    )
    assert fitted.score(FEATURES, LABELS) > 0.7


def test_under_an_l2_clip_every_clipped_example_costs_what_the_gaussian_costs() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    features = rng.normal(size=(60, 4)) + labels[:, None]
    probe = rf.LinearProbe(rf.Gaussian(1.0), clip=rf.Norm(1e-1), steps=2, random_state=0)
    epsilons = probe.fit(features, labels).example_epsilons(1e-5)
    whole = probe.guarantee(1e-5).epsilon
    assert epsilons.max() <= whole
    assert np.median(epsilons) == pytest.approx(whole, rel=1e-5)
    assert len(probe.fisher_information_loss()) == 60
    [together] = rf.fit_probes([clone(probe)], features, labels)
    assert np.allclose(together.coef_, probe.coef_, rtol=1e-4)
    assert together.guarantee(1e-5).epsilon == pytest.approx(whole, rel=1e-9)
