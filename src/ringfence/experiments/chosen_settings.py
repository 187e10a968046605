"""Which settings of a sweep deserve a closer look: those that a comparison chose, at one accuracy."""

from collections.abc import Sequence

from ringfence.experiments.comparison import CLAMPED, Comparison, ComparisonRow
from ringfence.experiments.sweep_settings import SweepSetting


def settings_at_equal_accuracy(
    comparison: Comparison, share: float = 0.85
) -> tuple[float, dict[str, SweepSetting]]:
    """A target accuracy and, by mechanism, the setting of least epsilon that reaches it.

    The target is the largest one up to ``share`` of where every mechanism arrives: at the very end of
    a frontier single settings stand for a whole law. Empty where they have no target in common.
    """
    own = _by_mechanism(comparison.rows)
    found = {name: {row.target: row.setting for row in rows} for name, rows in own.items()}
    common = sorted(set.intersection(*(set(one) for one in found.values()))) if found else []
    if not common:
        return 0.0, {}
    target = max((one for one in common if one <= share * common[-1]), default=common[0])
    return target, {name: setting for name, one in found.items() if (setting := one[target]) is not None}


def _by_mechanism(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """Rows that arrive; the clamped Gaussian's runs are the rectified law's."""
    result: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        if row.setting is not None and row.mechanism != CLAMPED:
            result.setdefault(row.mechanism, []).append(row)
    return result
