"""Which setting gets a closer look: the same for every law, at an accuracy that all of them reach."""

from dataclasses import replace

from experiments.comparison.chosen_settings import like_for_like
from experiments.comparison.comparison import Comparison, ComparisonRow
from experiments.comparison.frontier import CLAMPED
from experiments.sweep.settings import SweepSetting


def _setting(mechanism: str, noise: float) -> SweepSetting:
    bound = None if mechanism == "gaussian" else 4.0
    return SweepSetting(mechanism, 0.1, noise, learning_rate=1.0, steps=5, bound=bound)


def _comparison(*reached: tuple[str, str, int]) -> Comparison:
    """Laws that reach so many targets, 5 % apart, each with a setting of its own there."""
    rows = [
        ComparisonRow(
            "toy", name, 0.05 * (i + 1), 1.0 if i < count else None, 1.0, None, None, None, None,
            _setting(kind, 10.0 + i) if i < count else None,
        )
        for name, kind, count in reached
        for i in range(20)
    ]  # fmt: skip
    return Comparison("toy", "per-instance", tuple(rows), False, "", (), True, counts_from=0.5)


def test_the_clamped_gaussian_is_no_run_of_its_own() -> None:
    comparison = _comparison(("Gaussian", "gaussian", 20), (CLAMPED, "rectified", 20))
    assert set(like_for_like(comparison)[1]) == {"Gaussian"}


def test_every_law_gets_the_setting_with_the_widest_bound_a_little_below_where_the_last_one_arrives() -> None:
    rows = _comparison(("Gaussian", "gaussian", 20), ("rectified", "rectified", 12)).rows
    quicker = [replace(row, setting=replace(row.setting, steps=9)) for row in rows if row.setting]
    kept = [row for row in quicker if row.mechanism == "rectified"]
    narrow = [
        replace(row, mechanism="truncated", setting=replace(row.setting, mechanism="truncated", bound=1.0))
        for row in kept
    ]
    mixed = (*(row for row in rows if row.mechanism == "Gaussian"), *narrow, *kept)
    comparison = Comparison("toy", "per-instance", mixed, False, "", (), True, counts_from=0.5)
    target, chosen = like_for_like(comparison)
    assert abs(target - 0.5) < 1e-12  # 0.6 is the last in common, 0.51 its share
    assert chosen == {
        "Gaussian": replace(_setting("gaussian", 19.0), steps=9),
        "truncated": replace(_setting("truncated", 19.0), steps=9),
        "rectified": replace(_setting("rectified", 19.0), steps=9),
    }


def test_without_anything_in_common_there_is_nothing() -> None:
    assert like_for_like(_comparison(("Gaussian", "gaussian", 0))) == (0.0, {})
