"""Features and labels as a linear probe is trained on them: checked, coded, and with unit rows."""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from ringfence.training.linear import ExampleWeights


@dataclass(frozen=True)
class ProbeData:
    """Training data of a probe: the classes in order, scaled features, and labels as places in classes."""

    classes: Any
    features: Tensor
    labels: Tensor
    width: int  # the number of features after a projection, without an intercept
    norms: Tensor | None = None  # of the rows before they were scaled to norm 1, if they were
    weights: ExampleWeights | None = None

    def centred(self, center: Tensor) -> "ProbeData":
        """Returns the same data with features shifted by the center, and every row of norm 1 again.

        >>> data = ProbeData([0, 1], torch.tensor([[3.0, 4.0]]), torch.tensor([0]), 2)
        >>> data.centred(torch.tensor([3.0, 2.0])).features
        tensor([[0., 1.]])
        """
        given, rest = self.features[:, : self.width], self.features[:, self.width :]
        rows, norms = unit_rows(given.double() - center)
        return replace(self, features=torch.cat((rows.to(given.dtype), rest), dim=1), norms=norms)

    @property
    def largest_weight(self) -> float:
        """The public number that no example's weight is above."""
        return 1.0 if self.weights is None else self.weights.largest


def validated(estimator: BaseEstimator, *data: Any, **options: Any) -> Any:
    """Returns the data after scikit-learn's checks, which note the number and the names of the features."""
    try:
        return validate_data(estimator, *map(plain, data), **options)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"X and y must be features (n, p) and labels (n,): {error}") from None


def plain(values: Any) -> Any:
    """Returns a tensor as an array: scikit-learn refuses a tensor with a gradient.

    >>> plain(torch.ones(2, requires_grad=True)).tolist()
    [1.0, 1.0]
    """
    if isinstance(values, Tensor) and values.layout == torch.strided and not values.is_meta:
        return values.detach().cpu().resolve_conj().resolve_neg().numpy()
    return values


def class_codes(y: Any, public_classes: Any = None) -> tuple[Any, Any]:
    """Returns the classes in order and each label's place; without ``public_classes``, those in y.

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


def unit_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns every row divided by its norm, and the norms, for float64 rows; a row of zeros stays one.

    What becomes of a row depends on that row alone, to the last bit: the squares are added in pairs, in an
    order that no other row has to do with.

    >>> rows, norms = unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64))
    >>> rows.tolist(), norms.tolist()
    ([[0.6, 0.8], [0.0, 0.0]], [5.0, 0.0])
    """
    largest = rows.abs().amax(dim=1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1.0)  # squares then neither overflow nor vanish
    squares = rows.square()
    while squares.shape[1] > 1:
        half = squares.shape[1] // 2
        pairs = squares[:, :half] + squares[:, half : 2 * half]
        squares = torch.cat((pairs, squares[:, 2 * half :]), dim=1)
    norms = squares.sqrt()
    return rows / torch.where(norms > 0, norms, 1.0), (largest * norms).squeeze(1)


def seed_of(random_state: Any) -> int | None:
    """Returns the seed of the noise: an integer itself, or 128 new bits of a numpy RandomState.

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
