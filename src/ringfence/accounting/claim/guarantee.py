"""What may honestly be said about releases: three numbers that are easily confused, kept apart."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.claim.data_independent import DataIndependent
from ringfence.accounting.claim.trade_off import TradeOff
from ringfence.checks import Real
from ringfence.numerics.rounding import rounded_up

# Which epsilon of a ``Guarantee`` is meant.
EpsilonKind = Literal["ex_post", "pdp", "data_independent"]

ADDED_OR_REMOVED, REPLACED = "added or removed", "replaced by another one"
RENYI = "Rényi sums"  # how an epsilon was proved, where not by what holds for every dataset


@dataclass(frozen=True)
class Guarantee:
    """Three kinds of statement about the same releases, at the same delta.

    ``epsilon`` is ex-post: for this dataset, this trajectory and each single record, the privacy loss that
    was realised is at most epsilon, except with probability delta over the run. It holds along an adaptive
    run. It is not differential privacy and must not be published.

    ``epsilon_pdp`` is the smallest per-instance (epsilon, delta) that is proved, and ``proof_pdp`` says how.
    ``epsilon_renyi`` is the paper's number, the realised Rényi sums converted: a guarantee for one release
    or a theta fixed in advance, an estimate along an adaptive run. What holds for every dataset holds for
    this one, so ``epsilon_pdp`` is never above ``epsilon_data_independent``. It must not be published either.

    ``epsilon_data_independent`` is ordinary (epsilon, delta)-differential privacy, for every dataset.

    ``gaussian_epsilon``, ``gaussian_epsilon_pdp`` and ``gaussian_epsilon_renyi`` are what the first three
    would be for the plain Gaussian mechanism with the same sigma, the second one exactly, so that like can
    be compared with like. ``assumptions`` are sentences about what the statement takes for granted.

    ``mu``, ``advantage``, ``true_positive_rate`` and ``trade_off`` say the data-independent statement in the
    words of attacks. Like it they hold for every dataset and every single record added or removed, against
    whoever knows all other records and sees all releases. They may be published.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.TruncatedGaussian(1.0, bound=2.0), sensitivity=0.1)
    >>> account.step([0.0, 1.5])
    >>> claim = account.guarantee(delta=1e-5)
    >>> round(claim.epsilon_data_independent, 3), round(claim.epsilon_pdp, 3), round(claim.epsilon, 3)
    (0.475, 0.409, 0.502)
    >>> round(claim.mu, 4), round(claim.advantage, 4), round(claim.true_positive_rate(1e-3), 5)
    (0.1414, 0.0564, 0.00158)
    """

    delta: float
    epsilon: float
    order: float
    epsilon_pdp: float
    order_pdp: float  # of the Rényi sums
    epsilon_data_independent: float
    gaussian_epsilon: float
    gaussian_epsilon_pdp: float
    steps: int
    epsilon_renyi: float
    gaussian_epsilon_renyi: float
    proof_pdp: str
    failure_probability: float = 0.0  # part of delta spent on estimating over batches
    assumptions: tuple[str, ...] = ()
    every_dataset: TradeOff | None = None  # None in what an earlier version pickled
    change: str = ADDED_OR_REMOVED  # what makes datasets neighbours: a single record is this

    @property
    def mu(self) -> float:
        """Gaussian differential privacy: neighbours are as hard to tell apart as N(0, 1) and N(mu, 1).

        For releases of Poisson samples no mu below that of releases of everything holds exactly. There it
        holds up to delta: no attack's true positive rate is more than delta above what mu-GDP allows. In a
        secure run the finite randomness, of the order of 2^-200 per number, comes on top.
        """
        return self._attacks.mu(self.delta - self._attacks.off_by)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate of any attack, whatever delta."""
        return self._attacks.advantage

    def true_positive_rate(self, false_positive_rate: float = 1e-3) -> float:
        """The largest share of the records in the data that any attack at this false positive rate finds."""
        rate = checks.number("false_positive_rate", false_positive_rate, checks.share)
        return float(self._attacks.rates(torch.tensor([rate], dtype=torch.float64))[0])

    def trade_off(self, false_positive_rates: Real) -> Tensor:
        """The smallest false negative rate of any attack, at each of these false positive rates.

        >>> import ringfence as rf
        >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=1.0)
        >>> account.step([0.0])
        >>> account.guarantee(delta=1e-5).trade_off([0.001, 0.5]).numpy().round(4).tolist()
        [0.9817, 0.1587]
        """
        rates = checks.share("false_positive_rates", false_positive_rates).double().cpu()
        return self._attacks.rates(rates.reshape(-1))[1].reshape(rates.shape)

    @property
    def _attacks(self) -> TradeOff:
        if self.every_dataset is None:
            raise ValueError("a guarantee of an earlier version does not hold mu and rates: make it again")
        return self.every_dataset

    def as_dict(self) -> dict[str, Any]:
        """The numbers as plain data, with those about attacks."""
        plain = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name != "every_dataset"
        }
        return {
            **plain,
            "mu": self.mu,
            "advantage": self.advantage,
            "true_positive_rates": {rate: self.true_positive_rate(rate) for rate in (1e-3, 1e-2, 1e-1)},
        }

    @property
    def statement(self) -> str:
        """In plain English: what is promised, to whom, what is not, whether it may be published."""
        assumed = ("Assumed: " + " ".join(self.assumptions),) if self.assumptions else ()
        return "\n\n".join((self._data_independent(), self._ex_post(), self._per_instance(), *assumed))

    def _data_independent(self) -> str:
        return (
            f"Differential privacy, every dataset: {self._releases('satisfies', 'satisfy')} "
            f"({rounded_up(self.epsilon_data_independent)}, {self.delta:.3g})-differential privacy for every "
            f"dataset and every single record {self.change}, provided the number of releases, the noise, "
            f"the bound and the sensitivity were not chosen by looking at the data. {self._about_attacks()}"
        )

    def _about_attacks(self) -> str:
        if self.every_dataset is None:
            return "This number does not depend on the data and may be published."
        found = rounded_up(min(100.0, 100 * self.true_positive_rate(1e-3)))
        return (
            f"Whoever tries to tell from {self._releases()} whether a given record is in the data, and "
            f"accepts one false alarm in 1,000, finds at most {found} % of the records that are. These "
            "numbers do not depend on the data and may be published."
        )

    def _ex_post(self) -> str:
        estimated = (
            f" Of that, {self.failure_probability:.3g} is spent on estimating averages over batches."
            if self.failure_probability
            else ""
        )
        return (
            f"Ex-post, this dataset and this trajectory: for each single record {self.change}, the "
            f"realised privacy loss of {self._releases()} is at most {rounded_up(self.epsilon)}, except with "
            f"probability {self.delta:.3g} over the run, provided that delta was fixed beforehand, as the "
            f"Rényi orders of an account are.{estimated} This holds also when theta depends on earlier "
            "releases. It speaks of everything that was released together, not of something that is computed "
            "from it afterwards. It is not a differential privacy guarantee, neither for other datasets nor "
            "for other runs. The number is computed from the data and is itself sensitive: do not publish "
            "it, and do not stop, go on or change the noise or the bound because of it."
        )

    def _per_instance(self) -> str:
        sensitive = "It speaks of this dataset only, is computed from it and must not be published."
        if self.proof_pdp != RENYI:
            holds = "This holds for every dataset, also where theta depends on earlier releases."
            sensitive = (
                "That nothing smaller is proved was computed from this dataset and must not be published."
            )
        elif self.steps <= 1 and not self.failure_probability:
            holds = "This is a guarantee for the one release it is about."
        else:
            holds = (
                "This is a guarantee only if theta at every release was fixed in advance; where theta "
                "depends on earlier releases, as in training, it is an estimate and not a guarantee."
            )
        return (
            f"Per-instance (epsilon, delta): with this dataset, and with it {self._after_the_change()}, "
            f"{self._releases('is', 'are')} ({rounded_up(self.epsilon_pdp)}, {self.delta:.3g})-"
            f"indistinguishable. Proved by: {self.proof_pdp}. {holds} {sensitive}"
        )

    def _after_the_change(self) -> str:
        return (
            "plus or minus any one record"
            if self.change == ADDED_OR_REMOVED
            else f"and any one record {self.change}"
        )

    def _releases(self, one: str = "", many: str = "") -> str:
        """The releases by number, with the verb that fits where one is given."""
        words = ("the release", one) if self.steps == 1 else (f"the {self.steps} releases", many)
        return " ".join(words).strip()

    def __str__(self) -> str:
        return self.statement


