"""PATE: labels by a noisy vote of teachers, each of which learned from its own part of the private data."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence import checks
from ringfence.accounting.decision_publication import check_gain, publishable_decision_epsilon
from ringfence.accounting.guarantee import REPLACED, Guarantee
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.publication import PublishableEpsilon
from ringfence.data.features import read_array
from ringfence.mechanisms.winner import ConfidentWinner
from ringfence.noise import Noise
from ringfence.releases.ballots import Votes, read_choices, read_counts
from ringfence.releases.budget import Budget
from ringfence.releases.decisions import Poll, Words, account_of, announce, publishing_loss, winner_law
from ringfence.releases.reader import Columns, is_array, public_values
from ringfence.releases.release import Release, ReleaseAccount, Statement

_ONE_TEACHER = (
    "The records of one person are in the part of one teacher alone, and which part that is does not depend "
    "on other people."
)
_LABELS = Words(
    *("label", "labels", "class", "classes", "query", "queries"),
    (
        "By how many votes a class won is not released.",
        "The teachers and their votes are not protected: publish labels, or a student that learned from "
        "them, and no teacher. The queries, which the student learns from, are not protected either.",
    ),
)


class Pate:
    """Labels queries by a noisy vote of teachers, and adds up what all labels cost (PATE).

    Each teacher is a model that learned from a part of the private data, and no person's records are in two
    parts. The teachers vote on the class of each query, an example without a label, and a student learns from
    the winners (Papernot et al. 2018, arXiv 1802.08908). Teachers and student are models of any kind. What is
    protected is everything that one teacher learned from: one teacher's votes are replaced by any others.

    ``sigma`` is the noise of every count of votes. With ``threshold`` there is no answer where the largest
    count, with noise of its own (``threshold_sigma``, twice ``sigma`` if left out), is below it; both
    questions are charged. Instead of ``sigma`` give a target ``epsilon`` at ``delta``, which holds for every
    dataset, and the number of ``queries`` that are planned: the noise is found, and more queries are refused.
    With ``publish_epsilon`` it leaves room for one call of ``publish``.

    ``classes`` lists the public classes. Left out, they are the names of the columns of counts, or 0, 1, ...
    ``adaptive`` says that queries may be chosen by looking at earlier labels; only where all of them were
    fixed in advance, set it to False, and the per-instance epsilon is the tight one of all queries together.
    ``ledger`` is charged for each call beforehand, in entries called ``what``, and must be one of replaced
    records. ``seed`` is for tests.

    Guarantee: (epsilon, delta)-differential privacy of all labels together, for every dataset and any one
    teacher's votes replaced, also where queries are chosen by looking at earlier labels. Every call draws
    noise of its own, exactly (``NoisyWinner``, ``ConfidentWinner``). An error releases nothing, but its
    message may contain values of the data.

    >>> import ringfence as rf
    >>> pate = rf.Pate(sigma=20.0, threshold=170, threshold_sigma=10.0)
    >>> pate.label([[246, 3, 1], [2, 5, 243]]).tolist()  # 250 teachers, two queries, three classes
    [0, 2]
    >>> pate.label([[90, 85, 75]]).tolist(), pate.guarantee(delta=1e-5).steps  # -1 is no answer
    ([-1], 3)
    """

    def __init__(
        self,
        sigma: float | None = None,
        threshold: float | None = None,
        threshold_sigma: float | None = None,
        *,
        epsilon: float | None = None,
        delta: float = 1e-6,
        queries: int | None = None,
        classes: Iterable[Any] | None = None,
        adaptive: bool = True,
        publish_epsilon: bool = False,
        seed: int | Noise | None = None,
        ledger: Ledger | None = None,
        what: str | None = None,
    ) -> None:
        budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what)
        self._poll = Poll.checked(budget, "replaced", None, publish_epsilon)
        if (queries is None) != (epsilon is None):
            raise ValueError(
                f"epsilon and the planned queries must be given together, got epsilon={epsilon!r} and "
                f"queries={queries!r}"
            )
        self.queries = None if queries is None else checks.count("queries", queries, at_least=1)
        self.adaptive = checks.flag("adaptive", adaptive)
        self.classes = None if classes is None else _checked_classes(classes)
        self.law = winner_law(self._poll, self.queries or 1, threshold, threshold_sigma, "threshold")
        if publish_epsilon and self.queries is not None:
            check_gain(self.law, self.queries, "replaced", budget.delta)
        self._calls: list[Tensor] = []  # the counts of each call of ``label``
        self._answers: list[int] = []
        self._published: list[PublishableEpsilon] = []

    def label(self, votes: Any = None, *, predictions: Any = None) -> NDArray[Any]:
        """One label for each query, decided with noise: an array of classes.

        ``votes`` are counts of teachers, a row per query and a column per class. Or ``predictions`` are the
        classes that the teachers predict, a row per teacher and a column per query; they need ``classes``.
        Both are arrays (predictions of any labels), tensors, frames or CSV and parquet files. No answer is -1
        where classes are integers, and None in an array of objects otherwise.

        >>> import ringfence as rf
        >>> teachers = np.array([["cat", "fox"]] * 240 + [["dog", "fox"]] * 10)
        >>> rf.Pate(sigma=20.0, classes=["cat", "dog", "fox"]).label(predictions=teachers).tolist()
        ['cat', 'fox']
        """
        return self._label(read_teachers(votes, predictions, self.classes))

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """The claim of all labels so far, and of what was published about them, at the constructor's delta
        unless another one is given.

        ``epsilon`` is the promise. ``per_instance`` is sensitive: its ``ex_post_epsilon`` holds also where
        queries were chosen by looking at earlier labels. Its ``epsilon`` is then that of every dataset, and
        with ``adaptive=False`` the tight one of these votes.
        """
        return replace(self._account(delta).guarantee, assumptions=(_ONE_TEACHER,))

    def cost(self) -> PrivacyLoss:
        """The loss of all labels so far and of what was published, for every dataset: what a ledger takes."""
        return self._account(None).promised if self._calls else PrivacyLoss()

    def publish(self, delta: float | None = None, *, failure_probability: float = 1e-3) -> PublishableEpsilon:
        """The per-instance epsilon of all labels so far with noise of its own: it may be published.

        Every call is a further release: its cost is in the result, in the account and in the ledger. With a
        target there is room for one call, and only with ``publish_epsilon``. See
        ``publishable_decision_epsilon``.
        """
        budget, account = self._poll.budget, self._account(delta)
        if budget.epsilon is not None and (self._published or not self._poll.publish):
            raise ValueError(
                "publish must be called once, and with publish_epsilon=True, where epsilon is a target, got "
                f"publish_epsilon={self._poll.publish} and {len(self._published)} earlier calls"
            )
        found = publishable_decision_epsilon(
            self.law,
            torch.cat(self._calls),
            neighbours="replaced",
            delta=account.delta,
            failure_probability=failure_probability,
        )
        # drawn, and charged before anybody sees it
        loss = publishing_loss(found.publishing_zcdp, REPLACED)
        replace(budget, ledger=None).charge(self._account(None).plus(loss), "Pate")  # which is the target
        if budget.ledger is not None:
            budget.ledger.charge(f"{budget.what or 'Pate'}.publish", loss)
        self._published.append(found)
        return found

    def release(self) -> Release:
        """All labels so far as the result of a job: a table, its account, statement, chart and files."""
        account = self._account(None)
        counts, classes = torch.cat(self._calls), self.classes or ()
        votes = Votes(list(range(1, len(counts) + 1)), classes, counts, "teachers")
        said = tuple(number.statement for number in self._published)
        like = partial(_last_column, classes)
        return announce(self.law, votes, list(self._answers), account, self._poll, said, like, _LABELS)

    @property
    def statement(self) -> Statement:
        """The promise of all labels so far and its limits, in plain English; it may be published."""
        return self.release().statement

    def __repr__(self) -> str:
        return f"Pate({self.law!r}, adaptive={self.adaptive}, labels={len(self._answers)})"

    def _label(self, votes: Votes) -> NDArray[Any]:
        """The labels of votes that were read.

        Guarantee: the ledger is charged, and the account has the votes, before noise is drawn. The number of
        the call is part of the place of its noise: on equal votes two calls with the same noise would always
        give the same labels, and a neighbour, whose votes differ in one of them, would not.
        """
        self._check(votes)
        self._poll.budget.charge(self._account(None, votes.counts), "Pate.label")
        self.classes = votes.choices
        self._calls.append(votes.counts)
        drawn = self._poll.decide(self.law, votes, f"labels {len(self._calls)}")
        self._answers += drawn
        names = (*votes.choices, None)
        return _last_column(votes.choices, {"label": [names[number] for number in drawn]})

    def _check(self, votes: Votes) -> None:
        """Raises an error where these votes do not fit the classes, the teachers or the queries so far."""
        if self.classes not in (None, votes.choices):
            raise ValueError(f"votes must be of the classes {self.classes}, got {votes.choices}")
        teachers = torch.cat((*self._calls[:1], votes.counts)).sum(dim=1)
        for number, own in enumerate(teachers[-len(votes.counts) :].tolist(), 1):
            if own != teachers[0]:
                raise ValueError(
                    "every teacher must vote once on every query: votes must have as many in each row, got "
                    f"{teachers[0]:g} and, in row {number}, {own:g}"
                )
        if not teachers[0]:
            raise ValueError("votes must be of at least 1 teacher, got none")
        if isinstance(self.law, ConfidentWinner) and self.law.threshold > teachers[0]:
            raise ValueError(
                f"threshold must be at most the number of teachers, {teachers[0]:g}, got "
                f"{self.law.threshold:g}"
            )
        asked = len(self._answers) + len(votes.queries)
        if self.queries is not None and asked > self.queries:
            raise ValueError(
                f"votes must have the {self.queries} planned queries at most, got {asked} in all"
            )

    def _account(self, delta: float | None, counts: Tensor | None = None) -> ReleaseAccount:
        """The account of these queries, or else of all so far and of what was published about them."""
        if counts is None and not self._calls:
            raise ValueError("label must be called before there is something to account for")
        account = account_of(
            self.law,
            torch.cat(self._calls) if counts is None else counts,
            neighbours="replaced",
            at_most=None,
            delta=self._poll.budget.delta if delta is None else checks.probability("delta", delta),
            adaptive=self.adaptive,
        )
        for number in self._published if counts is None else ():
            account = account.plus(publishing_loss(number.publishing_zcdp, REPLACED))
        return account


def release_labels(
    files: list[str],
    *,
    classes: Iterable[Any] | None = None,
    sigma: float | None = None,
    threshold: float | None = None,
    threshold_sigma: float | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    publish_epsilon: bool = False,
    ledger: Ledger | None = None,
    what: str | None = None,
) -> Release:
    """Labels the queries of a .npy file, or of CSV or parquet files: ``Pate.label``, once.

    The files hold counts or, where ``classes`` are given, predictions, which are compared as text.
    """
    data: Any = files
    if any(Path(name).suffix == ".npy" for name in files):
        if len(files) > 1:
            raise ValueError(f"a .npy file must be the only one, got {', '.join(map(str, files))}")
        data = read_array(Path(files[0]))
        data = data if classes is None else data.astype(str)
    votes = read_teachers(data, None, None) if classes is None else read_teachers(None, data, classes)
    pate = Pate(
        *(sigma, threshold, threshold_sigma),
        epsilon=epsilon,
        delta=delta,
        queries=None if epsilon is None else len(votes.queries),
        adaptive=False,
        publish_epsilon=publish_epsilon,
        ledger=ledger,
        what=what,
    )
    pate._label(votes)
    if publish_epsilon:
        pate.publish()
    return pate.release()


def read_teachers(votes: Any, predictions: Any, classes: Iterable[Any] | None) -> Votes:
    """Reads counts of teachers, or their predictions.

    >>> read_teachers([[5, 0], [2, 3]], None, ["cat", "dog"]).choices
    ('cat', 'dog')
    >>> read_teachers(None, np.array([[7, 8], [7, 7]]), [7, 8]).counts.tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    if (votes is None) == (predictions is None):
        got = "neither" if votes is None else "both"
        raise ValueError(f"votes or predictions must be given, and not both, got {got}")
    if predictions is not None:
        if classes is None:
            raise ValueError("classes must be given where teachers' predictions are, got None")
        return read_choices(predictions, "classes", classes)
    read, named = read_counts(votes, None, ()), not is_array(votes)
    columns = read.choices if named else tuple(range(len(read.choices)))
    given = columns if classes is None else tuple(classes)
    if len(given) != len(columns) or (named and tuple(map(str, given)) != columns):
        raise ValueError(f"votes must have a column for each of the classes {given}, got {columns}")
    return replace(read, choices=given)


def _checked_classes(classes: Iterable[Any]) -> tuple[Any, ...]:
    """Two or more classes, none of them -1 or None, which are no answer."""
    values = tuple(public_values("classes", classes, text=False).values())
    if len(values) < 2 or not {-1, None}.isdisjoint(values):
        raise ValueError(f"classes must be at least 2 values, neither -1 nor None, got {values}")
    return values


def _last_column(classes: tuple[Any, ...], columns: Columns) -> NDArray[Any]:
    """The last column of a table as an array: labels, or the chances that they are wrong.

    Where all classes are integers -1 stands for None.

    >>> _last_column((1, 2), {"label": [2, None]}), _last_column(("a", "b"), {"label": ["a", None]})
    (array([ 2, -1]), array(['a', None], dtype=object))
    """
    *_, (name, last) = columns.items()
    if name != "label":
        return np.array(last)
    if all(isinstance(one, int) and not isinstance(one, bool) for one in classes):
        return np.array([-1 if value is None else value for value in last], dtype=np.int64)
    return np.array(last, dtype=object)
