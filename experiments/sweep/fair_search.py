"""A fair search: the same number of settings for every clip and law, over ranges that are wide."""

import math
from dataclasses import dataclass

import torch

from ringfence import checks

CLIPS = ("clamp", "norm")
_NORM_RANGES = {
    "clip": "norm",
    "noise_multiplier": "norm_noise_multiplier",
    "learning_rate": "norm_learning_rate",
}


@dataclass(frozen=True)
class FairSearch:
    """The same number of settings for every clip and mechanism, quasi-random over log-uniform ranges.

    The points are Sobol's, scrambled by ``seed``, and every mechanism gets the same ones; a law without
    a bound ignores that dimension. ``clips`` are the kinds of clip that are tried. The L2 clip (``norm``) has
    ranges of its own for what is measured by the clip: its points are the same places in these ranges.
    ``validation`` is the share of the training split that is kept back to choose settings by.

    >>> FairSearch(clip=(1.0, 0.1))
    Traceback (most recent call last):
    ValueError: clip must be a range (low, high) with 0 < low < high, got (1.0, 0.1)
    """

    settings: int = 256
    seed: int = 0
    validation: float = 0.1
    clip: tuple[float, float] = (1e-6, 1e-1)
    noise_multiplier: tuple[float, float] = (1e1, 1e6)
    bound_over_sigma: tuple[float, float] = (1e-2, 20.0)
    learning_rate: tuple[float, float] = (1e-3, 1e3)
    steps: tuple[float, float] = (1, 64)
    clips: tuple[str, ...] = ("clamp",)
    norm: tuple[float, float] = (1e-2, 1e1)
    norm_noise_multiplier: tuple[float, float] = (1e0, 1e4)
    norm_learning_rate: tuple[float, float] = (1e-1, 1e4)

    def __post_init__(self) -> None:
        checks.count("settings", self.settings, at_least=1)
        if not self.clips or len(set(self.clips)) < len(self.clips) or set(self.clips) - set(CLIPS):
            raise ValueError(f"clips must be among {', '.join(CLIPS)}, each once, got {list(self.clips)}")
        checks.count("seed", self.seed, at_least=0)
        checks.probability("validation", self.validation)
        own = {name: getattr(self, name) for name in _NORM_RANGES.values()}
        for name, (low, high) in (self.ranges() | own).items():
            if not 0 < low < high < math.inf:
                raise ValueError(f"{name} must be a range (low, high) with 0 < low < high, got {(low, high)}")
        if self.steps[0] < 1:
            raise ValueError(f"steps must start at 1 or more, got {self.steps[0]}")

    def ranges(self, clip: str = "clamp") -> dict[str, tuple[float, float]]:
        """The low and the high end of every dimension, for one kind of clip."""
        names = ("clip", "noise_multiplier", "bound_over_sigma", "learning_rate", "steps")
        own = _NORM_RANGES if clip == "norm" else {}
        return {name: getattr(self, own.get(name, name)) for name in names}

    def points(self, clip: str = "clamp") -> list[dict[str, float]]:
        """The points, rounded to four digits: nobody tunes finer, and machines then agree to the bit."""
        ranges = self.ranges(clip)
        engine = torch.quasirandom.SobolEngine(len(ranges), scramble=True, seed=self.seed)
        places = engine.draw(self.settings, dtype=torch.float64).tolist()
        return [
            {name: _between(*ends, at) for (name, ends), at in zip(ranges.items(), place, strict=True)}
            for place in places
        ]


def _between(low: float, high: float, at: float) -> float:
    """The point of a log-uniform range: ``low`` at 0, ``high`` at 1."""
    return min(max(short(low * (high / low) ** at), low), high)


def short(value: float) -> float:
    """Four digits of a number.

    >>> short(0.123456)
    0.1235
    """
    return float(f"{value:.4g}")
