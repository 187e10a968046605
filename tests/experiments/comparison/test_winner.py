"""Which clip, law and statement take the least: yes only where the whole band is below 1."""

from dataclasses import replace

import pytest

from experiments.comparison.winner import Winner, winner
from experiments.sweep.probes import SweepRow
from tests.experiments.comparison.test_comparison import sweep


def rows(law: str, factor: float, clip: str = "clamp", everyone: float = 1.0) -> list[SweepRow]:
    """A sweep whose per-instance epsilons are ``factor`` times those of the toy, the others ``everyone``."""
    result = []
    for row in sweep(law, 1.0):
        setting = replace(row.setting, clip_kind=clip)
        epsilon = row.epsilon_pdp or 0.0
        own = {"epsilon_pdp": factor * epsilon, "epsilon_data_independent": everyone * epsilon}
        result.append(replace(row, setting=setting, mechanism=setting.label, **own))
    return result


def ratios(result: Winner) -> dict[str, float]:
    return {one.name: one.ratio[0] for one in result.candidates}


def test_the_reference_is_the_usual_way_to_train() -> None:
    result = winner(rows("gaussian", 2.0, everyone=2.0) + rows("gaussian", 1.0, "norm"))
    assert result.reference == "Gaussian, L2 clip, data-independent"
    assert ratios(result)["Gaussian, data-independent"] == pytest.approx(2.0)
    assert result.candidates[0].name == result.reference
    assert result.sentence.startswith("On toy nothing takes less than Gaussian, L2 clip, data-independent")


def test_a_per_instance_epsilon_wins_where_its_whole_band_is_below_the_reference() -> None:
    result = winner(rows("gaussian", 1.0, "norm") + rows("sign", 0.2, "norm"))
    assert result.sentence.startswith("On toy sign, L2 clip, per-instance takes the least: 0.20")
    assert "must not be published" in result.sentence
    # a per-instance epsilon is never above the one that holds for every dataset
    larger = winner(rows("gaussian", 3.0, "norm"))
    assert ratios(larger)["Gaussian, L2 clip, per-instance"] == pytest.approx(1.0)


def test_luck_is_called_luck() -> None:
    result = winner(rows("gaussian", 1.0, "norm") + rows("sign", 0.97, "norm"))
    assert "by more than this sweep can tell from luck" in result.sentence


def test_the_other_clip_is_named_and_what_never_arrives_says_so() -> None:
    short = [replace(row, validation_accuracy=0.3, test_accuracy=0.3) for row in rows("sign", 0.1)]
    usual = rows("gaussian", 1.0, "norm") + rows("truncated", 1.5, "norm", everyone=1.5)
    result = winner(usual + rows("gaussian", 4.0, everyone=4.0) + short)
    assert "with the other clip the best, Gaussian" in result.sentence
    [sign] = [one for one in result.candidates if one.name == "sign, per-instance"]
    assert sign.epsilon[-1] is None
    with pytest.raises(ValueError, match="Gaussian"):
        winner(short)
