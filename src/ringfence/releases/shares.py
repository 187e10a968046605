"""Shares: how many of those who answered a question gave each answer, for many questions at once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.ledger import Ledger
from ringfence.noise import Noise
from ringfence.releases.budget import Budget, NoiseKind, TableNoise, count_noise
from ringfence.releases.cells import Cells, Domain, Missing, open_cells, people_in, public_cells
from ringfence.releases.means import CLEAR, fieller, none_for_nan
from ringfence.releases.reader import Columns, Rows
from ringfence.releases.release import Measured, Release, ReleaseAccount, interval_bars

_UNITS = 1 << 10  # of counts
_COLUMNS = ("question", "answer", "share", "low", "high", "people", "suppressed", "standard_error")


def release_shares(
    data: Any,
    questions: Sequence[str | int],
    by: str | int | Sequence[str | int] | None = None,
    *,
    answers: Iterable[Any] | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    noise: NoiseKind = "auto",
    suppress_below: int | None = None,
    domain: Domain | None = None,
    bins: Domain | None = None,
    missing: Missing = "refuse",
    person: str | int | None = None,
    at_most: int = 1,
    coverage: float = 0.95,
    seed: int | Noise | None = None,
    ledger: Ledger | None = None,
    what: str | None = None,
) -> Release:
    """Releases the share of each answer among those who answered, for many ``questions`` at once.

    Each question is a column. Its public answers are those that ``domain`` lists for it, else ``answers``,
    and a column of booleans has its own; ``bins`` work too. A missing value is no answer and does not count,
    unless its answers contain None: then it is one of them. ``by``, ``person``, ``at_most``, ``epsilon``,
    ``delta``, ``sigma``, ``noise``, ``seed``, ``ledger`` and ``what`` are those of ``release_counts``: with
    ``by`` there are shares in every group, and a person counts in at most ``at_most`` cells of each question.

    Released are noisy counts of all answers. Those to one question add up to the noisy number of people who
    answered it: it is not released apart. A question that fewer than ``suppress_below`` people answered, by
    their noisy number, is not shown; left out, it is so large that a question that nobody answered is shown
    with a chance of at most about 6e-5.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    under the conditions of ``release_counts``: one person moves ``at_most`` counts of each question by 1. The
    intervals (Fieller 1954) allow for the noise in a count and in its sum: the chance that a share is shown
    with an interval that misses it is at most 1 - ``coverage``.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> answers = {"smokes": ["yes", "no", "no", "no"] * 500, "cycles": ["yes", "no", None, "no"] * 500}
    >>> people = DataFrame(answers)
    >>> shares = rf.release_shares(people, ["smokes", "cycles"], answers=["yes", "no"], epsilon=1.0)
    >>> list(shares.values.columns)
    ['question', 'answer', 'share', 'low', 'high', 'people', 'suppressed']
    >>> bool((shares.values["share"] - [1 / 4, 3 / 4, 1 / 3, 2 / 3]).abs().max() < 0.03)
    True
    """
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what, noise)
    threshold = None if suppress_below is None else checks.count("suppress_below", suppress_below, at_least=1)
    coverage = checks.probability("coverage", coverage)
    names = [str(name) for name in checks.listed("questions", questions)]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"questions must name at least one column, and each once, got {names}")
    listed = None if answers is None else checks.listed("answers", answers)
    keys, counts = [], []
    described = (None, None) if by is None else (domain, bins)
    opened = open_cells(data, by, *described, _COLUMNS, missing, person, at_most)
    with opened as (rows, groups, source, most):
        for name in names:
            cells = question_cells(rows, groups, name, listed, domain, bins)
            own = dict(cells.columns)
            said = own.pop(name)
            keys.append({**own, "question": [name] * len(said), "answer": said})
            counts.append(people_in(rows, cells, person, most).view(groups.count, -1))
    sizes = [people.shape[1] for people in counts]
    used = count_noise(budget, most * len(names), _UNITS)
    least = threshold or clear(used, max(sizes))
    flat = torch.cat([people.flatten() for people in counts])
    promised = used.loss(flat, most * len(names))
    measured = partial(Measured, promised, (), {"counts": flat.tolist()})
    account = budget.charge(ReleaseAccount(promised, budget.delta, measured), "release_shares")
    noisy = used.draw(budget, flat * _UNITS, "answers").split([people.numel() for people in counts])
    parts = [
        shares_of(drawn.view(-1, size), used, least, coverage)
        for drawn, size in zip(noisy, sizes, strict=True)
    ]
    released: dict[str, list[Any]] = {
        name: [value for part in parts for value in part[name]]
        for name in ("share", "low", "high", "people", "suppressed")
    }
    errors = [value for part in parts for value in part["standard_error"]]
    columns: Columns = {name: [value for own in keys for value in own[name]] for name in keys[0]}
    return replace(source, keys=columns).release(
        account,
        budget,
        "Shares",
        released,
        errors,
        interval_bars("share", "share of those who answered", released, columns, coverage),
        (
            ("noise of a count", f"{used.name}, standard deviation {used.deviation:.6g}"),
            ("threshold", f"{least} answers"),
            ("questions", f"{len(names):,}"),
            ("cells of one person", f"at most {most} of each question"),
        ),
        units="cells of every question",
        method=f"{used.name} noise with a standard deviation of {used.deviation:.3g} was added to the "
        f"number of people who gave each answer, and questions with a noisy number of answers below "
        f"{least} are not shown",
        public="Questions, answers, noise and threshold",
        coverage=coverage,
        leaves_out=("A share is one of the people in the data who answered.",),
    )


def question_cells(
    rows: Rows, groups: Cells, question: str, answers: Sequence[Any] | None, domain: Any, bins: Any
) -> Cells:
    """The cells of groups and public answers to one question; rows without an answer are left out.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[1.0], [np.nan]])) as rows:
    ...     cells = question_cells(rows, public_cells(rows, None), "0", [0, 1], None, None)
    ...     people_in(rows, cells, None, 1).tolist()
    [0, 1]
    """
    if question in groups.columns:
        raise ValueError(f"questions must not name the column {question!r}, which by names")
    column = rows.column("questions", question)
    named, edges = (
        {str(name): values for name, values in own.items() if str(name) == question}
        if isinstance(own, Mapping)
        else {}
        for own in (domain, bins)
    )
    if answers is not None and not named and not edges:
        named = {question: answers}
    own = column.type().is_boolean() and not rows.text
    if not named and not edges and not own:
        raise ValueError(
            f"answers= or domain= must list the public answers of column {question!r}: taken from the data "
            "they would give away which of them occur"
        )
    [axis] = public_cells(rows, question, named or None, edges or None, missing="drop").axes
    if len(axis.values) < 2:
        raise ValueError(f"column {question!r} must have at least 2 public answers, got {[*axis.values]}")
    axis = axis if edges else replace(axis, argument="answers")
    return Cells((*groups.axes, axis), groups.missing)


def clear(used: TableNoise, answers: int) -> int:
    """The threshold where none is given: so many people that a question without answers is hardly shown."""
    unlikely = 1 - 2 * NormalDist().cdf(-CLEAR)
    far = used.deviations(unlikely, answers - 1) * used.deviation * math.sqrt(answers)
    return max(1, math.ceil(far + 0.5))


def shares_of(noisy: Tensor, used: TableNoise, least: int, coverage: float) -> dict[str, list[Any]]:
    """Shares, intervals and errors of noisy counts, (groups, answers), one after the other.

    A count less its part 1 / answers of the sum has noise that is not correlated with that of the sum, so
    that ``fieller`` tells which shares fit both: share - 1 / answers is their ratio.

    >>> from ringfence.releases.budget import GaussianNoise
    >>> found = shares_of(torch.tensor([[30.0, 70.0]]), GaussianNoise(2.0), 9, 0.95)
    >>> [[round(value, 3) for value in found[name]] for name in ("share", "low", "high", "standard_error")]
    [[0.3, 0.7], [0.269, 0.671], [0.329, 0.731], [0.015, 0.015]]
    """
    answers = noisy.shape[1]
    size = noisy.sum(dim=1, keepdim=True)
    size = torch.where(size < least - 0.5, math.nan, size).expand_as(noisy)
    even = 1 / answers
    share = (noisy / size).clamp(0, 1)
    sigma, size_sigma = used.deviation * math.sqrt(1 - even), used.deviation * math.sqrt(answers)
    ends = fieller(noisy - size * even, size, sigma, size_sigma, used.deviations(coverage, answers - 1))
    low, high = (none_for_nan((end + even).clamp(0, 1).flatten()) for end in ends)
    error = torch.sqrt((1 - share) ** 2 + (answers - 1) * share**2) * used.deviation / size
    people = [None if value is None else round(value) for value in none_for_nan(size.flatten())]
    return {
        "share": none_for_nan(share.flatten()),
        "low": low,
        "high": high,
        "people": people,
        "suppressed": [value is None for value in people],
        "standard_error": none_for_nan(error.flatten()),
    }
