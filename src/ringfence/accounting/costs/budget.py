"""What several releases cost together, and the epsilon that a budget is compared with."""

from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.costs.finite_randomness import delta_left, secure_guarantee


class BudgetExceededError(ValueError):
    """A release would cost more than is left in a ledger: nothing was released."""


def composed_guarantee(total: Cost, delta: float) -> Guarantee:
    """What may be said at delta, less what the finite randomness of secure releases takes of it.

    >>> composed_guarantee(Cost.of_pair(0.5, 0.0), delta=1e-6).epsilon
    0.5
    """
    return secure_guarantee(total.guarantee, total.numbers, delta, taken=total.taken)


def budget_epsilon(what: str, total: Cost, delta: float, *, planned: bool) -> float:
    """The epsilon that a budget is compared with, where ``what`` is the last release in ``total``.

    Guarantee: unless all is ``planned``, what is compared is a sum of mu^2 with a number that is fixed
    beforehand. Releases that are chosen by looking at earlier ones are then covered (Smith and Thakurta 2022,
    arXiv 2210.17520: Gaussian differential privacy has a filter at the parameters of ordinary composition).
    Compositions of samples have no such filter, so they are refused.

    >>> law = Cost(releases=((1.0, 1.0, 1),), zcdp=0.1)  # which proves less than its Gaussian
    >>> [round(budget_epsilon("a mean", law, 1e-5, planned=planned), 2) for planned in (False, True)]
    [4.38, 1.91]
    """
    if planned:
        return composed_guarantee(total, delta).epsilon
    if not total.is_whole:
        raise ValueError(
            f"planned must be True, got False: {what} is of samples or known by epsilon and delta alone, and "
            "a budget covers that only where no release is chosen by looking at others"
        )
    return gaussian_epsilon(
        total.mu, delta_left(total.numbers, delta, lambda at: gaussian_epsilon(total.mu, at))
    )
