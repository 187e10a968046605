"""What a run will consist of, before it begins: its batches, what its steps are charged, and its noise."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from ringfence import checks
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.costs.finite_randomness import secure_guarantee
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sampled.accountant import SampledAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clip
from ringfence.training.engine.sampling import FullBatches, PoissonBatches, checked_loader, largest_batch
from ringfence.training.secure_run import largest_count, stretched
from ringfence.training.target import Target


@dataclass(frozen=True)
class RunPlan:
    """The batches of a run, and how far one example moves the sum of a step, rounding included.

    >>> from ringfence import Clamp, Gaussian
    >>> loader = DataLoader(range(1000), batch_size=100)
    >>> plan = RunPlan.of(loader, Clamp(0.1), None, "poisson", secure=False, rounding=0.0)
    >>> plan.batches.sampling_rate, plan.account(Gaussian(1.0))
    (0.1, SampledAccountant(Gaussian(sigma=1.0), sampling_rate=0.1, steps=0))
    """

    loader: DataLoader[Any]
    examples: int
    batch_size: int
    public_size: float
    batches: FullBatches | PoissonBatches
    sensitivity: Sensitivity
    secure: bool

    @classmethod
    def of(
        cls,
        loader: DataLoader[Any],
        clip: Clip,
        public_size: float | None,
        sampling: str,
        *,
        secure: bool,
        rounding: float,
    ) -> "RunPlan":
        """The plan for the examples of a loader; ``sampling`` is "full" or "poisson".

        ``rounding`` is the relative error of one operation where the loss is a mean, else 0. A mean divides
        each example's gradient by n: three roundings that another n would make differently, for n examples.
        """
        loader, count, batch_size = checked_loader(loader)
        size = float(checks.positive("public_size", count if public_size is None else public_size))
        sensitivity = Sensitivity.of(clip.sensitivity)
        sensitivity = sensitivity.times(1 + 2 * 4 * largest_batch(batch_size) * rounding)
        if secure:
            sensitivity = stretched(sensitivity, largest_count(count, size))
        batches = (FullBatches if sampling == "full" else PoissonBatches)(count, batch_size, size)
        return cls(loader, count, batch_size, size, batches, sensitivity, secure)

    def settings(self) -> dict[str, Any]:
        """What of the plan a run that goes on must share with the one that was saved."""
        return {
            "sampling": "full" if isinstance(self.batches, FullBatches) else "poisson",
            "public_size": self.public_size,
            "batch_size": self.batch_size,
            "examples": self.examples,
            "secure": self.secure,
        }

    def account(self, mechanism: Mechanism) -> PerInstanceAccountant | SampledAccountant:
        """An account for such steps."""
        if isinstance(self.batches, FullBatches):
            return PerInstanceAccountant(mechanism, self.sensitivity)
        return SampledAccountant(mechanism, self.sensitivity, self.batches.sampling_rate)

    def law(
        self, target: Target | None, mechanism: Mechanism, numbers: int, epochs: int, *, estimated: bool
    ) -> Mechanism:
        """The mechanism with the smallest sigma with which ``epochs`` epochs meet the target.

        Each step releases ``numbers`` numbers. ``estimated``: auxiliary batches estimate the cost for the
        data at hand, which takes a part of delta.
        """
        if target is None:
            raise ValueError("target_epsilon and target_delta must be given, got None")
        steps = checks.count("epochs", epochs, at_least=1, at_most=10**6) * self.batches.steps_an_epoch
        theta = torch.zeros(()).expand(numbers)

        def claim(account: PerInstanceAccountant | SampledAccountant, delta: float) -> Guarantee:
            account.step_of_any(theta, count=steps)
            if estimated and isinstance(account, SampledAccountant):
                account.spent = steps * account.failure_probability
            return secure_guarantee(account.guarantee, account.steps * numbers * self.secure, delta)

        def whole(law: Mechanism, delta: float) -> Guarantee:
            return claim(PerInstanceAccountant(law, self.sensitivity), delta)

        # releases of everything cost more than those of samples, and their sigma is found sooner
        law = target.law(mechanism, whole)
        if isinstance(self.batches, FullBatches):
            return law
        return target.law(law, lambda law, delta: claim(self.account(law), delta))
