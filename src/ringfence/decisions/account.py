"""What a release costs: the noise that meets a target, and the numbers that only its owner may see."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ringfence import checks
from ringfence.accounting.calibration import calibrate_sigma
from ringfence.accounting.claim.guarantee import ADDED_OR_REMOVED, REPLACED, Guarantee
from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.accounting.costs.budget import composed_guarantee
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.costs.finite_randomness import delta_left
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.profile.few_moves import single_epsilons
from ringfence.accounting.profile.profile import privacy_profile
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.files.atomic import OWNER_ALONE, replacing
from ringfence.files.checkpoint import with_checksum
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.secure.release import SecureRelease
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics.rounding import rounded_up

_LARGEST = 2.0**60  # standard deviation of noise, so that what is drawn can be written down
_PRIVATE = (
    "private: these numbers are computed from the data. Do not publish this file. Only "
    "epsilon, mu, advantage and the true positive rates hold for every dataset."
)


@dataclass(frozen=True)
class ReleaseAccount:
    """What a release cost. All of it but ``epsilon`` and ``delta`` is sensitive.

    ``epsilon`` holds for every dataset and may be published. ``guarantee`` has the per-instance numbers by
    Rényi sums, ``epsilon_tight`` is the smallest per-instance epsilon that is proved, and ``proof`` says how.
    ``details`` are further sensitive numbers as plain data, such as what each cell cost the people in it.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> account = rf.release_counts(np.array([120, 3]), suppress_below=30, epsilon=1.0, delta=1e-6).account
    >>> account.delta, account.epsilon_tight <= account.epsilon <= 1.0
    (1e-06, True)
    >>> account.to_json()[:13]
    '{"private": "'
    """

    guarantee: Guarantee
    epsilon_tight: float
    proof: str
    details: Mapping[str, Any] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost, repr=False)  # in the form in which a ledger adds it up

    @classmethod
    def of(
        cls, cost: Cost, delta: float, tight: Iterable[tuple[float, str]] = (), **details: Any
    ) -> "ReleaseAccount":
        """The account of what this costs; ``tight`` are other proofs of a per-instance epsilon."""
        claim = composed_guarantee(cost, delta)
        return cls(
            claim, *min([(claim.per_instance.epsilon, claim.per_instance.proof), *tight]), details, cost
        )

    @property
    def delta(self) -> float:
        """The delta of every statement."""
        return self.guarantee.delta

    @property
    def epsilon(self) -> float:
        """The epsilon of ordinary differential privacy, for every dataset: it may be published."""
        return self.guarantee.epsilon

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "private": _PRIVATE,
            **self.guarantee.as_dict(),
            "epsilon_tight": self.epsilon_tight,
            "proof": self.proof,
            **self.details,
            "cost": self.cost.state(),
        }

    def to_json(self, path: str | Path | None = None) -> Any:
        """The account as JSON with its checksum, or written to a file for its owner alone: then the path."""
        text = with_checksum(self.as_dict())
        if path is None:
            return text
        with replacing(path, mode=OWNER_ALONE) as file:
            file.write(f"{text}\n".encode())
        return Path(path)

    @property
    def per_instance(self) -> str:
        """The sentence about the per-instance numbers; it is sensitive."""
        change = "it plus or minus any one person"
        if self.guarantee.change == REPLACED:
            change = "the values of any one person replaced"
        renyi = rounded_up(self.guarantee.per_instance.renyi_epsilon)
        return (
            f"For this dataset, and with {change}, the release is "
            f"({rounded_up(self.epsilon_tight)}, {self.delta:.3g})-indistinguishable (proved by: "
            f"{self.proof}). By Rényi sums epsilon is {renyi}, and for "
            f"every dataset it is {rounded_up(self.epsilon)}."
        )


def table_account(
    law: Mechanism, theta: Tensor, each: float, at_most: int, delta: float, change: str = ADDED_OR_REMOVED
) -> ReleaseAccount:
    """The account of one release of theta, where one person moves ``at_most`` cells by at most ``each``.

    ``change`` says what happens to that person between neighbours.

    ``details`` has theta and, where the support is bounded, what each cell alone cost the people in it.

    >>> import torch
    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law = RectifiedGaussian(4.0, (30.0, torch.inf))
    >>> account = table_account(law, torch.tensor([0.0, 80.0]).double(), 1.0, 1, 1e-6)
    >>> [round(value, 3) for value in account.details["cell_epsilons"]], round(account.epsilon_tight, 3)
    ([0.0, 1.061], 1.061)
    """
    sensitivity = Sensitivity(each=each, at_most=at_most)
    accountant = PerInstanceAccountant(law, sensitivity)
    accountant.step(theta)
    cost = replace(accountant.cost(), change=change, numbers=theta.numel())
    left = delta_left(cost.numbers, delta, lambda at: cost.guarantee(at).epsilon)
    tight = []
    details: dict[str, Any] = {"cell_values": theta.tolist()}
    if law.support.atoms:  # the Gaussian costs everybody the same, and its own account is exact
        rows, where = distinct(theta, *law.parameters().values())
        alone = single_epsilons(with_numbers(law, rows[:, 1:].T), rows[:, 0], each, left)
        details["cell_epsilons"] = alone[where].tolist()
        if at_most == 1:  # whoever it is, the person is in one of the cells
            tight.append((float(alone.max()), "the worst cell, exactly"))
        else:
            profile = privacy_profile(law, theta, sensitivity)
            tight.append((profile.epsilon(left), profile.proof(left)))
    return ReleaseAccount.of(cost, delta, tight, **details)


def checked_arguments(epsilon: object, delta: object, noise: object) -> tuple[float | None, float]:
    """``epsilon`` and ``delta`` as floats; ``noise`` must be one. To be called before anything is charged.

    >>> import numpy as np
    >>> checked_arguments(np.int64(1), 1e-6, None)
    (1.0, 1e-06)
    """
    if noise is not None and not isinstance(noise, Noise):
        raise TypeError(f"noise must be a ringfence Noise or None, got {noise!r}")
    size = None if epsilon is None else checks.number("epsilon", epsilon, checks.positive)
    return size, checks.probability("delta", delta)


def noise_multiplier(epsilon: float | None, delta: float, sigma: float | None) -> float:
    """The standard deviation of Gaussian noise for a move of length 1: given, or found to meet the target.

    Guarantee: with a target, noise of this standard deviation times the L2 length of the longest move costs
    at most ``epsilon`` at ``delta``, for every dataset, whatever is computed from the noisy values.

    >>> round(noise_multiplier(1.0, 1e-6, None), 2), noise_multiplier(None, 1e-6, 8.0)
    (4.23, 8.0)
    >>> noise_multiplier(1.0, 1e-6, 8.0)
    Traceback (most recent call last):
    ValueError: epsilon or sigma must be given, and not both, got epsilon=1.0 and sigma=8.0
    """
    if (epsilon is None) == (sigma is None):
        raise ValueError(
            f"epsilon or sigma must be given, and not both, got epsilon={epsilon!r} and sigma={sigma!r}"
        )
    checks.probability("delta", delta)
    if epsilon is None:
        multiplier = checks.number("sigma", sigma, checks.positive)
        if multiplier > _LARGEST:
            raise ValueError(f"sigma must be at most {_LARGEST:g}, got {sigma!r}: no grid holds such noise")
        return multiplier
    target = checks.number("epsilon", epsilon, checks.positive)
    left = delta_left(1, delta, lambda at: target)
    # a little more noise than was found: products with lengths are rounded, and more numbers are drawn
    found = calibrate_sigma(Gaussian(1.0), None, Sensitivity(norm=1.0), epsilon=target, delta=left)
    return found * (1 + 1e-9)


def released(
    law: Mechanism, theta: Tensor, noise: Noise | None, what: str, step: float | None = None
) -> Tensor:
    """A secure release of theta, with noise that belongs to ``what`` is released, its law and its values.

    Guarantee: two calls with the same ``noise`` share no randomness unless law and theta are the same, and
    then the release is the same: the difference of two releases tells nothing that each of them does not.

    >>> import torch
    >>> noise, theta = Noise(seed=7), torch.zeros(3).double()
    >>> first, again = (released(Gaussian(4.0), theta, noise, "counts") for _ in range(2))
    >>> other = released(Gaussian(4.0), theta + 1, noise, "counts")
    >>> bool((first == again).all()), bool((first + 1 == other).any())
    (True, False)
    """
    return SecureRelease(law, step).draw(theta, own_draws(law, theta, noise, what, step))


def own_draws(
    law: Mechanism | Decision, values: Tensor, noise: Noise | None, what: str, step: float | None = None
) -> CipherDraws:
    """Random numbers that belong to one release: to what is released, its law and its values.

    >>> import torch
    >>> noise, theta = Noise(seed=7), torch.zeros(3).double()
    >>> words = [own_draws(Gaussian(4.0), theta, noise, what).word() for what in ("votes", "votes", "counts")]
    >>> words[0] == words[1], words[0] == words[2]
    (True, False)
    """
    source = noise or Noise()
    return source.at("decisions", what, repr(law.state_dict()), repr(step), source.digest(values))


def within(
    target: float | None, account: ReleaseAccount, ledger: Ledger | None = None, what: str = "release"
) -> ReleaseAccount:
    """The account, which must not cost more than the target: checked before anything is released.

    Where there is a ledger, it is charged here.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> within(0.5, rf.release_counts(np.ones(3), sigma=100.0).account).epsilon < 0.5
    True
    """
    if target is not None and not account.epsilon <= target:
        raise FloatingPointError(f"the release would cost {account.epsilon!r}, more than epsilon={target!r}")
    if ledger is not None:
        checks.instance("ledger", ledger, Ledger).charge(what, account.cost)
    return account
