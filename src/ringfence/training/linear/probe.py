"""A linear classifier on fixed features, trained privately: scikit-learn outside, torch inside."""

from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ringfence import checks
from ringfence.accounting.examples.accountant import ExampleAccountant
from ringfence.accounting.fisher.loss import UP
from ringfence.accounting.fisher.loss import Kind as FisherKind
from ringfence.accounting.guarantee import EpsilonKind, Guarantee
from ringfence.mechanisms.base import Mechanism
from ringfence.training.assumptions import assumptions
from ringfence.training.clipping import Clamp, Clip
from ringfence.training.linear.information import information_losses
from ringfence.training.linear.regression import Step, clipped_gradients, train_linear
from ringfence.training.secure_run import NEEDS_SIZE, secure_guarantee


class LinearProbe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Softmax regression by full-batch private gradient descent from zero (Algorithm 1).

    At every step each example's gradient is clipped, the clipped gradients are summed, the
    mechanism is applied to the sum, and the weights move by
    learning_rate / public_size times what it released.

    Parameters: ``mechanism``; ``clip``, a number c for ``Clamp(c)`` or a ``Clip``; ``learning_rate``;
    ``steps``; ``momentum``; ``fit_intercept``, which adds a feature that is always 1; ``public_center``
    and ``public_scale``, numbers or arrays that features are shifted and divided by; ``public_size``,
    what the sum is divided by; ``public_classes``; ``random_state``; ``device``; ``secure``, which takes
    noise from the operating system, without a seed, and releases points of a public grid: rounding and
    finite randomness are then in ``guarantee``, not in the numbers of single examples (docs/security.md).

    Guarantee: whatever is named public must be: constants, or statistics of public data. Nothing is
    fitted to the training data but through the mechanism, with two exceptions that are named here and in
    the statement: where ``public_size`` is None the number of training examples counts as public (it can
    be read off the weights; secure releases refuse it), and where ``public_classes`` is None so does the
    set of labels. A given ``random_state`` must not be known to anyone else. The accounts are those of
    ``docs/guarantees.md``; a record is a row of features with its label.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 500)
    >>> features = rng.normal(size=(500, 4)) + 2 * labels[:, None]
    >>> law = TruncatedGaussian(sigma=2.0, bound=20.0)
    >>> probe = LinearProbe(law, clip=0.1, learning_rate=8.0, steps=5, public_center=1.0, random_state=0)
    >>> bool(probe.fit(features, labels).score(features, labels) > 0.95)
    True
    >>> probe.guarantee(delta=1e-3).steps
    5
    """

    def __init__(
        self,
        mechanism: Mechanism,
        clip: float | Clip = 1e-3,
        learning_rate: float = 1.0,
        steps: int = 10,
        *,
        momentum: float = 0.0,
        fit_intercept: bool = False,
        public_center: Any = 0.0,
        public_scale: Any = 1.0,
        public_size: float | None = None,
        public_classes: Any = None,
        random_state: Any = None,
        device: str = "cpu",
        secure: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self.clip = clip
        self.learning_rate = learning_rate
        self.steps = steps
        self.momentum = momentum
        self.fit_intercept = fit_intercept
        self.public_center = public_center
        self.public_scale = public_scale
        self.public_size = public_size
        self.public_classes = public_classes
        self.random_state = random_state
        self.device = device
        self.secure = secure

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 (scikit-learn's names)
        """Trains on features (n, p) and labels (n,). Everything is checked before anything is released."""
        with np.errstate(over="ignore"):  # what float32 does not hold is refused
            X, y = validated(self, _plain(X), _plain(y), dtype=np.float32)  # noqa: N806
        check_classification_targets(y)
        secure = self._secure()
        clip = self.clip if isinstance(self.clip, Clip) else Clamp(self.clip)
        classes, codes = self._codes(y)
        features, labels = self._features(X), torch.from_numpy(codes).to(self.device)
        run = train_linear(
            features,
            labels,
            len(classes),
            mechanism=self.mechanism,
            clip=clip,
            learning_rate=self.learning_rate,
            steps=self.steps,
            momentum=self.momentum,
            public_size=len(X) if self.public_size is None else self.public_size,
            seed=None if secure else self._seed(),
            secure=self.secure,
        )
        self.classes_ = classes
        self.account_, self.assumptions_ = run.account, self._assumptions()
        weights = run.weights.cpu().numpy().astype(np.float64)
        self.coef_ = weights[:, : X.shape[1]]
        self.intercept_ = weights[:, -1] if self.fit_intercept else np.zeros(len(classes))
        self._training = (features.to(run.weights.dtype), labels, clip, run.trajectory)
        return self

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """Scores (n, classes), or (n,) where there are two classes."""
        check_is_fitted(self)
        X = validated(self, X, dtype=np.float64, reset=False)  # noqa: N806
        scores = self._scaled(X) @ self.coef_.T + self.intercept_
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The class with the largest score."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Softmax of the scores."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack((np.zeros_like(scores), scores), axis=1)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def guarantee(self, delta: float) -> Guarantee:
        """What the training run cost, and what may be said about it."""
        check_is_fitted(self)
        return replace(self._claim(delta), assumptions=self.assumptions_)

    def _claim(self, delta: float) -> Guarantee:
        if not self.secure:
            return self.account_.guarantee(delta)
        weights = self.coef_.size + (len(self.intercept_) if self.fit_intercept else 0)
        numbers = self.account_.steps * weights
        return secure_guarantee(self.account_.guarantee, self.mechanism, numbers, delta)

    def example_epsilons(self, delta: float, kind: EpsilonKind = "ex_post") -> Any:
        """Each training example's own epsilon, in the order of fit (``ExampleAccountant``).

        Computed when asked, from the training data, which the fitted probe refers to and which is
        not saved with it. The numbers are sensitive.
        """
        features, labels, clip, trajectory = self._kept("example_epsilons")
        examples = ExampleAccountant(self.mechanism, self.account_.orders)
        for step in trajectory:
            gradients = clipped_gradients(step.weights, features, labels, clip)
            examples.step(step.theta.reshape(-1), gradients)
        return examples.epsilons(delta, kind).numpy()

    def fisher_information_loss(self, kind: FisherKind = "spectral") -> Any:
        """eta of each training example's features as given to fit, in the order of fit.

        From above (``information_losses``). The label is discrete, so eta says nothing about it. Computed
        when asked, from the training data, which the fitted probe refers to and which is not saved with
        it. The numbers are sensitive.
        """
        features, labels, clip, trajectory = self._kept("fisher_information_loss")
        scale = torch.as_tensor(np.broadcast_to(self.public_scale, self.n_features_in_).astype(np.float64))
        # how features move with what was given to fit; an intercept does not
        attributes = features.new_zeros(features.shape[1], dtype=torch.float64)
        attributes[: len(scale)] = UP / scale
        eta = information_losses(self.mechanism, trajectory, features, labels, clip, attributes, kind=kind)
        return eta.cpu().numpy()

    def __getstate__(self) -> dict[str, Any]:
        """Without the training data: a model that is passed on must not carry it."""
        state = dict(super().__getstate__())
        if "_training" in state:
            state["_training"] = None
        return state

    def _kept(self, asker: str) -> tuple[Tensor, Tensor, Clip, tuple[Step, ...]]:
        """What fit saw, and how it went."""
        check_is_fitted(self)
        if self._training is None:
            raise ValueError(
                f"{asker} needs the training data, which a saved probe does not hold, "
                "nor one of fit_probes: fit again"
            )
        return self._training

    def _codes(self, y: Any) -> tuple[Any, Any]:
        if self.public_classes is None:
            classes, codes = np.unique(y, return_inverse=True)
        else:
            classes = np.unique(np.asarray(self.public_classes))
            if len(classes) < 2:
                raise ValueError(f"public_classes must hold 2 classes at least, got {self.public_classes!r}")
            codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
            outside = classes[codes] != y
            if outside.any():
                first = int(np.argmax(outside))
                raise ValueError(
                    f"y must hold public_classes only, got {np.asarray(y)[first]} at index {first}"
                )
        if len(classes) < 2:
            raise ValueError(f"y must hold at least 2 classes, got {len(classes)} class")
        return classes, codes.astype(np.int64)

    def _features(self, X: Any) -> Tensor:  # noqa: N803
        with np.errstate(over="ignore"):  # refused where training begins
            features = self._scaled(X).astype(np.float32)
        if self.fit_intercept:
            features = np.concatenate((features, np.ones((len(features), 1), np.float32)), axis=1)
        return torch.from_numpy(features).to(self.device)

    def _scaled(self, X: Any) -> Any:  # noqa: N803
        center = checks.finite("public_center", self.public_center).cpu().numpy()
        scale = checks.positive("public_scale", self.public_scale).cpu().numpy()
        for name, value in (("public_center", center), ("public_scale", scale)):
            if value.size != 1 and value.shape != X.shape[1:]:
                raise ValueError(f"{name} must be one number or {X.shape[1]}, got shape {list(value.shape)}")
        return (X - center) / scale

    def _secure(self) -> bool:
        if checks.flag("secure", self.secure) and self.random_state is not None:
            raise ValueError(
                f"random_state must be None, got {self.random_state!r}: secure releases have no seed"
            )
        if self.secure and self.public_size is None:
            raise ValueError(NEEDS_SIZE)
        return self.secure

    def _assumptions(self) -> tuple[str, ...]:
        return assumptions(
            size_given=self.public_size is not None,
            classes_given=self.public_classes is not None,
            seed_given=self.random_state is not None,
        )

    def _seed(self) -> int | None:
        """An integer is the seed itself; a numpy RandomState gives 128 bits, other ones in every fit."""
        if self.random_state is None:
            return None
        try:
            state = check_random_state(self.random_state)
        except (TypeError, ValueError) as error:
            raise ValueError(f"random_state {self.random_state!r} cannot be used: {error}") from None
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int.from_bytes(state.bytes(16), "big")


def validated(probe: LinearProbe, *data: Any, **options: Any) -> Any:
    """scikit-learn's checks; numpy's word for an integer that no float holds names no argument."""
    try:
        return validate_data(probe, *data, **options)
    except OverflowError:
        raise ValueError("X must hold numbers that float32 can hold") from None


def _plain(values: Any) -> Any:
    """A tensor as an array, which scikit-learn would not make of one with a gradient."""
    if isinstance(values, Tensor) and values.layout == torch.strided and not values.is_meta:
        return values.detach().cpu().resolve_conj().resolve_neg().numpy()
    return values
