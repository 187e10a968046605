"""Many linear probes fitted at once: the grid of ``train_linear_grid`` with scikit-learn outside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from ringfence import checks
from ringfence.training.linear.grid import train_linear_grid
from ringfence.training.probe.input import has_unit_rows, prepared
from ringfence.training.probe.plan import is_secure, planned, public_size
from ringfence.training.probe.probe import LinearProbe
from ringfence.training.probe.run import keep_run

_SHARED = (
    *("fit_intercept", "public_center", "public_scale", "public_projection"),
    *("public_size", "public_classes", "device"),
)


def fit_probes(probes: Sequence[LinearProbe], X: Any, y: Any) -> list[LinearProbe]:  # noqa: N803
    """Fits every probe as its own ``fit`` would, but together and much faster; returns the same probes.

    Probes may differ in mechanism, clip, learning_rate, steps, momentum and random_state. The data is
    prepared once, so the probes must agree in every argument that prepares it. Trajectories are not
    kept: ``example_epsilons`` needs a ``fit`` of the probe alone.

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
    fitted = [checks.instance("probes", probe, LinearProbe) for probe in checks.listed("probes", probes)]
    if not fitted:
        return fitted
    _check_agreement(fitted)
    for i, probe in enumerate(fitted):
        if is_secure(probe):
            raise NotImplementedError(f"probes[{i}] has secure releases: fit it by itself")
        if probe.class_weight is not None:
            raise NotImplementedError(f"probes[{i}] has class_weight: fit it by itself")
    first = fitted[0]
    data = prepared(first, X, y)
    plans = [planned(probe, data, secure=False) for probe in fitted]
    for i, plan in enumerate(plans):
        if plan.mean is not None:
            raise NotImplementedError(
                f"probes[{i}] centres its rows by a private mean (target_epsilon): fit it by itself, or give "
                "unit_rows=False"
            )
    settings, size = [plan.settings for plan in plans], public_size(first, data)
    runs = train_linear_grid(data.features, data.labels, len(data.classes), settings, public_size=size)
    for probe, plan, run in zip(fitted, plans, runs, strict=True):
        validate_data(probe, X, skip_check_array=True)  # notes the names and the number of features
        keep_run(probe, data, plan, run.weights)
        probe.account_, probe._training = run.account, None  # trajectories of a grid are not kept
    return fitted


def _check_agreement(probes: list[LinearProbe]) -> None:
    if len({id(probe) for probe in probes}) < len(probes):
        raise ValueError("probes must be different objects: one of them is listed twice")
    for name in _SHARED:
        first = getattr(probes[0], name)
        for i, probe in enumerate(probes):
            value = getattr(probe, name)
            if not np.array_equal(np.asarray(first), np.asarray(value)):
                raise ValueError(f"probes must agree in {name}, got {first!r} at 0 and {value!r} at {i}")
    scaling = [has_unit_rows(probe) for probe in probes]
    if len(set(scaling)) > 1:
        i = scaling.index(not scaling[0])
        raise ValueError(f"probes must agree in unit_rows, got {scaling[0]} at 0 and {scaling[i]} at {i}")
