"""How one softmax regression is trained, as a value: what may differ between the runs of a grid."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.noise import Noise
from ringfence.training.clipping import Clip
from ringfence.training.linear.regression import MOST_STEPS, LinearRun, train_linear
from ringfence.training.linear.run_noise import run_noise


@dataclass(frozen=True)
class LinearSettings:
    """The settings that may differ between runs on the same data. ``seed`` is that of ``train_linear``.

    >>> from ringfence import Clamp, Gaussian
    >>> LinearSettings(Gaussian(1.0), Clamp(0.1), learning_rate=1.0, steps=3, seed=0).momentum
    0.0
    """

    mechanism: Mechanism
    clip: Clip
    learning_rate: float
    steps: int
    seed: int | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        checked_mechanism(self.mechanism)
        checks.instance("clip", self.clip, Clip)
        checked: dict[str, Any] = {
            "learning_rate": checks.number("learning_rate", self.learning_rate, checks.positive),
            "steps": checks.count("steps", self.steps, at_least=1, at_most=MOST_STEPS),
            "seed": None if self.seed is None else checks.seed(self.seed),
            "momentum": checks.number("momentum", self.momentum, checks.not_negative),
        }
        if checked["momentum"] >= 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        vars(self).update(checked)

    def noise(self, data: bytes, public_size: float, classes: int) -> Noise:
        """The noise of this setting on the data with this digest (``run_noise``)."""
        numbers = (float(self.learning_rate), self.steps, public_size, float(self.momentum), classes)
        return run_noise(self.seed, data, self.mechanism, self.clip, numbers)

    def train(self, features: Tensor, labels: Tensor, classes: int, *, public_size: float) -> LinearRun:
        """Trains this setting alone, and keeps its trajectory."""
        return train_linear(
            features,
            labels,
            classes,
            mechanism=self.mechanism,
            clip=self.clip,
            learning_rate=self.learning_rate,
            steps=self.steps,
            momentum=self.momentum,
            public_size=public_size,
            seed=self.seed,
        )
