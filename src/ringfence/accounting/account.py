"""An account of whole releases: what training needs to know about an accountant, whichever kind it is."""

from collections.abc import Iterable
from typing import Any, Protocol, Self

from torch import Tensor

from ringfence import checks
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.accounting.subsampling import SampledAccountant
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism


class Account(Protocol):
    """What ``PerInstanceAccountant`` and ``SampledAccountant`` have in common.

    A training loop calls ``charge`` once before each release and does not need to know the kind of account.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> import torch
    >>> accounts: list[Account] = [
    ...     PerInstanceAccountant(Gaussian(1.0), sensitivity=0.1),
    ...     SampledAccountant(Gaussian(1.0), sensitivity=0.1, sampling_rate=0.1),
    ... ]
    >>> for account in accounts:
    ...     account.charge(torch.zeros(3))
    >>> [account.steps for account in accounts]
    [1, 1]
    """

    mechanism: Mechanism
    sensitivity: Sensitivity
    steps: int

    def charge(self, theta: Tensor, batches: Iterable[Tensor] | None = None) -> None:
        """Charges one release of ``theta``; ``batches`` are auxiliary Poisson samples, if any."""

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about all the steps so far, at this delta."""

    def step_of_any(self, theta: Real, *, count: int = 1) -> None:
        """Adds ``count`` releases, charged with what holds for every dataset, before there is one."""

    def fresh(self) -> Self:
        """An account with the same settings and no steps."""

    def privacy_loss(self) -> PrivacyLoss:
        """The steps so far as one value, which adds up with that of other accounts."""

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data with its kind and version."""


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
