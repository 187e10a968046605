"""Which setting of a sweep is looked at closely: one that a comparison chose, the same for every law."""

from dataclasses import replace

from experiments.comparison.comparison import Comparison
from experiments.comparison.frontier import CLAMPED
from experiments.sweep.settings import SweepSetting


def like_for_like(comparison: Comparison, share: float = 0.85) -> tuple[float, dict[str, SweepSetting]]:
    """A target accuracy, and for every law the same setting, with which they are compared there.

    Each law has chosen a setting at the target: that of its smallest epsilon. Of these choices the one with
    the widest bound, relative to sigma, is used for all laws, because all of them can learn with it; clip,
    noise, bound, learning rate and steps are then the same, and only the laws differ. The target is the
    largest one up to ``share`` of the highest accuracy that every law reaches: at the very end of a frontier
    a single setting would stand for a whole law. (0, {}) where the laws have no target in common.

    >>> like_for_like(Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5))
    (0.0, {})
    """
    found: dict[str, dict[float, SweepSetting]] = {}
    for row in comparison.rows:
        if row.setting is not None and row.mechanism != CLAMPED:  # its runs are the rectified law's
            found.setdefault(row.mechanism, {})[row.target] = row.setting
    common = sorted(set.intersection(*map(set, found.values()))) if found else []
    if not common:
        return 0.0, {}
    target = max((one for one in common if one <= share * common[-1]), default=common[0])
    own = {name: settings[target] for name, settings in found.items()}
    base = max(own.values(), key=lambda setting: (setting.bound or 0.0) / setting.sigma)
    return target, {
        name: replace(
            base,
            mechanism=setting.mechanism,
            bound=None if setting.bound is None else base.bound,
            levels=setting.levels,
        )
        for name, setting in own.items()
    }
