"""Which setting of a sweep deserves a closer look: one that a comparison chose, for every law alike."""

from dataclasses import replace

from ringfence.paper.comparison.comparison import CLAMPED, Comparison
from ringfence.paper.sweep.settings import SweepSetting


def like_for_like(comparison: Comparison, share: float = 0.85) -> tuple[float, dict[str, SweepSetting]]:
    """A target accuracy, and one setting for every law: that of least epsilon there with the widest bound.

    Clip, noise, bound, learning rate and steps are the same for all, so that only the laws differ; of the
    laws' own choices the one with the widest bound, over sigma, because all of them can learn with it.
    The target is the largest one up to ``share`` of where every law arrives: at the very end of a
    frontier single settings stand for a whole law. Empty where they have no target in common.
    """
    found: dict[str, dict[float, SweepSetting]] = {}
    for row in comparison.rows:
        if row.setting is not None and row.mechanism != CLAMPED:  # whose runs are the rectified law's
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
