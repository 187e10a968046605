"""The probe is a scikit-learn classifier, and private."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas
import polars
import pytest
import torch
from scipy.sparse import csc_array, csr_matrix
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import ringfence as rf
from ringfence.training.probe import seed_of

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 240)
FEATURES = RNG.normal(size=(240, 6)).astype(np.float32) + 2 * np.eye(3, 6)[LABELS]


def probe(**changes: Any) -> rf.LinearProbe:
    arguments = {
        "mechanism": rf.TruncatedGaussian(1.0, 40.0),
        "clip": 0.2,
        "learning_rate": 8.0,
        "steps": 6,
        "fit_intercept": False,
        "random_state": 0,
    }
    return rf.LinearProbe(**{**arguments, **changes})


# hardly any noise, so that what the checks learn is what they put in
@parametrize_with_checks(
    [
        rf.LinearProbe(rf.Gaussian(1e-6), 1.0, 1.0, 10, random_state=0),
        rf.LinearProbe(target_epsilon=1e6, target_delta=1e-5, random_state=0),
    ]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_it_learns_and_says_what_it_cost() -> None:
    fitted = probe().fit(FEATURES, LABELS)
    assert fitted.score(FEATURES, LABELS) > 0.7
    claim = fitted.guarantee(delta=1e-5)
    assert claim.steps == 6
    assert claim.per_instance.epsilon <= claim.per_instance.gaussian_epsilon
    assert fitted.coef_.shape == (3, 6)
    assert np.allclose(fitted.predict_proba(FEATURES).sum(axis=1), 1)


def test_every_examples_own_epsilon_is_below_the_worst_records() -> None:
    fitted = probe(steps=2).fit(FEATURES[:40], LABELS[:40])
    epsilons = fitted.example_epsilons(delta=1e-5)
    assert epsilons.shape == (40,)
    assert epsilons.min() > 0
    assert epsilons.max() <= fitted.guarantee(1e-5).per_instance.ex_post_epsilon * (1 + 1e-9)
    assert len(np.unique(epsilons)) > 30
    for law in (rf.Gaussian(2.0), rf.TruncatedGaussian(2.0, 2.0)):
        fitted = probe(mechanism=law, steps=2, clip=rf.Norm(0.4)).fit(FEATURES[:40], LABELS[:40])
        own = fitted.example_epsilons(1e-5, kind="per_instance")
        assert own.max() <= fitted.guarantee(1e-5).epsilon * (1 + 1e-9)


def test_grid_search_pipelines_and_clones() -> None:
    search = GridSearchCV(
        probe(steps=2), {"clip": [0.1, 0.3], "mechanism": [rf.Gaussian(1.0), rf.StochasticSign(1.0)]}
    )
    search.fit(FEATURES, LABELS)
    assert search.best_score_ > 0.5
    pipeline = make_pipeline(FunctionTransformer(np.tanh), probe()).fit(FEATURES, LABELS)
    assert pipeline.score(FEATURES, LABELS) > 0.5
    assert repr(clone(probe()).mechanism) == repr(probe().mechanism)


def test_it_has_no_weights() -> None:
    """Those of scikit-learn are functions of private labels, or multiply what a record may move."""
    for weights in ({"class_weight": "balanced"}, {"public_largest_weight": 2.0}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            probe(**weights)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sample_weight'"):
        probe().fit(FEATURES, LABELS, sample_weight=np.ones(240))  # type: ignore[call-arg]


def test_scaling_is_by_public_constants_only() -> None:
    center, scale = np.full(6, 0.5), np.arange(1.0, 7.0)
    law = rf.TruncatedGaussian(1e-6, 1e3)  # other features, other noise
    given = probe(mechanism=law, public_center=center, public_scale=scale).fit(FEATURES, LABELS)
    by_hand = probe(mechanism=law).fit((FEATURES - center) / scale, LABELS)
    assert np.allclose(given.coef_ * scale, by_hand.coef_, atol=1e-5)
    assert np.array_equal(given.predict(FEATURES), by_hand.predict((FEATURES - center) / scale))


def test_the_divisor_and_the_classes_may_be_declared() -> None:
    one = probe(public_size=240).fit(FEATURES, LABELS)
    assert np.array_equal(one.coef_, probe().fit(FEATURES, LABELS).coef_)
    more = probe(public_classes=[0, 1, 2, 7]).fit(FEATURES, LABELS)
    assert more.coef_.shape == (4, 6)
    with pytest.raises(ValueError, match=r"y must hold labels of public_classes.*previously unseen"):
        probe(public_classes=[0, 1]).fit(FEATURES, LABELS)


def test_a_bias_is_a_feature_that_is_always_one() -> None:
    with_bias = probe(fit_intercept=True).fit(FEATURES, LABELS)
    column = np.concatenate((FEATURES, np.ones((240, 1))), axis=1)
    by_hand = probe().fit(column, LABELS)
    assert np.allclose(with_bias.intercept_, by_hand.coef_[:, -1])


def test_under_an_l2_clip_every_clipped_example_costs_what_the_gaussian_costs() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    features = rng.normal(size=(60, 4)) + labels[:, None]
    probe = rf.LinearProbe(rf.Gaussian(1.0), clip=rf.Norm(1e-1), steps=2, random_state=0)
    epsilons = probe.fit(features, labels).example_epsilons(1e-5)
    whole = probe.guarantee(1e-5).per_instance.ex_post_epsilon
    assert epsilons.max() <= whole
    assert np.median(epsilons) == pytest.approx(whole, rel=1e-5)
    assert len(probe.fisher_information_loss()) == 60


def test_sparse_features_are_the_same_features() -> None:
    few = np.where(FEATURES > 1.5, FEATURES, 0.0).astype(np.float32)
    dense, sparse = probe().fit(few, LABELS), probe().fit(csr_matrix(few), LABELS)
    assert np.array_equal(dense.coef_, sparse.coef_)
    tensor = torch.tensor(few, requires_grad=True)  # scikit-learn passed on torch's RuntimeError
    assert np.array_equal(probe().fit(tensor, LABELS).coef_, dense.coef_)
    assert np.allclose(dense.predict_proba(few), sparse.predict_proba(csc_array(few)))
    assert np.array_equal(dense.example_epsilons(1e-5), sparse.example_epsilons(1e-5))
    scaled = rf.LinearProbe(target_epsilon=9.0, target_delta=1e-5, random_state=0).fit(few, LABELS)
    assert np.array_equal(scaled.predict_proba(few), scaled.predict_proba(csc_array(few)))


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame], ids=["pandas", "polars"])
def test_the_names_of_features_are_kept(frame: Any) -> None:
    table = frame({f"feature {number}": column for number, column in enumerate(FEATURES.T)})
    fitted = probe().fit(table, LABELS)
    assert fitted.feature_names_in_.tolist() == [f"feature {number}" for number in range(6)]
    assert fitted.n_features_in_ == 6
    assert np.array_equal(fitted.coef_, probe().fit(FEATURES, LABELS).coef_)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(table[table.columns[::-1]])


@pytest.mark.parametrize(
    "law", [rf.Gaussian(2.0), rf.QuantizedGaussian(1.0, bound=(-4.0, 8.0), levels=17)], ids=repr
)
def test_skops_and_joblib_keep_a_probe_without_its_data(law: rf.Mechanism, tmp_path: Path) -> None:
    import skops.io  # takes two seconds: only in the process that runs this test

    changes = {"mechanism": law, "clip": rf.Norm(0.5, each=0.1)}
    fitted = probe(**changes).fit(FEATURES, LABELS)
    joblib.dump(fitted, tmp_path / "probe.joblib")
    written = skops.io.dumps(fitted)
    unknown = skops.io.get_untrusted_types(data=written)
    assert all(name.startswith("ringfence.") for name in unknown)
    assert FEATURES.astype(np.float32)[0].tobytes() not in pickle.dumps(fitted)
    assert "_training" not in probe().__getstate__()
    for again in (joblib.load(tmp_path / "probe.joblib"), skops.io.loads(written, trusted=unknown)):
        assert np.array_equal(again.predict_proba(FEATURES), fitted.predict_proba(FEATURES))
        ours, theirs = fitted.guarantee(1e-5), again.guarantee(1e-5)
        assert (theirs.epsilon, theirs.statement) == (pytest.approx(ours.epsilon), ours.statement)
        planned = fitted.planned_cost(FEATURES, LABELS)  # nothing that only this data has
        assert np.allclose(theirs.loss.own.forward, planned.own.forward, rtol=1e-12)
        assert np.allclose(theirs.loss.own.backward, planned.own.backward, rtol=1e-12)
        assert repr(clone(again)) == repr(clone(fitted))
        with pytest.raises(ValueError, match="needs the training data"):
            again.example_epsilons(1e-5)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"clip": 0.0}, "clip must be > 0"),
        ({"public_center": []}, "public_center must be one number or 6"),
        ({"public_scale": np.ones(5)}, "public_scale must be one number or 6"),
        ({"public_scale": 0.0}, "public_scale must be > 0"),
        ({"public_center": "a"}, "public_center must be a number"),
        ({"public_scale": 5e-324}, "features must"),  # was a warning of an overflow
        ({"public_classes": []}, r"labels of public_classes, \[\]: y contains previously unseen"),
        ({"random_state": 2**63}, "random_state 9223372036854775808 cannot be used"),
        ({"device": "tpu"}, "device must be cpu, or one that torch has here, got 'tpu'"),
    ],
)
def test_hostile_settings_are_refused_by_name(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        probe(**changes).fit(FEATURES, LABELS)
    with pytest.raises(ValueError, match=r"X and y must be .* too large to convert to float"):
        probe(**changes).fit([[10**400]], [0])


SKEWED = np.abs(FEATURES).astype(np.float64) ** 3 * [1e-3, 1.0, 50.0, 1e3, 0.1, 7.0] + 20.0


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"target_epsilon": 3.0, "target_delta": 1e-5, "mechanism": None, "clip": None},
        {"public_center": 20.0, "public_scale": np.arange(1.0, 7.0)},
    ],
    ids=["private", "public"],
)
def test_coefficients_are_about_features_as_they_are_given(changes: dict[str, Any], classes: int) -> None:
    labels = LABELS % classes
    fitted = probe(**{"fit_intercept": True, **changes}).fit(SKEWED, labels)
    rows = classes if classes > 2 else 1
    assert (fitted.coef_.shape, fitted.intercept_.shape) == ((rows, 6), (rows,))
    scores = SKEWED @ fitted.coef_.T + fitted.intercept_
    apart = np.zeros_like(SKEWED) if fitted.center_ is None else (SKEWED - fitted.center_) / fitted.scale_
    far = np.sqrt(np.mean(np.square(apart), axis=1))
    assert (far > 2).any() == (fitted.center_ is not None)
    own = fitted.decision_function(SKEWED)
    assert np.allclose(own[far < 2], (scores if classes > 2 else scores[:, 0])[far < 2])
    if fitted.center_ is not None:  # a row far away is scored as the row at this distance
        nearer = fitted.center_ + fitted.scale_ * apart * (2 / far)[:, None]
        assert np.allclose(own[far > 2], fitted.decision_function(nearer)[far > 2])
        assert np.isfinite(fitted.decision_function(np.full((1, 6), 1e308))).all()
    # the scores that training computed, of rows that were not shortened
    features, weights = fitted._training.data.features.double(), fitted._training.run.weights.double()
    trained = (features @ weights.T).numpy()
    expected = trained if classes > 2 else trained[:, 1] - trained[:, 0]
    assert (far < 0.999).sum() > 20
    assert np.allclose(own[far < 0.999], expected[far < 0.999], rtol=1e-3, atol=1e-3)


def test_logarithms_of_probabilities_are_finite_where_probabilities_vanish() -> None:
    fitted = probe(mechanism=rf.Gaussian(1e-6), clip=1.0, learning_rate=1e4).fit(FEATURES, LABELS)
    logarithms = fitted.predict_log_proba(FEATURES)
    assert np.isfinite(logarithms).all()
    assert fitted.predict_proba(FEATURES).min() == 0.0
    assert np.allclose(np.exp(logarithms), fitted.predict_proba(FEATURES))


def test_a_random_state_gives_another_seed_every_time_and_an_integer_the_same() -> None:
    state = np.random.RandomState(0)
    seeds = [seed_of(state), seed_of(state)]
    assert seeds[0] != seeds[1]
    assert all(2**64 < seed < 2**128 for seed in seeds)
    assert seed_of(np.int64(3)) == 3


def test_many_integers_are_taken_for_classes_with_a_warning() -> None:
    numbers = np.arange(600) % 300
    features = RNG.normal(size=(600, 2))
    with pytest.warns(UserWarning, match="y has 300 different integers, and each is taken for a class"):
        probe(steps=1).fit(features, numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe(steps=1, public_classes=range(300)).fit(features, numbers)
        probe(steps=1).fit(features, numbers % 100)
