"""What a certificate is about: of a saved run, an account or a ledger, what may be published is read."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringfence import checks
from ringfence.accounting.account import accountant_from_state_dict
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.decisions.accountant import DecisionAccountant
from ringfence.accounting.ledger import Ledger
from ringfence.files.checkpoint import refuse_changed
from ringfence.files.journal import Journal
from ringfence.files.shared_table import SharedTable, first_bytes
from ringfence.mechanisms.base import Mechanism
from ringfence.report.content import Pairs
from ringfence.training.assumptions import assumptions
from ringfence.training.engine.run_file import RunFile

_RELEASE = {"private", "delta", "cost", "sha256"}  # of ringfence release
_AS_GIVEN = "The file of this account has no checksum: that it is as it was written is taken on trust."
_PLANNED = "Every release was planned beforehand: none was chosen by looking at others."
_ALONG_THE_WAY = (
    "Epsilon is what was spent. Where releases were chosen by looking at earlier ones, it is the epsilon of "
    "the ledger's budget that holds."
)


@dataclass(frozen=True)
class Source:
    """What was released, what it cost, and what was taken for granted; none of it depends on private data.

    ``files`` are the private files that it was read from, and ``delta`` is theirs where they name one.

    >>> Source("A mean.", Cost.of_pair(0.5, 0.0), ()).cost.steps
    1
    """

    what: str
    cost: Cost
    files: tuple[Path, ...]
    settings: Pairs = ()
    assumptions: tuple[str, ...] = field(default=())
    delta: float = 1e-5  # at which epsilon is stated unless another one is asked for


def read_source(path: str | Path) -> Source:
    """Reads a run of ``PrivacyEngine.save``, an account, or a file of ``Ledger``.

    An account is account.json of a ``DecisionRelease``, or the ``state_dict`` of an accountant as JSON.

    Guarantee: of the private numbers in these files none is kept but those that hold for every dataset. The
    number of examples is not kept where another ``public_size`` was given, and no seed is.
    """
    path = Path(path)
    start = first_bytes(path)
    if start[:1] == b"{":
        return _of_account(path)
    if start == b"SQLite":
        rows: list[dict[str, Any]] = []
        with SharedTable(path, [], rows.append).transaction():
            pass
        return _of_ledger(path, rows[0])
    try:
        header, _ = Journal.read(path)
    except ValueError:
        return _of_run(path)
    if header.get("kind") != "Ledger":
        raise ValueError(f"{path} is the journal of a run: give the run itself, RUN.ckpt")
    return _of_ledger(path, header)


def _of_run(path: Path) -> Source:
    file = RunFile(path)
    state = file.read()
    account, _ = file.released(state)
    settings = state.settings
    numbers = sum(math.prod(shape) for shape in settings["parameters"].values())
    cost = account.cost() + Cost(numbers=account.steps * numbers if settings["secure"] else 0)
    sampled = settings["sampling"] == "poisson"
    share = settings["batch_size"] / settings["public_size"]
    said = assumptions(size_given=True, seed_given=False, secure=settings["secure"])
    return Source(
        what=f"The {numbers:,} parameters of a trained model, after each of {account.steps:,} steps.",
        cost=cost,
        files=(file.path, file.journal),
        settings=(
            ("mechanism", repr(Mechanism.from_state_dict(settings["mechanism"]))),
            ("clip", settings["clip"]),
            ("batches", f"each example with probability {share:.6g}" if sampled else "all examples"),
            ("public size", f"{settings['public_size']:g}"),
            ("randomness", "secure releases" if settings["secure"] else "pseudorandom, from a seed"),
        ),
        # what a run of an earlier version did not say
        assumptions=tuple(dict.fromkeys((*state.assumptions, *said))),
    )


def _of_ledger(path: Path, header: dict[str, Any]) -> Source:
    names = ("epsilon", "delta", "neighbours", "planned")
    budget = {name: header[name] for name in names}
    with Ledger(**budget, path=path) as ledger:
        pass  # what it has read stays as it is
    return Source(
        what="; ".join(entry.what for entry in ledger.entries) + ".",
        cost=ledger.total,
        files=(path,),
        settings=tuple((f"ledger: {name}", str(value)) for name, value in budget.items()),
        assumptions=(_PLANNED if ledger.planned else _ALONG_THE_WAY,),
        delta=ledger.delta,
    )


def _of_account(path: Path) -> Source:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not JSON") from None
    if "kind" not in checks.mapping("account", state):
        return _of_release(path, state)
    if state["kind"] == "DecisionAccountant":
        decided = DecisionAccountant.from_state_dict(state)
        what, cost = f"{decided.steps:,} decisions.", decided.cost()
        settings: Pairs = (("mechanism", repr(decided.law)),)
    else:
        account = accountant_from_state_dict(state)
        what, cost = f"{account.steps:,} releases.", account.cost()
        settings = (("mechanism", repr(account.mechanism)), ("sensitivity", account.sensitivity.statement))
    return Source(what, cost, (path,), settings, (_AS_GIVEN,))


def _of_release(path: Path, state: dict[str, Any]) -> Source:
    missing = sorted(_RELEASE - state.keys())
    if missing:
        raise ValueError(
            f"{path} is no account of ringfence 0.7 or later: it has no {', '.join(missing)}. Nothing in "
            "earlier ones tells whether they were changed: certify the ledger that was charged for it"
        )
    refuse_changed(path, state)
    cost = Cost.from_state(state["cost"])
    return Source(
        what=state.get("statement", f"{cost.steps:,} releases."),
        cost=cost,
        files=(path,),
        assumptions=tuple(state["assumptions"]),
        delta=state["delta"],
    )
