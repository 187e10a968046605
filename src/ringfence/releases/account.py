"""The budget of a release, checked before the data is read, and the account of its cost."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from ringfence import checks
from ringfence.accounting.calibration import smallest_sigma
from ringfence.accounting.guarantee import REPLACED, Guarantee, PerInstance
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.privacy_loss import PrivacyLoss, delta_left
from ringfence.files.atomic import OWNER_ALONE, replacing
from ringfence.files.checkpoint import with_checksum
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.secure import SecureRelease
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics.rounding import rounded_up

_RENAMED = {  # since 0.7
    "epsilon_tight": "per_instance.epsilon",
    "proof": "per_instance.proof",
    "sentence": "statement",
}
_LARGEST_DELTA = 0.1
_LARGEST = 2.0**60  # standard deviation of noise, so that what is drawn can be written down
_PRIVATE = (
    "private: these numbers are computed from the data. Do not publish this file. Only "
    "epsilon, mu, advantage and the true positive rates hold for every dataset."
)


class Measured(NamedTuple):
    """The cost of a release to the data at hand. All of it is sensitive.

    ``proofs`` are proofs of a per-instance epsilon other than Rényi sums, as pairs of an epsilon and a name.
    ``details`` are further numbers as plain data, and ``sentences`` say what they mean.
    """

    cost: PrivacyLoss
    proofs: tuple[tuple[float, str], ...] = ()
    details: Mapping[str, Any] = {}
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleaseAccount:
    """The cost of a release. All of it but ``epsilon`` and ``delta`` is sensitive.

    ``epsilon`` holds for every dataset and may be published. What the release cost the data at hand is
    computed when it is first asked for: ``per_instance.epsilon`` is the smallest per-instance epsilon that is
    proved, by a tight profile or by Rényi sums, ``per_instance.proof`` names the proof, ``details`` has
    further numbers as plain data, such as the epsilon of each cell, and ``statement`` says it in words.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> account = rf.release_counts(np.array([120, 3]), suppress_below=30, epsilon=1.0, delta=1e-6).account
    >>> account.delta, account.per_instance.epsilon <= account.epsilon <= 1.0
    (1e-06, True)
    >>> account.to_json()[:13]
    '{"private": "'
    """

    promised: PrivacyLoss  # for every dataset
    delta: float
    measure: Callable[[], Measured] = field(repr=False)
    adaptive: bool = False  # whether what was asked may depend on earlier answers

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise checks.missing_attribute("ReleaseAccount", name, _RENAMED)

    @cached_property
    def promise(self) -> Guarantee:
        """The claim that holds for every dataset, computed without the data: it may be published."""
        return self.promised.guarantee(self.delta)

    @property
    def epsilon(self) -> float:
        """The epsilon of ordinary differential privacy, for every dataset: it may be published."""
        return self.promise.epsilon

    @property
    def replaced(self) -> bool:
        """Whether neighbours differ in the values of a person, and not in whether the person takes part."""
        return self.promised.change == REPLACED

    @cached_property
    def _measured(self) -> Measured:
        return self.measure()

    @property
    def cost(self) -> PrivacyLoss:
        """The promised loss with the Rényi sums for the data at hand."""
        return self._measured.cost

    @property
    def details(self) -> Mapping[str, Any]:
        """Further numbers as plain data."""
        return self._measured.details

    @cached_property
    def guarantee(self) -> Guarantee:
        """The promise with the numbers of the data at hand.

        Guarantee: where the release was ``adaptive``, the Rényi sums prove the ex-post epsilon alone, and the
        per-instance epsilon is that of every dataset.
        """
        claim = self.cost.guarantee(self.delta).with_proofs(*self._measured.proofs)
        if not self.adaptive:
            return claim
        every = self.promise.per_instance
        own = replace(claim.per_instance, epsilon=every.epsilon, proof=every.proof)
        return replace(claim, per_instance=own)

    def plus(self, further: PrivacyLoss) -> "ReleaseAccount":
        """The account of this release and a further Gaussian one, which tight proofs do not know."""
        return replace(
            self, promised=self.promised + further, measure=partial(_with_further, self.measure, further)
        )

    @property
    def per_instance(self) -> PerInstance:
        """The numbers that are computed from the data and must not be published."""
        return self.guarantee.per_instance

    def to_json(self, path: str | Path | None = None, **more: Any) -> Any:
        """The account as JSON with its checksum, or written to a file for its owner alone: then the path.

        ``more`` is written beside the numbers.
        """
        numbers = {**self.guarantee.as_dict(), **self.details, **more}
        text = with_checksum({"private": _PRIVATE, **numbers, "cost": self.cost.state()})
        if path is None:
            return text
        with replacing(path, mode=OWNER_ALONE) as file:
            file.write(f"{text}\n".encode())
        return Path(path)

    @property
    def statement(self) -> str:
        """The per-instance numbers in words, one sentence a line, for the owner of the data alone."""
        own = self.per_instance
        change = (
            "the values of any one person replaced" if self.replaced else "it plus or minus any one person"
        )
        first = (
            f"For this dataset, and with {change}, the release is "
            f"({rounded_up(own.epsilon)}, {self.delta:.3g})-indistinguishable (proved by: {own.proof}). By "
            f"Rényi sums epsilon is {rounded_up(own.renyi_epsilon)}, and for every dataset it is "
            f"{rounded_up(self.epsilon)}."
        )
        asked = (
            "What was asked may depend on earlier answers, where the Rényi sums are an estimate: the privacy "
            f"loss of this run is at most {rounded_up(own.ex_post_epsilon)}, except with probability "
            f"{self.delta:.3g}."
        )
        return "\n".join((first, *([asked] if self.adaptive else ()), *self._measured.sentences))


def _with_further(measure: Callable[[], Measured], further: PrivacyLoss) -> Measured:
    measured = measure()
    return measured._replace(cost=measured.cost + further, proofs=())


def gaussian_loss(mu: float, *, steps: int = 1, numbers: int = 0) -> PrivacyLoss:
    """The loss, for every dataset, of a Gaussian release of ``numbers`` numbers, or of a function of it.

    ``mu`` is the L2 norm of what one person moves, each number in units of its sigma.

    >>> round(gaussian_loss(0.2).epsilon(1e-5), 2)
    0.73
    """
    zcdp = 0.5 * mu * mu * (1 + 1e-12)  # infinite where a power would raise an error
    return PrivacyLoss.of_zcdp(zcdp, zcdp, steps=steps).drawn_securely(numbers)


@dataclass(frozen=True)
class Budget:
    """What a release may cost, and where its randomness comes from.

    ``multiplier`` is the standard deviation of Gaussian noise for a move of norm 1: given as ``sigma``, or
    found to meet the target ``epsilon`` at ``delta``, infinite at delta = 0. ``noise`` is seeded in tests
    alone.

    Guarantee: with a target, noise of the multiplier times the L2 norm of the longest move costs at most
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
    what: str | None = None  # the name of the ledger's entry, that of the job if left out

    @classmethod
    def checked(
        cls,
        epsilon: Any,
        delta: Any,
        sigma: Any = None,
        seed: Any = None,
        ledger: Any = None,
        what: Any = None,
        *,
        pure: bool = False,
    ) -> "Budget":
        """The budget that the arguments of a job describe, which are refused before anything is charged.

        delta = 0 is possible where the noise may be ``pure``.
        """
        if ledger is not None:
            checks.instance("ledger", ledger, Ledger)
        if what is not None and not (checks.instance("what", what, str).strip() and ledger is not None):
            raise ValueError(f"what must be some words, with the ledger whose entry it names, got {what!r}")
        noise = seed if isinstance(seed, Noise) else Noise(seed)
        delta = checks.probability_or_zero("delta", delta) if pure else checks.probability("delta", delta)
        if delta > _LARGEST_DELTA:
            raise ValueError(
                f"delta must be at most {_LARGEST_DELTA}, got {delta:g}: with that chance the promise may "
                "fail, and it should be below 1 / the number of people"
            )
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
            return cls(None, delta, multiplier, noise, ledger, what)
        target = checks.number("epsilon", epsilon, checks.positive)
        if delta == 0:
            return cls(target, delta, math.inf, noise, ledger, what)
        exact = delta_left(1, delta, lambda at: target)
        found = smallest_sigma(
            lambda sigma: gaussian_loss(1 / sigma).epsilon(exact), target, start=1.0, tolerance=1e-7
        )
        # a little more noise than was found: products with norms are rounded, and more numbers are drawn
        return cls(target, delta, found * (1 + 1e-9), noise, ledger, what)

    def sigma(self, norm: float) -> float:
        """The noise of every number, where one person moves all of them together by at most ``norm``."""
        return self.multiplier if self.epsilon is None else self.multiplier * norm

    def charge(self, account: ReleaseAccount, what: str) -> None:
        """Charges the ledger, before anything is released; an account over the target raises an error.

        A ledger keeps the cost to the data at hand too, which is computed for it here.

        >>> import numpy as np
        >>> import ringfence as rf
        >>> account = rf.release_counts(np.ones(3), sigma=1.0).account
        >>> Budget.checked(0.5, 1e-6).charge(account, "a table")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FloatingPointError: the release would cost 4.88..., more than epsilon=0.5
        """
        cost = account.epsilon  # an error where there is too little noise for the randomness of a release
        if self.epsilon is not None and not cost <= self.epsilon:
            raise FloatingPointError(f"the release would cost {cost!r}, more than epsilon={self.epsilon!r}")
        if self.ledger is not None:
            self.ledger.charge(self.what or what, account.cost)

    def draws(
        self, law: Mechanism | Decision, values: Tensor, what: str, step: float | None = None
    ) -> CipherDraws:
        """Random numbers that belong to one release: to what is released, its law and its values.

        Guarantee: two releases with the same seed share no randomness unless law and values are the same, and
        then the release is the same: the difference of two releases tells nothing that each of them does not.

        >>> import torch
        >>> from ringfence.mechanisms.gaussian import Gaussian
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
