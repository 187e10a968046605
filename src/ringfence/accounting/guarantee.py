"""What may honestly be said: three numbers that are easily confused, kept apart."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import (
    DEFAULT_ORDERS,
    best_zcdp_order,
    epsilon_from_rdp,
    ex_post_epsilon,
    gaussian_epsilon,
)
from ringfence.numerics.rounding import rounded_up

# How an epsilon was proved.
RENYI, GAUSSIAN, ZCDP = "Rényi sums", "Gaussian, exactly", "zCDP of the law"

_AROUND = tuple(1.02**k for k in range(-40, 41))  # orders tried around the best one, as multiples


@dataclass(frozen=True)
class Guarantee:
    """Three kinds of statement about the same releases, at the same delta.

    ``epsilon``: ex-post. For this dataset and this trajectory, each single record: the privacy
    loss that was realised is at most epsilon, except with probability delta over the run. Holds
    along an adaptive run. Not differential privacy, and not to be published.

    ``epsilon_pdp``: per-instance (epsilon, delta), the smallest that is proved, and ``proof_pdp`` says
    how. ``epsilon_renyi`` is the paper's number, the realised Rényi sums converted: a guarantee for
    one release or a theta fixed in advance, an estimate along an adaptive run. What holds for every
    dataset holds for this one, so ``epsilon_pdp`` is never above ``epsilon_data_independent``. Not to
    be published either.

    ``epsilon_data_independent``: ordinary (epsilon, delta)-differential privacy, every dataset.

    ``gaussian_epsilon``, ``gaussian_epsilon_pdp`` and ``gaussian_epsilon_renyi`` are what the first
    three would be for the plain Gaussian mechanism with the same sigma, the second one exactly:
    compare like with like. ``assumptions`` are sentences about what the statement takes for granted.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.TruncatedGaussian(1.0, bound=2.0), sensitivity=0.1)
    >>> account.step([0.0, 1.5])
    >>> claim = account.guarantee(delta=1e-5)
    >>> round(claim.epsilon_data_independent, 3), round(claim.epsilon_pdp, 3), round(claim.epsilon, 3)
    (0.475, 0.409, 0.502)
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

    @property
    def statement(self) -> str:
        """In plain English: what is promised, to whom, what is not, whether it may be published."""
        assumed = ("Assumed: " + " ".join(self.assumptions),) if self.assumptions else ()
        return "\n\n".join((self._data_independent(), self._ex_post(), self._per_instance(), *assumed))

    def _data_independent(self) -> str:
        return (
            f"Differential privacy, every dataset: {self._releases('satisfies', 'satisfy')} "
            f"({rounded_up(self.epsilon_data_independent)}, {self.delta:.3g})-differential privacy for every "
            "dataset and every single record added or removed, provided the number of releases, the noise, "
            "the bound and the sensitivity were not chosen by looking at the data. This number does not "
            "depend on the data and may be published."
        )

    def _ex_post(self) -> str:
        estimated = (
            f" Of that, {self.failure_probability:.3g} is spent on estimating averages over batches."
            if self.failure_probability
            else ""
        )
        return (
            "Ex-post, this dataset and this trajectory: for each single record added or removed, the "
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
            "Per-instance (epsilon, delta): with this dataset, and with it plus or minus any one record, "
            f"{self._releases('is', 'are')} ({rounded_up(self.epsilon_pdp)}, {self.delta:.3g})-"
            f"indistinguishable. Proved by: {self.proof_pdp}. {holds} {sensitive}"
        )

    def _releases(self, one: str = "", many: str = "") -> str:
        """With its verb, where one is given."""
        words = ("the release", one) if self.steps == 1 else (f"the {self.steps} releases", many)
        return " ".join(words).strip()

    def __str__(self) -> str:
        return self.statement


def guarantee(
    *,
    orders: Tensor,
    worst: Tensor,
    gaussian: Tensor,
    epsilon_data_independent: float,
    steps: int,
    delta: float,
    spent: float = 0.0,
    proof: str = GAUSSIAN,
    gaussian_exactly: float = math.inf,
) -> Guarantee:
    """The three statements, from sums of realised divergences and from what holds for every theta.

    ``gaussian`` are the sums of the Gaussian with the same sigma, ``gaussian_exactly`` its epsilon
    without Rényi slack. ``spent`` is the part of delta that estimating took: what is computed from the
    sums has the rest. ``proof`` names how ``epsilon_data_independent`` was proved.

    Guarantee: (epsilon, delta)-indistinguishability of every two neighbours includes that of this
    dataset and its neighbours, so the smaller of both is proved. The ex-post epsilon is not lowered:
    it bounds the loss itself, of which (epsilon, delta) says less.
    """
    delta = checks.probability("delta", delta)
    left = delta - spent
    epsilon, order = ex_post_epsilon(orders, worst, left)
    epsilon_renyi, order_pdp = epsilon_from_rdp(orders, worst, left)
    gaussian_renyi = epsilon_from_rdp(orders, gaussian, left)[0]
    by_sums = epsilon_renyi < epsilon_data_independent
    return Guarantee(
        delta=delta,
        epsilon=epsilon,
        order=order,
        epsilon_pdp=min(epsilon_renyi, epsilon_data_independent),
        order_pdp=order_pdp,
        epsilon_data_independent=epsilon_data_independent,
        gaussian_epsilon=ex_post_epsilon(orders, gaussian, left)[0],
        gaussian_epsilon_pdp=min(gaussian_renyi, gaussian_exactly),
        steps=steps,
        epsilon_renyi=epsilon_renyi,
        gaussian_epsilon_renyi=gaussian_renyi,
        proof_pdp=RENYI if by_sums else proof,
        failure_probability=spent,
    )


def data_independent_epsilon(gaussian_zcdp: float, bounded_zcdp: float, delta: float) -> float:
    """The smaller of two proofs: Gaussian differential privacy, exactly, and zCDP of the law.

    >>> round(data_independent_epsilon(0.0512, 0.0512, 1e-5), 4)
    1.2151
    """
    return data_independent_proof(gaussian_zcdp, bounded_zcdp, delta)[0]


def data_independent_proof(gaussian_zcdp: float, bounded_zcdp: float, delta: float) -> tuple[float, str]:
    """The same epsilon, and the name of its proof.

    The laws are dominated by the Gaussian in every test (Blackwell), so mu-GDP with
    mu^2 = 2 ``gaussian_zcdp`` holds for all of them; the truncated law has a smaller Rényi curve.

    >>> data_independent_proof(0.0512, 0.0512, 1e-5)[1], data_independent_proof(0.0512, 0.004, 1e-5)[1]
    ('Gaussian, exactly', 'zCDP of the law')
    """
    delta = checks.probability("delta", delta)
    exact = gaussian_epsilon(math.sqrt(2 * gaussian_zcdp), delta)
    # an order of its own: the best one for D = zcdp * alpha
    best = best_zcdp_order(bounded_zcdp, delta)
    orders = torch.tensor([*DEFAULT_ORDERS, *(best * step for step in _AROUND if best * step > 1.01)])
    orders = orders.double()
    bounded = epsilon_from_rdp(orders, bounded_zcdp * orders, delta)[0]
    return min((exact, GAUSSIAN), (bounded, ZCDP))
