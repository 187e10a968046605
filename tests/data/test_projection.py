"""Projections: against a singular value decomposition, and files of them that are not what they should be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.data.features import Features
from ringfence.data.projection import PublicProjection, attribute_rates

RNG = np.random.default_rng(0)
PUBLIC = RNG.normal(size=(200, 6)) @ RNG.normal(size=(6, 6)) + 3


def test_principal_components_are_those_of_the_decomposition() -> None:
    projection = PublicProjection.of(PUBLIC, 4)
    _, lengths, rows = np.linalg.svd(PUBLIC - PUBLIC.mean(axis=0))
    assert np.allclose(np.abs(projection.components @ rows[:4].T), np.eye(4), atol=1e-9)
    assert np.allclose(projection(PUBLIC).std(axis=0), lengths[:4] / np.sqrt(200))
    assert np.allclose(projection(PUBLIC).mean(axis=0), 0, atol=1e-12)
    assert projection.share_of_variance(PUBLIC) == pytest.approx(
        (lengths[:4] ** 2).sum() / (lengths**2).sum()
    )


def test_whitened_components_vary_equally_and_keep_their_directions() -> None:
    plain, white = (PublicProjection.of(PUBLIC, 4, whiten=whiten) for whiten in (False, True))
    assert np.allclose(np.cov(white(PUBLIC).T, bias=True), np.eye(4), atol=1e-9)
    ratio = white.components / plain.components
    assert np.allclose(ratio, ratio[:, :1])
    assert white.share_of_variance(PUBLIC) == pytest.approx(plain.share_of_variance(PUBLIC))


def test_directions_in_which_public_features_do_not_vary_are_not_whitened() -> None:
    flat = np.concatenate((PUBLIC, PUBLIC[:, :1]), axis=1)
    assert PublicProjection.of(flat, 7)(flat).std(axis=0)[-1] < 1e-6
    with pytest.raises(ValueError, match="components must be at most 6 where they are whitened, got 7"):
        PublicProjection.of(flat, 7, whiten=True)


@pytest.mark.parametrize("made", ["principal", "whitened", "any"])
def test_rates_bound_the_information_about_the_features_given(made: str) -> None:
    if made == "any":
        projection = PublicProjection.from_argument(RNG.normal(size=(6, 4)))
    else:
        projection = PublicProjection.of(PUBLIC, 4, whiten=made == "whitened")
    scale = np.array([1.0, 2.0, 0.5, 3.0])
    rates, jacobian = attribute_rates(scale, projection, 4), projection.components / scale[:, None]
    for _ in range(20):
        root = RNG.normal(size=(4, 2))
        truth = np.linalg.eigvalsh(jacobian.T @ root @ root.T @ jacobian)
        bound = np.linalg.eigvalsh(rates[:, None] * (root @ root.T) * rates)
        for value, above in ((truth[-1], bound[-1]), (truth.sum(), bound.sum())):
            assert above >= value * (1 - 1e-12)
            if made != "any":
                assert above == pytest.approx(value, rel=1e-9)


def test_a_file_gives_the_same_projection(tmp_path: Path) -> None:
    projection = PublicProjection.of(PUBLIC, 3)
    projection.save(tmp_path / "below" / "P.npz")
    again = PublicProjection.load(tmp_path / "below" / "P.npz")
    assert np.array_equal(again.mean, projection.mean)
    assert np.array_equal(again.components, projection.components)
    with pytest.raises(ValueError, match=r"path must end in \.npz, got"):
        projection.save(tmp_path / "P.npy")


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"mean": np.zeros(2)}, "must hold mean and components, got mean"),
        ({"mean": np.zeros(3), "components": np.eye(2)}, "mean must be 2 numbers, got shape"),
        ({"mean": np.zeros(2), "components": np.ones((3, 2))}, "with 1 <= k <= p, got"),
        ({"mean": np.zeros(0), "components": np.ones((0, 0))}, "with 1 <= k <= p, got"),
        ({"mean": np.zeros(2), "components": np.full((1, 2), np.nan)}, "components must not be NaN"),
        ({"mean": np.zeros(2), "components": np.array([[1, "a"]], object)}, "components cannot be read"),
        ({"mean": np.zeros(2, int), "components": np.eye(2)}, "mean must hold floating-point numbers"),
    ],
)
def test_files_that_are_no_projections(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    np.savez(tmp_path / "P.npz", **arrays)
    with pytest.raises(ValueError, match=rf"P\.npz.*{complaint}"):
        PublicProjection.load(tmp_path / "P.npz")


def test_arguments_that_do_not_fit() -> None:
    for components, complaint in ((7, "at most the number of features, 6, got 7"), (0, "components must be")):
        with pytest.raises(ValueError, match=complaint):
            PublicProjection.of(PUBLIC, components)
    with pytest.raises(ValueError, match="features must have shape"):
        PublicProjection.of(PUBLIC[:1], 1)
    with pytest.raises(ValueError, match="public_projection is of 6 features, got features of shape"):
        PublicProjection.of(PUBLIC, 2)(PUBLIC[:, :5])
    with pytest.raises(ValueError, match=r"have shape \(p, k\) with 1 <= k <= p, got \[2, 3\]"):
        PublicProjection.from_argument(np.ones((2, 3)))


def test_components_whose_products_overflow_have_no_rates() -> None:
    with pytest.raises(ValueError, match="components must be smaller: products of them overflow"):
        _ = PublicProjection(np.zeros(2), np.array([[1e200, 1e200]])).rates


def test_the_private_features_themselves_are_refused() -> None:
    values = PUBLIC.astype(np.float32)
    own, labels = PublicProjection.of(values, 2), np.zeros(200, int)
    with pytest.raises(ValueError, match="must be of other features than the private ones, got the same"):
        own.check_private(Features(values, labels))
    own.check_private(Features(values[:199], labels[:199]))
