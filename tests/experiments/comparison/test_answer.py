"""The answer of a sweep: at most 30 words, and yes only of a law whose band excludes 1."""

import pytest

from experiments.comparison.answer import answer, difference
from experiments.comparison.comparison import Comparison
from experiments.comparison.ratios import Banded
from experiments.comparison.winner import Candidate, Winner

YES, LUCK, WORSE = (0.5, 0.4, 0.6), (0.5, 0.2, 1.9), (2.0, 1.5, 3.0)


def compared(clip: str, *bands: Banded, validated: bool = True) -> Comparison:
    names = ("rectified", "truncated", "sign", "quantised")
    medians = (*zip(names, bands, strict=False), ("Gaussian, clamped", YES))
    return Comparison("toy", "per-instance", (), True, "", (), validated, 0.5, clip=clip, medians=medians)


def best(ratio: Banded) -> Winner:
    first = Candidate("quantised, L2 clip, data-independent", "norm", (), (), ratio)
    return Winner("toy", (), 0.5, "Gaussian, L2 clip, data-independent", (first,), "")


def test_yes_is_said_law_by_law_and_clip_by_clip() -> None:
    said = answer([compared("clamp", YES, LUCK), compared("norm", LUCK, WORSE)], best(LUCK))
    assert said == (
        "Yes for rectified with clamped coordinates, no otherwise; nothing reliably beat the Gaussian with "
        "the L2 clip."
    )
    assert answer([compared("norm", YES, YES)], best(YES)) == (
        "Yes for every bounded law with the L2 clip; the least epsilon is quantised with the L2 clip, "
        "data-independent."
    )
    assert answer([compared("norm", LUCK)], best(LUCK)).startswith("No, no bounded law took less")
    assert answer([compared("norm")], best(LUCK)) == "Nothing was compared: only the Gaussian was tried."


@pytest.mark.parametrize("clamp", [(YES, YES, LUCK, LUCK), (YES,) * 4, (YES, YES, YES, LUCK), (LUCK,) * 4])
@pytest.mark.parametrize("norm", [(LUCK, YES, YES, WORSE), (YES,) * 4, (LUCK,) * 4])
@pytest.mark.parametrize("ratio", [YES, LUCK])
def test_it_has_at_most_thirty_words(
    clamp: tuple[Banded, ...], norm: tuple[Banded, ...], ratio: Banded
) -> None:
    said = answer([compared("clamp", *clamp), compared("norm", *norm)], best(ratio))
    assert len(said.split()) <= 30, said
    assert said.count(".") == 1


def test_a_yes_says_why_the_readme_says_no() -> None:
    assert difference([compared("clamp", LUCK), compared("norm", WORSE)]) == ""
    assert "badly conditioned" in difference([compared("clamp", YES), compared("norm", YES)])
    assert "other seeds" in difference([compared("clamp", LUCK), compared("norm", YES)])
    assert "--search fair" in difference([compared("clamp", YES, validated=False)])
