"""The budget of a release, checked before the data is read, and the account of its cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ringfence import checks
from ringfence.accounting.calibration import calibrate_sigma
from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.accounting.guarantee import ADDED_OR_REMOVED, REPLACED, Guarantee, PerInstance
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import PrivacyLoss, delta_left
from ringfence.accounting.profile import privacy_profile, single_epsilons
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.files.atomic import OWNER_ALONE, replacing
from ringfence.files.checkpoint import with_checksum
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.secure.release import SecureRelease
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics.rounding import rounded_up

_RENAMED = {"epsilon_tight": "per_instance.epsilon", "proof": "per_instance.proof"}  # since 0.7
_LARGEST = 2.0**60  # standard deviation of noise, so that what is drawn can be written down
_PRIVATE = (
    "private: these numbers are computed from the data. Do not publish this file. Only "
    "epsilon, mu, advantage and the true positive rates hold for every dataset."
)


@dataclass(frozen=True)
class ReleaseAccount:
    """The cost of a release. All of it but ``epsilon`` and ``delta`` is sensitive.

    ``epsilon`` holds for every dataset and may be published. ``per_instance.epsilon`` is the smallest
    per-instance epsilon that is proved, by a tight profile or by Rényi sums, and ``per_instance.proof`` names
    the proof. ``details`` are further sensitive numbers as plain data, such as the epsilon of each cell.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> account = rf.release_counts(np.array([120, 3]), suppress_below=30, epsilon=1.0, delta=1e-6).account
    >>> account.delta, account.per_instance.epsilon <= account.epsilon <= 1.0
    (1e-06, True)
    >>> account.to_json()[:13]
    '{"private": "'
    """

    guarantee: Guarantee
    details: Mapping[str, Any] = field(default_factory=dict)
    cost: PrivacyLoss = field(default_factory=PrivacyLoss, repr=False)

    @classmethod
    def of(
        cls, cost: PrivacyLoss, delta: float, tight: Iterable[tuple[float, str]] = (), **details: Any
    ) -> "ReleaseAccount":
        """The account of this cost; ``tight`` are other proofs of a per-instance epsilon."""
        return cls(cost.guarantee(delta).with_proofs(*tight), details, cost)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise checks.missing_attribute("ReleaseAccount", name, _RENAMED)

    @property
    def delta(self) -> float:
        """The delta of every statement."""
        return self.guarantee.delta

    @property
    def epsilon(self) -> float:
        """The epsilon of ordinary differential privacy, for every dataset: it may be published."""
        return self.guarantee.epsilon

    @property
    def per_instance(self) -> PerInstance:
        """The numbers that are computed from the data and must not be published."""
        return self.guarantee.per_instance

    @property
    def replaced(self) -> bool:
        """Whether neighbours differ in the values of a person, and not in whether the person takes part."""
        return self.guarantee.change == REPLACED

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"private": _PRIVATE, **self.guarantee.as_dict(), **self.details, "cost": self.cost.state()}

    def to_json(self, path: str | Path | None = None) -> Any:
        """The account as JSON with its checksum, or written to a file for its owner alone: then the path."""
        text = with_checksum(self.as_dict())
        if path is None:
            return text
        with replacing(path, mode=OWNER_ALONE) as file:
            file.write(f"{text}\n".encode())
        return Path(path)

    @property
    def sentence(self) -> str:
        """The sentence about the per-instance numbers; it is sensitive."""
        change = (
            "the values of any one person replaced" if self.replaced else "it plus or minus any one person"
        )
        return (
            f"For this dataset, and with {change}, the release is "
            f"({rounded_up(self.per_instance.epsilon)}, {self.delta:.3g})-indistinguishable (proved by: "
            f"{self.per_instance.proof}). By Rényi sums epsilon is "
            f"{rounded_up(self.per_instance.renyi_epsilon)}, and for every dataset it is "
            f"{rounded_up(self.epsilon)}."
        )


@dataclass(frozen=True)
class Budget:
    """What a release may cost, and where its randomness comes from.

    ``multiplier`` is the standard deviation of the noise for a move of length 1: given as ``sigma``, or found
    to meet the target ``epsilon`` at ``delta``. ``noise`` is seeded in tests alone.

    Guarantee: with a target, noise of the multiplier times the L2 length of the longest move costs at most
    ``epsilon`` at ``delta``, for every dataset, whatever is computed from the noisy values.

    >>> round(Budget.checked(1.0, 1e-6).multiplier, 2), Budget.checked(None, 1e-6, sigma=8.0).multiplier
    (4.22, 8.0)
    >>> Budget.checked(1.0, 1e-6, sigma=8.0)
    Traceback (most recent call last):
    ValueError: epsilon or sigma must be given, and not both, got epsilon=1.0 and sigma=8.0
    """

    epsilon: float | None
    delta: float
    multiplier: float
    noise: Noise
    ledger: Ledger | None

    @classmethod
    def checked(
        cls, epsilon: Any, delta: Any, sigma: Any = None, seed: Any = None, ledger: Any = None
    ) -> "Budget":
        """The budget that the arguments of a job describe, which are refused before anything is charged."""
        if ledger is not None:
            checks.instance("ledger", ledger, Ledger)
        noise = seed if isinstance(seed, Noise) else Noise(seed)
        delta = checks.probability("delta", delta)
        if (epsilon is None) == (sigma is None):
            raise ValueError(
                f"epsilon or sigma must be given, and not both, got epsilon={epsilon!r} and sigma={sigma!r}"
            )
        if epsilon is None:
            multiplier = checks.number("sigma", sigma, checks.positive)
            if multiplier > _LARGEST:
                raise ValueError(
                    f"sigma must be at most {_LARGEST:g}, got {sigma!r}: no grid holds such noise"
                )
            return cls(None, delta, multiplier, noise, ledger)
        target = checks.number("epsilon", epsilon, checks.positive)
        exact = delta_left(1, delta, lambda at: target)
        found = calibrate_sigma(Gaussian(1.0), None, Sensitivity(norm=1.0), epsilon=target, delta=exact)
        # a little more noise than was found: products with lengths are rounded, and more numbers are drawn
        return cls(target, delta, found * (1 + 1e-9), noise, ledger)

    def sigma(self, length: float) -> float:
        """The noise of every number, where one person moves all of them together by at most ``length``."""
        return self.multiplier if self.epsilon is None else self.multiplier * length

    def charge(self, account: ReleaseAccount, what: str) -> None:
        """Charges the ledger, before anything is released; an account over the target raises an error.

        >>> import numpy as np
        >>> import ringfence as rf
        >>> account = rf.release_counts(np.ones(3), sigma=1.0).account
        >>> Budget.checked(0.5, 1e-6).charge(account, "a table")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FloatingPointError: the release would cost 4.88..., more than epsilon=0.5
        """
        if self.epsilon is not None and not account.epsilon <= self.epsilon:
            raise FloatingPointError(
                f"the release would cost {account.epsilon!r}, more than epsilon={self.epsilon!r}"
            )
        if self.ledger is not None:
            self.ledger.charge(what, account.cost)

    def draws(
        self, law: Mechanism | Decision, values: Tensor, what: str, step: float | None = None
    ) -> CipherDraws:
        """Random numbers that belong to one release: to what is released, its law and its values.

        Guarantee: two releases with the same seed share no randomness unless law and values are the same, and
        then the release is the same: the difference of two releases tells nothing that each of them does not.

        >>> import torch
        >>> budget, theta = Budget.checked(None, 1e-6, sigma=4.0, seed=7), torch.zeros(3).double()
        >>> places = [(theta, "votes"), (theta, "votes"), (theta, "counts"), (theta + 1, "votes")]
        >>> words = [budget.draws(Gaussian(4.0), *place).word() for place in places]
        >>> words[0] == words[1], len(set(words))
        (True, 3)
        """
        digest = self.noise.digest(values)
        return self.noise.at("decisions", what, repr(law.state_dict()), repr(step), digest)

    def release(self, law: Mechanism, theta: Tensor, what: str, step: float | None = None) -> Tensor:
        """Draws a secure release of theta."""
        return SecureRelease(law, step).draw(theta, self.draws(law, theta, what, step))


def table_account(
    law: Mechanism, theta: Tensor, each: float, at_most: int, delta: float, change: str = ADDED_OR_REMOVED
) -> ReleaseAccount:
    """The account of one release of theta, where one person moves ``at_most`` cells by at most ``each``.

    ``change`` says what happens to that person between neighbours. ``details`` has theta and, where the
    support is bounded, the epsilon of each cell alone for the people in it.

    >>> import torch
    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law = RectifiedGaussian(4.0, (30.0, torch.inf))
    >>> account = table_account(law, torch.tensor([0.0, 80.0]).double(), 1.0, 1, 1e-6)
    >>> [round(value, 3) for value in (*account.details["cell_epsilons"], account.per_instance.epsilon)]
    [0.0, 1.061, 1.061]
    """
    sensitivity = Sensitivity(each=each, at_most=at_most)
    accountant = PerInstanceAccountant(law, sensitivity)
    accountant.step(theta)
    cost = replace(accountant.privacy_loss(), change=change, numbers=theta.numel())
    exact = cost.delta_left(delta)
    tight = []
    details: dict[str, Any] = {"cell_values": theta.tolist()}
    if law.support.atoms:  # the Gaussian costs everybody the same, and its own account is exact
        rows, where = distinct(theta, *law.parameters().values())
        alone = single_epsilons(with_numbers(law, rows[:, 1:].T), rows[:, 0], each, exact)
        details["cell_epsilons"] = alone[where].tolist()
        if at_most == 1:  # every person is in one of the cells
            tight.append((float(alone.max()), "the worst cell, exactly"))
        else:
            profile = privacy_profile(law, theta, sensitivity)
            tight.append((profile.epsilon(exact), profile.proof(exact)))
    return ReleaseAccount.of(cost, delta, tight, **details)
