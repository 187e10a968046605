"""Comparisons of made-up sweeps whose answer is known: yes, no, worse, never."""

from typing import Any

import numpy as np
import pytest

from experiments import comparison
from experiments.comparison import CLAMPED, Candidate, Comparison, Tried, band, median, ratios
from experiments.sweep.probes import frame_of
from experiments.sweep.settings import SweepSetting

Rows = list[dict[str, Any]]


def sweep(
    mechanism: str,
    factor: float,
    count: int = 40,
    best: float = 0.9,
    noise: float = 0.0,
    validated: bool = True,
    clip: str = "clamp",
    everyone: float = 0.9,
) -> Rows:
    """Settings of accuracy a cost factor * 10 a^2, and everyone * 10 a^2 for every dataset.

    Test accuracy is one point lower.
    """
    rng, rows = np.random.default_rng(count), []
    for i in range(count):
        accuracy = best * (i + 1) / count
        setting = SweepSetting(mechanism, 0.1, 1.0 + i, 1.0, 5, clip_kind=clip)
        for seed in (0, 1, 2):
            own = accuracy + (seed - 1) * 0.004
            epsilon = factor * 10 * accuracy**2 * float(np.exp(noise * rng.normal()))
            rows.append(
                {
                    "setting": setting,
                    "seed": seed,
                    "validation_accuracy": own if validated else None,
                    "test_accuracy": own - 0.01,
                    "epsilon_pdp": epsilon,
                    "epsilon_ex_post": 2 * epsilon,
                    "epsilon_data_independent": everyone * 10 * accuracy**2,
                }
            )
    return rows


def compare(rows: Rows, *, classes: int | None = None, **options: Any) -> list[Comparison]:
    return comparison.compare(frame_of(rows, "toy", 1e-5, classes), **options)


def compare_all(rows: Rows, *, classes: int | None = None, **options: Any) -> Comparison:
    return comparison.compare_all(frame_of(rows, "toy", 1e-5, classes), **options)


def only(rows: Rows, **options: Any) -> Comparison:
    [result] = compare(rows, **options)
    return result


def of(result: Comparison, law: str, statement: str | None = None, clip: str | None = None) -> Candidate:
    [one] = [
        one
        for one in result.candidates
        if one.law == law and statement in (None, one.statement) and clip in (None, one.clip)
    ]
    return one


def test_laws_are_compared_under_one_clip() -> None:
    clamped = sweep("gaussian", 1.0) + sweep("truncated", 2.0)
    shorter = sweep("gaussian", 0.1, clip="norm") + sweep("truncated", 0.05, clip="norm")
    each = compare(clamped + shorter)
    assert [one.name for one in each] == ["toy", "toy, L2 clip"]
    assert [of(one, "truncated").helped for one in each] == [False, True]
    assert each[0] == only(clamped)


def test_half_the_epsilon_is_found_as_half() -> None:
    result = only(sweep("gaussian", 1.0) + sweep("truncated", 0.5))
    truncated = of(result, "truncated")
    assert truncated.times[0] == pytest.approx(0.5)
    assert truncated.helped
    assert (result.targets[0], result.targets[-1]) == (0.45, 0.9)
    assert result.warnings == ()
    point = truncated.at(0.45)
    # the smallest setting that reaches 45 % is the 20th of 40, at exactly 45 %
    assert point.epsilon == pytest.approx(0.5 * 10 * 0.45**2)
    assert point.test_accuracy == pytest.approx(0.44)
    assert point.setting.noise_multiplier == 20
    ratio, low, high = point.ratio
    assert ratio == pytest.approx(0.5)
    assert low < 0.5 < high < 1
    assert result.reference.at(0.45).epsilon == pytest.approx(10 * 0.45**2)
    assert result.reference.times == (1.0, 1.0, 1.0)


def test_a_small_gain_in_much_noise_is_not_called_one() -> None:
    noisy = {"count": 12, "noise": 1.0}
    assert not of(
        only(sweep("gaussian", 1.0, **noisy) + sweep("truncated", 0.95, **noisy)), "truncated"
    ).helped


def test_targets_that_one_never_reaches_are_shown_as_such() -> None:
    result = only(sweep("gaussian", 1.0, best=0.9) + sweep("truncated", 0.5, best=0.6))
    truncated = of(result, "truncated")
    assert truncated.at(0.75) is None
    assert truncated.times[0] == np.inf  # it misses most of the targets that count
    other = only(sweep("gaussian", 1.0, best=0.5) + sweep("truncated", 0.5, best=0.9))
    ahead = of(other, "truncated")
    assert ahead.at(0.75).ratio is None
    assert ahead.helped


def test_the_clamp_alone_is_told_apart_from_bounded_support() -> None:
    rows = [row | {"gaussian_epsilon_pdp": 2 * row["epsilon_pdp"]} for row in sweep("rectified", 0.3)]
    result = only(sweep("gaussian", 1.0) + rows)
    assert of(result, "rectified").at(0.45).ratio[0] == pytest.approx(0.3)
    assert of(result, CLAMPED).at(0.45).ratio[0] == pytest.approx(0.6)
    assert [one.law for one in result.bounded] == ["rectified"]  # the clamp alone never counts as help
    assert result.warnings == ()


def test_choosing_on_validation_is_not_choosing_on_test() -> None:
    result = only(sweep("gaussian", 1.0, validated=False) + sweep("truncated", 0.5, validated=False))
    assert not result.validated
    assert any("which is then too high" in warning for warning in result.warnings)
    assert of(result, "truncated").at(0.45).test_accuracy >= 0.45


def test_the_largest_epsilon_of_the_seeds_counts() -> None:
    rows = [row | {"epsilon_pdp": 1.0 + row["seed"]} for row in sweep("gaussian", 1.0, count=1, best=0.5)]
    assert only(rows).reference.at(0.5).epsilon == 3.0


