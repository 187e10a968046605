"""What a sweep tries: settings of linear probes, as every combination of lists or as a fair search."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch

from ringfence import checks
from ringfence.mechanisms.base import Mechanism

Search = Literal["paper", "fair"]


def label(mechanism: str) -> str:
    """What the law of this name is called in rows and charts.

    >>> label("gaussian")
    'Gaussian'
    """
    return Mechanism.known()[mechanism].label


def own_fields(mechanism: str) -> tuple[str, ...]:
    """What the law of this name takes beside sigma.

    >>> own_fields("quantized")
    ('bound', 'levels')
    """
    return tuple(field for field in Mechanism.known()[mechanism].fields() if field != "sigma")


@dataclass(frozen=True)
class SweepSetting:
    """A probe to train, without its seed. sigma is ``noise_multiplier`` times ``clip``.

    >>> setting = SweepSetting("rectified", 1e-3, 1e3, learning_rate=8.0, steps=10, bound=4.0)
    >>> setting.law, len(setting.key)
    (RectifiedGaussian(sigma=1.0, bound=(-4.0, 4.0)), 32)
    """

    mechanism: str
    clip: float
    noise_multiplier: float
    learning_rate: float
    steps: int
    bound: float | None = None
    levels: int | None = None

    @property
    def sigma(self) -> float:
        return self.noise_multiplier * self.clip

    @property
    def law(self) -> Mechanism:
        return Mechanism.by_name(self.mechanism, sigma=self.sigma, bound=self.bound, levels=self.levels)

    @property
    def key(self) -> str:
        """A name that equal settings share in every sweep, on every machine and on every day."""
        return digest(asdict(self))[:32]

    def __str__(self) -> str:
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "mechanism"}
        shown = (f"{name} {value:g}" for name, value in given.items() if value is not None)
        return f"{label(self.mechanism)}, {', '.join(shown)}".replace("_", " ")


Job = tuple[SweepSetting, int]  # a setting and a seed


@dataclass(frozen=True)
class FairSearch:
    """The same number of settings for every mechanism, quasi-random over log-uniform ranges.

    The points are Sobol's, scrambled by ``seed``, and every mechanism gets the same ones; a law without
    a bound ignores that dimension. ``validation`` is the share of the training split that is kept
    back to choose settings by.

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

    def __post_init__(self) -> None:
        checks.count("settings", self.settings, at_least=1)
        checks.count("seed", self.seed, at_least=0)
        checks.probability("validation", self.validation)
        for name, (low, high) in self.ranges().items():
            if not 0 < low < high < math.inf:
                raise ValueError(f"{name} must be a range (low, high) with 0 < low < high, got {(low, high)}")
        if self.steps[0] < 1:
            raise ValueError(f"steps must start at 1 or more, got {self.steps[0]}")

    def ranges(self) -> dict[str, tuple[float, float]]:
        """The low and the high end of every dimension."""
        names = ("clip", "noise_multiplier", "bound_over_sigma", "learning_rate", "steps")
        return {name: getattr(self, name) for name in names}

    def points(self) -> list[dict[str, float]]:
        """The points, rounded to four digits: nobody tunes finer, and machines then agree to the bit."""
        ranges = self.ranges()
        engine = torch.quasirandom.SobolEngine(len(ranges), scramble=True, seed=self.seed)
        places = engine.draw(self.settings, dtype=torch.float64).tolist()
        return [
            {name: _between(*ends, at) for (name, ends), at in zip(ranges.items(), place, strict=True)}
            for place in places
        ]


