"""What may be published of a sweep: epsilons that hold for every dataset, and what they do not cover."""

from collections.abc import Sequence

from experiments.comparison.winner import Candidate, Winner
from ringfence.numerics.rounding import rounded_up
from ringfence.report.content import Section, Table


def publishable_section(winners: Sequence[Winner]) -> Section:
    """Data-independent epsilons at three accuracies, with the choice of settings named as not charged.

    Guarantee: every epsilon in it is that of a run, holds for every dataset and is computed from public
    settings alone. What depends on the data is which runs reach which accuracy: that decides which epsilons
    and accuracies are shown, and their order. It is in no epsilon, and the section says so, with the number
    of runs.

    >>> section = publishable_section([Winner("toy", (0.5,), 0.5, "Gaussian", (), "", runs=12, delta=1e-5)])
    >>> section.text[0][:73]
    'toy, delta 1e-05: 12 runs were made, and which of them reach an accuracy '
    """
    return Section(
        "What may be published",
        lead="Each epsilon is differential privacy of one training run, for every dataset. "
        "The choice of its settings is not charged.",
        text=tuple(map(_uncharged, winners)),
        tables=tuple(map(_table, winners)),
    )


def _uncharged(winner: Winner) -> str:
    return (
        f"{winner.data}, delta {winner.delta:g}: {winner.runs:,} runs were made, and which of them reach an "
        f"accuracy was read off {winner.chosen_on}. If these data are private, this choice is a release of "
        "its own, and neither it nor the other runs are in the epsilons below: say so wherever you print "
        "them. rf.tune makes the choice privately, at one epsilon for everything. The number of records and "
        "the classes count as public."
    )


def _table(winner: Winner) -> Table:
    places = winner.three()
    own = [one for one in winner.candidates if not one.per_instance]
    return Table(
        f"{winner.data}: data-independent epsilon by accuracy, settings chosen without charge",
        ("clip", "law", *(f"{100 * winner.targets[place]:.0f} %" for place in places)),
        tuple((clip_name(one), one.law, *epsilons(one, places)) for one in own),
    )


def clip_name(candidate: Candidate) -> str:
    """What the column of clips says.

    >>> clip_name(Candidate("sign, per-instance", "clamp", (), (), (1.0, 1.0, 1.0)))
    'clamp'
    """
    return "L2" if candidate.clip == "norm" else candidate.clip


def epsilons(candidate: Candidate, places: Sequence[int]) -> tuple[str, ...]:
    """The epsilons at these targets, rounded up; "never" where no setting reaches a target.

    >>> epsilons(Candidate("sign, per-instance", "clamp", (0.12345, None), (), (1.0, 1.0, 1.0)), [0, 1])
    ('0.124', 'never')
    """
    found = (candidate.epsilon[place] for place in places)
    return tuple("never" if epsilon is None else rounded_up(epsilon, 3) for epsilon in found)
