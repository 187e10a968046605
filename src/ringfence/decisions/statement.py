"""What may be said about a release: first the sentence to print under it, last what is not to be printed."""

from dataclasses import dataclass, replace
from typing import Literal

from ringfence.decisions.account import ReleaseAccount
from ringfence.numerics.rounding import rounded_up

# What a row of the data is: a person, one of several rows of a person, or a count that was made before.
RowsAre = Literal["rows", "persons", "aggregated"]


@dataclass(frozen=True)
class Statement:
    """The words that belong to a release, in the order in which a reader needs them.

    ``public`` is the one sentence to print under the table. ``promises`` and ``leaves_out`` may be published
    too. ``sensitive`` is computed from the data and must not be published.

    >>> said = Statement("Noise was added.", ("One person.",), ("Two people.",), ("Epsilon was 0.3.",))
    >>> print(said.publishable)
    Noise was added.
    <BLANKLINE>
    What this promises
    - One person.
    <BLANKLINE>
    What this does not promise
    - Two people.
    >>> "0.3" in said.publishable, "0.3" in str(said)
    (False, True)
    """

    public: str
    promises: tuple[str, ...]
    leaves_out: tuple[str, ...]
    sensitive: tuple[str, ...]

    @property
    def publishable(self) -> str:
        """Everything but the sensitive part."""
        return "\n\n".join(
            (
                self.public,
                _under("What this promises", self.promises),
                _under("What this does not promise", self.leaves_out),
            )
        )

    def with_sentence(self, sentence: str) -> "Statement":
        """The same with one more public sentence, about what was done to the release afterwards.

        >>> Statement("Noise was added.", (), (), ()).with_sentence("Negative counts were set to 0.").public
        'Noise was added. Negative counts were set to 0.'
        """
        return replace(self, public=f"{self.public} {sentence}")

    def __str__(self) -> str:
        private = _under("Sensitive: computed from the data, do not publish", self.sensitive)
        return f"{self.publishable}\n\n{private}"


def _under(heading: str, sentences: tuple[str, ...]) -> str:
    return "\n".join((heading, *(f"- {sentence}" for sentence in sentences)))


def target(epsilon: float | None, account: ReleaseAccount) -> str:
    """The privacy of a release in brackets: the target that it meets, or what it costs for every dataset."""
    shown = account.epsilon if epsilon is None else epsilon
    return f"epsilon {rounded_up(shown)}, delta {account.delta:.3g}"


def one_person(rows_are: RowsAre) -> str:
    """Who is protected.

    >>> one_person("rows")
    'person (each row is taken as one person)'
    """
    return "person (each row is taken as one person)" if rows_are == "rows" else "person"


def people_bounded(rows_are: RowsAre, at_most: int, cell: str) -> str:
    """How it was made sure, or by whom it must be, that one person moves at most so many numbers.

    >>> people_bounded("persons", 2, "cell")
    'Each person counts in at most 2 cells, once in each: which ones depends on that person alone.'
    """
    cells = f"{cell}s" if at_most > 1 else cell
    return {
        "rows": "Each row is taken as one person: whoever has several rows is protected less.",
        "persons": f"Each person counts in at most {at_most} {cells}, once in each: which ones depends on "
        "that person alone.",
        "aggregated": f"The counts came aggregated: whoever made them must have let each person count in at "
        f"most {at_most} {cells}, once in each.",
    }[rows_are]


def attack(account: ReleaseAccount, person: str, replaced: bool = False) -> str:
    """What the privacy of a release means to somebody who wants to know something about one person.

    ``replaced`` is whether the values of a person are protected, and not that the person takes part.
    """
    found = rounded_up(min(100.0, 100 * account.guarantee.true_positive_rate(1e-3)))
    change = "whose values are replaced by any others" if replaced else "added or removed"
    about = (
        f"which of two values somebody has, and takes one for the other in one case of 1,000, finds at most "
        f"{found} % of those who have the other"
        if replaced
        else f"whether somebody is in the data, and accepts one false alarm in 1,000, finds at most {found} "
        "% of those who are"
    )
    return (
        f"For every dataset, the release satisfies ({rounded_up(account.epsilon)}, {account.delta:.3g})-"
        f"differential privacy for any one {person} {change}: whoever tries to tell from it {about}, even "
        "knowing everybody else."
    )


def rehearsal(seeded: bool) -> str:
    """What a public sentence must add where the noise came from a source that can be repeated.

    >>> rehearsal(False)
    ''
    """
    return " The noise can be repeated by whoever knows its seed: this is a rehearsal." if seeded else ""
