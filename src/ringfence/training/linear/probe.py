"""A linear classifier on fixed features, trained privately: scikit-learn outside, torch inside."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ringfence import checks
from ringfence.accounting.examples.accountant import ExampleAccountant
from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.accounting.guarantee import EpsilonKind, Guarantee
from ringfence.accounting.per_instance.accountant import PerInstanceAccountant
from ringfence.data.projection import attribute_rates
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import UP
from ringfence.training.assumptions import assumptions
from ringfence.training.clipping import Clamp, Clip
from ringfence.training.linear.information import information_losses
from ringfence.training.linear.probe_input import ProbeData, class_codes, mapped, plain, seed_of, validated
from ringfence.training.linear.regression import LinearRun, Step, train_linear
from ringfence.training.linear.residuals import clipped_gradients
from ringfence.training.secure_run import NEEDS_SIZE, secure_guarantee


class LinearProbe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Softmax regression by full-batch private gradient descent from zero (Algorithm 1).

    At every step each example's gradient is clipped, the clipped gradients are summed, the
    mechanism is applied to the sum, and the weights move by learning_rate / public_size times what the
    mechanism released.

    Parameters: ``mechanism``; ``clip``, a ``Clip``, or a number c for ``Clamp(c)``; ``learning_rate``;
    ``steps``; ``momentum``; ``fit_intercept``, which adds a feature that is always 1; ``public_center``
    and ``public_scale``, numbers or arrays that features are shifted and divided by; ``public_size``,
    the number that the sum is divided by; ``public_classes``, all the labels there may be;
    ``public_projection``, a ``PublicProjection`` or an array (p, k), which maps features before all that;
    ``random_state``; ``device``; ``secure``, which takes noise from the operating system, without a
    seed, and releases points of a public grid. Rounding and finite randomness are then part of
    ``guarantee``, but not of the numbers of single examples (docs/security.md).

    Guarantee: every argument named public must be public: a constant, or a statistic of public data.
    Nothing depends on the training data except through the mechanism, with two exceptions that are named
    here and in the statement: where ``public_size`` is None the number of training examples counts as
    public (it can be read off the weights; secure releases refuse it), and where ``public_classes`` is
    None the set of labels counts as public. A given ``random_state`` must not be known to anyone else. The
    accounts are those of ``docs/guarantees.md``; a record is a row of features with its label.

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

    public_projection: Any = None  # probes that were saved by earlier versions have none
    account_: PerInstanceAccountant
    assumptions_: tuple[str, ...]
    _training: tuple[Tensor, Tensor, Clip, tuple[Step, ...]] | None

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
        public_projection: Any = None,
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
        self.public_projection = public_projection
        self.public_size = public_size
        self.public_classes = public_classes
        self.random_state = random_state
        self.device = device
        self.secure = secure

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 (scikit-learn's names)
        """Trains on features (n, p) and labels (n,). Everything is checked before anything is released."""
        data, secure = prepared(self, X, y), is_secure(self)
        run = train_linear(
            data.features,
            data.labels,
            len(data.classes),
            mechanism=self.mechanism,
            clip=clip_of(self),
            learning_rate=self.learning_rate,
            steps=self.steps,
            momentum=self.momentum,
            public_size=len(data.features) if self.public_size is None else self.public_size,
            seed=None if secure else self._seed(),
            secure=secure,
        )
        keep_run(self, data, run)
        return self

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """The scores, (n, classes); where there are two classes, their difference, (n,)."""
        check_is_fitted(self)
        X = validated(self, X, dtype=np.float64, reset=False)  # noqa: N806
        scores = mapped(self, X) @ self.coef_.T + self.intercept_
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The class with the largest score, for each row of X."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """The softmax of the scores, (n, classes)."""
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

        The numbers are computed when they are asked for, from the training data. The fitted probe refers
        to that data, but is saved without it. The numbers are sensitive.
        """
        features, labels, clip, trajectory = self._kept("example_epsilons")
        examples = ExampleAccountant(self.mechanism, self.account_.orders)
        for step in trajectory:
            gradients = clipped_gradients(step.weights, features, labels, clip)
            examples.step(step.theta.reshape(-1), gradients)
        return examples.epsilons(delta, kind).numpy()

    def fisher_information_loss(self, kind: InformationNorm = "spectral") -> Any:
        """An upper bound of eta for each training example's features as given to fit, in the order of fit.

        ``information_losses`` says what holds. The label is discrete, so eta says nothing about it. The
        numbers are computed when they are asked for, from the training data. The fitted probe refers to
        that data, but is saved without it. The numbers are sensitive.
        """
        features, labels, clip, trajectory = self._kept("fisher_information_loss")
        rates = attribute_rates(self.public_scale, self.public_projection, self.coef_.shape[1])
        attributes = features.new_zeros(features.shape[1], dtype=torch.float64)  # an intercept does not move
        attributes[: len(rates)] = torch.from_numpy(rates * UP)
        eta = information_losses(self.mechanism, trajectory, features, labels, clip, attributes, kind=kind)
        if kind == "trace" and len(rates) < self.n_features_in_:  # the mean is over what was given to fit
            eta = eta * (len(rates) / self.n_features_in_) ** 0.5 * UP
        return eta.cpu().numpy()

    def __getstate__(self) -> dict[str, Any]:
        """The state without the training data: a model that is passed on must not carry it."""
        state = dict(super().__getstate__())
        if "_training" in state:
            state["_training"] = None
        return state

    def _kept(self, asker: str) -> tuple[Tensor, Tensor, Clip, tuple[Step, ...]]:
        """The data that fit was given, the clip, and the trajectory of the run."""
        check_is_fitted(self)
        if self._training is None:
            raise ValueError(
                f"{asker} needs the training data, which a saved probe does not hold, "
                "nor one of fit_probes: fit again"
            )
        return self._training

    def _seed(self) -> int | None:
        return seed_of(self.random_state)


