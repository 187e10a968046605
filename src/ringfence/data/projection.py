"""A linear map of features that comes from public data: principal components, as they are or whitened."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence import checks
from ringfence.data.features import Features, read_archive
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.numerics.rounding import UP, gamma

_FILE = ("mean", "components")
_FLAT = 1e-10  # public features do not vary where their variance is below this share of the largest


def attribute_rates(scale: Any, public_projection: Any, width: int) -> NDArray[np.float64]:
    """How fast each of ``width`` numbers can move with the features given, up to a rounding.

    Those features were mapped by ``public_projection``, if it is not None, and then divided by ``scale``.

    >>> attribute_rates(2.0, np.array([[3.0], [4.0]]), 1).round(9).tolist()
    [2.5]
    """
    rates = 1 / np.broadcast_to(np.asarray(scale, dtype=np.float64), width)
    if public_projection is None:
        return rates
    return rates * PublicProjection.from_argument(public_projection).rates * UP


@dataclass(frozen=True, eq=False, repr=False)
class PublicProjection:
    """Maps p features x to the k numbers ``components`` (x - ``mean``); k is at most p.

    Guarantee: none. Private data stays private under a projection only if ``mean`` and ``components`` were
    made from constants and public data; nothing here can find that out.

    >>> public = np.random.default_rng(0).normal(size=(100, 3)) * [1.0, 10.0, 0.1]
    >>> projection = PublicProjection.of(public, components=2)
    >>> projection, projection(public).shape
    (PublicProjection(3 features, 2 components), (100, 2))
    >>> PublicProjection.of(public, components=2, whiten=True)(public).std(axis=0).round(2).tolist()
    [1.0, 1.0]
    """

    mean: NDArray[np.float64]  # (p,)
    components: NDArray[np.float64]  # (k, p)

    def __post_init__(self) -> None:
        for name in _FILE:
            # a copy that nobody else changes
            value = np.array(checks.finite(name, getattr(self, name)).double().cpu().numpy())
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        shape = self.components.shape
        if len(shape) != 2 or not 1 <= shape[0] <= shape[1]:
            raise ValueError(f"components must have shape (k, p) with 1 <= k <= p, got {list(shape)}")
        if self.mean.shape != shape[1:]:
            raise ValueError(f"mean must be {shape[1]} numbers, got shape {list(self.mean.shape)}")

    @staticmethod
    def of(features: Any, components: int, *, whiten: bool = False) -> "PublicProjection":
        """The principal components of public features (n, p), those of largest variance first.

        ``whiten`` divides each component by its standard deviation, so that all of them vary equally.
        """
        values = checks.finite("features", features).double().cpu().numpy()
        if values.ndim != 2 or len(values) < 2:
            raise ValueError(
                f"features must have shape (n, p) with 2 rows at least, got {list(values.shape)}"
            )
        count = checks.count("components", components, at_least=1)
        if count > values.shape[1]:
            raise ValueError(
                f"components must be at most the number of features, {values.shape[1]}, got {count}"
            )
        mean = values.mean(axis=0)
        centred = values - mean
        variances, directions = np.linalg.eigh(centred.T @ centred / len(values))
        variances, rows = variances[::-1][:count], directions.T[::-1][:count]
        # the sign of an eigenvector means nothing: make its largest entry positive
        largest = np.abs(rows).argmax(axis=1)
        rows = rows * np.sign(rows[np.arange(count), largest])[:, None]
        if checks.flag("whiten", whiten):
            varying = int((variances > _FLAT * variances[0]).sum())
            if varying < count:
                raise ValueError(
                    f"components must be at most {varying} where they are whitened, got {count}: the public "
                    "features vary in no more directions"
                )
            rows = rows / np.sqrt(variances)[:, None]
        return PublicProjection(mean, rows)

    @staticmethod
    def from_argument(value: Any) -> "PublicProjection":
        """A projection itself, or an array (p, k) that features are multiplied by.

        >>> PublicProjection.from_argument(np.eye(3)[:, :2])
        PublicProjection(3 features, 2 components)
        """
        if isinstance(value, PublicProjection):
            return value
        array = checks.finite("public_projection", value).double().cpu().numpy()
        if array.ndim != 2 or not 1 <= array.shape[1] <= array.shape[0]:
            raise ValueError(
                "public_projection must be a PublicProjection or have shape (p, k) with 1 <= k <= p, got "
                f"{list(array.shape)}"
            )
        return PublicProjection(np.zeros(len(array)), array.T)

    def __call__(self, features: Any) -> NDArray[np.float64]:
        """The projected features, (n, k), of features (n, p)."""
        values = np.asarray(features, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.mean):
            raise ValueError(
                f"public_projection is of {len(self.mean)} features, got features of shape "
                f"{list(values.shape)}"
            )
        return (values - self.mean) @ self.components.T

    def share_of_variance(self, features: Any) -> float:
        """How much of the variance of features lies in the directions that are kept, from 0 to 1.

        >>> public = np.random.default_rng(0).normal(size=(100, 2)) * [3.0, 1.0]
        >>> round(PublicProjection.of(public, 1).share_of_variance(public), 1)
        0.9
        """
        values = np.asarray(features, dtype=np.float64)
        basis = np.linalg.qr(self.components.T)[0]
        total = float(values.var(axis=0).sum())
        return float((values @ basis).var(axis=0).sum()) / total if total > 0 else 1.0

    def of_file(self, features: Features) -> Features:
        """The features of a file, projected, in float32 as they were."""
        train, test = features.train_features, features.test_features
        return replace(
            features,
            train_features=self(train).astype(np.float32),
            test_features=None if test is None else self(test).astype(np.float32),
        )

    def check_private(self, features: Features) -> None:
        """Refuses private features that the projection itself was made of, known by their mean.

        >>> values = np.eye(4, dtype=np.float32)
        >>> PublicProjection.of(values, 2).check_private(Features(values, np.arange(4) % 2))
        Traceback (most recent call last):
        ValueError: public_projection must be of other features than the private ones, got the same
        """
        own = features.train_features.mean(axis=0, dtype=np.float64)
        if own.shape == self.mean.shape and own.any() and np.allclose(own, self.mean, rtol=1e-9, atol=0.0):
            raise ValueError(
                "public_projection must be of other features than the private ones, got the same"
            )

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Arrays of its file: mean and components."""
        return {"mean": self.mean, "components": self.components}

    @property
    def rates(self) -> NDArray[np.float64]:
        """Numbers r, k of them, with A A^T <= diag(r^2) for the components A: for Fisher information.

        r_i^2 is the sum of |A A^T| over row i, so that the difference has a dominant diagonal. If G is
        the information about projected features, A^T G A is that about the features given, and neither its
        largest eigenvalue nor its trace is above that of diag(r) G diag(r). Principal components are
        orthogonal, whitened or not, and then the two are equal.

        >>> PublicProjection(np.zeros(2), np.array([[3.0, 4.0]])).rates.round(9).tolist()
        [5.0]
        """
        count, width = self.components.shape
        absolute = np.abs(self.components)
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            product, largest = self.components @ self.components.T, absolute @ absolute.T
            # a computed product differs from the true one by at most gamma times that of absolute values
            sums = (np.abs(product) + 2 * gamma(width) * largest).sum(axis=1)
        if not np.isfinite(sums).all():
            raise ValueError("components must be smaller: products of them overflow")
        rates: NDArray[np.float64] = np.sqrt(sums * (1 + 2 * gamma(count))) * UP
        return rates

    def save(self, path: Path) -> None:
        """Writes the projection as a .npz file with the arrays mean and components."""
        path = checks.path("path", path)
        if path.suffix != ".npz":
            raise ValueError(f"path must end in .npz, got {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
            np.savez(file, allow_pickle=False, **self.arrays)

    @staticmethod
    def load(path: Path) -> "PublicProjection":
        """Reads what ``save`` wrote; nothing that is in the file is run.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     PublicProjection(np.zeros(2), np.eye(2)).save(Path(folder, "P.npz"))
        ...     PublicProjection.load(Path(folder, "P.npz"))
        PublicProjection(2 features, 2 components)
        """
        path = checks.path("path", path)
        arrays = read_archive(path, _FILE)
        if len(arrays) < len(_FILE):
            raise ValueError(f"{path} must hold mean and components, got {', '.join(arrays) or 'neither'}")
        for name, values in arrays.items():
            if values.dtype.kind != "f":
                raise ValueError(f"{path}: {name} must hold floating-point numbers, got {values.dtype}")
        try:
            return PublicProjection(**arrays)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def __repr__(self) -> str:
        count, width = self.components.shape
        return f"PublicProjection({width} features, {count} components)"