@pytest.mark.parametrize(
    ("kind", "epsilon", "ratio"),
    # for every dataset both cost 0.9 here, which is less than the Gaussian's Rényi number
    [
        ("per-instance", 0.5, 0.5),
        ("ex-post", 1.0, 0.5),
        ("data-independent", 0.9, 1.0),
        ("tightest", 0.5, 0.5 / 0.9),
    ],
)
def test_kinds_of_epsilon(kind: Any, epsilon: float, ratio: float) -> None:
    truncated = of(only(sweep("gaussian", 1.0) + sweep("truncated", 0.5), kind=kind), "truncated")
    assert truncated.at(0.45).epsilon == pytest.approx(epsilon * 10 * 0.45**2)
    assert truncated.times[0] == pytest.approx(ratio)


def test_a_lucky_seed_does_not_reach_a_target_but_the_mean_does() -> None:
    rows = sweep("gaussian", 1.0, count=1, best=0.5)
    assert only(rows, step=0.01).reference.at(0.5) is not None
    lucky = [row | {"validation_accuracy": 0.5 + (0.3 if row["seed"] == 0 else -0.2)} for row in rows]
    assert only(lucky, step=0.01).targets[-1] == pytest.approx(0.46)


def test_targets_at_or_below_chance_do_not_count_where_the_number_of_classes_is_known() -> None:
    rows = sweep("gaussian", 1.0) + sweep("truncated", 0.5)
    assert only(rows).targets[0] == 0.45  # half of the best
    assert only(rows, classes=2).targets[0] == compare_all(rows, classes=2, resamples=20).targets[0] == 0.55
    assert only(rows, classes=1).targets[0] == 0.45  # nothing is above chance


def test_warnings_of_unequal_search_errors_and_unfinished_settings() -> None:
    rows = sweep("gaussian", 1.0, count=8) + sweep("truncated", 0.5, count=40)
    assert "different numbers of settings (Gaussian 8, truncated 40)" in only(rows).warnings[0]
    rows[0] |= {"error": "ValueError: no", "epsilon_pdp": None}
    warnings = only(rows).warnings
    assert "1 of 144 runs ended with an error and count as not tried." in warnings
    assert "1 settings are left out: not every seed of theirs is finished." in warnings
    one_seed = only([row for row in rows if row["seed"] == 1]).warnings
    assert any("Fewer than three seeds" in text for text in one_seed)


ONE = sweep("gaussian", 1.0, 1)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "rows must be those of a sweep, got none"),
        (sweep("truncated", 1.0, 1), {}, "must hold finished settings of the Gaussian"),
        (ONE, {"kind": "best"}, "kind must be one of .*, got 'best'"),
        (sweep("gaussian", 1.0, 1, best=0.02), {}, r"no mechanism reaches the first target 0.05"),
        ([ONE[0] | {"error": "x"}], {}, "got none without an error"),
        ([ONE[0] | {"epsilon_pdp": None}], {}, "must have epsilon_pdp, one has none"),
    ],
)
def test_what_cannot_be_compared_is_refused(rows: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(rows, **options)


def test_the_reference_is_the_usual_way_to_train() -> None:
    usual = sweep("gaussian", 1.0, clip="norm", everyone=1.0)
    result = compare_all(sweep("gaussian", 2.0, everyone=2.0) + usual)
    assert (result.reference.clip, result.reference.statement) == ("norm", "data-independent")
    assert result.candidates[0] == result.reference
    assert of(result, "Gaussian", "data-independent", "clamp").times[0] == pytest.approx(2.0)
    # a per-instance epsilon is never above the one that holds for every dataset
    larger = compare_all(sweep("gaussian", 3.0, clip="norm", everyone=1.0))
    assert of(larger, "Gaussian", "per-instance").times[0] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="Gaussian"):
        compare_all(sweep("sign", 1.0))


def test_a_per_instance_epsilon_wins_where_its_whole_band_is_below_the_reference() -> None:
    usual = sweep("gaussian", 1.0, clip="norm", everyone=1.0)
    best, *_ = compare_all(usual + sweep("sign", 0.2, clip="norm", everyone=1.0)).candidates
    assert (best.law, best.statement, best.helped) == ("sign", "per-instance", True)
    lucky, *_ = compare_all(usual + sweep("sign", 0.97, clip="norm", everyone=1.0)).candidates
    assert (lucky.law, lucky.helped) == ("sign", False)


def test_neither_arrives_and_both_are_free() -> None:
    found = ratios(np.array([np.inf, 0.0]), np.array([np.inf, 0.0]))
    assert np.isnan(found[0])
    assert found[1] == 1.0


def test_more_candidates_widen_the_band_whose_ends_were_seen() -> None:
    draws = np.random.default_rng(0).lognormal(size=(4000, 1))
    one, many = (median(np.ones(1), draws, count) for count in (1, 10))
    assert one[0] == many[0] == 1.0
    assert many[1] < one[1] < 1 < one[2] < many[2]
    assert one[1] == pytest.approx(np.exp(-1.96), rel=0.1)
    assert band(np.array([1.0, 2.0, np.nan, np.inf])) == (1.0, np.inf)


def test_a_resample_draws_settings_and_seeds() -> None:
    epsilon = np.array([[1.0, 3.0], [2.0, 2.0]])
    one = Tried([None, None], np.ones((2, 2)), np.ones((2, 2)), epsilon)  # type: ignore[list-item]
    drawn = one.resampled(np.array([0.5]), 200, np.random.default_rng(0))
    assert set(drawn.reshape(-1)) == {1.0, 2.0, 3.0}  # 1.0 where both seeds drawn are the lucky one