def prepared(probe: LinearProbe, X: Any, y: Any) -> ProbeData:  # noqa: N803
    """The data as the probe is trained on it; everything about the data is checked here."""
    with np.errstate(over="ignore"):  # what float32 does not hold is refused
        X, y = validated(probe, plain(X), plain(y), dtype=np.float32)  # noqa: N806
    check_classification_targets(y)
    classes, codes = class_codes(y, probe.public_classes)
    with np.errstate(over="ignore"):  # refused where training begins
        features = mapped(probe, X).astype(np.float32)
    width = features.shape[1]
    if probe.fit_intercept:
        features = np.concatenate((features, np.ones((len(features), 1), np.float32)), axis=1)
    tensors = [torch.from_numpy(values).to(probe.device) for values in (features, codes)]
    return ProbeData(classes, tensors[0], tensors[1], width)


def clip_of(probe: LinearProbe) -> Clip:
    """The probe's clip: a number c stands for ``Clamp(c)``."""
    return probe.clip if isinstance(probe.clip, Clip) else Clamp(probe.clip)


def is_secure(probe: LinearProbe) -> bool:
    """Whether the probe's releases are secure; refuses settings that do not go together with that."""
    if checks.flag("secure", probe.secure) and probe.random_state is not None:
        raise ValueError(
            f"random_state must be None, got {probe.random_state!r}: secure releases have no seed"
        )
    if probe.secure and probe.public_size is None:
        raise ValueError(NEEDS_SIZE)
    return probe.secure


def keep_run(probe: LinearProbe, data: ProbeData, run: LinearRun) -> None:
    """Makes the probe a fitted one: what a run released, and its account."""
    probe.classes_, probe.account_ = data.classes, run.account
    probe.assumptions_ = assumptions(
        size_given=probe.public_size is not None,
        classes_given=probe.public_classes is not None,
        seed_given=probe.random_state is not None,
        projection_given=probe.public_projection is not None,
    )
    weights = run.weights.cpu().numpy().astype(np.float64)
    probe.coef_ = weights[:, : data.width]
    probe.intercept_ = weights[:, -1] if probe.fit_intercept else np.zeros(len(data.classes))
    # trajectories of a grid are not kept
    kept = (data.features.to(run.weights.dtype), data.labels, clip_of(probe), run.trajectory)
    probe._training = kept if run.trajectory else None
