"""A ledger of releases of any kind: each is written down before it is made, and all are one claim.

The entries are privacy losses, which add up whatever made them. A row is appended to a table, which threads,
processes and machines may share, before anything is released, and only if all that was charged stays within
the budget. So a crash can cost budget and never hides a release. Afterwards an entry may be settled: what the
releases did cost the data at hand takes the place of what was planned, and the budget stays as it was
charged.
"""

import math
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.calibration import smallest_sigma
from ringfence.accounting.guarantee import REPLACED, Guarantee
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import HasPrivacyLoss, PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.files.shared_table import Record, SharedTable, first_bytes, located
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import rounded_up

_VERSION = 2  # 1 was a journal
_FAINT = 1e6  # the noise of a release that is next to nothing
_NEW = {"epsilon": None, "delta": 1e-6, "neighbours": "added", "planned": False}


class BudgetExceededError(ValueError):
    """A release would cost more than is left in a ledger: nothing was released."""


@dataclass(frozen=True)
class Entry:
    """One line of a ledger: what is released, in words, and what it costs.

    Of training, ``run`` is the run and ``until`` the number of its releases that are charged, or of its
    epochs where examples are allocated to batches at random.
    """

    what: str
    cost: PrivacyLoss
    run: str | None = None
    until: int = 0


