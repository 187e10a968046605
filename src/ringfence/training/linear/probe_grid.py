"""Many linear probes fitted at once: the grid of ``train_linear_grid`` with scikit-learn outside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ringfence.training.clipping import Clamp, Clip
from ringfence.training.linear.grid import LinearSettings, train_linear_grid
from ringfence.training.linear.probe import LinearProbe, validated
from ringfence.training.linear.regression import LinearRun

_SHARED = ("fit_intercept", "public_center", "public_scale", "public_size", "public_classes", "device")


def fit_probes(probes: Sequence[LinearProbe], X: Any, y: Any) -> list[LinearProbe]:  # noqa: N803
    """Fits every probe as its own ``fit`` would, much faster together: the same probes, fitted.

    Probes may differ in mechanism, clip, learning_rate, steps, momentum and random_state; the data
    is handled once, so whatever handles it must agree. Trajectories are not kept:
    ``example_epsilons`` needs a ``fit`` of its own.

    Guarantee: that of ``LinearProbe``, probe by probe. To pick the best of them by their score on
    private data is one more release, which no probe's account holds.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 500)
    >>> features = rng.normal(size=(500, 4)) + 2 * labels[:, None]
    >>> probes = [LinearProbe(Gaussian(2.0), clip=clip, learning_rate=8.0, steps=5, public_center=1.0,
    ...     random_state=0) for clip in (0.1, 0.2)]
    >>> [probe.score(features, labels) > 0.95 for probe in fit_probes(probes, features, labels)]
    [True, True]
    """
    fitted = list(probes)
    if not fitted:
        return fitted
    _check_agreement(fitted)
    for i, probe in enumerate(fitted):
        if probe._secure():
            raise NotImplementedError(f"probes[{i}] has secure releases: fit it by itself")
    first = fitted[0]
    checked, y = validated(first, X, y, dtype=np.float32)
    check_classification_targets(y)
    classes, codes = first._codes(y)
    features, labels = first._features(checked), torch.from_numpy(codes).to(first.device)
    settings = [
        LinearSettings(
            mechanism=probe.mechanism,
            clip=probe.clip if isinstance(probe.clip, Clip) else Clamp(probe.clip),
            learning_rate=probe.learning_rate,
            steps=probe.steps,
            seed=probe._seed(),
            momentum=probe.momentum,
        )
        for probe in fitted
    ]
    size = len(checked) if first.public_size is None else first.public_size
    runs = train_linear_grid(features, labels, len(classes), settings, public_size=size)
    for probe, run in zip(fitted, runs, strict=True):
        validate_data(probe, X, skip_check_array=True)  # the names and the number of features
        _keep(probe, classes, run, checked.shape[1])
    return fitted


def _keep(probe: LinearProbe, classes: Any, run: LinearRun, width: int) -> None:
    probe.classes_, probe.account_ = classes, run.account
    probe.assumptions_ = probe._assumptions()
    weights = run.weights.cpu().numpy().astype(np.float64)
    probe.coef_ = weights[:, :width]
    probe.intercept_ = weights[:, -1] if probe.fit_intercept else np.zeros(len(classes))
    probe._training = None  # type: ignore[assignment]


def _check_agreement(probes: list[LinearProbe]) -> None:
    if len({id(probe) for probe in probes}) < len(probes):
        raise ValueError("probes must be different objects: one of them is listed twice")
    for name in _SHARED:
        first = getattr(probes[0], name)
        for i, probe in enumerate(probes):
            value = getattr(probe, name)
            if not np.array_equal(np.asarray(first), np.asarray(value)):
                raise ValueError(f"probes must agree in {name}, got {first!r} at 0 and {value!r} at {i}")
