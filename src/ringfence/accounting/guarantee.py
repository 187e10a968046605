"""The promise that releases make to every dataset, kept apart from what they cost the dataset at hand.

``Guarantee`` is the promise: ordinary (epsilon, delta)-differential privacy, also in the words of attacks,
and all that is printed. ``PerInstance`` hangs on it and holds what was computed from the data, which is
smaller and must not be published. Both say in plain English what they hold for.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.gaussian_releases import smallest_mu
from ringfence.checks import Real
from ringfence.numerics.rounding import rounded_up

if TYPE_CHECKING:
    from ringfence.accounting.privacy_loss import PrivacyLoss

# The epsilons that a calibration may be asked to meet: the promise, and two that are about the data at hand.
EpsilonKind = Literal["ex_post", "per_instance", "data_independent"]

ADDED_OR_REMOVED, REPLACED = "added or removed", "replaced by another one"
# since 0.7, where epsilon is the promise for every dataset; it was the ex-post number
_RENAMED = {
    "epsilon_data_independent": "epsilon",
    "epsilon_pdp": "per_instance.epsilon",
    "proof_pdp": "per_instance.proof",
    "epsilon_renyi": "per_instance.renyi_epsilon",
    "gaussian_epsilon": "per_instance.gaussian_ex_post_epsilon",
    "gaussian_epsilon_pdp": "per_instance.gaussian_epsilon",
    "gaussian_epsilon_renyi": "per_instance.gaussian_renyi_epsilon",
}


@dataclass(frozen=True)
class PerInstance:
    """Three epsilons of the dataset at hand. They are computed from the data and must not be published.

    ``epsilon`` is the smallest per-instance (epsilon, delta) that is proved, and ``proof`` says how. What
    holds for every dataset holds for this one, so it is never above the promise of the claim; with
    ``every_dataset`` nothing smaller is proved.

    ``ex_post_epsilon``: for this dataset, this trajectory and each single record, the privacy loss that was
    realised is at most this, except with probability delta over the run. It holds along an adaptive run. It
    is not differential privacy.

    ``renyi_epsilon`` is the paper's number, the realised Rényi sums converted: a guarantee for one release or
    a theta fixed in advance, an estimate along an adaptive run.

    The three ``gaussian_...`` are the same for the plain Gaussian mechanism with the same sigma, the first
    exactly, so that like can be compared with like.
    """

    epsilon: float
    proof: str
    ex_post_epsilon: float
    renyi_epsilon: float
    gaussian_epsilon: float
    gaussian_ex_post_epsilon: float
    gaussian_renyi_epsilon: float
    delta: float
    steps: int
    every_dataset: bool
    change: str = ADDED_OR_REMOVED
    unit: str = "record"

    @property
    def statement(self) -> str:
        """In plain English, for the owner of the data: the ex-post and the per-instance number."""
        return f"{self._ex_post()}\n\n{self._per_instance()}"

    def _ex_post(self) -> str:
        return (
            f"Ex-post, this dataset and this trajectory: for each single {self.unit} {self.change}, the "
            f"realised privacy loss of {_releases(self.steps)} is at most "
            f"{rounded_up(self.ex_post_epsilon)}, except with probability {self.delta:.3g} over the run, "
            "provided that delta was fixed beforehand, as "
            f"the Rényi orders of an account are. This holds also when theta depends on earlier "
            "releases. It speaks of everything that was released together, not of something that is computed "
            "from it afterwards. It is not a differential privacy guarantee, neither for other datasets nor "
            "for other runs. The number is computed from the data and is itself sensitive: do not publish "
            "it, and do not stop, go on or change the noise or the bound because of it."
        )

    def _per_instance(self) -> str:
        sensitive = "It speaks of this dataset only, is computed from it and must not be published."
        if self.every_dataset:
            holds = "This holds for every dataset, also where theta depends on earlier releases."
            sensitive = (
                "That nothing smaller is proved was computed from this dataset and must not be published."
            )
        elif self.steps <= 1:
            holds = "This is a guarantee for the one release it is about."
        else:
            holds = (
                "This is a guarantee only if theta at every release was fixed in advance; where theta "
                "depends on earlier releases, as in training, it is an estimate and not a guarantee."
            )
        neighbour = (
            f"plus or minus any one {self.unit}"
            if self.change == ADDED_OR_REMOVED
            else f"and any one {self.unit} {self.change}"
        )
        return (
            f"Per-instance (epsilon, delta): with this dataset, and with it {neighbour}, "
            f"{_releases(self.steps, 'is', 'are')} ({rounded_up(self.epsilon)}, {self.delta:.3g})-"
            f"indistinguishable. Proved by: {self.proof}. {holds} {sensitive}"
        )


@dataclass(frozen=True)
class Guarantee:
    """The (epsilon, delta) differential privacy that releases promise, and what they cost the data at hand.

    ``epsilon`` is the promise: ordinary (epsilon, delta)-differential privacy, for every dataset. Printing a
    claim prints it and nothing else. ``per_instance`` holds the numbers that are computed from the data and
    must not be published. ``assumptions`` are sentences about what the promise takes for granted, and
    ``unit`` says what is protected, if it is more than a record.

    ``mu``, ``advantage``, ``true_positive_rate`` and ``trade_off`` say the promise in the words of attacks.
    Like it they hold for every dataset and every single record added or removed, against an attacker who
    knows all other records and sees all releases. They may be published.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.TruncatedGaussian(1.0, bound=2.0), sensitivity=0.1)
    >>> account.step([0.0, 1.5])
    >>> claim = account.guarantee(delta=1e-5)
    >>> own = claim.per_instance
    >>> round(claim.epsilon, 3), round(own.epsilon, 3), round(own.ex_post_epsilon, 3)
    (0.475, 0.409, 0.502)
    >>> round(claim.mu, 4), round(claim.advantage, 4), round(claim.true_positive_rate(1e-3), 5)
    (0.1414, 0.0564, 0.00158)
    """

    epsilon: float
    delta: float
    steps: int
    per_instance: PerInstance
    loss: "PrivacyLoss" = field(repr=False)  # the releases that the claim is about
    assumptions: tuple[str, ...] = ()
    change: str = ADDED_OR_REMOVED  # what makes datasets neighbours: a single record is this
    unit: str = "record"  # or what else is added, such as "unit with all its rows"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise checks.missing_attribute("Guarantee", name, _RENAMED)

    @property
    def mu(self) -> float:
        """Gaussian differential privacy: neighbours are as hard to tell apart as N(0, 1) and N(mu, 1).

        For releases of Poisson samples no mu below that of releases of everything holds exactly. There it
        holds up to delta: no attack's true positive rate is more than delta above what mu-GDP allows.
        """
        if self.loss.pairs:
            return math.inf
        return smallest_mu(self.loss.releases, self.delta)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate of any attack, whatever delta."""
        return self.loss.advantage

    def true_positive_rate(self, false_positive_rate: float = 1e-3) -> float:
        """The largest share of the records in the data that any attack at this false positive rate finds."""
        rate = checks.number("false_positive_rate", false_positive_rate, checks.share)
        return float(self.loss.attack_rates(torch.tensor([rate], dtype=torch.float64))[0])

    def trade_off(self, false_positive_rates: Real) -> Tensor:
        """The smallest false negative rate of any attack, at each of these false positive rates.

        >>> import ringfence as rf
        >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=1.0)
        >>> account.step([0.0])
        >>> account.guarantee(delta=1e-5).trade_off([0.001, 0.5]).numpy().round(4).tolist()
        [0.9817, 0.1587]
        """
        return self.loss.trade_off(false_positive_rates)

    def with_proofs(self, *proofs: tuple[float, str]) -> "Guarantee":
        """The claim with its per-instance epsilon, or the smallest of these that are proved otherwise.

        >>> import ringfence as rf
        >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=0.1)
        >>> account.step([0.0])
        >>> account.guarantee(delta=1e-5).with_proofs((0.25, "a profile")).per_instance.proof
        'a profile'
        """
        own = self.per_instance
        epsilon, proof = min(proofs, default=(math.inf, ""))
        if not epsilon < own.epsilon:
            return self
        return replace(self, per_instance=replace(own, epsilon=epsilon, proof=proof, every_dataset=False))

    def about(self, unit: str) -> "Guarantee":
        """The same claim about units that are more than a record.

        >>> import ringfence as rf
        >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=0.1)
        >>> account.step([0.0])
        >>> account.guarantee(delta=1e-5).about("person with all her records").statement[118:158]
        'every single person with all her records'
        """
        return replace(self, unit=unit, per_instance=replace(self.per_instance, unit=unit))

    def as_dict(self) -> dict[str, Any]:
        """The numbers as plain data; those under ``per_instance`` are sensitive."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "steps": self.steps,
            "change": self.change,
            "unit": self.unit,
            "assumptions": self.assumptions,
            "mu": self.mu,
            "advantage": self.advantage,
            "true_positive_rates": {rate: self.true_positive_rate(rate) for rate in (1e-3, 1e-2, 1e-1)},
            "per_instance": asdict(self.per_instance),
        }

    @property
    def statement(self) -> str:
        """The promise in plain English, and what it takes for granted. It may be published."""
        kind = self.unit.split()[0]
        found = rounded_up(min(100.0, 100 * self.true_positive_rate(1e-3)))
        promise = (
            f"Differential privacy, every dataset: {_releases(self.steps, 'satisfies', 'satisfy')} "
            f"({rounded_up(self.epsilon)}, {self.delta:.3g})-differential privacy for every "
            f"dataset and every single {self.unit} {self.change}, provided the number of releases, the "
            "noise, the bound and the sensitivity were not chosen by looking at the data. "
            f"An attacker who tries to tell from {_releases(self.steps)} whether a given {kind} is in the "
            f"data, and accepts one false alarm in 1,000, finds at most {found} % of the {kind}s that are. "
            "These numbers do not depend on the data and may be published."
        )
        assumed = ["Assumed: " + " ".join(self.assumptions)] if self.assumptions else ()
        return "\n\n".join((promise, *assumed))

    def __str__(self) -> str:
        return self.statement


def _releases(steps: int, one: str = "", many: str = "") -> str:
    """The releases by number, with the verb that fits where one is given."""
    words = ("the release", one) if steps == 1 else (f"the {steps} releases", many)
    return " ".join(words).strip()
