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
from ringfence.accounting.rounding import rounded_up

_AROUND = tuple(1.02**k for k in range(-40, 41))  # orders tried around the best one, as multiples


@dataclass(frozen=True)
class Guarantee:
    """Three kinds of statement about the same releases, at the same delta.

    ``epsilon``: ex-post. For this dataset and this trajectory, each single record: the privacy
    loss that was realised is at most epsilon, except with probability delta over the run. Holds
    along an adaptive run. Not differential privacy, and not to be published.

    ``epsilon_pdp``: per-instance (epsilon, delta), the paper's number. A guarantee for one release
    or a theta fixed in advance, an estimate along an adaptive run. Not to be published either.

    ``epsilon_data_independent``: ordinary (epsilon, delta)-differential privacy, every dataset.

    ``gaussian_epsilon`` and ``gaussian_epsilon_pdp`` are what the first two would be for the plain
    Gaussian mechanism with the same sigma: compare like with like.
    """

    delta: float
    epsilon: float
    order: float
    epsilon_pdp: float
    order_pdp: float
    epsilon_data_independent: float
    gaussian_epsilon: float
    gaussian_epsilon_pdp: float
    steps: int
    failure_probability: float = 0.0  # part of delta spent on estimating over batches

    @property
    def statement(self) -> str:
        """In plain English: what is promised, to whom, what is not, whether it may be published."""
        return "\n\n".join((self._data_independent(), self._ex_post(), self._per_instance()))

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
            f"probability {self.delta:.3g} over the run.{estimated} This holds also when theta depends on "
            "earlier releases. It is not a differential privacy guarantee, neither for other datasets nor "
            "for other runs. The number is computed from the data and is itself sensitive: do not publish "
            "it, and do not stop, go on or change the noise or the bound because of it."
        )

    def _per_instance(self) -> str:
        holds = (
            "This is a guarantee for the one release it is about."
            if self.steps <= 1 and not self.failure_probability
            else "This is a guarantee only if theta at every release was fixed in advance; where theta "
            "depends on earlier releases, as in training, it is an estimate and not a guarantee."
        )
        return (
            "Per-instance (epsilon, delta): with this dataset, and with it plus or minus any one record, "
            f"{self._releases('is', 'are')} ({rounded_up(self.epsilon_pdp)}, {self.delta:.3g})-"
            "indistinguishable. "
            f"{holds} It speaks of this dataset only, is computed from it and must not be published."
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
) -> Guarantee:
    """The three statements, from sums of realised divergences and from what holds for every theta.

    ``gaussian`` are the sums of the Gaussian with the same sigma. ``spent`` is the part of delta that
    estimating took: what is computed from the sums has the rest.
    """
    delta = checks.probability("delta", delta)
    left = delta - spent
    epsilon, order = ex_post_epsilon(orders, worst, left)
    epsilon_pdp, order_pdp = epsilon_from_rdp(orders, worst, left)
    return Guarantee(
        delta=delta,
        epsilon=epsilon,
        order=order,
        epsilon_pdp=epsilon_pdp,
        order_pdp=order_pdp,
        epsilon_data_independent=epsilon_data_independent,
        gaussian_epsilon=ex_post_epsilon(orders, gaussian, left)[0],
        gaussian_epsilon_pdp=epsilon_from_rdp(orders, gaussian, left)[0],
        steps=steps,
        failure_probability=spent,
    )


def data_independent_epsilon(gaussian_zcdp: float, bounded_zcdp: float, delta: float) -> float:
    """The smaller of two proofs: Gaussian differential privacy, exactly, and zCDP of the law.

    The laws are dominated by the Gaussian in every test (Blackwell), so mu-GDP with
    mu^2 = 2 ``gaussian_zcdp`` holds for all of them; the truncated law has a smaller Rényi curve.

    >>> round(data_independent_epsilon(0.0512, 0.0512, 1e-5), 4)
    1.2151
    """
    delta = checks.probability("delta", delta)
    exact = gaussian_epsilon(math.sqrt(2 * gaussian_zcdp), delta)
    # an order of its own: the best one for D = zcdp * alpha
    best = best_zcdp_order(bounded_zcdp, delta)
    orders = torch.tensor([*DEFAULT_ORDERS, *(best * step for step in _AROUND if best * step > 1.01)])
    orders = orders.double()
    return min(exact, epsilon_from_rdp(orders, bounded_zcdp * orders, delta)[0])
