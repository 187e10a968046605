"""Linear regression on fixed features, trained privately."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from ringfence.training.probe import LinearEstimator


@dataclass(eq=False, repr=False)
class LinearRegression(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Least squares by full-batch private gradient descent: what ``LinearProbe`` does, for numbers.

    Features and the numbers that are to be predicted are shifted and divided by private statistics, unless
    ``private_scaling`` is False: then what is given should already be of about norm 1 in each row. At every
    step each example's gradient of half its squared error is clipped, so that errors far from 0 count with a
    bounded weight. Arguments and fitted attributes are those of ``LinearProbe``; ``coef_`` is (features,).

    Guarantee: that of ``LinearProbe``; a record is a row of features with its number.

    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(5000, 3)) * [1.0, 100.0, 0.01] + 7.0
    >>> numbers = features @ [2.0, 0.01, 50.0] + rng.normal(size=5000)
    >>> model = LinearRegression(target_epsilon=1.0, target_delta=1e-5, random_state=0).fit(features, numbers)
    >>> round(model.score(features, numbers), 1), round(model.guarantee(delta=1e-5).epsilon, 2)
    (0.8, 1.0)
    """

    secure = False  # the rounding of squared errors is not charged
    public_classes = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 (scikit-learn's names)
        """Trains on features (n, p), dense or sparse, and numbers (n,)."""
        self._fit(X, y)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Returns the predicted number for each row of X."""
        return self._scores(X)

    def _labels(self, y: Any) -> tuple[None, Any]:
        return None, np.asarray(y, dtype=np.float32)
