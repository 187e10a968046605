"""Which settings get a closer look: those of a comparison, evenly spread, at an accuracy in common."""

from ringfence.experiments.chosen_settings import frontier_settings, settings_at_equal_accuracy
from ringfence.experiments.comparison import CLAMPED, Comparison, ComparisonRow
from ringfence.experiments.sweep_settings import SweepSetting


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


def test_the_frontier_starts_where_targets_count_and_is_spread_evenly() -> None:
    comparison = _comparison(("Gaussian", "gaussian", 20), ("rectified", "rectified", 12))
    found = frontier_settings(comparison, most=4)
    assert [one.noise_multiplier for one in found if one.mechanism == "gaussian"] == [19, 22, 26, 29]
    assert [one.noise_multiplier for one in found if one.mechanism == "rectified"] == [19, 20, 21]
    assert [one.noise_multiplier for one in frontier_settings(comparison, most=1)] == [29, 21]


def test_a_setting_that_serves_several_targets_stands_once() -> None:
    comparison = _comparison(("Gaussian", "gaussian", 20))
    same = _comparison(("Gaussian", "gaussian", 20)).rows * 2
    assert frontier_settings(comparison) == frontier_settings(
        Comparison("toy", "per-instance", same, False, "", (), True, 0.5)
    )


def test_the_clamped_gaussian_is_no_run_of_its_own() -> None:
    comparison = _comparison(("Gaussian", "gaussian", 20), (CLAMPED, "rectified", 20))
    assert {one.mechanism for one in frontier_settings(comparison)} == {"gaussian"}
    assert set(settings_at_equal_accuracy(comparison)[1]) == {"Gaussian"}


def test_equal_accuracy_is_a_little_below_where_the_last_one_arrives() -> None:
    comparison = _comparison(("Gaussian", "gaussian", 20), ("rectified", "rectified", 12))
    target, chosen = settings_at_equal_accuracy(comparison)
    assert abs(target - 0.5) < 1e-12  # 0.6 is the last in common, 0.51 its share
    assert chosen == {"Gaussian": _setting("gaussian", 19.0), "rectified": _setting("rectified", 19.0)}


def test_without_anything_in_common_there_is_nothing() -> None:
    assert settings_at_equal_accuracy(_comparison(("Gaussian", "gaussian", 0))) == (0.0, {})
