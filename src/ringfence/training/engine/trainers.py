"""Common part of the trainers of other libraries: an engine, its private objects, and its file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ringfence import checks
from ringfence.accounting.guarantee import Guarantee
from ringfence.training.engine.engine import PrivacyEngine, Private

RUN_FILE = Path("_private", "run.ckpt")  # beside checkpoints; push_to_hub leaves out what begins with _


class TrainerRun:
    """The run of a trainer of another library: each batch is a step, and ``delta`` is that of its logs."""

    engine: PrivacyEngine
    delta: float
    _private: Private | None = None

    def _serve(self, engine: Any, delta: Any, target_epsilon: float | None) -> None:
        """Takes an engine, which serves this one run."""
        self.engine = checks.instance("engine", engine, PrivacyEngine)
        self.delta = checks.probability("delta", delta)
        self.target_epsilon = target_epsilon

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Returns what training has cost so far, and what may be said about it."""
        return self.engine.guarantee(self.delta if delta is None else delta)

    def _make_private(
        self, model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any], epochs: float | None
    ) -> Private:
        """Makes the objects of a trainer private.

        ``epochs`` is None where it does not end after a number of epochs, and then there is no target.
        """
        if self.target_epsilon is None:
            private = self.engine.make_private(model, optimizer, loader)
        elif epochs is None or epochs != int(epochs):
            raise ValueError(f"target_epsilon needs a whole number of epochs and no max_steps, got {epochs}")
        else:
            target: dict[str, Any] = {"target_epsilon": self.target_epsilon, "target_delta": self.delta}
            private = self.engine.make_private_with_epsilon(
                model, optimizer, loader, **target, epochs=int(epochs)
            )
        if private[2].batches_a_step > 1:
            raise ValueError(
                f"sampling 'full' needs a batch of the whole dataset, got batch size {loader.batch_size}: "
                "the engine's memory_budget decides how many pass at once"
            )
        self._private = private
        return private

    def _go_on(self, folder: Path | None, checkpoint: Path | None, is_last: Callable[[], bool]) -> None:
        """Loads the run that a checkpoint belongs to, or begins one that is saved in a folder."""
        if checkpoint is None:
            if folder is not None and (folder / RUN_FILE).exists():
                raise ValueError(
                    f"{folder / RUN_FILE} holds the account of an earlier training: go on from its last "
                    "checkpoint, or give another folder"
                )
            return
        file = checkpoint.parent / RUN_FILE
        if not file.exists():
            raise ValueError(f"{checkpoint} cannot be resumed: {file} is missing, and the account is in it")
        self.engine.load(file)
        if not is_last():
            raise ValueError(
                f"{checkpoint} is not where its run was saved last, which was after {self.engine.steps} steps"
            )

    def _save_run(self, folder: Path) -> None:
        """Saves the run beside the checkpoints in a folder."""
        file = folder / RUN_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        self.engine.save(file)


def refuse_settings(settings: Mapping[str, tuple[Any, tuple[Any, ...], str]]) -> None:
    """Raises an error that names the first setting of a trainer that is not one of those allowed.

    Each has its value, the values with which a step is what is accounted for, and the reason.

    >>> refuse_settings({"fp16": (True, (False,), "a scaled loss would scale what is clipped")})
    Traceback (most recent call last):
    ValueError: fp16 must be False, got True: a scaled loss would scale what is clipped
    """
    for name, (value, allowed, why) in settings.items():
        if value not in allowed:
            raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {value!r}: {why}")