def guarantee(
    *,
    orders: Tensor,
    worst: Tensor,
    gaussian: Tensor,
    data_independent: DataIndependent,
    steps: int,
    delta: float,
    spent: float = 0.0,
    change: str = ADDED_OR_REMOVED,
) -> Guarantee:
    """The three statements, from sums of realised divergences and from what holds for every theta.

    ``worst`` and ``gaussian`` are the sums at each order, those of the releases and those of the Gaussian
    with the same sigma. ``spent`` is the part of delta that was spent on estimating: what is computed from
    the sums has the rest. ``change`` says what happens to a single record between neighbours.

    Guarantee: (epsilon, delta)-indistinguishability of every two neighbours includes that of this dataset
    and its neighbours, so the smaller of both epsilons is proved. The ex-post epsilon is not lowered: it
    bounds the loss itself, about which (epsilon, delta) says less.

    >>> from ringfence.accounting.claim.data_independent import data_independent_proof
    >>> orders = torch.tensor([8.0, 64.0], dtype=torch.float64)
    >>> claim = guarantee(orders=orders, worst=0.002 * orders, gaussian=0.02 * orders, steps=1, delta=1e-5,
    ...     data_independent=data_independent_proof(0.02, 0.02, 1e-5))
    >>> claim.epsilon_pdp < claim.epsilon_data_independent, claim.proof_pdp
    (True, 'Rényi sums')
    """
    delta = checks.probability("delta", delta)
    left = delta - spent
    epsilon, order = ex_post_epsilon(orders, worst, left)
    epsilon_renyi, order_pdp = epsilon_from_rdp(orders, worst, left)
    gaussian_renyi = epsilon_from_rdp(orders, gaussian, left)[0]
    by_sums = epsilon_renyi < data_independent.epsilon
    return Guarantee(
        delta=delta,
        epsilon=epsilon,
        order=order,
        epsilon_pdp=min(epsilon_renyi, data_independent.epsilon),
        order_pdp=order_pdp,
        epsilon_data_independent=data_independent.epsilon,
        gaussian_epsilon=ex_post_epsilon(orders, gaussian, left)[0],
        gaussian_epsilon_pdp=min(gaussian_renyi, data_independent.gaussian_epsilon),
        steps=steps,
        epsilon_renyi=epsilon_renyi,
        gaussian_epsilon_renyi=gaussian_renyi,
        proof_pdp=RENYI if by_sums else data_independent.proof,
        failure_probability=spent,
        every_dataset=data_independent.trade_off,
        change=change,
    )
