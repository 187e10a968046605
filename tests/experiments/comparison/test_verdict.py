"""What a comparison says: no as readily as yes, and what to beware of."""

from dataclasses import replace

from experiments.comparison.comparison import compare
from tests.experiments.comparison.test_comparison import sweep


def test_no_is_said_as_readily() -> None:
    same = compare(sweep("gaussian", 1.0) + sweep("truncated", 1.0))
    assert not same.helped
    assert same.sentence.startswith(
        "No, on toy bounded support did not help by more than this sweep can tell"
    )
    worse = compare(sweep("gaussian", 1.0) + sweep("truncated", 3.0))
    assert not worse.helped
    assert worse.sentence.startswith(
        "No, on toy bounded support made it worse: at equal accuracy truncated took 3.00"
    )


def test_yes_is_said_of_each_law_whose_band_excludes_one_and_of_no_other() -> None:
    both = compare(sweep("gaussian", 1.0) + sweep("truncated", 0.5) + sweep("rectified", 1.0))
    assert both.helped_by == ["truncated"]
    assert both.sentence.startswith(
        "Yes, on toy truncated helped; no, rectified did not by more than luck: at"
    )


def test_warnings_of_unequal_search_errors_and_unfinished_settings() -> None:
    rows = sweep("gaussian", 1.0, count=8) + sweep("truncated", 0.5, count=40)
    result = compare(rows)
    assert "different numbers of settings (Gaussian 8, truncated 40)" in result.warnings[0]
    rows[0] = replace(rows[0], error="ValueError: no", epsilon_pdp=None)
    result = compare(rows)
    assert "1 of 144 runs ended with an error and count as not tried." in result.warnings
    assert "1 settings are left out: not every seed of theirs is finished." in result.warnings
    assert any(
        "Fewer than three seeds" in text for text in compare([r for r in rows if r.seed == 1]).warnings
    )
