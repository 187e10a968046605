"""Accounts of releases: any kind of account from its saved state, and all numbers of a fixed theta."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ringfence import checks
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.profile import privacy_profile
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.accounting.subsampling import SampledAccountant
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import rounded_up

# What training charges before each release (``charge``), without having to know which kind it is.
Account = PerInstanceAccountant | SampledAccountant

_KINDS: dict[str, type[PerInstanceAccountant] | type[SampledAccountant]] = {
    kind.__name__: kind for kind in (PerInstanceAccountant, SampledAccountant)
}


def accountant_from_state_dict(state: dict[str, Any]) -> Account:
    """The account that a ``state_dict`` describes; its ``kind`` chooses the class.

    An unknown kind or version is an error that names it.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> saved = PerInstanceAccountant(Gaussian(1.0), sensitivity=0.1).state_dict()
    >>> accountant_from_state_dict(saved)
    PerInstanceAccountant(Gaussian(sigma=1.0), steps=0)
    """
    kind = checks.one_of("kind", checks.mapping("state", state).get("kind"), _KINDS)
    return _KINDS[kind].from_state_dict(state)


@dataclass(frozen=True)
class AccountRow:
    """What releases of a fixed theta cost under a law, and under the Gaussian with the same sigma."""

    mechanism: Mechanism
    sensitivity: Sensitivity
    coordinates: int
    guarantee: Guarantee
    epsilon_profile: float
    proof: str
    gaussian_epsilon_profile: float

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data, with the statements."""
        return {
            "mechanism": repr(self.mechanism),
            "sensitivity": self.sensitivity.state(),
            "coordinates": self.coordinates,
            **(claim := self.guarantee.as_dict()),
            "statement": self.guarantee.statement,
            "per_instance": {
                **claim["per_instance"],
                "tight_epsilon": self.epsilon_profile,
                "tight_proof": self.proof,
                "gaussian_tight_epsilon": self.gaussian_epsilon_profile,
                "statement": f"{self.guarantee.per_instance.statement}\n\n{self.profile_statement}",
            },
        }

    @property
    def profile_statement(self) -> str:
        """What the tight epsilon promises."""
        return (
            "Tight, theta fixed in advance: if none of the releases changed theta, they are "
            f"({rounded_up(self.epsilon_profile)}, {self.guarantee.delta:.3g})-indistinguishable from those "
            "of this dataset plus or minus any one record. Like the per-instance numbers above it is "
            "computed from the data and must not be published."
        )


def account_row(
    mechanism: Mechanism, theta: Tensor, sensitivity: Real | Sensitivity, steps: int, delta: float
) -> AccountRow:
    """The account of ``steps`` releases of the same theta.

    >>> import torch
    >>> row = account_row(Gaussian(1.0), torch.zeros(100), 1e-2, steps=10, delta=1e-5)
    >>> row.epsilon_profile <= row.guarantee.per_instance.epsilon
    True
    """
    steps = checks.count("steps", steps, at_least=1)
    account = PerInstanceAccountant(mechanism, sensitivity)
    account.step(theta, count=steps)
    profile = privacy_profile(mechanism, theta, sensitivity, steps)
    gaussian = privacy_profile(Gaussian(mechanism.sigma), theta, sensitivity, steps)
    claim = account.guarantee(delta)
    tight, proof = min(
        (profile.epsilon(delta), profile.proof(delta)), (claim.per_instance.epsilon, claim.per_instance.proof)
    )  # both hold, because theta is fixed
    return AccountRow(
        mechanism=mechanism,
        sensitivity=account.sensitivity,
        coordinates=theta.numel(),
        guarantee=claim,
        epsilon_profile=tight,
        proof=proof,
        gaussian_epsilon_profile=min(gaussian.epsilon(delta), claim.per_instance.gaussian_epsilon),
    )
