"""What a calibration asks: what is released, and which epsilon of it must meet a target."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.guarantee import EpsilonKind
from ringfence.accounting.per_instance import ceilings, per_instance_rdp
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.accounting.subsampling import SampledAccountant
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import rounded_up

_FIELDS = {"ex_post": "ex_post_epsilon", "per_instance": "epsilon"}


class PerInstanceCalibrationWarning(UserWarning):
    """An answer was found from theta: it meets the target for this dataset only, and is sensitive itself.

    This is a warning and not a field of the answer, because the answer is a number and soon a part of other
    numbers, where a field would be lost. The message names the epsilon that the answer costs for every
    dataset. Silence the warning where theta is public or simulated.

    >>> issubclass(PerInstanceCalibrationWarning, UserWarning)
    True
    """


@dataclass(frozen=True)
class CalibrationQuestion:
    """What is released, and which epsilon of it must meet the target.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> question = CalibrationQuestion.asked(None, 1e-2, 1e-5, "data_independent", 100, 1.0)
    >>> cost = question.costs(Gaussian(1.0))
    >>> round(cost(1), 3), round(cost(10), 3)
    (0.341, 1.199)
    """

    theta: Tensor
    sensitivity: Sensitivity
    delta: float
    kind: EpsilonKind
    scale: float  # how many coordinates each of theta's stands for
    sampling_rate: float

    @classmethod
    def asked(
        cls,
        theta: Real | None,
        sensitivity: Real | Sensitivity,
        delta: float,
        kind: EpsilonKind,
        coordinates: int | None,
        sampling_rate: float,
    ) -> Self:
        """The question with every argument checked once, before the search."""
        checks.one_of("kind", kind, (*_FIELDS, "data_independent"))
        delta = checks.probability("delta", delta)
        sampling_rate = checks.rate("sampling_rate", sampling_rate)
        count = None if coordinates is None else checks.count("coordinates", coordinates, at_least=1)
        size = Sensitivity.of(sensitivity)
        if kind != "data_independent" and sampling_rate < 1:
            raise ValueError(
                f"kind must be 'data_independent' where sampling_rate is {sampling_rate:g}, got {kind!r}: "
                "what a sampled release of this theta costs takes batches (SampledAccountant.step)"
            )
        if theta is None and kind != "data_independent":
            raise ValueError(f"theta must be given for kind {kind!r}, got None")
        values = None if theta is None else checks.finite("theta", theta)
        if values is not None and count is not None and not size.is_plain and count != values.numel():
            if kind != "data_independent":
                raise ValueError(
                    "coordinates must be left out, or theta hold all of them, where sensitivity has at_most "
                    f"or norm, got {count}: a sample does not tell which coordinates a record moves"
                )
            values = None  # of which only the shape counts
        if values is None:
            if count is None:
                size, count = _of_any_number(size)
            values = torch.zeros((), dtype=torch.float64).expand(count)
        scale = 1.0 if count is None else count / max(1, values.numel())
        return cls(values, size, delta, kind, scale, sampling_rate)

    def costs(self, law: Mechanism) -> Callable[[int], float]:
        """The epsilon as a function of the number of releases; the sums are evaluated once."""
        if self.kind != "data_independent":
            return self._for_this_dataset(law)
        if self.sampling_rate < 1:
            return self._for_samples_of_any_dataset(law)
        gaussian, bounded = ceilings(law, self.theta, self.sensitivity)

        def cost(steps: int) -> float:
            times = steps * self.scale
            return PrivacyLoss.of_zcdp(times * gaussian, times * bounded).epsilon(self.delta)

        return cost

    def _for_this_dataset(self, law: Mechanism) -> Callable[[int], float]:
        rdp = per_instance_rdp(law, self.theta, self.sensitivity)
        gaussian, bounded = ceilings(law, self.theta, self.sensitivity)

        def cost(steps: int) -> float:
            times = steps * self.scale
            loss = PrivacyLoss.of_zcdp(
                times * gaussian,
                times * bounded,
                orders=rdp.orders,
                forward=times * rdp.forward,
                backward=times * rdp.backward,
                steps=steps,
            )
            claim = loss.guarantee(self.delta)
            return float(getattr(claim.per_instance, _FIELDS[self.kind]))

        return cost

    def _for_samples_of_any_dataset(self, law: Mechanism) -> Callable[[int], float]:
        # s coordinates that move by c have the ceilings of one that moves by c sqrt(s)
        size = self.sensitivity.times(math.sqrt(self.scale))

        def cost(steps: int) -> float:
            account = SampledAccountant(law, size, self.sampling_rate)
            account.step_of_any(self.theta, count=steps)
            return account.guarantee(self.delta).epsilon

        return cost

    def warn(self, name: str, answer: float, law: Mechanism, steps: int) -> None:
        """Warns what an answer from theta costs for every dataset, unless it holds for every dataset."""
        if self.kind == "data_independent":
            return
        everyone = replace(self, kind="data_independent").costs(law)(steps)
        warnings.warn(
            f"{name} = {answer:.6g} was found from theta and meets the target for this dataset only (kind "
            f"{self.kind!r}); for every dataset it costs epsilon = {rounded_up(everyone)}. It is sensitive: "
            "do not publish it, nor what is released with it, unless theta is public or simulated.",
            PerInstanceCalibrationWarning,
            stacklevel=3,
        )


def _of_any_number(size: Sensitivity) -> tuple[Sensitivity, int]:
    """Moves of a known number of coordinates that are as long as those of any number of coordinates."""
    if size.farthest.numel() == 1 and size.at_most is not None:
        return size, size.at_most
    if size.farthest.numel() == 1 and size.norm is not None:
        return Sensitivity(norm=size.norm), 1  # all of the move in one coordinate
    raise ValueError(
        "coordinates must be given where theta is None, got None: the length of a move depends on them"
    )
