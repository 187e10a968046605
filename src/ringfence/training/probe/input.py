"""What a linear probe makes of the features and labels it is given, before anything is released."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from ringfence import checks
from ringfence.data.projection import PublicProjection
from ringfence.training.linear.example_weights import ExampleWeights, example_weights

_ROWS = 4096  # of sparse features that are dense at a time


@dataclass(frozen=True)
class ProbeData:
    """What a probe is trained on: the classes in order, scaled features, and labels as places in classes."""

    classes: Any
    features: Tensor
    labels: Tensor
    width: int  # the number of features after a projection, without an intercept
    lengths: Tensor | None = None  # of the rows before they were scaled to length 1, if they were
    weights: ExampleWeights | None = None

    def centred(self, center: Tensor) -> "ProbeData":
        """The same data with features shifted by the center, and every row of length 1 again.

        >>> data = ProbeData([0, 1], torch.tensor([[3.0, 4.0]]), torch.tensor([0]), 2)
        >>> data.centred(torch.tensor([3.0, 2.0])).features
        tensor([[0., 1.]])
        """
        given, rest = self.features[:, : self.width], self.features[:, self.width :]
        rows, lengths = unit_rows(given.double() - center)
        features = torch.cat((rows.to(given.dtype), rest), dim=1)
        return replace(self, features=features, lengths=lengths)


def prepared(probe: BaseEstimator, X: Any, y: Any, sample_weight: Any = None) -> ProbeData:  # noqa: N803
    """The data as the probe is trained on it; everything about the data is checked here.

    Sparse features become dense ones, after a projection if there is one.
    """
    with np.errstate(over="ignore"):  # what float32 does not hold is refused
        X, y = validated(probe, X, y, dtype=np.float32, accept_sparse="csr")  # noqa: N806
    check_classification_targets(y)
    classes, codes = class_codes(y, probe.public_classes)
    lengths = None
    with np.errstate(over="ignore"):  # refused where training begins
        features = mapped(probe, X)
        if has_unit_rows(probe):
            rows, lengths = unit_rows(checks.finite("X - public_center", features))
            features = rows.numpy()
        features = features.astype(np.float32)
    width = features.shape[1]
    if checks.flag("fit_intercept", probe.fit_intercept):
        features = np.concatenate((features, np.ones((len(features), 1), np.float32)), axis=1)
    device = checks.device(probe.device)
    tensors = [torch.from_numpy(values).to(device) for values in (features, codes)]
    weights = example_weights(
        sample_weight, probe.class_weight, probe.public_largest_weight, classes.tolist(), tensors[1]
    )
    return ProbeData(classes, tensors[0], tensors[1], width, lengths, weights)


def has_unit_rows(probe: BaseEstimator) -> bool:
    """Whether rows are scaled to length 1: where that is not said, they are if there is a target."""
    if probe.unit_rows is None:
        return probe.target_epsilon is not None
    return checks.flag("unit_rows", probe.unit_rows)


def validated(estimator: BaseEstimator, *data: Any, **options: Any) -> Any:
    """The data after scikit-learn's checks, which note the number and the names of the features."""
    try:
        return validate_data(estimator, *map(plain, data), **options)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"X and y must be features (n, p) and labels (n,): {error}") from None


def plain(values: Any) -> Any:
    """A tensor as an array: scikit-learn refuses a tensor with a gradient.

    >>> plain(torch.ones(2, requires_grad=True)).tolist()
    [1.0, 1.0]
    """
    if isinstance(values, Tensor) and values.layout == torch.strided and not values.is_meta:
        return values.detach().cpu().resolve_conj().resolve_neg().numpy()
    return values


def class_codes(y: Any, public_classes: Any = None) -> tuple[Any, Any]:
    """(the classes in order, each label's place among them); without ``public_classes``, those in y.

    >>> classes, codes = class_codes(np.array(["b", "a", "b"]))
    >>> classes.tolist(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    if public_classes is None:
        classes, codes = np.unique(y, return_inverse=True)
    else:
        try:
            classes = np.unique(np.asarray(plain(public_classes)))
            codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"public_classes must hold labels like y's, got {public_classes!r}") from None
        if len(classes) < 2:
            raise ValueError(f"public_classes must hold 2 classes at least, got {public_classes!r}")
        outside = classes[codes] != y
        if outside.any():
            first = int(np.argmax(outside))
            raise ValueError(f"y must hold public_classes only, got {np.asarray(y)[first]} at index {first}")
    if len(classes) < 2:
        raise ValueError(f"y must hold at least 2 classes, got {len(classes)} class")
    return classes, codes.astype(np.int64)


def scaled(X: Any, public_center: Any, public_scale: Any) -> Any:  # noqa: N803 (scikit-learn's name)
    """(X - center) / scale, where both are one number or one number per feature.

    >>> scaled(np.array([[1.0, 3.0]]), 1.0, 2.0).tolist()
    [[0.0, 1.0]]
    """
    center = checks.finite("public_center", public_center).cpu().numpy()
    scale = checks.positive("public_scale", public_scale).cpu().numpy()
    for name, value in (("public_center", center), ("public_scale", scale)):
        if value.size != 1 and value.shape != X.shape[1:]:
            raise ValueError(f"{name} must be one number or {X.shape[1]}, got shape {list(value.shape)}")
    return (X - center) / scale


def mapped(probe: Any, X: Any) -> Any:  # noqa: N803
    """Features as a probe trains on them and predicts from them: projected, then shifted and divided."""
    if probe.public_projection is not None:
        projection = PublicProjection.from_argument(probe.public_projection)
        blocks: Iterable[Any] = (X,)
        if issparse(X):  # which may be too large to be dense before it is projected
            blocks = (X[start : start + _ROWS].toarray() for start in range(0, X.shape[0], _ROWS))
        X = np.concatenate([projection(block) for block in blocks])  # noqa: N806
    elif issparse(X):
        X = X.toarray()  # noqa: N806
    return scaled(X, probe.public_center, probe.public_scale)


def unit_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(every row divided by its length, the lengths), for float64 rows; a row of zeros stays one.

    What becomes of a row depends on that row alone, to the last bit: the squares are added in pairs, in an
    order that no other row has to do with.

    >>> rows, lengths = unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64))
    >>> rows.tolist(), lengths.tolist()
    ([[0.6, 0.8], [0.0, 0.0]], [5.0, 0.0])
    """
    largest = rows.abs().amax(dim=1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1.0)  # squares then neither overflow nor vanish
    squares = rows.square()
    while squares.shape[1] > 1:
        half = squares.shape[1] // 2
        pairs = squares[:, :half] + squares[:, half : 2 * half]
        squares = torch.cat((pairs, squares[:, 2 * half :]), dim=1)
    lengths = squares.sqrt()
    return rows / torch.where(lengths > 0, lengths, 1.0), (largest * lengths).squeeze(1)


def seed_of(random_state: Any) -> int | None:
    """The seed of the noise: an integer itself, or 128 bits of a numpy RandomState, new ones in every fit.

    >>> seed_of(7), seed_of(None)
    (7, None)
    """
    if random_state is None:
        return None
    try:
        state = check_random_state(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(f"random_state {random_state!r} cannot be used: {error}") from None
    if isinstance(random_state, Integral):
        return int(random_state)
    return int.from_bytes(state.bytes(16), "big")
