"""A training run on disk: the checkpoint, and the journal of what was released since."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ringfence.accounting.subsampling import Account, accountant_from_state_dict
from ringfence.files.checkpoint import flattened, read_checkpoint, restored, write_checkpoint
from ringfence.files.journal import Journal

State = dict[str, Any]  # all that a run needs to go on: run, settings, steps, assumptions, account, objects


class RunFile:
    """Saves and reads the state of a run, and keeps the journal beside it.

    In a state, "run" names the run. "settings" must be the same when it goes on. "objects" holds the states
    of the model, of the optimizer and of whatever else has tensors; all else is plain data, and no seed.

    Guarantee: what is read back has spent at least what was released until the process died, as long as
    checkpoint and journal stay together: every release after the checkpoint is in the journal.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = RunFile(Path(folder, "run.ckpt"))
    ...     file.save({"run": "a1", "settings": {}, "account": {"steps": 0}, "objects": {}}).close()
    ...     file.read()["run"]
    'a1'
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # the same file after the process changed its folder, or by a link
        self.journal = self.path.with_name(f"{self.path.name}.journal")

    def save(self, state: State, old: Journal | None = None) -> Journal:
        """Writes the state and returns the journal for what follows; ``old`` is the run's journal so far.

        At every moment there is a checkpoint whose journal has the rest: a journal is emptied after the
        checkpoint that makes up for it is written, and an old journal ends after the new one began.
        """
        there, before = self.path.exists(), self._inode()
        if there and read_checkpoint(self.path)[1]["run"] != state["run"]:
            raise ValueError(
                f"{self.path} holds another run, whose spent budget would be forgotten: "
                "load it, remove it or save elsewhere"
            )
        tensors, objects = flattened(state["objects"])
        plain = {**state, "objects": objects}
        header = {"run": state["run"], "spent": state["account"]["steps"]}
        if old is not None and old.path == self.journal:
            write_checkpoint(self.path, tensors, plain)
            with suppress(OSError):  # on a full disk the journal stays longer than it need be
                old.restart(header)
            return old
        # a journal without a checkpoint says nothing; beside one it may say where the run went on
        journal = Journal(self.journal) if there else Journal.start(self.journal, header)
        try:
            known = header["spent"]
            if (spent := self._spent()) > known:
                raise ValueError(
                    f"{self.path} holds {spent} releases of this run, of which {known} are known here: load "
                    "it, or save elsewhere"
                )
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
            if old is not None and self._inode() != before:  # of two files that go on, one would forget
                old.close()
            raise
        return journal

    def _inode(self) -> int | None:
        """Which file has the name now, if any."""
        return self.path.stat().st_ino if self.path.exists() else None

    def _spent(self) -> int:
        """The number of releases that the journal and its checkpoint know of."""
        header, records = Journal.read(self.journal)
        return max(
            (record["account"]["steps"] for record in records if "account" in record),
            default=int(header.get("spent", 0)),
        )

    def read(self) -> State:
        """Returns the state that was saved, without what the journal has to add (``released``)."""
        tensors, plain = read_checkpoint(self.path)
        if plain["settings"].get("auxiliary_batches") == 0:  # as version 0.6 wrote it
            del plain["settings"]["auxiliary_batches"]
        return {**plain, "objects": restored(plain["objects"], tensors)}

    def opened(self) -> Journal:
        """Opens the journal for appending. It is locked before it is read: nobody writes in between."""
        if not self.journal.exists():
            raise ValueError(f"{self.journal} is missing: what was released after {self.path} is in it")
        return Journal(self.journal)

    def released(self, state: State) -> Account:
        """Returns the account of everything released, with what the journal has to add to the state.

        ``state["objects"]["most"]`` becomes the number of releases that were charged at last.
        """
        header, records = Journal.read(self.journal)
        if header["run"] != state["run"]:
            raise ValueError(f"{self.journal} belongs to another run than {self.path}")
        if header.get("spent", 0) > state["account"]["steps"]:
            raise ValueError(f"{self.path} is older than its journal: releases in between are in neither")
        account = accountant_from_state_dict(state["account"])
        for record in records:
            if "continued" in record:
                raise ValueError(
                    f"{self.path} is not the end of its run, which went on in {record['continued']}: load "
                    "that, so that nothing released is forgotten"
                )
            if "most" in record:
                state["objects"].update(record)
            elif record["account"]["steps"] > account.steps:
                account = accountant_from_state_dict(record["account"])
        return account
