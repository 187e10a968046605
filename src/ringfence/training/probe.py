"""Linear models on fixed features, trained privately: scikit-learn outside, torch inside."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import issparse  # type: ignore[import-untyped]
from scipy.special import log_softmax  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_regressor
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ringfence import checks
from ringfence.accounting.examples import ExampleAccountant
from ringfence.accounting.fisher import InformationNorm
from ringfence.accounting.guarantee import EpsilonKind, Guarantee
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import one_thread
from ringfence.numerics.rounding import UP
from ringfence.training import assumptions
from ringfence.training.clipping import Clamp, Clip, Norm
from ringfence.training.linear import (
    LinearRun,
    LinearSettings,
    charged_sensitivity,
    clipped_gradients,
    data_digest,
    train_linear,
)
from ringfence.training.linear_information import information_losses
from ringfence.training.private_statistics import (
    COUNTS_SHARE,
    FARTHEST,
    PlannedSum,
    PrivateSums,
    ReleasedSum,
    features_are_alike,
    planned_sums,
    private_log_shares,
    private_magnitudes,
    private_row_scaling,
    private_scaling,
    rows_are_divided,
    scaling_share,
)
from ringfence.training.target import Target, law_of_target

_NO_TARGET: dict[str, Any] = {"clip": Clamp(1e-3), "learning_rate": 1.0, "steps": 10, "momentum": 0.0}
_WITH_TARGET: dict[str, Any] = {"steps": 32, "momentum": 0.5}
_MANY = 100  # classes of integers: more are likely to be numbers
_INTERCEPT = 0.3  # the feature that is the same in all rows, where there is a target


@dataclass(eq=False, repr=False)
class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """Interface of the linear models here: they are fitted privately, and say what that cost."""

    mechanism: Mechanism | str | None = None
    clip: float | Clip | None = None
    learning_rate: float | None = None
    steps: int | None = None
    _: KW_ONLY
    momentum: float | None = None
    target_epsilon: float | None = None
    target_delta: float | None = None
    fit_intercept: bool = True
    private_scaling: bool | None = None
    public_center: Any = 0.0
    public_scale: Any = 1.0
    unit_rows: bool | None = None
    public_size: float | None = None
    random_state: Any = None
    device: str = "cpu"

    def __sklearn_tags__(self) -> Any:
        """Returns what scikit-learn's checks may expect: features may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def guarantee(self, delta: float) -> Guarantee:
        """Returns what the training run cost, and what may be said about it."""
        check_is_fitted(self)
        return replace(self.account_.guarantee(delta), assumptions=self.assumptions_)

    def planned_cost(self, X: Any, y: Any) -> PrivacyLoss:  # noqa: N803
        """Returns what ``fit`` will cost, for every dataset; nothing is released or kept."""
        estimator: Self = clone(self)
        plan, _ = estimator._prepared(X, y)
        return plan.account().privacy_loss()

    @cached_property
    def account_(self) -> PerInstanceAccountant:
        """The account of every release of the fit."""
        training = self._fitted_run("account_")
        plan = training.plan
        with one_thread(self.coef_.size):
            account = plan.nothing_yet()
            for planned, theta, _ in training.sums.values():
                account.step(theta, mechanism=planned.law, sensitivity=plan.moves(planned.clip))
            for step in training.run.trajectory:
                account.step(step.theta)
            return account

    def example_epsilons(self, delta: float, kind: EpsilonKind = "ex_post") -> Any:
        """Returns each training example's own epsilon, in the order of fit (``ExampleAccountant``).

        The numbers are computed when they are asked for, from the training data. The fitted probe refers
        to that data, but is saved without it. The numbers are sensitive.
        """
        training = self._fitted_run("example_epsilons")
        run, clip, labels = training.run, training.plan.settings.clip, training.data.labels
        examples = ExampleAccountant(run.mechanism)
        for planned, theta, parts in training.sums.values():
            examples.step(theta, parts(), mechanism=planned.law)
        for step in run.trajectory:
            gradients = clipped_gradients(step.weights, training.features, labels, clip)
            examples.step(step.theta.reshape(-1), gradients)
        return examples.epsilons(delta, kind).numpy()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the training data, which a model that is passed on must not carry.

        Nor must it carry numbers that are computed from the data without noise: its account is that of every
        dataset, with the same promise.
        """
        state = dict(super().__getstate__())
        if state.get("_training") is not None:
            state |= {"account_": state["_training"].plan.account(), "_training": None}
        return state

    def _fitted_run(self, asker: str) -> "_Training":
        """Returns the training run, with the data that fit was given."""
        check_is_fitted(self)
        if self._training is None:
            raise ValueError(
                f"{asker} needs the training data, which a saved probe does not hold, nor one of tune: fit "
                "again"
            )
        return self._training

    @abstractmethod
    def _labels(self, y: Any) -> tuple[Any, Any]:
        """Returns the classes in order and each label's place; or None and the numbers to be predicted."""

    def _fit(self, X: Any, y: Any) -> "_Training":  # noqa: N803
        """Trains, and sets what all estimators have."""
        plan, data = self._prepared(X, y)
        with one_thread(data.features.numel() * plan.outputs):
            training = _Training.of(plan, data)
        settings = plan.settings
        self.assumptions_ = assumptions.those(
            {
                assumptions.SIZE: self.public_size is None,
                assumptions.CLASSES: data.classes is not None and self.public_classes is None,
                assumptions.SEED: self.random_state is not None,
                assumptions.FLOATS: not self.secure,
                assumptions.OUTSIDE: True,
            }
        )
        self.mechanism_, self.clip_, self.steps_ = settings.mechanism, settings.clip, settings.steps
        self.learning_rate_, self.momentum_ = settings.learning_rate, settings.momentum
        self.unit_rows_ = plan.unit_rows
        magnitudes = training.magnitudes
        self.magnitudes_: Any = None if magnitudes is None else magnitudes.cpu().numpy()
        self.__dict__.pop("account_", None)  # that of an earlier fit
        self._training: _Training | None = training
        self._set_coefficients(training)
        return training

    def _prepared(self, X: Any, y: Any) -> "tuple[_Plan, ProbeData]":  # noqa: N803
        """Returns the plan, and the data mapped by what is public; everything about them is checked here."""
        with np.errstate(over="ignore"):  # what float32 does not hold is refused
            X, y = _validated(self, X, y, dtype=np.float32, y_numeric=is_regressor(self))  # noqa: N806
            classes, labels = self._labels(y)
            outputs = 1 if classes is None else len(classes)
            plan = self._plan(X.shape[0], X.shape[1], outputs)
            norms, features = None, self._mapped(X)
            if plan.unit_rows:
                rows, norms = unit_rows(checks.finite("X - public_center", features))
                features = rows.numpy()
            features = torch.from_numpy(features.astype(np.float32)).to(checks.device(self.device))
        return plan, ProbeData(classes, features, torch.from_numpy(labels).to(features.device), norms)

    def _set_coefficients(self, training: "_Training") -> None:
        """Sets what scores are of features as they are given: coef_, (outputs, features), and intercept_."""
        plan, scaling = training.plan, training.scaling
        weights, width = training.run.weights.cpu().numpy().astype(np.float64), plan.width
        shifts = weights[:, -1] * plan.intercept if plan.intercept else np.zeros(len(weights))
        center, scale, root = np.zeros(width), np.ones(width), 1.0
        if scaling is not None:
            whole_center, whole_scale = (values.cpu().numpy() for values in scaling)
            center, scale, root = whole_center[:width], whole_scale[:width], width**0.5
        if not self.unit_rows_:  # then public numbers come before the norm
            public = np.asarray(plain(self.public_scale), np.float64)
            center = np.asarray(plain(self.public_center), np.float64) + public * center
            scale = public * scale
        slopes = weights[:, :width] / (scale * root)
        shifts = shifts - slopes @ center
        self.center_: Any = None if scaling is None else center
        self.scale_: Any = None if scaling is None else scale
        if scaling is not None and plan.outputs == 1:  # what is predicted was scaled too
            slopes, shifts = slopes * whole_scale[-1], shifts * whole_scale[-1] + whole_center[-1]
        if plan.outputs == 2:
            slopes, shifts = slopes[1:] - slopes[:1], shifts[1:] - shifts[:1]
        self.coef_: Any = slopes
        self.intercept_: Any = shifts

    def _scores(self, X: Any) -> Any:  # noqa: N803
        """Returns the scores, (n, outputs); of two classes one number, their difference."""
        check_is_fitted(self)
        X = _validated(self, X, dtype=np.float64, reset=False)  # noqa: N806
        return self._seen(X) @ self.coef_.T + self.intercept_

    def _seen(self, X: Any) -> Any:  # noqa: N803
        """Returns the rows that scores are linear in."""
        if not self.unit_rows_:
            return X
        rows = self._mapped(X) if self.magnitudes_ is None else self._mapped(X) / self.magnitudes_
        return unit_rows(torch.from_numpy(rows))[0].numpy()

    def _mapped(self, X: Any) -> Any:  # noqa: N803
        """Returns features shifted and divided by public numbers, for training and for prediction."""
        if issparse(X):
            X = X.toarray()  # noqa: N806
        center = checks.finite("public_center", self.public_center).cpu().numpy()
        scale = checks.positive("public_scale", self.public_scale).cpu().numpy()
        for name, value in (("public_center", center), ("public_scale", scale)):
            if value.size != 1 and value.shape != X.shape[1:]:
                raise ValueError(f"{name} must be one number or {X.shape[1]}, got shape {list(value.shape)}")
        return (X - center) / scale

    def _plan(self, examples: int, width: int, outputs: int) -> "_Plan":
        """Returns how a model will be trained on data of this shape.

        Guarantee: of the data only the number of examples (where ``public_size`` is None) and the numbers of
        features and classes count.
        """
        secure: bool = self.secure
        assumptions.refuse_secure(secure, "random_state", self.random_state, self.public_size)
        size = examples if self.public_size is None else self.public_size
        size = checks.number("public_size", size, checks.positive)
        target = Target.asked(self.target_epsilon, self.target_delta)
        scaling = target is not None
        if self.private_scaling is not None:
            scaling = checks.flag("private_scaling", self.private_scaling)
        if scaling and target is None:
            raise ValueError("private_scaling must be False where target_epsilon is None, got True")
        divided = checks.flag("unit_rows", self.unit_rows or False)
        intercept = 1.0 if checks.flag("fit_intercept", self.fit_intercept) else 0.0
        chosen, sums = _NO_TARGET, {}
        if target is None:
            if self.mechanism is None or isinstance(self.mechanism, str):
                raise ValueError(
                    "target_epsilon and target_delta must be given, or a mechanism with a sigma, such as "
                    f"Gaussian(sigma=5.0), got target_epsilon None and mechanism {self.mechanism!r}"
                )
            law = self.mechanism
        else:
            law, mu, intercept = law_of_target(self.mechanism), target.mu, _INTERCEPT * intercept
            chosen = {**_NO_TARGET, **_WITH_TARGET, "clip": Norm(0.3 if outputs > 1 else 0.2)}
            if self.unit_rows is None:
                divided = not scaling or (outputs > 1 and rows_are_divided(mu, size, width))
            kind, columns, counted = divided, width, outputs if intercept else 0
            if outputs == 1:  # what is predicted is scaled like a feature, and no row has norm 1
                kind, columns, counted = False, width + 1, 0
            alike = self.unit_rows is not None or features_are_alike(width)
            share = scaling_share(mu, size, columns, unit_rows=kind, alike=alike) if scaling else 0.0
            sums = planned_sums(mu, share, columns, counted, unit_rows=kind)
            left = mu * math.sqrt(1 - share - COUNTS_SHARE * (counted > 0))
            movement = default_movement(left * size, outputs, unit_rows=divided)
        chosen = {
            name: value if (own := getattr(self, name)) is None else own for name, value in chosen.items()
        }
        if not isinstance(chosen["clip"], Clip):
            chosen["clip"] = Clamp(chosen["clip"])
        seed = None if secure else seed_of(self.random_state)
        settings = LinearSettings(law, seed=seed, **chosen)
        plan = _Plan(settings, examples, width, outputs, size, secure, sums, intercept, divided)
        if target is None:
            return plan
        # the noise depends on the settings, and the learning rate on the noise
        law = target.law(law, lambda law, delta: plan.with_(mechanism=law).account().guarantee(delta))
        plan = plan.with_(mechanism=law)
        if self.learning_rate is not None:
            return plan
        norm = Sensitivity.of(settings.clip.sensitivity).longest_square(torch.ones(()), plan.shape) ** 0.5
        return plan.with_(learning_rate=movement * (1 - settings.momentum) / (settings.steps * norm))


