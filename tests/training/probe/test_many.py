"""Probes fitted together are the probes fitted one by one."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

import ringfence as rf
from ringfence.training.probe.many import fit_probes

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 240)
FEATURES = RNG.normal(size=(240, 6)).astype(np.float32) + 2 * np.eye(3, 6)[LABELS]
GRID = {
    "mechanism": [rf.Gaussian(1.0), rf.TruncatedGaussian(1.0, 40.0), rf.RectifiedGaussian(2.0, 30.0)],
    "clip": [0.2, rf.Scale(0.3)],
    "steps": [2, 6],
    "learning_rate": [8.0],
    "momentum": [0.0, 0.3],
    "random_state": [0],
}


def probes(**changes: Any) -> list[rf.LinearProbe]:
    return [rf.LinearProbe(**{**parameters, **changes}) for parameters in ParameterGrid(GRID)]


@pytest.mark.parametrize(
    "shared",
    [
        {},
        {"fit_intercept": True, "public_center": np.full(6, 0.5), "public_scale": 2.0},
        {"public_size": 100, "public_classes": [0, 1, 2, 7]},
    ],
)
def test_each_is_what_its_own_fit_gives(shared: dict[str, Any]) -> None:
    many = probes(**shared)
    fitted = fit_probes(many, FEATURES, LABELS)
    assert all(one is other for one, other in zip(fitted, many, strict=True))
    for one in fitted[::5]:
        own = clone(one).fit(FEATURES, LABELS)
        assert np.array_equal(one.classes_, own.classes_)
        assert np.allclose(one.coef_, own.coef_, rtol=1e-4, atol=1e-5)
        assert np.allclose(one.intercept_, own.intercept_, rtol=1e-4, atol=1e-5)
        assert one.score(FEATURES, LABELS) == pytest.approx(own.score(FEATURES, LABELS), abs=0.01)
        claims = [probe.guarantee(1e-5) for probe in (one, own)]
        assert claims[0].epsilon == pytest.approx(claims[1].epsilon, rel=1e-2)
        assert claims[0].epsilon == pytest.approx(claims[1].epsilon)


def test_names_of_labels_and_of_features() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(FEATURES, columns=list("abcdef"))
    fitted = fit_probes(probes(), frame, np.array(["x", "y", "z"])[LABELS])
    for one in fitted:
        assert one.predict(frame)[0] in {"x", "y", "z"}
        assert one.feature_names_in_.tolist() == list("abcdef")
        assert one.n_features_in_ == 6


def test_what_needs_the_trajectory_says_so() -> None:
    with pytest.raises(ValueError, match="nor one of fit_probes or tune: fit again"):
        fit_probes(probes()[:1], FEATURES, LABELS)[0].example_epsilons(1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"public_size": 7}, "probes must agree in public_size, got None at 0 and 7 at 3"),
        ({"public_center": np.ones(6)}, r"probes must agree in public_center, got 0\.0 at 0"),
        ({"fit_intercept": True}, "probes must agree in fit_intercept, got False at 0 and True at 3"),
        ({"public_classes": [0, 1, 2]}, "probes must agree in public_classes"),
    ],
)
def test_probes_that_handle_data_differently_are_refused(changes: dict[str, Any], message: str) -> None:
    many = probes()
    many[3].set_params(**changes)
    with pytest.raises(ValueError, match=message):
        fit_probes(many, FEATURES, LABELS)


def test_the_same_probe_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="one of them is listed twice"):
        fit_probes(probes()[:1] * 2, FEATURES, LABELS)


def test_no_probes_and_bad_features() -> None:
    assert fit_probes([], FEATURES, LABELS) == []
    with pytest.raises(ValueError, match="contains NaN"):
        fit_probes(probes(), np.where(FEATURES > 2, np.nan, FEATURES), LABELS)
