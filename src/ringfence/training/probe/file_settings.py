"""How a probe on a file of features is trained, as a value."""

from dataclasses import dataclass, fields
from typing import Any

import torch

from ringfence import checks
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clip
from ringfence.training.secure_run import NEEDS_SIZE


@dataclass(frozen=True)
class ProbeSettings:
    """How a probe is trained. Everything here is public except the seed.

    With ``target_epsilon`` the noise is found that meets it at ``delta``, and what is None follows from the
    rule of ``LinearProbe``; ``mechanism`` may then be the name of a law.

    ``center`` and ``scale`` are constants that features are shifted and divided by. ``public_size`` is
    the number that the sum of gradients is divided by, and ``public_classes`` says how many labels
    0, 1, ... there are; where one of them is None, the number in the data counts as public. ``examples``
    asks for the epsilons of single examples too. ``secure`` takes noise from the operating system and
    releases points of a public grid.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> ProbeSettings(Gaussian(1.0), clip=0.1, learning_rate=1.0, device="gpu")
    Traceback (most recent call last):
    ValueError: device must be cpu or cuda, got 'gpu'
    """

    mechanism: Mechanism | str | None = None
    clip: float | Clip | None = None
    learning_rate: float | None = None
    steps: int | None = None
    momentum: float | None = None
    intercept: bool = False
    center: float | None = None
    scale: float | None = None
    public_size: float | None = None
    public_classes: int | None = None
    delta: float = 1e-5
    seed: int | None = None
    device: str = "cpu"
    examples: bool = False
    secure: bool = False
    target_epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be cpu or cuda, got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device cuda is not available on this machine")
        checks.probability("delta", self.delta)
        if self.public_classes is not None:
            checks.count("public_classes", self.public_classes, at_least=2)
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in 0 .. 2^32 - 1, got {self.seed}")
        if self.secure and self.seed is not None:
            raise ValueError(f"seed must be left out, got {self.seed}: secure releases have no seed")
        if self.secure and self.public_size is None:
            raise ValueError(NEEDS_SIZE)

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