@dataclass(eq=False, repr=False, kw_only=True)
class LinearProbe(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Softmax regression by full-batch private gradient descent from zero (Algorithm 1).

    At every step each example's gradient is clipped, the clipped gradients are summed, the
    mechanism is applied to the sum, and the weights move by learning_rate / public_size times what the
    mechanism released.

    The shortest way is ``LinearProbe(target_epsilon=1.0, target_delta=1e-5)``: the sigma is found with which
    training is (epsilon, delta)-differentially private for every dataset, and what is not given follows from
    a rule of public numbers (``default_movement``). ``mechanism`` is then the name of a law that needs only a
    sigma ("gaussian", "sign"), or a mechanism whose bound is kept and whose sigma is replaced.

    Parameters: ``mechanism``; ``clip``, a ``Clip``, or a number c for ``Clamp(c)``; ``learning_rate``;
    ``steps``; ``momentum``; ``target_epsilon`` and ``target_delta``; ``fit_intercept``; ``private_scaling``,
    which spends a part of the target on where features lie and how far they spread, by which they are then
    shifted and divided (``training.private_statistics``); ``public_center`` and ``public_scale``, numbers or
    arrays that features are shifted and divided by before that; ``unit_rows``, which then divides every row
    by its length, so that only the mean of rows is left to be found: True says that features are of one kind,
    as pixels, words and embeddings are; ``public_size``, the number that the sum
    is divided by; ``public_classes``, all the labels there may be; ``random_state``; ``device``; ``secure``,
    which takes noise from the operating system, without a seed, and releases points of a public grid.
    The rounding of sums is then part of ``guarantee``, but not of the numbers of single examples
    (docs/security.md). None stands for Clamp(1e-3), 1.0, 10, 0.0 and False where ``clip``,
    ``learning_rate``, ``steps``, ``momentum`` and ``unit_rows`` are not given and there is no target. With a
    target, ``private_scaling`` is True; rows are divided by their length where it is False, and where
    ``rows_are_divided`` says so, by public numbers: where features are many, and where noise would hide how
    far each spreads. Fewer than 256 are then first divided by their magnitudes, which need less. With an
    intercept the counts of the classes are released too: the intercepts begin at what they say.

    A fitted probe says what it was trained with: ``mechanism_``, ``clip_``, ``learning_rate_``, ``steps_``,
    ``momentum_``, ``unit_rows_``, and ``magnitudes_``, ``center_`` and ``scale_``, those found privately, or
    None. The last two and ``coef_`` and ``intercept_`` are about features as they are given to ``predict``,
    with ``unit_rows_`` about rows divided by ``magnitudes_`` and then by their length; of two classes there
    is one row, as in scikit-learn. A row that is farther from ``center_`` than 2 ``scale_``, in the root mean
    square of its features, is scored as the row at that distance in its direction. ``account_`` is made when
    it is first asked for.

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
    >>> probe = LinearProbe(target_epsilon=1.0, target_delta=1e-3, public_center=1.0, random_state=0)
    >>> bool(probe.fit(features, labels).score(features, labels) > 0.95)
    True
    >>> round(probe.guarantee(delta=1e-3).epsilon, 2)
    1.0
    """

    public_classes: Any = None
    secure: bool = False

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 (scikit-learn's names)
        """Trains on features (n, p), dense or sparse, and labels (n,); checks them before any release."""
        self.classes_ = self._fit(X, y).data.classes
        return self

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """Returns the scores, (n, classes); where there are two classes, their difference, (n,)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _seen(self, X: Any) -> Any:  # noqa: N803
        """Returns the rows that scores are linear in: one far from ``center_`` is drawn nearer to it."""
        X = super()._seen(X)  # noqa: N806
        if self.unit_rows_ or self.center_ is None:
            return X
        apart = (X.toarray() if issparse(X) else X) - self.center_
        with np.errstate(over="ignore"):  # then the row counts as the center
            norms = np.sqrt(np.square(apart / self.scale_).mean(axis=1, keepdims=True))
        return self.center_ + apart / np.maximum(norms / FARTHEST, 1)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Returns the class with the largest score, for each row of X."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def predict_log_proba(self, X: Any) -> Any:  # noqa: N803
        """Returns the logarithms of ``predict_proba``, finite also where those are 0 in floats."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack((np.zeros_like(scores), scores), axis=1)
        return log_softmax(scores, axis=1)

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Returns the softmax of the scores, (n, classes)."""
        return np.exp(self.predict_log_proba(X))

    def fisher_information_loss(self, kind: InformationNorm = "spectral") -> Any:
        """Returns an upper bound of eta for each training example's features as given to fit, in their order.

        ``information_losses`` says what holds. The label is discrete, so eta says nothing about it. The
        numbers are computed when they are asked for, from the training data. The fitted probe refers to
        that data, but is saved without it. The numbers are sensitive.
        """
        training = self._fitted_run("fisher_information_loss")
        if training.scaling is not None:
            raise ValueError(
                "fisher_information_loss needs private_scaling to be False: counts of magnitudes jump where "
                "a feature passes a power of two, which no finite eta bounds"
            )
        run, norms, features = training.run, training.data.norms, training.features
        # how fast each feature moves with what was given to fit; an intercept does not move
        rates = torch.zeros(features.shape[1], dtype=torch.float64, device=features.device)
        public = 1 / checks.positive("public_scale", self.public_scale) * UP
        rates[: training.plan.width] = public if norms is None else 1.0
        eta = information_losses(
            *(run.mechanism, run.trajectory, features, training.data.labels, training.plan.settings.clip),
            rates,
            kind=kind,
        ).cpu()
        if norms is not None:
            # dividing a row by its norm moves it by at most 1 / norm times what it was moved by
            eta = torch.where(norms > 0, eta / norms.cpu(), torch.inf) * UP * float(public.max()) * UP
        return eta.numpy()

    def _labels(self, y: Any) -> tuple[Any, Any]:
        check_classification_targets(y)
        classes, codes = class_codes(y, self.public_classes)
        if self.public_classes is None and np.issubdtype(classes.dtype, np.integer) and len(classes) > _MANY:
            warnings.warn(
                f"y has {len(classes)} different integers, and each is taken for a class of its own: "
                "LinearRegression predicts numbers, and public_classes says that they are classes",
                UserWarning,
                stacklevel=5,
            )
        return classes, codes


@dataclass(frozen=True)
class ProbeData:
    """Training data: the classes in order, features, and labels as places in classes.

    Where ``classes`` is None the labels are the numbers that are to be predicted.
    """

    classes: Any
    features: Tensor
    labels: Tensor
    norms: Tensor | None = None  # of the rows before they were scaled to norm 1, if they were

    def scaled(self, center: Tensor, scale: Tensor) -> "ProbeData":
        """Returns the same data with features shifted and divided, and no row of norm above 1.

        A row is also divided by the root of the number of features: its norm is then about 1.

        >>> data = ProbeData([0, 1], torch.tensor([[2.0, 5.0], [9.0, 1.0]]), torch.tensor([0, 1]))
        >>> data.scaled(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 8.0])).features
        tensor([[0.3536, 0.3536],
                [1.0000, 0.0000]])
        """
        width, labels = self.features.shape[1], self.labels
        rows = (self.features.double() - center[:width]) / (scale[:width] * width**0.5)
        short, norms = unit_rows(rows)
        rows = torch.where((norms > 1)[:, None], short, rows).to(self.features.dtype)
        if self.classes is None:  # a shorter row predicts a number that is smaller by the same factor
            labels = ((labels.double() - center[-1]) / scale[-1] / norms.clamp(min=1)).to(rows.dtype)
        return replace(self, features=rows, labels=labels)


def _validated(estimator: BaseEstimator, *data: Any, **options: Any) -> Any:
    """Returns the data after scikit-learn's checks, which note the number and the names of the features."""
    try:
        return validate_data(estimator, *map(plain, data), accept_sparse="csr", **options)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        if "contains NaN" in str(error):  # the advice that follows is an imputer, fitted to private data
            raise ValueError(
                f"{str(error).splitlines()[0]} Fill it in with public constants, or leave out such rows"
            ) from None
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"X and y must be features (n, p) and labels (n,): {error}") from None


