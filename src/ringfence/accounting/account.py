"""Any kind of account from its saved state, and the claim of releases of a fixed theta."""

from dataclasses import replace
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

# Training charges either kind before each release (``charge``).
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


def fixed_theta_guarantee(
    mechanism: Mechanism, theta: Tensor, sensitivity: Real | Sensitivity, steps: int, delta: float
) -> Guarantee:
    """The claim of ``steps`` releases of the same theta, with the smallest per-instance epsilon known.

    >>> import torch
    >>> claim = fixed_theta_guarantee(Gaussian(1.0), torch.zeros(100), 1e-2, steps=10, delta=1e-5)
    >>> claim.per_instance.epsilon < claim.per_instance.renyi_epsilon
    True
    """
    steps = checks.count("steps", steps, at_least=1)
    account = PerInstanceAccountant(mechanism, sensitivity)
    account.step(theta, count=steps)
    profile = privacy_profile(mechanism, theta, sensitivity, steps)
    gaussian = privacy_profile(Gaussian(mechanism.sigma), theta, sensitivity, steps).epsilon(delta)
    claim = account.guarantee(delta)
    own = claim.per_instance
    # both hold, because theta is fixed
    epsilon, proof = min((profile.epsilon(delta), profile.proof(delta)), (own.epsilon, own.proof))
    own = replace(own, epsilon=epsilon, proof=proof, gaussian_epsilon=min(gaussian, own.gaussian_epsilon))
    return replace(claim, per_instance=own)
