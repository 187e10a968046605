"""What a fitted probe keeps of its training, and the accounts that are made from it when somebody asks."""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from ringfence.accounting.claim.guarantee import EpsilonKind
from ringfence.accounting.examples.accountant import ExampleAccountant
from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.numerics.rounding import UP
from ringfence.training.assumptions import assumptions
from ringfence.training.clipping import Clip
from ringfence.training.linear.information import information_losses
from ringfence.training.linear.regression import Descent, descend
from ringfence.training.linear.residuals import clipped_gradients
from ringfence.training.probe.input import ProbeData
from ringfence.training.probe.plan import ProbePlan
from ringfence.training.probe.private_mean import PrivateMean


@dataclass(frozen=True)
class ProbeRun:
    """The training of one probe, with its data: all of it is private.

    ``given`` is the data before it was centred by the private mean. The accounts need it and nothing else,
    so that fitting costs no more than training.
    """

    given: ProbeData
    data: ProbeData
    clip: Clip
    descent: Descent
    mean: PrivateMean | None

    @classmethod
    def trained(cls, given: ProbeData, plan: ProbePlan, public_size: float, *, secure: bool) -> "ProbeRun":
        """Makes every release of the plan."""
        settings, data, mean = plan.settings, given, None
        if plan.mean is not None:
            rows, seed = given.features[:, : given.width], settings.seed
            mean = PrivateMean.released(rows, plan.mean, public_size=public_size, seed=seed, secure=secure)
            data = given.centred(mean.center)
        descent = descend(
            data.features,
            data.labels,
            len(data.classes),
            mechanism=settings.mechanism,
            clip=settings.clip,
            learning_rate=settings.learning_rate,
            steps=settings.steps,
            momentum=settings.momentum,
            public_size=public_size,
            seed=settings.seed,
            secure=secure,
            example_weights=data.weights,
        )
        return cls(given, data, settings.clip, descent, mean)

    def account(self) -> PerInstanceAccountant:
        """The account of every release."""
        account = PerInstanceAccountant(self.descent.mechanism, self.descent.sensitivity)
        if self.mean is not None:
            self.mean.charge(account)
        self.descent.charge(account)
        return account

    def example_epsilons(self, delta: float, kind: EpsilonKind) -> Tensor:
        """Each example's own epsilon, in the order of fit."""
        examples = ExampleAccountant(self.descent.mechanism)
        if self.mean is not None:
            examples.step(self.mean.theta, self.mean.rows, mechanism=self.mean.law)
        for step in self.descent.trajectory:
            gradients = clipped_gradients(step.weights, self._features, self.data.labels, self.clip)
            if self.data.weights is not None:
                gradients = self.data.weights.applied(gradients)
            examples.step(step.theta.reshape(-1), gradients)
        return examples.epsilons(delta, kind)

    def fisher_information_loss(self, rates: Tensor, kind: InformationNorm) -> Tensor:
        """An upper bound of eta for each example's features as given to fit, in the order of fit.

        ``rates`` say how fast each feature moves with what was given to fit. Dividing a row by its length L
        moves no row by more than 1 / L times what it was moved by, so that eta is at most 1 / L times that of
        the scaled row.
        """
        plain = self.data.lengths is None
        attributes = self._features.new_zeros(self._features.shape[1], dtype=torch.float64)
        attributes[: len(rates)] = rates if plain else 1.0  # an intercept does not move
        descent = self.descent
        eta = information_losses(
            *(descent.mechanism, descent.trajectory, self._features, self.data.labels, self.clip),
            attributes,
            kind=kind,
        ).cpu()
        if self.data.weights is not None:  # the derivative of what an example adds has its weight as a factor
            eta = eta * self.data.weights.values.cpu() * UP
        for data in (self.data,) if self.mean is None else (self.data, self.given):
            if data.lengths is not None:
                eta = torch.where(data.lengths > 0, eta / data.lengths.cpu(), torch.inf) * UP
            if self.mean is not None and data is self.data:  # the mean saw the rows before it
                eta = (eta.square() + float(self.mean.law.sigma) ** -2).sqrt() * UP
        return eta if plain else eta * float(rates.max()) * UP

    @property
    def _features(self) -> Tensor:
        return self.data.features.to(self.descent.weights.dtype)


def keep_run(
    probe: BaseEstimator, data: ProbeData, plan: ProbePlan, weights: Tensor, mean: PrivateMean | None = None
) -> None:
    """Makes the probe a fitted one: what a run released, and what it was trained with."""
    settings = plan.settings
    probe.classes_ = data.classes
    probe.assumptions_ = assumptions(
        size_given=probe.public_size is not None,
        classes_given=probe.public_classes is not None,
        seed_given=probe.random_state is not None,
        projection_given=probe.public_projection is not None,
        weights_given=data.weights is not None,
        secure=probe.secure,
        estimator=True,
    )
    probe.mechanism_, probe.clip_, probe.steps_ = settings.mechanism, settings.clip, settings.steps
    probe.learning_rate_, probe.momentum_ = settings.learning_rate, settings.momentum
    probe.unit_rows_ = data.lengths is not None
    probe.mean_ = None if mean is None else mean.center.cpu().numpy()
    values = weights.cpu().numpy().astype(np.float64)
    probe.coef_ = values[:, : data.width]
    probe.intercept_ = values[:, -1] if probe.fit_intercept else np.zeros(len(data.classes))
