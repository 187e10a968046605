"""Comparisons of made-up sweeps whose answer is known: yes, no, worse, never."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.comparison.comparison import Comparison, ComparisonRow, compare
from experiments.comparison.frontier import CLAMPED, by_clip
from experiments.sweep.probes import SweepRow
from experiments.sweep.settings import SweepSetting, label

SEEDS = (0, 1, 2)


def sweep(
    mechanism: str,
    factor: float,
    count: int = 40,
    best: float = 0.9,
    noise: float = 0.0,
    validated: bool = True,
) -> list[SweepRow]:
    """Settings of accuracy a cost factor * 10 a^2; test accuracy is one point lower."""
    rng, rows = np.random.default_rng(count), []
    for i in range(count):
        accuracy = best * (i + 1) / count
        setting = SweepSetting(mechanism, 0.1, 1.0 + i, 1.0, 5)
        for seed in SEEDS:
            own = accuracy + (seed - 1) * 0.004
            epsilon = factor * 10 * accuracy**2 * float(np.exp(noise * rng.normal()))
            rows.append(
                SweepRow(
                    "toy",
                    label(mechanism),
                    setting,
                    seed,
                    1e-5,
                    validation_accuracy=own if validated else None,
                    test_accuracy=own - 0.01,
                    epsilon_pdp=epsilon,
                    epsilon_ex_post=2 * epsilon,
                    epsilon_data_independent=10 * accuracy**2 * 0.9,
                )
            )
    return rows


def at(result: Comparison, mechanism: str, target: float) -> ComparisonRow:
    [row] = [r for r in result.rows if r.mechanism == mechanism and r.target == pytest.approx(target)]
    return row


def test_laws_are_compared_under_one_clip() -> None:
    clamped = sweep("gaussian", 1.0) + sweep("truncated", 2.0)
    shorter = [
        replace(row, setting=replace(row.setting, clip_kind="norm"), mechanism=f"{row.mechanism}, L2 clip")
        for row in sweep("gaussian", 0.1) + sweep("truncated", 0.05)
    ]
    each = [compare(rows) for rows in by_clip(clamped + shorter)]
    assert [one.data for one in each] == ["toy", "toy, L2 clip"]
    assert [one.helped for one in each] == [False, True]
    assert each[0].sentence == compare(clamped).sentence


def test_half_the_epsilon_is_found_as_half() -> None:
    result = compare(sweep("gaussian", 1.0) + sweep("truncated", 0.5))
    assert result.helped
    assert result.sentence.startswith(
        "Yes, on toy bounded support helped: at equal accuracy truncated took 0.50"
    )
    assert "the cost of tuning is not in epsilon" in result.sentence
    assert "45 % to 90 %" in result.sentence
    assert result.sentence.count(".") == result.sentence.count("0.") + 1  # one sentence
    assert result.warnings == ()
    row = at(result, "truncated", 0.45)
    # the smallest setting that reaches 45 % is the 20th of 40, at exactly 45 %
    assert row.epsilon == pytest.approx(0.5 * 10 * 0.45**2)
    assert row.gaussian_epsilon == pytest.approx(10 * 0.45**2)
    assert row.ratio == pytest.approx(0.5)
    assert row.ratio_low is not None
    assert row.ratio_high is not None
    assert row.ratio_low < 0.5 < row.ratio_high < 1
    assert row.test_accuracy == pytest.approx(0.44)
    assert row.setting is not None
    assert row.setting.noise_multiplier == 20
    assert at(result, "Gaussian", 0.45).ratio == 1.0


def test_a_small_gain_in_much_noise_is_not_called_one() -> None:
    result = compare(
        sweep("gaussian", 1.0, count=12, noise=1.0) + sweep("truncated", 0.95, count=12, noise=1.0)
    )
    assert not result.helped


def test_targets_that_one_never_reaches_are_shown_as_such() -> None:
    result = compare(sweep("gaussian", 1.0, best=0.9) + sweep("truncated", 0.5, best=0.6))
    missed = at(result, "truncated", 0.75)
    assert (missed.epsilon, missed.ratio, missed.test_accuracy, missed.setting) == (None, None, None, None)
    assert missed.gaussian_epsilon is not None
    assert not result.helped  # it misses most of the targets that count
    assert "truncated took infinitely many" in result.sentence
    other = compare(sweep("gaussian", 1.0, best=0.5) + sweep("truncated", 0.5, best=0.9))
    ahead = at(other, "truncated", 0.75)
    assert ahead.epsilon is not None
    assert (ahead.gaussian_epsilon, ahead.ratio) == (None, None)
    assert other.helped


def test_the_clamp_alone_is_told_apart_from_bounded_support() -> None:
    rows = [replace(row, gaussian_epsilon_pdp=2 * (row.epsilon_pdp or 0)) for row in sweep("rectified", 0.3)]
    result = compare(sweep("gaussian", 1.0) + rows)
    assert result.helped
    assert at(result, "rectified", 0.45).ratio == pytest.approx(0.3)
    assert at(result, CLAMPED, 0.45).ratio == pytest.approx(0.6)
    assert "rectified took 0.30" in result.sentence
    assert "where the Gaussian clamped afterwards, a change that is free, took 0.60" in result.sentence
    assert result.warnings == ()
    # the clamp alone never counts as help
    useless = [replace(row, epsilon_pdp=9.0 * (row.epsilon_pdp or 0)) for row in rows]
    assert not compare(sweep("gaussian", 1.0) + useless).helped


def test_choosing_on_validation_is_not_choosing_on_test() -> None:
    result = compare(sweep("gaussian", 1.0, validated=False) + sweep("truncated", 0.5, validated=False))
    assert not result.validated
    assert "chosen by the test split itself" in result.sentence
    assert any("which is then too high" in warning for warning in result.warnings)
    row = at(result, "truncated", 0.45)
    assert row.test_accuracy is not None
    assert row.test_accuracy >= 0.45


def test_the_band_is_the_same_with_the_same_generator() -> None:
    rows = sweep("gaussian", 1.0, noise=0.5) + sweep("truncated", 0.5, noise=0.5)
    one, two = (compare(rows, generator=np.random.default_rng(3)) for _ in range(2))
    assert one == two
    assert one != compare(rows, generator=np.random.default_rng(4))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "rows must be of one data set, got none"),
        (
            [*sweep("gaussian", 1.0, 1), replace(sweep("gaussian", 1.0, 1)[0], data="b")],
            {},
            "of one data set",
        ),
        (sweep("truncated", 1.0, 1), {}, "must hold finished settings of the Gaussian"),
        (sweep("gaussian", 1.0, 1), {"kind": "best"}, "kind must be one of .*, got 'best'"),
        (sweep("gaussian", 1.0, 1, best=0.02), {}, r"no mechanism reaches the first target 0.05"),
        ([replace(sweep("gaussian", 1.0, 1)[0], error="x")], {}, "got none without an error"),
        (
            [replace(sweep("gaussian", 1.0, 1)[0], epsilon_pdp=None)],
            {},
            "must have epsilon_pdp, one has none",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(rows: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(rows, **options)
