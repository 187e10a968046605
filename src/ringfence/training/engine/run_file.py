"""A training run on disk: the checkpoint, and the journal of what was released since."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.accounting.subsampling import Account, accountant_from_state_dict
from ringfence.files.checkpoint import flattened, read_checkpoint, restored, write_checkpoint
from ringfence.files.journal import Journal


@dataclass(frozen=True)
class RunState:
    """A training run as plain data and tensors: everything that it needs to go on.

    ``settings`` must be the same when the run goes on. ``objects`` are the states of "model", "optimizer",
    "others", "fisher", "random" and the ledger's. A secure run has no ``seed`` to go on with and says 0.

    >>> RunState("a1", {}, 3, (), 0, {"steps": 3}, {}).steps
    3
    """

    run_id: str
    settings: dict[str, Any]
    steps: int
    assumptions: tuple[str, ...]
    seed: int
    account: dict[str, Any]
    objects: dict[str, Any]


class RunFile:
    """Saves and reads the state of a run, and keeps the journal beside it.

    Guarantee: what is read back has spent at least what was released until the process died, as long as
    checkpoint and journal stay together: every release after the checkpoint is in the journal.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = RunFile(Path(folder, "run.ckpt"))
    ...     file.save(RunState("a1", {}, 0, (), 0, {"steps": 0}, {})).close()
    ...     file.read().run_id
    'a1'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path.with_name(f"{path.name}.journal")

    def save(self, state: RunState, old: Journal | None = None) -> Journal:
        """Writes the state and returns the journal for what follows; ``old`` is the run's journal so far.

        At every moment there is a checkpoint whose journal has the rest: a journal is emptied after the
        checkpoint that makes up for it is written, and an old journal ends after the new one began.
        """
        self._refuse_another_run(state.run_id)
        tensors, objects = flattened(state.objects)
        plain = {
            "run": state.run_id,
            "settings": state.settings,
            "steps": state.steps,
            "assumptions": list(state.assumptions),
            "seed": str(state.seed),  # other readers of JSON do not keep such large integers exactly
            "account": state.account,
            "objects": objects,
        }
        header = {"run": state.run_id, "spent": state.account["steps"]}
        if old is not None and old.path == self.journal:
            write_checkpoint(self.path, tensors, plain)
            with suppress(OSError):  # on a full disk the journal stays longer than it need be
                old.restart(header)
            return old
        # a journal without a checkpoint says nothing; beside one it may say where the run went on
        there = self.path.exists()
        journal = Journal(self.journal) if there else Journal.start(self.journal, header)
        try:
            write_checkpoint(self.path, tensors, plain)
            if there:
                journal.restart(header)
            if old is not None:
                try:
                    old.append({"continued": self.path.name})
                except OSError:
                    old.path.unlink()  # needs no room, and a checkpoint without its journal is refused too
                finally:
                    old.close()
        except BaseException:
            journal.close()
            raise
        return journal

    def read(self) -> RunState:
        """Returns the state that was saved, without what the journal has to add (``released``)."""
        tensors, plain = read_checkpoint(self.path)
        return RunState(
            run_id=plain["run"],
            settings={"secure": False, **plain["settings"]},  # files of version 0.4 do not name it
            steps=plain["steps"],
            assumptions=tuple(plain.get("assumptions", ())),
            seed=int(plain["seed"]),
            account=plain["account"],
            objects=restored(plain["objects"], tensors),
        )

    def refuse_other_settings(self, state: RunState, settings: dict[str, Any], seed: int | None) -> None:
        """Raises a ValueError that names what differs between the file and the run that is to go on."""
        for name, ours in settings.items():
            theirs = state.settings.get(name)
            if theirs != ours:
                raise ValueError(f"{self.path} was written with {name} {theirs!r}, this engine has {ours!r}")
        if seed is not None and seed != state.seed:
            raise ValueError(f"{self.path} was written with another seed than {seed}")

    def opened(self) -> Journal:
        """Opens the journal for appending. It is locked before it is read: nobody writes in between."""
        if not self.journal.exists():
            raise ValueError(f"{self.journal} is missing: what was released after {self.path} is in it")
        return Journal(self.journal)

    def released(self, state: RunState) -> tuple[Account, dict[tuple[int, int], str]]:
        """Returns the account of everything released, and what was released of steps that may come again.

        ``state.objects["most"]`` becomes the number of releases that were charged at last.
        """
        header, records = Journal.read(self.journal)
        if header["run"] != state.run_id:
            raise ValueError(f"{self.journal} belongs to another run than {self.path}")
        if header.get("spent", 0) > state.account["steps"]:
            raise ValueError(f"{self.path} is older than its journal: releases in between are in neither")
        account = accountant_from_state_dict(state.account)
        known = {(step, attempt): digest for step, attempt, digest in state.objects.get("known", ())}
        for record in records:
            if "continued" in record:
                raise ValueError(
                    f"{self.path} is not the end of its run, which went on in {record['continued']}: load "
                    "that, so that nothing released is forgotten"
                )
            if "most" in record:
                state.objects.update(record)
                continue
            known[record["step"], record.get("attempt", 0)] = record["digest"]
            if record["account"]["steps"] > account.steps:
                account = accountant_from_state_dict(record["account"])
        return account, known

    def _refuse_another_run(self, run_id: str) -> None:
        if self.path.exists():
            _, saved = read_checkpoint(self.path)
            if saved["run"] != run_id:
                raise ValueError(
                    f"{self.path} holds another run, whose spent budget would be forgotten: "
                    "load it, remove it or save elsewhere"
                )
