"""A training run on disk: the checkpoint, and the journal of what was released since."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ringfence.accounting.per_instance.accountant import PerInstanceAccountant
from ringfence.accounting.sampled.accountant import SampledAccountant
from ringfence.files.checkpoint import flattened, read_checkpoint, restored, write_checkpoint
from ringfence.files.journal import Journal
from ringfence.training import distributed
from ringfence.training.engine.releases import Account

if TYPE_CHECKING:
    from ringfence.training.engine.engine import PrivacyEngine

_ACCOUNTS: dict[str, type[Account]] = {
    kind.__name__: kind for kind in (PerInstanceAccountant, SampledAccountant)
}


class RunFile:
    """Saves and restores what an engine holds. The first process writes, every process reads.

    Guarantee: what is restored has spent at least what was released until the process died, as long
    as checkpoint and journal stay together: every release after the checkpoint is in the journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path.with_name(f"{path.name}.journal")

    def save(self, engine: "PrivacyEngine", others: dict[str, Any]) -> None:
        if distributed.rank() == 0:
            self._refuse_another_run(engine)
            releases = engine.releases
            tensors, plain = flattened(
                {
                    "model": dict(engine.model.state_dict()),
                    "optimizer": engine.optimizer.state_dict(),
                    "others": {name: other.state_dict() for name, other in others.items()},
                    "fisher": engine.fisher.state_dict() if engine.fisher else {},
                    "random": _random_states(),
                }
            )
            state = {
                "run": engine.run_id,
                "settings": engine.settings,
                "steps": engine.steps,
                "assumptions": list(engine.assumptions),
                # as text: beyond the integers other readers of JSON keep exactly; a secure run has none
                "seed": "0" if engine.secure else str(engine.seed),
                "account": releases.account.state_dict(),
                "objects": plain,
            }
            releases.journal = self._written(releases.journal, tensors, state)
        distributed.wait()

    def _written(self, old: Journal | None, tensors: dict[str, Tensor], state: dict[str, Any]) -> Journal:
        """The journal to go on with, once the checkpoint is there.

        At every moment there is a checkpoint whose journal has the rest: a journal is emptied after
        the checkpoint that makes up for it is written, and an old one ends after the new one began.
        """
        header = {"run": state["run"], "spent": state["account"]["steps"]}
        if old is not None and old.path == self.journal:
            write_checkpoint(self.path, tensors, state)
            old.restart(header)
            return old
        # beside no checkpoint a journal says nothing; beside one it may say where the run went on
        journal = Journal(self.journal) if self.path.exists() else Journal.start(self.journal, header)
        try:
            write_checkpoint(self.path, tensors, state)
            journal.restart(header)
            if old is not None:
                old.append({"continued": self.path.name})
                old.close()
        except BaseException:
            journal.close()
            raise
        return journal

    def load(self, engine: "PrivacyEngine", others: dict[str, Any]) -> None:
        tensors, state = read_checkpoint(self.path)
        self._refuse_other_settings(engine, state)
        objects = restored(state["objects"], tensors)
        if set(objects["others"]) != set(others):
            saved, given = sorted(objects["others"]), sorted(others)
            raise ValueError(f"{self.path} was saved with {saved} beside the engine, load was given {given}")
        engine.close()
        # until all is restored: a release would be written down nowhere
        engine.releases.refused = f"{self.path} could not be loaded: load it, or make another engine"
        journal = self._opened(state) if distributed.rank() == 0 else None
        distributed.wait()
        try:
            account, known = self._released(state)
            engine.model.load_state_dict(objects["model"])
            engine.optimizer.load_state_dict(objects["optimizer"])
            for name, other in others.items():
                other.load_state_dict(objects["others"][name])
            if engine.fisher:
                engine.fisher.load_state_dict(objects["fisher"])
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        _set_random_states(objects["random"])
        # what the run took for granted before it was saved, such as a seed that was given
        engine.assumptions = tuple(dict.fromkeys((*engine.assumptions, *state.get("assumptions", ()))))
        engine.resume(state["run"], state["steps"], int(state["seed"]), account, known, journal)
        distributed.wait()

    def _opened(self, state: dict[str, Any]) -> Journal:
        """For appending, locked: before it is read, so that nobody writes in between."""
        if not self.journal.exists():
            raise ValueError(f"{self.journal} is missing: what was released after {self.path} is in it")
        journal = Journal(self.journal)
        try:
            if journal.header["run"] != state["run"]:
                raise ValueError(f"{self.journal} belongs to another run than {self.path}")
            if journal.header.get("spent", 0) > state["account"]["steps"]:
                raise ValueError(f"{self.path} is older than its journal: releases in between are in neither")
        except ValueError:
            journal.close()
            raise
        return journal

    def _released(self, state: dict[str, Any]) -> tuple[Account, set[tuple[int, str]]]:
        """The account of everything released, and what was released after the checkpoint."""
        account = _account(state["account"])
        known: set[tuple[int, str]] = set()
        for record in Journal.read(self.journal)[1]:
            if "continued" in record:
                raise ValueError(
                    f"{self.path} is not the end of its run, which went on in {record['continued']}: load "
                    "that, so that nothing released is forgotten"
                )
            known.add((record["step"], record["digest"]))
            if record["account"]["steps"] > account.steps:
                account = _account(record["account"])
        return account, known

    def _refuse_another_run(self, engine: "PrivacyEngine") -> None:
        if self.path.exists():
            _, state = read_checkpoint(self.path)
            if state["run"] != engine.run_id:
                raise ValueError(
                    f"{self.path} holds another run, whose spent budget would be forgotten: "
                    "load it, remove it or save elsewhere"
                )

    def _refuse_other_settings(self, engine: "PrivacyEngine", state: dict[str, Any]) -> None:
        for name, ours in engine.settings.items():
            # files of 0.4 do not name it
            theirs = {"secure": False, **state["settings"]}.get(name)
            if theirs != ours:
                raise ValueError(f"{self.path} was written with {name} {theirs!r}, this engine has {ours!r}")
        if engine.given_seed is not None and engine.given_seed != int(state["seed"]):
            raise ValueError(f"{self.path} was written with another seed than {engine.given_seed}")


def _account(state: dict[str, Any]) -> Account:
    return _ACCOUNTS[state["kind"]].from_state_dict(state)


def _random_states() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": list(cuda)}


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
