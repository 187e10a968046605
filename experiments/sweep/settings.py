"""The settings of a sweep: every combination of lists, or a fair search.

A grid is a TOML table (docs/files.md); ``grids.toml`` beside this file holds those of the paper.
"""

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from ringfence import checks
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clamp, Clip, Norm

Search = Literal["paper", "fair"]
GRIDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("grids.toml").read_text())
_CLIPS: dict[str, Callable[[float], Clip]] = {"clamp": Clamp, "norm": Norm}
# The dimensions of a search, and for each kind of clip the field with its range: an L2 clip has ranges of its
# own for what is measured by the clip.
_RANGES = {
    "clamp": ("clip", "noise_multiplier", "bound_over_sigma", "learning_rate", "steps"),
    "norm": ("norm", "norm_noise_multiplier", "bound_over_sigma", "norm_learning_rate", "steps"),
}
_WORDS = {str: "text", int: "an integer", float: "a number"}


def label(mechanism: str) -> str:
    """Name of a mechanism in rows and charts."""
    return Mechanism.known()[mechanism].label


def own_fields(mechanism: str) -> tuple[str, ...]:
    """Names of the arguments that a mechanism takes beside sigma."""
    return tuple(name for name in Mechanism.known()[mechanism].fields() if name != "sigma")


@dataclass(frozen=True)
class SweepSetting:
    """How a model is trained, without its seed. sigma is ``noise_multiplier`` times ``clip``.

    ``clip_kind`` says what ``clip`` bounds: every coordinate of a gradient (``clamp``) or its L2 norm
    (``norm``).
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
        """Name of what is compared: the mechanism, and the clip where it is not the paper's."""
        return label(self.mechanism) + ("" if self.clip_kind == "clamp" else ", L2 clip")

    @property
    def sigma(self) -> float:
        return self.noise_multiplier * self.clip

    @property
    def law(self) -> Mechanism:
        return Mechanism.by_name(self.mechanism, sigma=self.sigma, bound=self.bound, levels=self.levels)

    @property
    def gradient_clip(self) -> Clip:
        return _CLIPS[self.clip_kind](self.clip)

    @property
    def key(self) -> str:
        """A name that equal settings share in every sweep and on every machine."""
        own = asdict(self)
        if self.clip_kind == "clamp":  # the name that these settings had before there were other clips
            del own["clip_kind"]
        return digest(own)[:32]

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: by clip and mechanism, then by the numbers."""
        numbers = (self.clip, self.noise_multiplier, self.learning_rate, self.steps)
        return (self.clip_kind, self.mechanism, *numbers, self.bound or 0.0, self.levels or 0.0)

    def __str__(self) -> str:
        words = ("mechanism", "clip_kind")
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in words}
        shown = (f"{name} {value:g}" for name, value in given.items() if value is not None)
        return f"{self.label}, {', '.join(shown)}".replace("_", " ")


Job = tuple[SweepSetting, int]  # a setting and a seed


def job_seed(job: Job, use: str | None = None) -> int:
    """A seed that belongs to one job, and to one use of it, whatever else a sweep tries."""
    setting, seed = job
    return int(digest([setting.key, seed, *([] if use is None else [use])])[:15], 16)


@dataclass(frozen=True)
class FairSearch:
    """The same number of settings for every clip and mechanism, quasi-random over log-uniform ranges.

    The points are Sobol's, scrambled by ``seed``, and every mechanism gets the same ones; a mechanism without
    a bound ignores that dimension. ``clips`` are the kinds of clip that are tried. The L2 clip (``norm``) has
    ranges of its own for what is measured by the clip: its points are the same places in these ranges.
    ``validation`` is the share of the training split that is kept back to choose settings by.
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
        if not self.clips or len(set(self.clips)) < len(self.clips) or set(self.clips) - set(_CLIPS):
            raise ValueError(f"clips must be among {', '.join(_CLIPS)}, each once, got {list(self.clips)}")
        checks.count("seed", self.seed, at_least=0)
        checks.probability("validation", self.validation)
        for name in (*_RANGES["clamp"], *_RANGES["norm"]):
            low, high = getattr(self, name)
            if not 0 < low < high < math.inf:
                raise ValueError(f"{name} must be a range (low, high) with 0 < low < high, got {(low, high)}")
        if self.steps[0] < 1:
            raise ValueError(f"steps must start at 1 or more, got {self.steps[0]}")

    def ranges(self, clip: str = "clamp") -> dict[str, tuple[float, float]]:
        """The low and the high end of every dimension, for one kind of clip."""
        return {name: getattr(self, own) for name, own in zip(_RANGES["clamp"], _RANGES[clip], strict=True)}

    def points(self, clip: str = "clamp") -> list[dict[str, float]]:
        """The points, rounded to four digits: nobody tunes finer, and machines then agree to the bit."""
        ranges = self.ranges(clip)
        engine = torch.quasirandom.SobolEngine(len(ranges), scramble=True, seed=self.seed)
        places = engine.draw(self.settings, dtype=torch.float64).tolist()
        return [
            {
                name: min(max(_short(low * (high / low) ** at), low), high)
                for (name, (low, high)), at in zip(ranges.items(), place, strict=True)
            }
            for place in places
        ]


