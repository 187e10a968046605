"""Data that comes with a dependency: scikit-learn's handwritten digits."""

import numpy as np

from ringfence.data.features import Features


def digits() -> Features:
    """Returns 1,797 images of 8 x 8 pixels from 0 to 16. The split into 1,257 and 540 is always the same.

    >>> digits().train_features.shape, digits().test_features.shape
    ((1257, 64), (540, 64))
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1257], order[1257:]
    values, labels = images.astype(np.float32), labels.astype(np.int64)
    return Features(values[train], labels[train], values[test], labels[test])
