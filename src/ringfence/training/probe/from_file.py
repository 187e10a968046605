"""One private linear probe on a file of features: its accuracy, its cost, and what was assumed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ringfence.accounting.claim.data_independent import data_independent_epsilon
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.data.features import Features
from ringfence.data.projection import PublicProjection
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.training.clipping import Clamp
from ringfence.training.probe.file_settings import ProbeSettings

if TYPE_CHECKING:
    from ringfence.training.probe.probe import LinearProbe

QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True)
class ProbeRow:
    """One training run. ``model`` holds what was released, and what else is needed to predict.

    ``chosen`` says what the probe was trained with, as plain data: what was given, and what followed from a
    target.

    ``test_accuracy`` is the accuracy on the test split, which is not protected, or None where the file has
    no test split. The accuracy on the training split would be computed from private data without noise,
    so it is left out.
    """

    settings: ProbeSettings
    chosen: dict[str, Any]
    examples: int
    features: int
    classes: tuple[Any, ...]
    public_statistics: bool
    public_projection: bool
    test_accuracy: float | None
    guarantee: Guarantee
    gaussian_epsilon: float
    example_epsilons: dict[float, float] | None  # ex-post, by quantile
    model: dict[str, NDArray[np.float64]]

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data, with the statement and without the weights."""
        return {
            **self.settings.as_dict(),
            **self.chosen,
            "training_examples": self.examples,
            "features": self.features,
            "classes": list(self.classes),
            "public_statistics": self.public_statistics,
            "public_projection": self.public_projection,
            "test_accuracy": self.test_accuracy,
            **self.guarantee.as_dict(),
            "gaussian_epsilon": self.gaussian_epsilon,
            "example_epsilons": self.example_epsilons,
            "statement": self.statement,
        }

    @property
    def statement(self) -> str:
        """The guarantee in words, and what it takes for granted."""
        public = ["the settings"]
        if self.public_statistics:
            public.append("the file that features were centred and scaled by")
        if self.public_projection:
            public.append("the file that features were projected by")
        taken = f"Taken to be public: {', '.join(public)}. The test split is not protected."
        return f"{self.guarantee.statement}\n\n{taken}"


def probe_row(
    features: Features,
    settings: ProbeSettings,
    public: Features | None = None,
    projection: PublicProjection | None = None,
) -> ProbeRow:
    """Trains a probe on the training split, tests it on the test split, and accounts for it.

    ``public`` are other features, declared public: each feature is shifted by their mean and divided
    by their standard deviation (by 1 where that is 0). A ``projection``, which must come from public data
    too, maps the features of both before that.

    Guarantee: that of ``LinearProbe``. No statistic of the training split is used except through the
    mechanism, and the training split is never split further.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> labels = np.arange(400) % 2
    >>> data = Features(np.eye(2, dtype=np.float32)[labels], labels)
    >>> row = probe_row(data, ProbeSettings(TruncatedGaussian(1.0, 30.0), clip=0.1, learning_rate=4.0))
    >>> row.test_accuracy is None, row.guarantee.steps
    (True, 10)
    """
    from ringfence.training.probe.probe import LinearProbe  # scikit-learn takes a second to load

    probe = LinearProbe(
        settings.mechanism,
        settings.clip,
        settings.learning_rate,
        settings.steps,
        momentum=settings.momentum,
        target_epsilon=settings.target_epsilon,
        target_delta=None if settings.target_epsilon is None else settings.delta,
        random_state=settings.seed,
        secure=settings.secure,
        **data_arguments(features, settings, public, projection),
    ).fit(features.train_features, features.train_labels)
    accuracy, quantiles = None, None
    if features.test_features is not None:
        accuracy = float(probe.score(features.test_features, features.test_labels))
    if settings.examples:
        epsilons = probe.example_epsilons(settings.delta)
        # an epsilon of an example, never one between two examples: the higher neighbour
        quantiles = {q: float(np.quantile(epsilons, q, method="higher")) for q in QUANTILES}
    zcdp = probe.account_.gaussian_zcdp
    return ProbeRow(
        settings=settings,
        chosen={
            "mechanism": repr(probe.mechanism_),
            "clip": probe.clip_.sensitivity if type(probe.clip_) is Clamp else repr(probe.clip_),
            "learning_rate": probe.learning_rate_,
            "steps": probe.steps_,
            "momentum": probe.momentum_,
            "unit_rows": probe.unit_rows_,
            "private_mean": probe.mean_ is not None,
        },
        examples=len(features.train_features),
        features=features.train_features.shape[1],
        classes=tuple(probe.classes_.tolist()),
        public_statistics=public is not None,
        public_projection=projection is not None,
        test_accuracy=accuracy,
        guarantee=probe.guarantee(settings.delta),
        gaussian_epsilon=data_independent_epsilon(zcdp, zcdp, settings.delta),
        example_epsilons=quantiles,
        model=probe_arrays(probe),
    )


def data_arguments(
    features: Features,
    settings: ProbeSettings,
    public: Features | None = None,
    projection: PublicProjection | None = None,
) -> dict[str, Any]:
    """The arguments of ``LinearProbe`` that say what the data is and how it is prepared."""
    if projection is None:
        center, scale = center_and_scale(features, settings.center, settings.scale, public)
    else:
        projection.check_private(features)
        seen = None if public is None else projection.of_file(public)
        center, scale = center_and_scale(projection.of_file(features), settings.center, settings.scale, seen)
    count = settings.public_classes
    if count is not None and features.train_labels.dtype.kind != "i":
        raise ValueError(f"public_classes is for labels 0, 1, ..., got {count} where labels are text")
    return {
        "fit_intercept": settings.intercept,
        "public_center": center,
        "public_scale": scale,
        "public_projection": projection,
        "public_size": settings.public_size,
        "public_classes": None if count is None else np.arange(count),
        "device": settings.device,
    }


def probe_arrays(probe: "LinearProbe") -> dict[str, NDArray[np.float64]]:
    """What a fitted probe released, and what else is needed to predict."""
    projection = probe.public_projection
    return {
        "coefficients": probe.coef_,
        "intercepts": probe.intercept_,
        "center": np.asarray(probe.public_center, dtype=np.float64),
        "scale": np.asarray(probe.public_scale, dtype=np.float64),
        **({} if projection is None else PublicProjection.from_argument(projection).arrays),
        **({} if probe.mean_ is None else {"private_mean": probe.mean_}),
    }


def save_model(row: ProbeRow, path: Path) -> None:
    """Writes the model of a row, as ``save_arrays`` does."""
    save_arrays(row.model, row.classes, path, unit_rows=row.chosen["unit_rows"])


def save_arrays(
    arrays: dict[str, NDArray[np.float64]], classes: Sequence[Any], path: Path, *, unit_rows: bool
) -> None:
    """Writes the weights as .safetensors, with the classes in its metadata, and nothing else about the data.

    The scores of the classes are coefficients (x - center) / scale + intercepts. Where there was a
    projection, its arrays are there too, and components (x - mean) takes the place of x. Where the metadata
    has unit_rows, (x - center) / scale is divided by its length; where there is a private_mean, that is then
    subtracted, and the rest is divided by its length again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # in C order, because safetensors writes memory as it lies
    tensors = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    scaled = {"unit_rows": "true"} if unit_rows else {}
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(save(tensors, metadata={"classes": json.dumps(list(classes)), **scaled}))


def center_and_scale(
    features: Features, center: float | None, scale: float | None, public: Features | None
) -> tuple[Any, Any]:
    """(center, scale) for the features: the given constants, or statistics of public features."""
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
