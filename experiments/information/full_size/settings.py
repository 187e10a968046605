"""What Figure 4 tries at full size, in rounds: after each of them, every law has had as many settings."""

import math
from dataclasses import asdict, dataclass, replace

from experiments.sweep.fair_search import FairSearch
from experiments.sweep.settings import SweepSetting, digest, label, searched_setting
from ringfence import checks
from ringfence.training.clipping import Clamp, Clip, Norm

# What is compared: a law and a kind of clip. Ranges of either kind are as wide as those of the other.
METHODS = (("gaussian", "clamp"), ("rectified", "clamp"), ("truncated", "clamp"), ("gaussian", "norm"))
_RANGES = FairSearch(
    clip=(0.1, 1.0),
    noise_multiplier=(1.0, 10.0),
    bound_over_sigma=(0.3, 10.0),
    learning_rate=(2e-3, 5e-2),
    clips=("clamp", "norm"),
    norm=(0.5, 5.0),
    norm_noise_multiplier=(0.05, 0.5),
    norm_learning_rate=(2e-2, 0.5),
)


@dataclass(frozen=True)
class FullSizeSettings:
    """How networks are trained and measured. ``search`` has the ranges, and the part kept back to choose by.

    A learning rate of the search is divided by the clip: SGD with momentum takes it times the released sum
    over ``batch_size``, and it falls to 0 along a cosine. ``epochs`` are tried as a further dimension of the
    search. The first of ``seeds`` is that of the search; settings on a frontier are trained with the others
    as well. eta of ``examples`` training examples, picked by number alone, is measured at ``moments`` evenly
    spaced steps; the trace, and the paper's estimate of it, by ``probes`` random directions. Runs with a
    validation accuracy below ``least_accuracy`` are not measured, whatever their law.

    >>> settings = FullSizeSettings(epochs=(10,))
    >>> [one.label for one in settings.round(0, steps_per_epoch=225)]
    ['Gaussian', 'rectified', 'truncated', 'Gaussian, L2 clip']
    """

    search: FairSearch = _RANGES
    epochs: tuple[int, ...] = (10, 20)
    seeds: tuple[int, ...] = (0, 1, 2)
    model: str = "wrn-16-4"
    batch_size: int = 200
    momentum: float = 0.9
    examples: int = 1000
    moments: int = 2
    probes: int = 50
    least_accuracy: float = 0.5
    delta: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("batch_size", "examples", "moments", "probes"):
            checks.count(name, getattr(self, name), at_least=1)
        for name, least in (("epochs", 1), ("seeds", 0)):
            for count in getattr(self, name):
                checks.count(name, count, at_least=least)
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
        checks.probability("delta", self.delta)

    def round(self, number: int, steps_per_epoch: int) -> tuple[SweepSetting, ...]:
        """One setting per method: all at the same place of their ranges."""
        return self.rounds(number + 1, steps_per_epoch)[number]

    def rounds(self, count: int, steps_per_epoch: int) -> list[tuple[SweepSetting, ...]]:
        """The first ``count`` rounds, which do not depend on how many follow.

        Guarantee: in whole rounds, every method has had the same number of settings.
        """
        # a factor of 2 of this dimension for each number of epochs, so that all are as likely
        search = replace(self.search, settings=count, steps=(1.0, 2.0 ** len(self.epochs)))
        points = {kind: search.points(kind) for _, kind in METHODS}

        def setting(name: str, kind: str, number: int) -> SweepSetting:
            point = points[kind][number]
            epochs = self.epochs[min(int(math.log2(point["steps"])), len(self.epochs) - 1)]
            return replace(searched_setting(name, kind, point), steps=epochs * steps_per_epoch)

        return [tuple(setting(*method, number) for method in METHODS) for number in range(count)]

    def identity(self) -> str:
        """What rows must share to be compared; not how many rounds and seeds there are."""
        return digest(asdict(replace(self, search=replace(self.search, settings=1), seeds=self.seeds[:1])))


def clip_of(setting: SweepSetting) -> Clip:
    """The clip of a setting.

    >>> clip_of(SweepSetting("gaussian", 0.5, 2.0, learning_rate=8.0, steps=10, clip_kind="norm"))
    Norm(0.5)
    """
    return Norm(setting.clip) if setting.clip_kind == "norm" else Clamp(setting.clip)


def methods() -> tuple[str, ...]:
    """The names of what is compared.

    >>> methods()
    ('Gaussian', 'rectified', 'truncated', 'Gaussian, L2 clip')
    """
    return tuple(label(name) + ("" if kind == "clamp" else ", L2 clip") for name, kind in METHODS)
