"""What a sweep tries: settings of a model, as every combination of lists or as a fair search."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from experiments.sweep.fair_search import FairSearch, short
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
    return tuple(name for name in Mechanism.known()[mechanism].fields() if name != "sigma")


@dataclass(frozen=True)
class SweepSetting:
    """How a model is trained, without its seed. sigma is ``noise_multiplier`` times ``clip``.

    ``clip_kind`` says what ``clip`` bounds: every coordinate of a gradient (``clamp``) or its L2 length
    (``norm``).

    >>> setting = SweepSetting("rectified", 1e-3, 1e3, learning_rate=8.0, steps=10, bound=4.0)
    >>> setting.law, len(setting.key)
    (RectifiedGaussian(sigma=1.0, bound=(-4.0, 4.0)), 32)
    >>> shorter = SweepSetting("gaussian", 0.5, 2.0, learning_rate=8.0, steps=10, clip_kind="norm")
    >>> shorter.label
    'Gaussian, L2 clip'
    """

    mechanism: str
    clip: float
    noise_multiplier: float
    learning_rate: float
    steps: int
    bound: float | None = None
    levels: int | None = None
    clip_kind: str = "clamp"

    @property
    def label(self) -> str:
        """What is compared, in words: the law, and the clip where it is not the paper's."""
        return label(self.mechanism) + ("" if self.clip_kind == "clamp" else ", L2 clip")

    @property
    def sigma(self) -> float:
        return self.noise_multiplier * self.clip

    @property
    def law(self) -> Mechanism:
        return Mechanism.by_name(self.mechanism, sigma=self.sigma, bound=self.bound, levels=self.levels)

    @property
    def key(self) -> str:
        """A name that equal settings share in every sweep, on every machine and on every day."""
        own = asdict(self)
        if self.clip_kind == "clamp":  # the name that these settings had before there were other clips
            del own["clip_kind"]
        return digest(own)[:32]

    def __str__(self) -> str:
        words = ("mechanism", "clip_kind")
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in words}
        shown = (f"{name} {value:g}" for name, value in given.items() if value is not None)
        return f"{self.label}, {', '.join(shown)}".replace("_", " ")


Job = tuple[SweepSetting, int]  # a setting and a seed


@dataclass(frozen=True)
class Grid:
    """A sweep: what is tried on one data set, with which seeds, at which delta.

    ``bound`` is absolute, as in the paper; laws without a bound leave it out. Features are shifted by
    ``center`` and divided by ``scale``, two constants; ``public_statistics`` names a file of public features
    to take them from instead. ``public_projection`` names a file that ``ringfence project`` wrote, by which
    features are mapped first. ``unit_rows`` scales every row of features to length 1 at last. ``norm`` are L2
    clips that the paper's combinations have beside its own. ``fisher`` asks for the Fisher information loss
    of every example as well, which takes far longer than training.

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
    unit_rows: bool = False
    intercept: bool = False
    fisher: bool = False
    norm: tuple[float, ...] | None = None
    fair: FairSearch = field(default_factory=FairSearch)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty, got ''")
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, tuple) and not value:
                raise ValueError(f"{one.name} must not be empty, got []")
            if isinstance(value, tuple) and len(set(value)) < len(value):
                raise ValueError(f"{one.name} must not hold a value twice, got {list(value)}")
        for name in self.mechanisms:
            if name not in Mechanism.known():
                raise ValueError(f"mechanisms must be among {', '.join(Mechanism.known())}, got {name!r}")
        for key in ("clip", "noise_multiplier", "bound", "learning_rate"):
            for number in getattr(self, key):
                checks.positive(key, float(number))
        for number in self.norm or ():
            checks.positive("norm", float(number))
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
        if self.unit_rows and self.fisher:
            raise ValueError("fisher must be false where unit_rows is true: every row has its own scale")

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
        for kind, clips in (("clamp", self.clip), ("norm", self.norm or ())):
            for name in self.mechanisms:
                own: list[tuple[Any, ...]] = [getattr(self, key) for key in own_fields(name)]
                lists = (clips, self.noise_multiplier, *own, self.learning_rate, self.steps)
                keys = ("clip", "noise_multiplier", *own_fields(name), "learning_rate", "steps")
                for values in itertools.product(*lists):
                    yield SweepSetting(name, clip_kind=kind, **dict(zip(keys, values, strict=True)))

    def _fair(self) -> Iterator[SweepSetting]:
        for kind, name in itertools.product(self.fair.clips, self.mechanisms):
            for point in self.fair.points(kind):
                yield searched_setting(name, kind, point, self.levels[0])


def searched_setting(mechanism: str, kind: str, point: dict[str, float], levels: int = 17) -> SweepSetting:
    """The setting at a point of a fair search; a law without a bound, or without levels, leaves it out.

    >>> searched_setting("sign", "clamp", FairSearch(settings=1).points()[0]).bound is None
    True
    """
    sigma = point["clip"] * point["noise_multiplier"]
    own: dict[str, Any] = {"bound": short(point["bound_over_sigma"] * sigma), "levels": levels}
    return SweepSetting(
        mechanism,
        point["clip"],
        point["noise_multiplier"],
        point["learning_rate"],
        round(point["steps"]),
        **{key: own[key] for key in own_fields(mechanism)},
        clip_kind=kind,
    )


def digest(value: Any) -> str:
    """The SHA-256 of plain data, in hexadecimal digits.

    >>> digest({"a": 1, "b": 2.0}) == digest({"b": 2.0, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
