"""Linear probes on files of features: how files become arguments, what is reported, and saved models."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from ringfence import checks
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.data.features import Features
from ringfence.data.projection import PublicProjection
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.training.clipping import Clamp

if TYPE_CHECKING:
    from ringfence.training.probe import LinearProbe  # scikit-learn takes a second to load

_QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


def data_arguments(
    features: Features,
    *,
    public_center: float | None = None,
    public_scale: float | None = None,
    public_statistics: Features | None = None,
    public_projection: PublicProjection | None = None,
    public_classes: int | None = None,
) -> dict[str, Any]:
    """Returns the arguments of ``LinearProbe`` that follow from files.

    ``public_statistics`` are other features, declared public: each feature is shifted by their mean and
    divided by their standard deviation (by 1 where that is 0). A ``public_projection``, which must come from
    public data too, maps the features of both before that. ``public_classes`` n stands for labels 0 .. n - 1.

    >>> features = Features(np.eye(2, dtype=np.float32), np.arange(2))
    >>> data_arguments(features, public_center=0.5, public_classes=2)
    {'public_center': 0.5, 'public_scale': 1.0, 'public_projection': None, 'public_classes': array([0, 1])}
    """
    seen, statistics = features, public_statistics
    if public_projection is not None:
        public_projection.check_private(features)
        seen = public_projection.of_file(features)
        statistics = None if statistics is None else public_projection.of_file(statistics)
    center, scale = center_and_scale(seen, public_center, public_scale, statistics)
    if public_classes is not None:
        checks.count("public_classes", public_classes, at_least=2)
        if features.train_labels.dtype.kind != "i":
            raise ValueError(
                f"public_classes is for labels 0, 1, ..., got {public_classes} where labels are text"
            )
    return {
        "public_center": center,
        "public_scale": scale,
        "public_projection": public_projection,
        "public_classes": None if public_classes is None else np.arange(public_classes),
    }


def center_and_scale(
    features: Features, center: float | None, scale: float | None, public: Features | None
) -> tuple[Any, Any]:
    """Returns (center, scale) for the features: the given constants, or statistics of public features."""
    if public is None:
        return center or 0.0, 1.0 if scale is None else scale
    if center is not None or scale is not None:
        raise ValueError("center and scale must not be given together with public statistics")
    if np.array_equal(public.train_features, features.train_features):
        raise ValueError("public statistics must be of other features than the private ones, got the same")
    width, theirs = features.train_features.shape[1], public.train_features.shape[1]
    if width != theirs:
        raise ValueError(f"public statistics must be of {width} features, got {theirs}")
    spread = public.train_features.std(axis=0, dtype=np.float64)
    return public.train_features.mean(axis=0, dtype=np.float64), np.where(spread > 0, spread, 1.0)


def probe_report(
    probe: "LinearProbe",
    data: Features,
    delta: float,
    *,
    examples: bool = False,
    public_statistics: bool = False,
) -> dict[str, Any]:
    """Returns the settings, accuracy and cost of a fitted probe as plain data, and what was assumed in words.

    Accuracy is that on the test split, which is not protected, or None where the file has no test split. The
    accuracy on the training split would be computed from private data without noise, so it is left out. With
    ``examples``, quantiles of the examples' ex-post epsilons are there too, which are sensitive.
    """
    claim, zcdp = probe.guarantee(delta), probe.account_.gaussian_zcdp
    accuracy, quantiles = None, None
    if data.test_features is not None:
        accuracy = float(probe.score(data.test_features, data.test_labels))
    if examples:
        epsilons = probe.example_epsilons(delta)
        # an epsilon of an example, never one between two examples: the higher neighbour
        quantiles = {q: float(np.quantile(epsilons, q, method="higher")) for q in _QUANTILES}
    public = ["the settings"]
    if public_statistics:
        public.append("the file that features were centred and scaled by")
    if probe.public_projection is not None:
        public.append("the file that features were projected by")
    taken = f"Taken to be public: {', '.join(public)}. The test split is not protected."
    return {
        "mechanism": repr(probe.mechanism_),
        "clip": probe.clip_.sensitivity if type(probe.clip_) is Clamp else repr(probe.clip_),
        "learning_rate": probe.learning_rate_,
        "training_steps": probe.steps_,
        "momentum": probe.momentum_,
        "unit_rows": probe.unit_rows_,
        "private_scaling": probe.center_ is not None,
        "target_epsilon": probe.target_epsilon,
        "fit_intercept": probe.fit_intercept,
        "public_size": probe.public_size,
        "public_statistics": public_statistics,
        "public_projection": probe.public_projection is not None,
        "seed": probe.random_state,
        "secure": probe.secure,
        "training_examples": len(data.train_features),
        "features": data.train_features.shape[1],
        "classes": probe.classes_.tolist(),
        "test_accuracy": accuracy,
        **claim.as_dict(),
        "gaussian_epsilon": PrivacyLoss.of_zcdp(zcdp, zcdp).epsilon(delta),
        "example_epsilons": quantiles,
        "statement": f"{claim.statement}\n\n{taken}",
    }


def save_probe(probe: "LinearProbe", path: Path) -> None:
    """Writes the weights as .safetensors, with the classes in its metadata, and nothing else about the data.

    The scores of the classes are coefficients x + intercepts; of two classes there is one score, above 0 for
    the second. Where the metadata has unit_rows, x is (x - center) / scale divided by its norm, and where
    there was a projection too, components (x - mean) takes the place of x before that.
    """
    arrays = {"coefficients": probe.coef_, "intercepts": probe.intercept_}
    metadata = {"classes": json.dumps(probe.classes_.tolist())}
    if probe.unit_rows_:
        metadata["unit_rows"] = "true"
        arrays["center"] = np.asarray(probe.public_center, dtype=np.float64)
        arrays["scale"] = np.asarray(probe.public_scale, dtype=np.float64)
        if probe.public_projection is not None:
            arrays |= PublicProjection.from_argument(probe.public_projection).arrays
    path.parent.mkdir(parents=True, exist_ok=True)
    # in C order, because safetensors writes memory as it lies
    tensors = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(save(tensors, metadata=metadata))
