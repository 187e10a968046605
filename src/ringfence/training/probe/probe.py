"""A linear classifier on fixed features, trained privately: scikit-learn outside, torch inside."""

from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from ringfence.accounting.claim.guarantee import EpsilonKind, Guarantee
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.costs.finite_randomness import secure_guarantee
from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.data.projection import attribute_rates
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import UP
from ringfence.numerics.threads import one_thread
from ringfence.training.clipping import Clip
from ringfence.training.probe.input import mapped, prepared, unit_rows, validated
from ringfence.training.probe.plan import is_secure, planned, planned_account, public_size
from ringfence.training.probe.run import ProbeRun, keep_run


class LinearProbe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Softmax regression by full-batch private gradient descent from zero (Algorithm 1).

    At every step each example's gradient is clipped, the clipped gradients are summed, the
    mechanism is applied to the sum, and the weights move by learning_rate / public_size times what the
    mechanism released.

    The shortest way is ``LinearProbe(target_epsilon=1.0, target_delta=1e-5)``: the sigma is found with which
    training is (epsilon, delta)-differentially private for every dataset, and what is not given follows from
    a rule of public numbers (``default_settings``). ``mechanism`` is then the name of a law that needs only a
    sigma ("gaussian", "sign"), or a mechanism whose bound is kept and whose sigma is replaced.

    Parameters: ``mechanism``; ``clip``, a ``Clip``, or a number c for ``Clamp(c)``; ``learning_rate``;
    ``steps``; ``momentum``; ``target_epsilon`` and ``target_delta``; ``fit_intercept``, which adds a feature
    that is always 1; ``public_center`` and ``public_scale``, numbers or arrays that features are shifted and
    divided by; ``unit_rows``, which then divides every row by its length; ``public_size``, the number that
    the sum is divided by; ``public_classes``, all the labels there may be; ``public_projection``, a
    ``PublicProjection`` or an array (p, k), which maps features before all that; ``class_weight``, a dict of
    public weights of classes; ``public_largest_weight``, which no ``sample_weight`` of ``fit`` is above;
    ``random_state``; ``device``; ``secure``, which takes noise from the operating system, without a seed, and
    releases points of a public grid. Rounding and finite randomness are then part of ``guarantee``, but not
    of the numbers of single examples (docs/security.md). None stands for Clamp(1e-3), 1.0, 10, 0.0 and False
    where ``clip``, ``learning_rate``, ``steps``, ``momentum`` and ``unit_rows`` are not given and there is no
    target.

    A fitted probe says what it was trained with: ``mechanism_``, ``clip_``, ``learning_rate_``, ``steps_``,
    ``momentum_``, ``unit_rows_``, and ``mean_``, the private mean of the rows, or None where none was
    released. ``account_`` is made when it is first asked for.

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

    # what probes that were saved by earlier versions do not have
    target_epsilon: float | None = None
    target_delta: float | None = None
    unit_rows: bool | None = None
    unit_rows_: bool = False
    public_projection: Any = None
    class_weight: Any = None
    public_largest_weight: float = 1.0
    mean_: Any = None

    assumptions_: tuple[str, ...]
    _training: ProbeRun | None

    def __init__(
        self,
        mechanism: Mechanism | str | None = None,
        clip: float | Clip | None = None,
        learning_rate: float | None = None,
        steps: int | None = None,
        *,
        momentum: float | None = None,
        target_epsilon: float | None = None,
        target_delta: float | None = None,
        fit_intercept: bool = False,
        public_center: Any = 0.0,
        public_scale: Any = 1.0,
        unit_rows: bool | None = None,
        public_projection: Any = None,
        public_size: float | None = None,
        public_classes: Any = None,
        class_weight: Any = None,
        public_largest_weight: float = 1.0,
        random_state: Any = None,
        device: str = "cpu",
        secure: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self.clip = clip
        self.learning_rate = learning_rate
        self.steps = steps
        self.momentum = momentum
        self.target_epsilon = target_epsilon
        self.target_delta = target_delta
        self.fit_intercept = fit_intercept
        self.public_center = public_center
        self.public_scale = public_scale
        self.unit_rows = unit_rows
        self.public_projection = public_projection
        self.public_size = public_size
        self.public_classes = public_classes
        self.class_weight = class_weight
        self.public_largest_weight = public_largest_weight
        self.random_state = random_state
        self.device = device
        self.secure = secure

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803 (scikit-learn's names)
        """Trains on features (n, p), dense or sparse, and labels (n,).

        ``sample_weight`` (n,) has numbers from 0 to ``public_largest_weight``: an example adds its clipped
        gradient times its weight. Everything is checked before anything is released.
        """
        data, secure = prepared(self, X, y, sample_weight), is_secure(self)
        plan = planned(self, data, secure=secure)
        with one_thread(data.features.numel() * len(data.classes)):
            run = ProbeRun.trained(data, plan, public_size(self, data), secure=secure)
        keep_run(self, run.data, plan, run.descent.weights, run.mean)
        self.__dict__.pop("account_", None)  # that of an earlier fit
        self._training = run
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's checks may expect: features may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """The scores, (n, classes); where there are two classes, their difference, (n,)."""
        check_is_fitted(self)
        X = validated(self, X, dtype=np.float64, reset=False, accept_sparse="csr")  # noqa: N806
        rows = mapped(self, X)
        if self.unit_rows_:
            rows = unit_rows(torch.from_numpy(rows))[0].numpy()
        if self.mean_ is not None:
            rows = unit_rows(torch.from_numpy(rows - self.mean_))[0].numpy()
        scores = rows @ self.coef_.T + self.intercept_
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
        weights = self.coef_.size + (len(self.intercept_) if self.fit_intercept else 0)
        account = self.account_
        claim = secure_guarantee(account.guarantee, account.steps * weights * self.secure, delta)
        return replace(claim, assumptions=self.assumptions_)

    def planned_cost(self, X: Any, y: Any, sample_weight: Any = None) -> Cost:  # noqa: N803
        """What ``fit`` with these arguments will cost, for every dataset; nothing is released or kept."""
        probe = clone(self)
        data, secure = prepared(probe, X, y, sample_weight), is_secure(probe)
        plan = planned(probe, data, secure=secure)
        account = planned_account(data, plan, public_size(probe, data), secure=secure)
        numbers = account.steps * len(data.classes) * data.features.shape[1] if secure else 0
        return account.cost() + Cost(numbers=numbers)

    @cached_property
    def account_(self) -> PerInstanceAccountant:
        """The account of every release of the fit."""
        run = self._kept("account_")
        with one_thread(self.coef_.size):
            return run.account()

    def example_epsilons(self, delta: float, kind: EpsilonKind = "ex_post") -> Any:
        """Each training example's own epsilon, in the order of fit (``ExampleAccountant``).

        The numbers are computed when they are asked for, from the training data. The fitted probe refers
        to that data, but is saved without it. The numbers are sensitive.
        """
        return self._kept("example_epsilons").example_epsilons(delta, kind).numpy()

    def fisher_information_loss(self, kind: InformationNorm = "spectral") -> Any:
        """An upper bound of eta for each training example's features as given to fit, in the order of fit.

        ``information_losses`` says what holds. The label is discrete, so eta says nothing about it. The
        numbers are computed when they are asked for, from the training data. The fitted probe refers to
        that data, but is saved without it. The numbers are sensitive.
        """
        run = self._kept("fisher_information_loss")
        rates = attribute_rates(self.public_scale, self.public_projection, self.coef_.shape[1])
        eta = run.fisher_information_loss(torch.from_numpy(rates * UP), kind)
        if kind == "trace" and len(rates) < self.n_features_in_:  # the mean is over what was given to fit
            eta = eta * (len(rates) / self.n_features_in_) ** 0.5 * UP
        return eta.numpy()

    def __getstate__(self) -> dict[str, Any]:
        """The state without the training data, which a model that is passed on must not carry.

        What needs the data for its account is accounted for now.
        """
        if getattr(self, "_training", None) is not None:
            _ = self.account_
        state = dict(super().__getstate__())
        if "_training" in state:
            state["_training"] = None
        return state

    def _kept(self, asker: str) -> ProbeRun:
        """The training run, with the data that fit was given."""
        check_is_fitted(self)
        if self._training is None:
            raise ValueError(
                f"{asker} needs the training data, which a saved probe does not hold, "
                "nor one of fit_probes or tune: fit again"
            )
        return self._training
