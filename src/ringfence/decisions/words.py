"""Sentences that the statements of several jobs share."""

from ringfence.decisions.account import ReleaseAccount
from ringfence.numerics.rounding import rounded_up


def target(epsilon: float | None, account: ReleaseAccount) -> str:
    """The privacy of a release in brackets: the target that it meets, or what it costs for every dataset."""
    shown = account.epsilon if epsilon is None else epsilon
    return f"epsilon {rounded_up(shown)}, delta {account.delta:.3g}"


def one_person(rows_are: str) -> str:
    """Who is protected, where rows are "rows", rows of "persons", or counts that were "aggregated" before.

    >>> one_person("rows")
    'person (each row is taken as one person)'
    """
    return "person (each row is taken as one person)" if rows_are == "rows" else "person"


def people_bounded(rows_are: str, at_most: int, cell: str) -> str:
    """How it was made sure, or by whom it must be, that one person moves at most so many numbers.

    >>> people_bounded("persons", 2, "cell")
    'Each person counts in at most 2 cells, once in each: which ones depends on the rows of that person alone.'
    """
    cells = f"{cell}s" if at_most > 1 else cell
    return {
        "rows": "Each row is taken as one person: whoever has several rows is protected less.",
        "persons": f"Each person counts in at most {at_most} {cells}, once in each: which ones depends on the "
        "rows of that person alone.",
        "aggregated": f"The counts came aggregated: whoever made them must have let each person count in at "
        f"most {at_most} {cells}, once in each.",
    }[rows_are]


def attack(account: ReleaseAccount, person: str) -> str:
    """What the privacy of a release means to somebody who wants to know whether a person is in the data."""
    found = rounded_up(min(100.0, 100 * account.guarantee.true_positive_rate(1e-3)))
    return (
        f"For every dataset, the release satisfies ({rounded_up(account.epsilon)}, {account.delta:.3g})-"
        f"differential privacy for any one {person} added or removed: whoever tries to tell from it whether "
        f"somebody is in the data, and accepts one false alarm in 1,000, finds at most {found} % of those who "
        "are, even knowing everybody else."
    )


def rehearsal(seeded: bool) -> str:
    """What a public sentence must add where the noise came from a source that can be repeated.

    >>> rehearsal(False)
    ''
    """
    return " The noise can be repeated by whoever knows its seed: this is a rehearsal." if seeded else ""