@dataclass(frozen=True)
class Grid:
    """A sweep of linear probes: what is tried on one data set, with which seeds, at which delta.

    ``bound`` is absolute, as in the paper; mechanisms without a bound leave it out. Features are shifted by
    ``center`` and divided by ``scale``, two constants.
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
        for key, least in (("steps", 1), ("levels", 2), ("seeds", 0)):
            for count in getattr(self, key):
                checks.count(key, count, at_least=least)
        checks.probability("delta", self.delta)
        checks.count("classes", 2 if self.classes is None else self.classes, at_least=2)
        checks.finite("center", self.center or 0.0)
        checks.positive("scale", 1.0 if self.scale is None else self.scale)

    def settings(self, search: Search) -> list[SweepSetting]:
        """The settings: every combination of the lists, or those of the fair search."""
        if search not in ("paper", "fair"):
            raise ValueError(f"search must be paper or fair, got {search!r}")
        if search == "fair" and len(self.seeds) < 3:
            raise ValueError(f"seeds must be at least three for a fair search, got {list(self.seeds)}")
        if search == "fair":
            kinds = itertools.product(self.fair.clips, self.mechanisms)
            return [
                searched_setting(name, kind, point, self.levels[0])
                for kind, name in kinds
                for point in self.fair.points(kind)
            ]
        found = []
        for name in self.mechanisms:
            keys = ("clip", "noise_multiplier", *own_fields(name), "learning_rate", "steps")
            for values in itertools.product(*(getattr(self, key) for key in keys)):
                found.append(SweepSetting(name, **dict(zip(keys, values, strict=True))))
        return found

    def jobs(self, search: Search) -> list[Job]:
        """Every setting with every seed; settings whose releases are alike are neighbours."""
        return [(setting, seed) for setting in self.settings(search) for seed in self.seeds]


def searched_setting(mechanism: str, kind: str, point: dict[str, float], levels: int = 17) -> SweepSetting:
    """The setting at a point of a fair search; a mechanism without a bound or levels leaves them out."""
    sigma = point["clip"] * point["noise_multiplier"]
    own: dict[str, Any] = {"bound": _short(point["bound_over_sigma"] * sigma), "levels": levels}
    return SweepSetting(
        mechanism,
        point["clip"],
        point["noise_multiplier"],
        point["learning_rate"],
        round(point["steps"]),
        **{key: own[key] for key in own_fields(mechanism)},
        clip_kind=kind,
    )


def read_grid(grid: str | Path) -> Grid:
    """Reads a grid, given the name of one in ``grids.toml`` or the path of a TOML file."""
    if grid in GRIDS:
        return _from_table(str(grid), GRIDS[str(grid)])
    path = Path(grid)
    if not path.suffix:
        raise ValueError(f"grid must be a TOML file or one of {', '.join(GRIDS)}, got {str(grid)!r}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested without end
        raise ValueError(f"{path} is not TOML: {error}") from None
    return _from_table(str(path), content)


def _from_table(source: str, content: dict[str, Any]) -> Grid:
    tables = {name: content.get(name, {}) for name in ("data", "paper", "fair")}
    try:
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ValueError(f"{name} must be a table, got {table!r}")
        top = {key: value for key, value in content.items() if key not in tables}
        fair = FairSearch(**_typed(FairSearch, tables["fair"]))
        return Grid(**_typed(Grid, top | tables["data"] | tables["paper"]), fair=fair)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{source}: {error}") from None


def _typed(kind: type, table: dict[str, Any]) -> dict[str, Any]:
    """The values of a TOML table as the fields of a dataclass have them; errors name the key."""
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "fair"}
    for key in table:
        if key not in hints:
            raise ValueError(f"{key} is not known; known are {', '.join(hints)}")
    return {key: _value(key, value, hints[key]) for key, value in table.items()}


def _value(key: str, value: Any, hint: Any) -> Any:
    first, *others = get_args(hint) or (hint,)
    if get_origin(hint) is tuple:
        if not isinstance(value, list) or (others != [...] and len(value) != 2):
            wanted = "a list" if others == [...] else "[low, high]"
            raise ValueError(f"{key} must be {wanted}, got {value!r}")
        return tuple(_value(key, item, first) for item in value)
    if first is float and type(value) is int:
        return float(value)
    if type(value) is not first:
        raise ValueError(f"{key} must be {_WORDS[first]}, got {value!r}")
    return value


def digest(value: Any) -> str:
    """The SHA-256 of plain data, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _short(value: float) -> float:
    """Four digits of a number."""
    return float(f"{value:.4g}")
