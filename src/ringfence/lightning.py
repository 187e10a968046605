"""Lightning with the engine of this package: a callback that makes a fit private and logs epsilon."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "ringfence.lightning needs lightning: pip install 'ringfence[lightning]'"
    ) from None

from ringfence import checks
from ringfence.accounting.guarantee import Guarantee
from ringfence.training.engine.engine import PrivacyEngine, private_for_trainer, refuse_settings
from ringfence.training.engine.run import PrivateOptimizer

__all__ = ["PrivacyCallback"]


class PrivacyCallback(Callback):
    """Makes ``Trainer(callbacks=[...]).fit`` private, with an engine that serves this one run.

    All parameters that are trained must be in one attribute of the LightningModule, such as ``self.network``.
    ``training_step`` calls it once, without labels, and returns the mean loss of the batch. A batch has as
    many examples as the loader's batch_size on average. ``delta`` is that of the epsilon that is logged after
    each epoch. With ``target_epsilon`` the noise is found with which max_epochs epochs meet it at delta.

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
        if not isinstance(engine, PrivacyEngine):
            raise TypeError(f"engine must be a ringfence.PrivacyEngine, got {type(engine).__name__}")
        self.engine = engine
        self.delta = checks.probability("delta", delta)
        self.target_epsilon = target_epsilon
        self._source: tuple[Any, Any, str] | None = None  # where batches come from, and what it was before
        self._network = ""
        self._optimizer: PrivateOptimizer | None = None

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Returns what training has cost so far, and what may be said about it."""
        return self.engine.guarantee(self.delta if delta is None else delta)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes the network, the optimizer and the loader private: now all of them are there."""
        _refuse_trainer(trainer, pl_module)
        name, network = _network(pl_module)
        source = trainer.fit_loop._data_source
        private, self._optimizer, loader = private_for_trainer(
            self.engine,
            *(network, trainer.optimizers[0], source.dataloader()),
            target_epsilon=self.target_epsilon,
            target_delta=self.delta,
            epochs=trainer.max_epochs if trainer.max_steps == -1 and trainer.max_epochs != -1 else None,
        )
        self._source, self._network = (source, source.instance, source.name), name
        source.instance, source.name = loader, ""
        # the attribute hides the registered module: state_dict, parameters and modes are those it always had
        private.training = True
        vars(pl_module)[name] = private

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Releases: what the optimizer finds as gradients from here on is noisy."""
        assert self._optimizer is not None
        self._optimizer.release()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs epsilon, which holds for every dataset."""
        pl_module.log("epsilon", self.guarantee().epsilon)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leaves the module and the trainer as they were."""
        if self._source is not None:
            source, source.instance, source.name = self._source[0], *self._source[1:]
            vars(pl_module).pop(self._network)
            self._source = None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leaves the module and the trainer as they were."""
        self.teardown(trainer, pl_module, "fit")


def _network(module: LightningModule) -> tuple[str, nn.Module]:
    """The one attribute that holds all parameters that are trained."""
    trained = {name for name, value in module.named_parameters() if value.requires_grad}
    holding = sorted({name.split(".")[0] for name in trained})
    if len(holding) != 1 or holding[0] in trained:
        raise ValueError(
            "the LightningModule must hold all trained parameters in one attribute that is a module, got "
            f"{holding}"
        )
    return holding[0], getattr(module, holding[0])


def _refuse_trainer(trainer: Trainer, module: LightningModule) -> None:
    """Raises an error that names the first setting with which a step would not be what is accounted for."""
    several = "several processes are not supported: train on one device"
    forgotten = "the account would begin at 0; save and load the run with engine.save and engine.load"
    precisions = ("32-true", "64-true", "bf16-mixed")
    reloaded: Any = trainer.reload_dataloaders_every_n_epochs  # type: ignore[attr-defined]
    refuse_settings(
        {
            "accumulate_grad_batches": (trainer.accumulate_grad_batches, (1,), "each batch is one release"),
            "world_size": (trainer.world_size, (1,), several),
            "precision": (trainer.precision, precisions, "a scaled loss would scale what is clipped"),
            "number of optimizers": (len(trainer.optimizers), (1,), "one release has one optimizer"),
            "automatic_optimization": (module.automatic_optimization, (True,), "Lightning makes the steps"),
            "reload_dataloaders_every_n_epochs": (reloaded, (0,), "the private loader stays"),
            "ckpt_path": (trainer.ckpt_path, (None,), forgotten),
        }
    )