class Ledger:
    """Several releases from the same data, one claim, and a budget that is not exceeded.

    ``release`` makes a release of a mechanism, ``fit`` trains a ``LinearProbe``, ``train`` reserves the steps
    of a ``PrivacyEngine``, and the jobs of tables and votes take ``ledger=``. ``charge`` is for everything
    else: an account, a ``PrivacyLoss``, or a pair (epsilon, delta) of another library.

    ``url`` is a database, sqlite:///study.db or postgresql://user@server/database, which threads, processes
    and machines may share, and which goes on where it ended, also after a crash; it is as private as the
    data. ``path`` is the file of SQLite alone, and without both the ledger is in memory. A new database needs
    ``epsilon``, infinite where costs are only added up; of one that is there, what is left out stays as it
    is, and what is given must be the same. A new ledger has delta = 1e-6 and ``neighbours`` "added", which
    protects that a record is there; "replaced" protects only what it says, and releases that protect the
    first are charged twice. A ledger is not copied or pickled: open the same URL.

    Guarantee: a release is charged, and written to the database where there is one, before it is made; its
    arguments are checked before it is charged, and one that fails afterwards stays charged. What would exceed
    the budget is refused before anything is released. All that the ledger lets through, in all threads and
    processes, is (epsilon, delta)-differentially private, also where releases are chosen by looking at
    earlier ones. Releases of samples, and pairs, have no such bound: they are refused, unless ``planned``
    says that no release is chosen by looking at others. ``guarantee`` says what was spent so far.

    >>> import ringfence as rf
    >>> with rf.Ledger(epsilon=1.0, delta=1e-5) as ledger:
    ...     noisy = ledger.release(rf.Gaussian(10.0), [120, 44], rf.Sensitivity(each=1.0, at_most=1))
    ...     table = rf.release_counts([120, 44], sigma=10.0, ledger=ledger)
    >>> [entry.what for entry in ledger.entries], round(ledger.guarantee().epsilon, 3)
    (['release of 2 numbers', 'release_counts'], 0.497)
    """

    def __init__(
        self,
        url: str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        neighbours: Literal["added", "replaced"] | None = None,
        planned: bool | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        given: Record = {"kind": "Ledger", "version": _VERSION}
        if epsilon is not None:
            endless = isinstance(epsilon, float) and epsilon == math.inf
            given["epsilon"] = None if endless else checks.number("epsilon", epsilon, checks.positive)
        if delta is not None:
            given["delta"] = checks.probability_or_zero("delta", delta)
        if neighbours is not None:
            given["neighbours"] = checks.one_of("neighbours", neighbours, ("added", "replaced"))
        if planned is not None:
            given["planned"] = checks.flag("planned", planned)
        if None not in (url, path):
            raise ValueError(f"url or path must be given, and not both, got path={path!r}")
        place = None if path is None else checks.path("path", path)
        if url is not None:
            place = located(checks.instance("url", url, str))
        begin: list[Record] | None = None
        if place is None or epsilon is not None:
            begin = [{"run": secrets.token_hex(16), **_NEW, **given}]
        if isinstance(place, Path) and place.exists() and first_bytes(place) not in (b"", b"SQLite"):
            raise ValueError(
                f"{place} is no database: a ledger of version 0.6 is a text of records. Finish with that "
                "version, or charge a new ledger with the pair (epsilon, delta) that it claims"
            )
        self._entries: list[Entry] = []
        self._charged = PrivacyLoss()  # of all entries, as they were charged
        self._header: Record = {}
        self._closed = False
        self._table = SharedTable(place, begin, self._take)
        for name, ours in given.items():
            if self._header.get(name) != ours:
                raise ValueError(f"{place} is a ledger with {name} {self._header.get(name)!r}, not {ours!r}")
        self.epsilon: float | None = self._header["epsilon"]
        self.delta: float = self._header["delta"]
        self.neighbours: Literal["added", "replaced"] = self._header["neighbours"]
        self.planned: bool = self._header["planned"]

    def release(
        self,
        mechanism: Mechanism,
        theta: Real,
        sensitivity: Real | Sensitivity,
        *,
        what: str | None = None,
        secure: bool = True,
        step: Real | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """``mechanism.release(theta)``, charged beforehand; the last three arguments are those of it.

        One record must move theta within ``sensitivity``.
        """
        account = PerInstanceAccountant(mechanism, sensitivity)
        account.step(theta)
        draw = mechanism.prepared(theta, secure=secure, step=step, generator=generator)
        numbers = checks.tensor("theta", theta).numel()
        what = _words(what) or f"release of {numbers} number{'s' if numbers != 1 else ''}"
        what += "" if secure else " (in floating point, whose last bits may tell more)"
        self.charge(what, account)
        return draw()

    def fit(self, estimator: Any, *data: Any, what: str | None = None, **more: Any) -> Any:
        """``estimator.fit`` with these arguments, charged beforehand; returns the estimator.

        It is a ``LinearProbe``, or anything that has ``planned_cost`` and ``account_``.
        """
        if not hasattr(estimator, "planned_cost"):
            raise TypeError(f"estimator must be a LinearProbe, got {type(estimator).__name__}")
        number = self.charge(_words(what) or type(estimator).__name__, estimator.planned_cost(*data, **more))
        fitted = estimator.fit(*data, **more)
        self.settle(number, fitted.account_)
        return fitted

    def train(self, engine: Any, steps: int, *, what: str | None = None) -> int:
        """Charges ``steps`` further steps of an engine, which then refuses to go on; returns the entry.

        ``make_private``, and ``load`` where a run goes on, come before; ``settle(entry, engine.account)`` may
        come after training. A run has one entry: steps that it was charged for and did not make are free.
        With random allocation whole epochs are charged, and one that is drawn anew, as by a run that goes on
        in the middle of it, is another one: the engine refuses it until ``train`` is called again.
        """
        if not hasattr(engine, "make_private"):
            raise TypeError(f"engine must be a PrivacyEngine, got {type(engine).__name__}")
        run, what = engine.run.releases, _words(what) or type(engine).__name__
        done, until = run.charged_until(checks.count("steps", steps, at_least=1, at_most=10**7))
        with self._transaction(what) as append:
            number, last = len(self._entries), done
            for place, entry in enumerate(self._entries):
                if entry.run == run.run_id:
                    number, last = place, entry.until
            if until > last:
                covered = {"extends": number, "run": run.run_id, "until": until}
                append(self._charge(what, run.charged_cost(until - last)) | covered)
        run.stop_at(until)
        return number

    def charge(self, what: str, cost: "PrivacyLoss | HasPrivacyLoss | tuple[float, float]") -> int:
        """Writes down what is about to be released and what it costs; returns the number of the entry.

        ``cost`` is an account, a ``PrivacyLoss``, or (epsilon, delta).
        """
        checks.instance("what", what, str)
        charged = PrivacyLoss.of(cost)
        with self._transaction(what) as append:
            append(self._charge(what, charged))
            return len(self._entries)

    def settle(self, number: int, cost: "PrivacyLoss | HasPrivacyLoss") -> None:
        """Replaces what an entry was expected to cost the data at hand by what its releases did cost.

        What holds for every dataset, and the budget, stay as they were charged.
        """
        number = checks.count("number", number, at_least=0)
        with self._transaction(f"entry {number}") as append:
            if number >= len(self._entries):
                raise ValueError(f"number must be that of an entry, below {len(self._entries)}, got {number}")
            entry = self._entries[number]
            settled = entry.cost.realised(self._seen(entry.what, PrivacyLoss.of(cost)))
            append({"settles": number, "cost": settled.state()})

    @property
    def entries(self) -> list[Entry]:
        """All entries so far, also those of other threads and processes."""
        self._refresh()
        return list(self._entries)

    @property
    def total(self) -> PrivacyLoss:
        """The costs of all entries together."""
        return sum((entry.cost for entry in self.entries), PrivacyLoss())

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """The claim of all entries together, at the ledger's own delta unless another is given."""
        return self.total.guarantee(self.delta if delta is None else delta)

    def remaining(self, law: Callable[[float], Mechanism] = Gaussian) -> float:
        """The epsilon at the ledger's delta of the largest further release that fits, up to 0.1 % too small.

        It is that of noise of this law (``Gaussian``, ``Laplace``) on what one record, added or replaced as
        the ledger says, moves by 1; 0 where nothing fits, and infinite where there is no budget.

        >>> import ringfence as rf
        >>> ledger = rf.Ledger(epsilon=1.0, delta=1e-6)
        >>> table = rf.release_counts([30, 4], epsilon=0.6, ledger=ledger)
        >>> round(ledger.remaining(), 2), round(ledger.remaining(rf.Laplace), 2)
        (0.77, 0.15)
        """
        self._refresh()
        if self.epsilon is None:
            return math.inf

        def loss(sigma: float) -> PrivacyLoss:
            account = PerInstanceAccountant(law(sigma), 1.0)
            account.step_worst_case(0.0)
            found = account.privacy_loss()
            return replace(found, change=REPLACED) if self.neighbours == "replaced" else found

        def spent(sigma: float) -> float:
            return self._spent("a release", loss(sigma))

        if not spent(_FAINT) <= self.epsilon:
            return 0.0
        return loss(smallest_sigma(spent, self.epsilon, start=_FAINT)).epsilon(self.delta)

    @property
    def statement(self) -> str:
        """In plain English: the budget and what it covers, and what was spent so far."""
        total = self.total
        budget = "The ledger has no budget."
        if self.epsilon is not None:
            covered = "also where releases were chosen by looking at earlier ones"
            if self.planned:
                covered = "provided that all releases were planned beforehand and none was chosen by others"
            budget = (
                f"All that this ledger lets through is ({self.epsilon:g}, {self.delta:.3g})-differentially "
                f"private, {covered}."
            )
        added = (
            f" Of {len(total.pairs)} releases only epsilon and delta are known: these were added up."
            if total.pairs
            else ""
        )
        listed = "; ".join(entry.what for entry in self.entries) or "nothing"
        return f"{budget}{added} Entries: {listed}.\n\n{self.guarantee().statement}"

    def close(self) -> None:
        """Ends this object, not the file: nothing can be charged through it afterwards."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError(
            "a Ledger is not copied or pickled, each copy would spend its budget: open the same URL"
        )

    def __repr__(self) -> str:
        return f"Ledger(epsilon={self.epsilon!r}, delta={self.delta!r}, entries={len(self.entries)})"

    def _seen(self, what: str, cost: PrivacyLoss) -> PrivacyLoss:
        """The cost for the ledger's neighbours."""
        if self.neighbours == "replaced":
            return cost.of_replaced()
        if cost.change == REPLACED:
            raise ValueError(
                f"neighbours of the ledger must be 'replaced', got 'added': {what} protects a record that is "
                "replaced by another one"
            )
        return cost

    def _transaction(self, what: str) -> AbstractContextManager[Callable[[Record], None]]:
        if self._closed:
            raise ValueError(f"the ledger is closed: {what} was not charged, and must not be released")
        return self._table.transaction()

    def _refresh(self) -> None:
        if not self._closed:
            with self._table.transaction():
                pass

    def _charge(self, what: str, cost: PrivacyLoss) -> Record:
        """The row of a charge, which must not exceed the budget."""
        cost = self._seen(what, cost)
        if self.epsilon is not None:
            spent = self._spent(what, cost)
            if not spent <= self.epsilon:
                raise BudgetExceededError(
                    f"{what} would bring epsilon to {rounded_up(spent)} at delta {self.delta:g}, above the "
                    f"ledger's {self.epsilon:g}: nothing was released"
                )
        return {"what": what, "cost": cost.state()}

    def _spent(self, what: str, cost: PrivacyLoss) -> float:
        """The epsilon that is compared with the budget, of all that was charged and of ``cost``.

        Guarantee: pure losses bound every loss, whatever releases were chosen by, and so does
        ``PrivacyLoss.gaussian_bound``; another epsilon counts only where all is ``planned``. Compositions of
        samples have no such filter, so they are refused.
        """
        total = self._charged + cost
        if self.delta == 0:
            return total.pure_epsilon
        if not self.planned and not total.is_gaussian:
            raise ValueError(
                f"planned must be True, got False: {what} is of samples or known by epsilon and delta alone, "
                "and a budget covers that only where no release is chosen by looking at others"
            )
        compared = total if self.planned else total.gaussian_bound()
        return min(total.pure_epsilon, compared.epsilon(self.delta))

    def _take(self, row: Record) -> None:
        """Notes what a row of the table says; the first one is the header."""
        if not self._header:
            self._header = row
            return
        cost = PrivacyLoss.from_state(row["cost"])
        if "settles" in row:
            self._entries[row["settles"]] = replace(self._entries[row["settles"]], cost=cost)
            return
        number = int(row.get("extends", len(self._entries)))
        old = self._entries[number].cost if number < len(self._entries) else PrivacyLoss()
        self._charged = self._charged + cost
        new = Entry(row["what"], old + cost, row.get("run"), row.get("until", 0))
        self._entries[number : number + 1] = [new]


def _words(what: str | None) -> str:
    return "" if what is None else str(checks.instance("what", what, str))
