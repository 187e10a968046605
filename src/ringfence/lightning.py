"""Lightning with the engine of this package: a callback that makes a fit private and logs epsilon."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "ringfence.lightning needs lightning: pip install 'ringfence[lightning]'"
    ) from None

from ringfence.training.engine.engine import PrivacyEngine
from ringfence.training.engine.trainers import TrainerRun, refuse_settings

__all__ = ["PrivacyCallback"]


class PrivacyCallback(TrainerRun, Callback):
    """Makes ``Trainer(callbacks=[...]).fit`` private, with an engine that serves this one run.

    Where all parameters that are trained are in one attribute of the LightningModule, such as
    ``self.network``, ``training_step`` calls that once, without labels; where they are in several, such as a
    backbone and a head, it calls ``self(inputs)`` once, whose ``forward`` uses them. It returns the mean loss
    of the batch. A batch has as many examples as the loader's batch_size on average, in each process.
    ``delta`` is that of the epsilon that is logged after each epoch, to the trainer's loggers. With
    ``target_epsilon`` the noise is found with which max_epochs epochs meet it at delta.

    After each checkpoint of Lightning the engine is saved to ``_private/run.ckpt`` beside it. This file holds
    the account, and is as private as the data. ``fit(ckpt_path=...)`` goes on with both, from the last
    checkpoint. Steps after it stay charged, and are made and charged again.

    Guarantee: as that of the engine. In every step, the gradient that the optimizer gets is the released one;
    clipping it again by gradient_clip_val takes nothing from the promise and adds nothing to it. What would
    make a step another mechanism is refused by name. Losses that are logged come from private data and are
    not covered.

    >>> import logging, torch, ringfence as rf
    >>> from lightning.pytorch import LightningModule, Trainer
    >>> class Classifier(LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.network = nn.Linear(3, 2)
    ...     def training_step(self, batch, number):
    ...         return nn.functional.cross_entropy(self.network(batch[0]), batch[1])
    ...     def configure_optimizers(self):
    ...         return torch.optim.SGD(self.parameters(), lr=0.1)
    >>> data = torch.utils.data.TensorDataset(torch.randn(32, 3), torch.randint(0, 2, (32,)))
    >>> private = PrivacyCallback(rf.PrivacyEngine(rf.Gaussian(1.0), rf.Norm(1.0)), delta=1e-3)
    >>> logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    >>> quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    ...     "enable_model_summary": False, "accelerator": "cpu"}
    >>> import warnings; warnings.simplefilter("ignore")
    >>> Trainer(max_epochs=1, callbacks=[private], **quiet).fit(
    ...     Classifier(), torch.utils.data.DataLoader(data, batch_size=8))
    >>> private.guarantee().steps
    4
    """

    def __init__(self, engine: PrivacyEngine, *, delta: float, target_epsilon: float | None = None) -> None:
        self._serve(engine, delta, target_epsilon)
        self._undo: list[Callable[[], object]] = []  # which leaves module and trainer as they were
        self._called = False  # whether the step at hand has called the private module
        self._found: dict[str, Any] = {}  # what a checkpoint says about its run
        self._due = False  # whether a checkpoint was made since the run was saved

    def state_dict(self) -> dict[str, Any]:
        """Returns which run a checkpoint belongs to, and where it stands."""
        return {"run": self.engine.run.releases.run_id, "steps": self.engine.steps} if self._private else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes note of the run that a checkpoint belongs to."""
        self._found = state_dict

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes the network, the optimizer and the loader private: now all of them are there."""
        _refuse_trainer(trainer, pl_module)
        network = _network(pl_module)
        source = trainer.fit_loop._data_source
        kind, before = type(network), (source.instance, source.name)
        # the same module, under the class that it had: what the engine calls
        inside: nn.Module = object.__new__(kind)
        inside.__dict__ = network.__dict__
        epochs = trainer.max_epochs if trainer.max_steps == -1 and trainer.max_epochs != -1 else None
        private, _, loader = self._make_private(inside, trainer.optimizers[0], source.dataloader(), epochs)

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._called, private.training = True, module.training
            return private(*args, **kwargs)

        network.__class__ = type(kind.__name__, (kind,), {"__call__": call, "forward": call})
        source.instance, source.name = loader, ""
        self._undo = [
            lambda: setattr(network, "__class__", kind),
            lambda: vars(source).update(instance=before[0], name=before[1]),
        ]
        checkpoint = None if trainer.ckpt_path is None else Path(trainer.ckpt_path)
        self._go_on(_folder(trainer), checkpoint, lambda: self._found == self.state_dict())

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Takes note: the run is saved when the checkpoint is on disk."""
        self._due = True

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Saves the run after a checkpoint."""
        self._called = False
        self._save_if_due(trainer)

    def _save_if_due(self, trainer: Trainer) -> None:
        folder = _folder(trainer)
        if self._due and folder is not None:
            self._save_run(folder)
        self._due = False

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Releases: what the optimizer finds as gradients from here on is noisy."""
        assert self._private is not None
        if not self._called:
            raise ValueError(
                "training_step must call once what holds all trained parameters, an attribute or self(inputs)"
            )
        self._private[1].release()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs epsilon, which holds for every dataset."""
        pl_module.log("epsilon", self.guarantee().epsilon)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Saves the run after the last checkpoint, and leaves the module and the trainer as they were."""
        try:
            if self._undo:
                self._save_if_due(trainer)
                self.engine.close()
        finally:
            while self._undo:
                self._undo.pop()()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leaves the module and the trainer as they were."""
        self.teardown(trainer, pl_module, "fit")


def _network(module: LightningModule) -> nn.Module:
    """Returns the one attribute that holds all trained parameters, or the module itself if several do."""
    trained = {name for name, value in module.named_parameters() if value.requires_grad}
    holding = sorted({name.split(".")[0] for name in trained})
    if len(holding) == 1 and holding[0] not in trained:
        network: nn.Module = getattr(module, holding[0])
        return network
    if type(module).forward is LightningModule.forward:
        raise ValueError(
            "the LightningModule must hold all trained parameters in one attribute that is a module, or have "
            f"a forward that uses them, got {holding} and no forward"
        )
    return module


def _folder(trainer: Trainer) -> Path | None:
    """Returns where the checkpoints are, if there are any."""
    folder = getattr(trainer.checkpoint_callback, "dirpath", None)
    return None if folder is None else Path(folder)


def _refuse_trainer(trainer: Trainer, module: LightningModule) -> None:
    """Raises an error that names the first setting with which a step would not be what is accounted for."""
    strategies = ("SingleDeviceStrategy", "DDPStrategy")
    sharded = "shard a model in a loop of your own, with PrivacyEngine"
    precisions = ("32-true", "64-true", "bf16-mixed")
    reloaded: Any = trainer.reload_dataloaders_every_n_epochs  # type: ignore[attr-defined]
    refuse_settings(
        {
            "strategy": (type(trainer.strategy).__name__, strategies, sharded),
            "accumulate_grad_batches": (trainer.accumulate_grad_batches, (1,), "each batch is one release"),
            "precision": (trainer.precision, precisions, "a scaled loss would scale what is clipped"),
            "number of optimizers": (len(trainer.optimizers), (1,), "one release has one optimizer"),
            "automatic_optimization": (module.automatic_optimization, (True,), "Lightning makes the steps"),
            "reload_dataloaders_every_n_epochs": (reloaded, (0,), "the private loader stays"),
        }
    )
