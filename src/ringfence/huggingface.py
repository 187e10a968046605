"""The Trainer of Hugging Face with the engine of this package: private steps, and epsilon in the logs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

try:
    import accelerate as _accelerate  # noqa: F401
    from transformers import Trainer, TrainerState
    from transformers.trainer_utils import get_last_checkpoint
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"ringfence.huggingface needs {missing.name}: pip install 'ringfence[huggingface]'"
    ) from None

from ringfence.training.engine.batches import loading_options
from ringfence.training.engine.engine import PrivacyEngine
from ringfence.training.engine.trainers import TrainerRun, refuse_settings

__all__ = ["PrivateTrainer", "PrivateTraining", "example_loss"]

if TYPE_CHECKING:
    _Trainer = Trainer  # the mixin is put before any Trainer
else:
    _Trainer = object


class PrivateTraining(TrainerRun, _Trainer):
    """Makes any Trainer private: ``class Mine(PrivateTraining, TheirTrainer)``.

    ``engine`` is a ``ringfence.PrivacyEngine``, which serves this one run. ``delta`` is that of the epsilon
    in the logs. With ``target_epsilon`` the noise is found with which num_train_epochs epochs meet it at
    delta. A batch has per_device_train_batch_size examples of each process on average. The loss must be a
    mean over examples of a loss of each one: ``compute_loss_func(outputs, labels, num_items_in_batch)``, by
    default ``example_loss``; the model itself is called without labels.

    With each checkpoint the engine is saved to ``_private/run.ckpt`` in output_dir. This file holds the
    account, and is as private as the data. ``train(resume_from_checkpoint=True)`` goes on with both. Steps
    after the last checkpoint stay charged, and are made and charged again.

    Guarantee: as that of the engine. In every step, the gradient that the optimizer gets is the released one;
    clipping it again by max_grad_norm takes nothing from the promise and adds nothing to it. What would make
    a step another mechanism is refused by name. Losses in the logs come from private data and are not
    covered.
    """

    def __init__(
        self,
        *args: Any,
        engine: PrivacyEngine,
        delta: float,
        target_epsilon: float | None = None,
        **kwargs: Any,
    ) -> None:
        self._serve(engine, delta, target_epsilon)
        if engine.loss_reduction != "mean":
            raise ValueError(f"the engine's loss_reduction must be 'mean', got {engine.loss_reduction!r}")
        if engine.secure:
            raise ValueError(
                "the engine must not be secure in a Trainer, whose loss is a mean: its rounding tells how "
                "many examples a batch has. Write a loop of your own, with loss or loss_reduction='sum'"
            )
        self._checkpoint: Path | None = None  # the one that training goes on from
        kwargs["compute_loss_func"] = kwargs.get("compute_loss_func") or example_loss
        super().__init__(*args, **kwargs)
        _refuse_arguments(self)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains, once; goes on from a checkpoint, or from the last one, together with the account."""
        if self._private is not None:
            raise ValueError("this trainer has trained: make another engine and another trainer")
        if resume_from_checkpoint is True:
            last: Callable[[str], str | None] = get_last_checkpoint
            resume_from_checkpoint = last(str(self.args.output_dir)) or True
        if resume_from_checkpoint:
            self._checkpoint = Path(resume_from_checkpoint)
            self.args.ignore_data_skip = True  # the private loader begins where the run is
        try:
            return super().train(resume_from_checkpoint or None, *args, **kwargs)
        finally:
            self.engine.close()

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Logs, with the epsilon of the steps so far: it holds for every dataset."""
        if self.engine.steps and self._private is not None:
            logs["epsilon"] = self.guarantee().epsilon
            self.state.epoch = self.engine.steps / len(self._private[2])
        super().log(logs, *args, **kwargs)

    def get_train_dataloader(self) -> Any:
        """Returns the private loader, for which model and optimizer are made private as well."""
        if self._private is None:
            ordinary = super().get_train_dataloader()
            loader = DataLoader(
                ordinary.dataset,
                batch_size=self.args.per_device_train_batch_size,
                collate_fn=partial(_plain, ordinary.collate_fn),
                **loading_options(ordinary),
            )
            # the Trainer would make its optimizer later than a callback could take it (transformers 38181)
            model: Any = self.model
            epochs = None if self.args.max_steps > 0 else self.args.num_train_epochs
            self._make_private(model, self.create_optimizer(), loader, epochs)
            self._go_on(Path(str(self.args.output_dir)), self._checkpoint, self._is_last)
        return self._private[2]  # type: ignore[index]

    def _is_last(self) -> bool:
        """Whether the checkpoint that training goes on from was made where the run was saved."""
        state = TrainerState.load_from_json(str(self._checkpoint / "trainer_state.json"))  # type: ignore[operator]
        return bool(state.global_step == self.engine.steps)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Saves a checkpoint of the Trainer, and the run."""
        super()._save_checkpoint(*args, **kwargs)
        self._save_run(Path(str(self.args.output_dir)))

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One private step: what the optimizer finds as gradients afterwards was released."""
        if self._private is None:
            raise ValueError("training_step needs the private loader: call train")
        private, optimizer, _ = self._private
        private.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.compute_loss(private, inputs)
        assert isinstance(loss, Tensor)
        loss.backward()
        optimizer.release()
        return loss.detach()


class PrivateTrainer(PrivateTraining, Trainer):
    """``transformers.Trainer``, private. The arguments are those of ``PrivateTraining`` and of the Trainer.

    >>> import tempfile, torch, transformers, ringfence as rf
    >>> _ = torch.manual_seed(0)
    >>> model = transformers.BertForSequenceClassification(transformers.BertConfig(
    ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8))
    >>> data = [{"input_ids": torch.randint(0, 20, (5,)), "labels": i % 2} for i in range(32)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arguments = transformers.TrainingArguments(folder, max_steps=2, per_device_train_batch_size=8,
    ...         report_to="none", disable_tqdm=True, use_cpu=True)
    ...     engine = rf.PrivacyEngine(rf.Gaussian(1.0), rf.Norm(1.0))
    ...     trainer = PrivateTrainer(model, arguments, train_dataset=data, engine=engine, delta=1e-3)
    ...     trainer.remove_callback(transformers.PrinterCallback)
    ...     _ = trainer.train()
    >>> trainer.guarantee().steps
    2
    """


def example_loss(outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
    """Returns the mean over examples of the cross-entropy of logits (n, classes) with labels (n,).

    >>> import torch
    >>> round(float(example_loss({"logits": torch.zeros(3, 4)}, torch.tensor([0, 1, 2]))), 4)
    1.3863
    """
    logits = outputs["logits"]
    if labels is None or logits.ndim != 2 or labels.ndim != 1 or labels.is_floating_point():
        found = None if labels is None else list(labels.shape)
        raise ValueError(
            f"compute_loss_func must be given for logits {list(logits.shape)} and labels {found}: the mean "
            "over examples of each one's own loss, whatever the number of tokens in the batch"
        )
    return nn.functional.cross_entropy(logits, labels)


def _plain(collate: Callable[[list[Any]], Any], examples: list[Any]) -> dict[str, Any]:
    """Returns a batch as a plain dictionary, which can be cut to nothing, whatever the collator makes."""
    return dict(collate(examples))


def _refuse_arguments(trainer: Trainer) -> None:
    """Raises an error that names the first argument with which a step would not be what is accounted for."""
    sharded = "the Trainer would shard the model itself: shard it in a loop of your own, with PrivacyEngine"
    watched = "layers are watched in one pass"
    reasons: dict[str, tuple[tuple[Any, ...], str]] = {
        "gradient_accumulation_steps": ((1,), "each batch is one release"),
        "n_gpu": ((0, 1), "start a process for each device, with torchrun, or set CUDA_VISIBLE_DEVICES"),
        "fp16": ((False,), "a scaled loss would scale what is clipped: use float32"),
        "gradient_checkpointing": ((False,), watched),
        "torch_compile": ((False,), watched),
        "auto_find_batch_size": ((False,), "another batch size is another sampling rate"),
        "label_smoothing_factor": ((0.0,), "use compute_loss_func"),
        "neftune_noise_alpha": ((None,), "it adds noise to embeddings where no account sees it"),
        "dataloader_drop_last": ((False,), "a private step leaves out no example"),
        "train_sampling_strategy": (("random", "sequential"), "batches are Poisson samples"),
    }
    settings = {name: (getattr(trainer.args, name), *reason) for name, reason in reasons.items()}
    settings["fsdp"] = (trainer.is_fsdp_enabled, (False,), sharded)
    settings["deepspeed"] = (trainer.is_deepspeed_enabled, (False,), sharded)
    refuse_settings(settings)
