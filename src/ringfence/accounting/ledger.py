"""A ledger of releases of any kind: each is written down before it is made, and all are one claim."""

import os
import secrets
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.guarantee import REPLACED, Guarantee
from ringfence.accounting.costs.account_cost import HasCost, as_cost
from ringfence.accounting.costs.budget import BudgetExceededError, budget_epsilon, composed_guarantee
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.per_instance.accountant import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.files.journal import Journal
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import rounded_up


@dataclass(frozen=True)
class Entry:
    """One line of a ledger: what is released, in words, and what it costs."""

    what: str
    cost: Cost


class Ledger:
    """Several releases from the same data, one claim, and a budget that is not exceeded.

    ``release`` makes a release of a mechanism, ``fit`` trains a ``LinearProbe``, ``train`` reserves the steps
    of a ``PrivacyEngine``, and the jobs of tables and votes take ``ledger=``. ``charge`` is for everything
    else: an account, a ``Cost``, or a pair (epsilon, delta) of another library. ``neighbours`` says what is
    protected: that a record is there ("added"), or only what it says ("replaced"), for which releases that
    protect the first are charged twice. With ``path`` the ledger is a file, which goes on where it ended,
    also after a crash; it is as private as the data. Without ``epsilon`` costs are only added up.

    Guarantee: a release is charged, and written to the file where there is one, before it is made; one that
    fails stays charged. What would exceed the budget is refused before anything is released. All that the
    ledger lets through is (epsilon, delta)-differentially private, also where releases are chosen by looking
    at earlier ones. Releases of samples, and pairs, have no such bound: they are refused, unless ``planned``
    says that no release is chosen by looking at others. ``guarantee`` says what was spent so far.

    >>> import ringfence as rf
    >>> with rf.Ledger(epsilon=1.0, delta=1e-5) as ledger:
    ...     noisy = ledger.release(rf.Gaussian(10.0), [120, 44], rf.Sensitivity(each=1.0, at_most=1))
    ...     table = rf.release_counts([120, 44], sigma=10.0, ledger=ledger)
    >>> [entry.what for entry in ledger.entries], round(ledger.guarantee().epsilon_data_independent, 3)
    (['release of 2 numbers', 'release_counts'], 0.497)
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float = 1e-6,
        *,
        neighbours: Literal["added", "replaced"] = "added",
        planned: bool = False,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.epsilon = None if epsilon is None else checks.number("epsilon", epsilon, checks.positive)
        self.delta = checks.probability("delta", delta)
        self.neighbours = checks.one_of("neighbours", neighbours, ("added", "replaced"))
        self.planned = checks.flag("planned", planned)
        self.entries: list[Entry] = []
        self._closed = False
        self._journal: Journal | None = None
        if path is not None:
            self._open(Path(path))

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
        numbers = checks.tensor("theta", theta).numel()
        what = what or f"release of {numbers} number{'s' if numbers != 1 else ''}"
        what += "" if secure else " (in floating point, whose last bits may tell more)"
        self.charge(what, account, numbers=numbers if secure else 0)
        return mechanism.release(theta, secure=secure, step=step, generator=generator)

    def fit(self, estimator: Any, *data: Any, what: str | None = None, **more: Any) -> Any:
        """``estimator.fit`` with these arguments, charged beforehand; returns the estimator.

        It is a ``LinearProbe``, or anything that has ``planned_cost`` and ``account_``.
        """
        if not hasattr(estimator, "planned_cost"):
            raise TypeError(f"estimator must be a LinearProbe, got {type(estimator).__name__}")
        number = self.charge(what or type(estimator).__name__, estimator.planned_cost(*data, **more))
        fitted = estimator.fit(*data, **more)
        self.settle(number, fitted.account_)
        return fitted

    def train(self, engine: Any, steps: int, *, what: str | None = None) -> int:
        """Charges ``steps`` steps of an engine, after which the engine refuses to go on; returns the entry.

        ``make_private`` comes before, and ``settle(entry, engine.account)`` may come after training.
        """
        number = self.charge(what or type(engine).__name__, engine.planned_cost(steps))
        engine.stop_after(steps)
        return number

    def charge(self, what: str, cost: "Cost | HasCost | tuple[float, float]", *, numbers: int = 0) -> int:
        """Writes down what is about to be released and what it costs; returns the number of the entry.

        ``cost`` is an account, a ``Cost``, or (epsilon, delta). ``numbers`` counts those of secure releases.
        """
        if self._closed:
            raise ValueError(f"the ledger is closed: {what} was not charged, and must not be released")
        checks.count("numbers", numbers, at_least=0)
        entry = Entry(str(what), self._seen(what, as_cost(cost) + Cost(numbers=numbers)))
        total = self.total + entry.cost
        if self.epsilon is not None:
            spent = budget_epsilon(what, total, self.delta, planned=self.planned)
            if not spent <= self.epsilon:
                raise BudgetExceededError(
                    f"{what} would bring epsilon to {rounded_up(spent)} at delta {self.delta:g}, above the "
                    f"ledger's {self.epsilon:g}: nothing was released"
                )
        if self._journal is not None:
            self._journal.append({"what": entry.what, "cost": entry.cost.state()})
        self.entries.append(entry)
        return len(self.entries) - 1

    def settle(self, number: int, cost: "Cost | HasCost") -> None:
        """Replaces what an entry was expected to cost the data at hand by what its releases did cost.

        What holds for every dataset, and the budget, stay as they were charged.
        """
        if not 0 <= checks.count("number", number, at_least=0) < len(self.entries):
            raise ValueError(f"number must be that of an entry, below {len(self.entries)}, got {number}")
        entry = self.entries[number]
        settled = entry.cost.realised(self._seen(entry.what, as_cost(cost)))
        if self._journal is not None:
            self._journal.append({"settles": number, "cost": settled.state()})
        self.entries[number] = Entry(entry.what, settled)

    @property
    def total(self) -> Cost:
        """The costs of all entries together."""
        return reduce(Cost.__add__, (entry.cost for entry in self.entries), Cost())

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """What may be said about all entries together; at the ledger's own delta unless another is given."""
        return composed_guarantee(self.total, self.delta if delta is None else delta)

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
        """Lets go of the file; nothing can be charged afterwards."""
        self._closed = True
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger(epsilon={self.epsilon!r}, delta={self.delta!r}, entries={len(self.entries)})"

    def _seen(self, what: str, cost: Cost) -> Cost:
        """The cost for the ledger's neighbours."""
        if self.neighbours == "replaced":
            return cost.of_replaced()
        if cost.change == REPLACED:
            raise ValueError(
                f"neighbours of the ledger must be 'replaced', got 'added': {what} protects a record that is "
                "replaced by another one"
            )
        return cost

    def _open(self, path: Path) -> None:
        """Begins a file, or goes on with one that has the same budget."""
        header = {
            **{"kind": "Ledger", "version": 1, "neighbours": self.neighbours},
            **{"epsilon": self.epsilon, "delta": self.delta, "planned": self.planned},
        }
        if not path.exists():
            self._journal = Journal.start(path, {"run": secrets.token_hex(16), **header})
            return
        journal = Journal(path)
        try:
            for name, ours in header.items():
                if journal.header.get(name) != ours:
                    raise ValueError(
                        f"{path} is a ledger with {name} {journal.header.get(name)!r}, not {ours!r}"
                    )
            for record in Journal.read(path)[1]:
                cost = Cost.from_state(record["cost"])
                if "settles" in record:
                    self.entries[record["settles"]] = Entry(self.entries[record["settles"]].what, cost)
                else:
                    self.entries.append(Entry(record["what"], cost))
        except BaseException:
            journal.close()
            raise
        self._journal = journal
