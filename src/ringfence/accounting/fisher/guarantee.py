"""What may be said about a Fisher information loss: the numbers, and a sentence that claims no more."""

from dataclasses import dataclass

from torch import Tensor

from ringfence.accounting.fisher.loss import reconstruction_error_bound
from ringfence.numerics.spectral.singular_values import SingularValueBounds


@dataclass(frozen=True)
class FisherGuarantee:
    """What an account may say, one number per record: a certified upper bound, and how close it is.

    ``lower`` and ``gap`` are about the norm of the sum that the account holds. Where steps were
    sampled that sum is itself an upper bound, and the record's information may be below ``lower``.

    >>> import torch
    >>> one = torch.ones(())
    >>> FisherGuarantee(2 * one, 1.9 * one, 0.05 * one, 0.25 * one, 0.0, "...").fisher_information_loss
    tensor(2.)
    """

    fisher_information_loss: Tensor
    lower: Tensor
    gap: Tensor
    reconstruction_error: Tensor
    failure_probability: float
    statement: str

    @staticmethod
    def of(steps: int, bounds: SingularValueBounds) -> "FisherGuarantee":
        """What follows from the bounds of the Fisher information loss of so many releases.

        >>> import torch
        >>> bounds = SingularValueBounds(torch.tensor(0.5).double(), torch.tensor(0.5).double())
        >>> round(float(FisherGuarantee.of(1, bounds).reconstruction_error), 9)
        4.0
        """
        error = reconstruction_error_bound(bounds.upper)
        return FisherGuarantee(
            bounds.upper,
            bounds.lower,
            bounds.gap,
            error,
            bounds.failure_probability,
            _statement(steps, bounds, error),
        )


def _statement(steps: int, bounds: SingularValueBounds, error: Tensor) -> str:
    """About the worst record; the docstrings of this chapter prove or exclude every clause."""
    worst = int(bounds.upper.reshape(-1).argmax())
    upper, variance = float(bounds.upper.reshape(-1)[worst]), float(error.reshape(-1)[worst])
    records = f"the worst of {len(bounds.upper)} records" if bounds.upper.ndim else "the record"
    gap = 100 * float(bounds.gap.reshape(-1)[worst])
    releases = "1 release" if steps == 1 else f"{steps} releases"
    failing = bounds.failure_probability
    chance = f", except with probability {failing:g} over its random probes" if failing else ""
    return (
        f"Over {releases} the Fisher information loss of {records} is at most {_above(upper)}{chance} "
        f"(computed to within {_above(gap)} %): from what was released, no unbiased estimator of the record "
        f"has mean squared error below {_below(variance)} in any attribute. "
        "This holds for this dataset, if no step depends on earlier outputs; if one does, the information "
        "of the run is the average of such sums over runs, of which this is one. It does not bound biased "
        "estimators or an attacker with prior knowledge, and is not differential privacy. "
        "The numbers depend on the data and are sensitive: do not publish them."
    )


def _above(value: float) -> str:
    """The value with five digits, rounded up, so that a printed upper bound still holds."""
    return f"{value * (1 + 5.1e-5):.5g}"


def _below(value: float) -> str:
    """The value with five digits, rounded down, so that a printed lower bound still holds."""
    return f"{value * (1 - 5.1e-5):.5g}"