def plain(values: Any) -> Any:
    """Returns a tensor as an array: scikit-learn refuses a tensor with a gradient."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def class_codes(y: Any, public_classes: Any = None) -> tuple[Any, Any]:
    """Returns the classes in order and each label's place; without ``public_classes``, those in y.

    >>> classes, codes = class_codes(np.array(["b", "a", "b"]))
    >>> classes.tolist(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    try:
        encoder = LabelEncoder().fit(y if public_classes is None else plain(public_classes))
        codes = encoder.transform(y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"y must hold labels of public_classes, {public_classes!r}: {error}") from None
    if len(encoder.classes_) < 2:
        name = "y" if public_classes is None else "public_classes"
        raise ValueError(f"{name} must hold at least 2 classes, got {len(encoder.classes_)} class")
    return encoder.classes_, codes


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


def default_movement(reach: float, outputs: int, *, unit_rows: bool) -> float:
    """Returns how far the weights go where only a target is given, by public numbers alone.

    ``reach`` is mu n: the Gaussian-DP parameter of what the target leaves for training after the scaling of
    features and the counts of classes, times the public size. ``outputs`` is the number of classes K, or 1
    for a regression. Rows have a norm of about 1. The movement of a run is how far the weights would go if
    all clipped gradients of all its steps were the same vector of norm 1:

        movement = learning_rate * clip * steps / (1 - momentum).

    The noise in the score of a row then has the standard deviation movement / (mu n), whatever the clip and
    the number of steps. The rule lets the weights go until that noise is 1, and no farther than 3000 K where
    rows have norm 1, and 300 K where features are scaled each by itself: beyond, steps are so large that
    clipped gradients no longer balance each other, and accuracy falls. A smaller clip lets examples that are
    hopelessly on the wrong side weigh as much as those in doubt, and scores grow too large; with a larger one
    gradients fade beside the noise. ``benchmarks/default_settings.py`` compares the rule with the best of a
    search. The slopes of squared errors do not fade as those of a softmax do: there the weights go a quarter
    as far, and stop where steps would overshoot.

    >>> default_movement(12_500, 10, unit_rows=True), default_movement(12_500, 10, unit_rows=False)
    (12500, 3000.0)
    >>> default_movement(100, 1, unit_rows=False)
    25.0
    """
    if outputs == 1:
        return min(reach / 4, 60.0)
    return min(reach, (3000.0 if unit_rows else 300.0) * outputs)


@dataclass(frozen=True)
class _Plan:
    """How a model will be trained, by public numbers: its settings, and the sums that are released before."""

    settings: LinearSettings
    examples: int
    width: int  # the number of features, without an intercept
    outputs: int  # the number of scores: one for each class, or 1
    size: float  # what the sum of gradients is divided by
    secure: bool
    sums: Mapping[str, PlannedSum]
    intercept: float  # the feature that is the same in all rows; 0 for none
    unit_rows: bool

    def with_(self, **changes: Any) -> "_Plan":
        """Returns the plan with other settings."""
        return replace(self, settings=replace(self.settings, **changes))

    @property
    def shape(self) -> torch.Size:
        """The shape of the weights."""
        return torch.Size((self.outputs, self.width + (self.intercept != 0)))

    def moves(self, clip: Clip) -> Sensitivity:
        """Returns how far a record is taken to move a sum with this clip."""
        return charged_sensitivity(clip, self.examples, self.size, secure=self.secure)

    def nothing_yet(self) -> PerInstanceAccountant:
        """Returns an account without a release."""
        return PerInstanceAccountant(self.settings.mechanism, self.moves(self.settings.clip))

    def account(self) -> PerInstanceAccountant:
        """Returns the account of every release by what holds for every dataset, before any is made."""
        account = self.nothing_yet()
        for one in self.sums.values():
            theta = torch.zeros(one.width)
            account.step_worst_case(theta, mechanism=one.law, sensitivity=self.moves(one.clip))
        account.step_worst_case(torch.zeros(()).expand(self.shape), count=self.settings.steps)
        return account


@dataclass(frozen=True)
class _Training:
    """The training of one model, with its data: all of it is private, but for the plan and the scaling.

    Accounts are made from this when they are asked for, so that fitting costs no more than training.
    """

    plan: _Plan
    data: ProbeData
    run: LinearRun
    sums: Mapping[str, ReleasedSum]
    scaling: tuple[Tensor, Tensor] | None
    magnitudes: Tensor | None

    @classmethod
    def of(cls, plan: _Plan, given: ProbeData) -> "_Training":
        """Makes every release of the plan."""
        seed, data, scaling, magnitudes, start = plan.settings.seed, given, None, None, None
        digest = b"" if seed is None else data_digest(given.features, given.labels)
        sums = PrivateSums(plan.sums, plan.size, seed, digest, plan.secure)
        if "relative magnitudes" in plan.sums:
            magnitudes = private_magnitudes(given.features, sums)
            rows, _ = unit_rows(given.features.double() / magnitudes)
            data = replace(given, features=rows.to(given.features.dtype))
        if "mean" in plan.sums:
            scaling = private_row_scaling(data.features, sums)
        elif "magnitudes" in plan.sums:
            rows = given.features
            if given.classes is None:
                rows = torch.cat((rows, given.labels[:, None].to(rows.dtype)), dim=1)
            scaling = private_scaling(rows, sums)
        if scaling is not None:
            data = data.scaled(*scaling)
        if plan.intercept:
            column = data.features.new_full((len(data.features), 1), plan.intercept)
            data = replace(data, features=torch.cat((data.features, column), dim=1))
        if "classes" in plan.sums:
            start = torch.zeros(plan.shape, dtype=torch.float64)
            start[:, -1] = private_log_shares(given.labels, plan.outputs, sums=sums) / plan.intercept
        run = train_linear(
            *(data.features, data.labels, plan.outputs),
            **vars(plan.settings),
            public_size=plan.size,
            secure=plan.secure,
            start=start,
        )
        return cls(plan, data, run, sums.released, scaling, magnitudes)

    @property
    def features(self) -> Tensor:
        """Features as gradients were computed from them."""
        return self.data.features.to(self.run.weights.dtype)