@dataclass(frozen=True)
class Grid:
    """A sweep: what is tried on one data set, with which seeds, at which delta.

    ``bound`` is absolute, as in the paper; laws without a bound leave it out. Features are shifted by
    ``center`` and divided by ``scale``, two constants; ``public_statistics`` names a file of public features
    to take them from instead. ``public_projection`` names a file that ``ringfence project`` wrote, by which
    features are mapped first. ``fisher`` asks for the Fisher information loss of every example as well, which
    takes far longer than training.

    >>> grid = Grid("toy", ("gaussian", "truncated"), (0.1,), (10.0,), (1.0, 2.0), (4.0, 8.0), (5,))
    >>> [len([s for s in grid.settings("paper") if s.mechanism == name]) for name in grid.mechanisms]
    [2, 4]
    """

    name: str
    mechanisms: tuple[str, ...]
    clip: tuple[float, ...]
    noise_multiplier: tuple[float, ...]
    bound: tuple[float, ...]
    learning_rate: tuple[float, ...]
    steps: tuple[int, ...]
    levels: tuple[int, ...] = (17,)
    seeds: tuple[int, ...] = (0, 1, 2)
    delta: float = 1e-5
    classes: int | None = None
    center: float | None = None
    scale: float | None = None
    public_statistics: str | None = None
    public_projection: str | None = None
    intercept: bool = False
    fisher: bool = False
    fair: FairSearch = FairSearch()

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty, got ''")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple) and not value:
                raise ValueError(f"{field.name} must not be empty, got []")
            if isinstance(value, tuple) and len(set(value)) < len(value):
                raise ValueError(f"{field.name} must not hold a value twice, got {list(value)}")
        for name in self.mechanisms:
            if name not in Mechanism.known():
                raise ValueError(f"mechanisms must be among {', '.join(Mechanism.known())}, got {name!r}")
        for key in ("clip", "noise_multiplier", "bound", "learning_rate"):
            for number in getattr(self, key):
                checks.positive(key, float(number))
        for key, least in (("steps", 1), ("levels", 2), ("seeds", 0)):
            for count in getattr(self, key):
                checks.count(key, count, at_least=least)
        checks.probability("delta", self.delta)
        if self.classes is not None:
            checks.count("classes", self.classes, at_least=2)
        if self.center is not None:
            checks.finite("center", self.center)
        if self.scale is not None:
            checks.positive("scale", self.scale)
        if self.public_statistics is not None and (self.center is not None or self.scale is not None):
            raise ValueError("public_statistics must not be given together with center or scale")

    def settings(self, search: Search) -> list[SweepSetting]:
        """The settings: every combination of the lists, or those of the fair search."""
        if search not in ("paper", "fair"):
            raise ValueError(f"search must be paper or fair, got {search!r}")
        if search == "fair" and len(self.seeds) < 3:
            raise ValueError(f"seeds must be at least three for a fair search, got {list(self.seeds)}")
        return list(self._product() if search == "paper" else self._fair())

    def jobs(self, search: Search) -> list[Job]:
        """Every setting with every seed; settings whose releases are alike are neighbours."""
        return [(setting, seed) for setting in self.settings(search) for seed in self.seeds]

    def _product(self) -> Iterator[SweepSetting]:
        for name in self.mechanisms:
            own: list[tuple[Any, ...]] = [getattr(self, key) for key in own_fields(name)]
            lists = (self.clip, self.noise_multiplier, *own, self.learning_rate, self.steps)
            keys = ("clip", "noise_multiplier", *own_fields(name), "learning_rate", "steps")
            for values in itertools.product(*lists):
                yield SweepSetting(name, **dict(zip(keys, values, strict=True)))

    def _fair(self) -> Iterator[SweepSetting]:
        for name, point in itertools.product(self.mechanisms, self.fair.points()):
            sigma = point["clip"] * point["noise_multiplier"]
            own: dict[str, Any] = {
                "bound": _short(point["bound_over_sigma"] * sigma),
                "levels": self.levels[0],
            }
            yield SweepSetting(
                name,
                point["clip"],
                point["noise_multiplier"],
                point["learning_rate"],
                round(point["steps"]),
                **{key: own[key] for key in own_fields(name)},
            )


def digest(value: Any) -> str:
    """The SHA-256 of plain data, in hexadecimal digits.

    >>> digest({"a": 1, "b": 2.0}) == digest({"b": 2.0, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _between(low: float, high: float, at: float) -> float:
    """The point of a log-uniform range: ``low`` at 0, ``high`` at 1."""
    return min(max(_short(low * (high / low) ** at), low), high)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
