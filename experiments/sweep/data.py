"""The data of a sweep as tensors: centred and scaled by public numbers, split once, on one device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.sweep.settings import FairSearch, Grid, Job, Search
from ringfence.data.features import Features
from ringfence.numerics.blocks import one_thread
from ringfence.training.linear import checked_labels, data_digest


@dataclass(frozen=True)
class SweepData:
    """The parts that models are trained on, chosen by (None: nothing is kept back) and tested on.

    ``attributes`` says how much each feature moves if the feature in the file moves by 1.
    """

    classes: int
    attributes: Tensor
    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor] | None
    test: tuple[Tensor, Tensor]
    fingerprint: str  # of the arrays it was made of

    def to(self, device: str) -> "SweepData":
        """The same data on another device."""

        def moved(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return pair[0].to(device), pair[1].to(device)

        return replace(
            self,
            attributes=self.attributes.to(device),
            train=moved(self.train),
            validation=None if self.validation is None else moved(self.validation),
            test=moved(self.test),
        )

    def sample(self, count: int) -> Tensor:
        """Indices of ``count`` training examples (of all, if there are fewer), chosen by number alone."""
        order = torch.randperm(len(self.train[1]), generator=torch.Generator().manual_seed(0))
        return order[:count].sort().values.to(self.train[1].device)


@dataclass
class OnDevice:
    """Calls ``measure(data, jobs)`` with data that travel on the CPU and are moved to the device once."""

    measure: Callable[[SweepData, Sequence[Job]], list[dict[str, Any]]]
    data: SweepData
    device: str

    def __call__(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        self.data = self.data.to(self.device)  # which is there after the first call
        with one_thread(self.data.train[0].numel()):
            return self.measure(self.data, jobs)


def digits() -> Features:
    """Scikit-learn's 1,797 images of 8 x 8 pixels from 0 to 16, always split into the same 1,257 and 540."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1257], order[1257:]
    values, labels = images.astype(np.float32), labels.astype(np.int64)
    return Features(values[train], labels[train], values[test], labels[test])


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


def sweep_data(features: Features, grid: Grid, search: Search, public: Features | None = None) -> SweepData:
    """The splits of a sweep. In a fair search part of the training split is kept back to choose settings by.

    The seed of the fair search fixes which examples those are; they are not trained on.

    Guarantee: the only numbers taken from the private features are the size of the training part and,
    where ``classes`` is None, which labels occur; both count as public. ``public`` are other features,
    declared public: each feature is shifted by their mean and divided by their standard deviation.
    """
    if features.test_features is None or features.test_labels is None:
        raise ValueError("a sweep needs a test split, the features have none")
    center, scale = center_and_scale(features, grid.center, grid.scale, public)
    classes, codes, test_codes = _codes(features, grid.classes)

    def tensor(values: Any) -> Tensor:
        return torch.from_numpy(((values - center) / scale).astype(np.float32))

    x, test = tensor(features.train_features), (tensor(features.test_features), test_codes)
    train, validation = (x, codes), None
    if search == "fair":
        stay, back = parts(len(x), grid.fair)
        train, validation = (x[stay], codes[stay]), (x[back], codes[back])
    return SweepData(
        classes=classes,
        attributes=1 / torch.from_numpy(np.broadcast_to(np.asarray(scale, np.float64), x.shape[1]).copy()),
        train=train,
        validation=validation,
        test=test,
        fingerprint=data_digest(x, codes, *test).hex(),
    )


def _codes(features: Features, classes: int | None) -> tuple[int, Tensor, Tensor]:
    """The number of classes, and the labels of both splits as numbers; -1 for one that training never saw."""
    both = (features.train_labels, np.asarray(features.test_labels))
    if classes is None:
        known = np.unique(features.train_labels)
        places = [np.searchsorted(known, labels).clip(max=len(known) - 1) for labels in both]
        train, test = (np.where(known[at] == of, at, -1) for at, of in zip(places, both, strict=True))
        return len(known), torch.from_numpy(train), torch.from_numpy(test)
    if features.train_labels.dtype.kind != "i":
        raise ValueError(f"classes is for labels 0, 1, ..., got {classes} where labels are text")
    given = [checked_labels(torch.from_numpy(labels), len(labels), classes) for labels in both]
    return classes, given[0], given[1]


def parts(count: int, search: FairSearch) -> tuple[Tensor, Tensor]:
    """Indices of the examples that a fair search trains on, and of those that it keeps back to choose by."""
    order = np.random.default_rng(search.seed).permutation(count)
    kept = max(1, round(search.validation * count))
    if kept >= count:
        raise ValueError(f"validation must leave examples to train on, got {kept} of {count}")
    return torch.from_numpy(np.sort(order[kept:])), torch.from_numpy(np.sort(order[:kept]))
