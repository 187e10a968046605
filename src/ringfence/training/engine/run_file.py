"""A training run on disk: the checkpoint, and beside it what the run has spent."""

import json
import os
from pathlib import Path
from typing import Any

from ringfence.files.atomic import replacing
from ringfence.files.checkpoint import (
    exact_json,
    flattened,
    read_checkpoint,
    refuse_changed,
    restored,
    with_checksum,
    write_checkpoint,
)
from ringfence.files.locks import locked, unlock
from ringfence.training import distributed

State = dict[str, Any]  # all that a run needs to go on but its account, see ``RunFile``
Spent = dict[str, Any]  # the run, the state of its account, and "most": after how many charges it must end


class RunFile:
    """The checkpoint ``path`` of a run, and PATH.journal, which holds what the run has spent.

    In a state, "run" names the run, and "charged" says how many releases were charged. "settings" must be the
    same when it goes on. "objects" holds the states of the model, of the optimizer and of whatever else has
    tensors; all else is plain data, and no seed. The journal is JSON with its checksum, and is replaced as a
    whole. One process at a time has PATH.journal.lock, and with it the run.

    Guarantee: the account in the journal covers at least what was released until the process died, whichever
    checkpoint of the run it lies beside: ``charge`` comes before a release, and returns when the new journal
    is on disk. Damage, the journal of another run and one that is older than the checkpoint are refused.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file, account = RunFile(Path(folder, "run.ckpt")), {"steps": 0}
    ...     file.begin({"run": "a1", "charged": 0, "objects": {}}, {"run": "a1", "account": account})
    ...     file.charge({"run": "a1", "account": {"steps": 1}})
    ...     file.close()
    ...     file.spent(file.read())["account"]
    {'steps': 1}
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # the same file after the process changed its folder, or by a link
        self.journal = self.path.with_name(f"{self.path.name}.journal")
        self.writes = distributed.rank() == 0  # one process of those that train together
        self.is_taken = False  # whether this object has the run
        self._lock: int | None = None

    def lock(self) -> None:
        """Takes the run, which no other process or engine may have."""
        if self.writes:
            self._lock = locked(self.journal)
        self.is_taken = True

    def close(self) -> None:
        """Lets go of the run."""
        lock, self._lock, self.is_taken = self._lock, None, False
        if lock is not None:
            unlock(lock)

    def begin(self, state: State, spent: Spent, old: "RunFile | None" = None) -> None:
        """Takes a new file for the run, which leaves ``old``; after an error it was taken or is not there.

        A checkpoint without a journal is refused, and the journal is moved at once: one file can go on.
        """
        if not self.writes:
            self.lock()
            return
        try:
            self.lock()
            if self.path.exists():
                raise ValueError(
                    f"{self.path} holds a run, whose spent budget would be forgotten: load it, remove it or "
                    "save elsewhere"
                )
            self.journal.unlink(missing_ok=True)  # without a checkpoint it says nothing
        except BaseException:
            self.close()
            raise
        try:
            self.save(state)
            if old is None:
                self.charge(spent)
            else:
                os.replace(old.journal, self.journal)
        except BaseException:
            if not self.journal.exists():
                self.path.unlink(missing_ok=True)
                self.close()
            raise

    def charge(self, spent: Spent) -> None:
        """Returns when the journal holds this on disk; after an error it may hold this or what it held."""
        if not self.is_taken:
            raise ValueError(f"{self.path} is closed")
        if not self.writes:
            return
        exact_json("spent", spent)  # refuses what would be read as something else
        with replacing(self.journal) as file:
            file.write(with_checksum(spent).encode())

    def save(self, state: State) -> None:
        """Replaces the checkpoint; the journal has what was spent already."""
        if self.writes:
            tensors, objects = flattened(state["objects"])
            write_checkpoint(self.path, tensors, {**state, "objects": objects})

    def read(self) -> State:
        """Returns the state that was saved."""
        tensors, plain = read_checkpoint(self.path)
        if "charged" not in plain:
            raise ValueError(f"{self.path} is a run of ringfence 0.6: go on with that version, or train anew")
        return {**plain, "objects": restored(plain["objects"], tensors)}

    def spent(self, state: State) -> Spent:
        """Returns what the run of this state has spent."""
        try:
            spent: Spent = json.loads(self.journal.read_bytes())
        except ValueError:
            raise ValueError(f"{self.journal} is damaged: it is not JSON") from None
        except FileNotFoundError:
            raise ValueError(
                f"{self.journal} is missing: what was released after {self.path} is in it, or the run went "
                "on in another file"
            ) from None
        refuse_changed(self.journal, spent)
        if spent["run"] != state["run"]:
            raise ValueError(f"{self.journal} belongs to another run than {self.path}")
        if spent["account"]["steps"] < state["charged"]:
            raise ValueError(f"{self.journal} is older than {self.path}: releases in between are not in it")
        return spent
