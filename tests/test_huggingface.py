"""The private Trainer, against the engine alone and with the real libraries."""

from pathlib import Path
from typing import Any

import pytest
import torch

import ringfence as rf
from tests import tiny_bert
from tests.training.processes import trained_by_two


def trainer(
    folder: Path, engine: Any = None, target: float | None = None, model: Any = None, **arguments: Any
) -> Any:
    import transformers  # here, since a process that only collects this file would lose seconds

    from ringfence.huggingface import PrivateTrainer

    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": tiny_bert.BATCH,
        "max_steps": tiny_bert.STEPS,
        "optim": "sgd",
        "learning_rate": tiny_bert.RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 3,
        "disable_tqdm": True,
        "report_to": "none",
        "use_cpu": True,
        **arguments,
    }
    made = PrivateTrainer(
        model=tiny_bert.model() if model is None else model,
        args=transformers.TrainingArguments(**settings),
        train_dataset=tiny_bert.data(),
        eval_dataset=tiny_bert.data(),
        data_collator=transformers.default_data_collator,
        engine=tiny_bert.engine() if engine is None else engine,
        delta=tiny_bert.DELTA,
        target_epsilon=target,
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


def test_the_trainer_takes_the_steps_of_the_engine(tmp_path: Path) -> None:
    private = trainer(tmp_path)
    before = {name: value.clone() for name, value in private.model.state_dict().items()}
    private.train()
    torch.testing.assert_close(tiny_bert.trained(private.model), tiny_bert.by_hand(), rtol=1e-6, atol=1e-7)
    after = private.model.state_dict()
    assert before.keys() == after.keys()
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved == {name for name, p in private.model.named_parameters() if p.requires_grad}
    assert private.engine.fallback_reason is None  # LoRA goes through the fused pass, its dropout as well
    claim = private.guarantee()
    assert claim.steps == tiny_bert.STEPS == private.state.global_step
    (logged,) = [entry["epsilon"] for entry in private.state.log_history if "loss" in entry]
    assert logged == claim.epsilon
    assert (tmp_path / f"checkpoint-{tiny_bert.STEPS}" / "adapter_model.safetensors").exists()
    assert "eval_loss" in private.evaluate()
    with pytest.raises(ValueError, match="this trainer has trained"):
        private.train()


def test_what_is_clipped_again_was_released(tmp_path: Path) -> None:
    options = {
        "per_device_train_batch_size": tiny_bert.EXAMPLES,
        "max_grad_norm": 1e-3,
        "save_strategy": "no",
    }
    private = trainer(tmp_path, tiny_bert.engine(sampling="full"), max_steps=1, **options)
    start = tiny_bert.trained(private.model)
    private.train()
    moved = (tiny_bert.trained(private.model) - start).norm()
    assert float(moved) == pytest.approx(1e-3 * tiny_bert.RATE, rel=1e-3)
    assert private.engine.steps == 1


def test_batches_may_be_empty_and_noise_may_be_found(tmp_path: Path) -> None:
    engine = tiny_bert.engine(public_size=1000)  # 24 of the 1,000 that are said to be there: most are empty
    private = trainer(tmp_path, engine, per_device_train_batch_size=1, save_strategy="no")
    private.train()
    assert engine.steps == tiny_bert.STEPS
    engine = tiny_bert.engine(sampling="full")
    options = {"max_steps": -1, "num_train_epochs": 2, "save_strategy": "no"}
    private = trainer(tmp_path, engine, 3.0, per_device_train_batch_size=tiny_bert.EXAMPLES, **options)
    private.train()
    assert 2.99 < private.guarantee().epsilon <= 3.0
    assert engine.steps == 2


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps must be 1, got 2: each"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing must be False"),
        ({"label_smoothing_factor": 0.1}, r"label_smoothing_factor must be 0\.0, got 0\.1"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha must be None"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last must be False"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy must be"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size must be False"),
    ],
)
def test_what_would_be_another_mechanism_is_refused(
    arguments: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=match):
        trainer(tmp_path, **arguments)


@pytest.mark.parametrize(("moment", "lost"), [("on_save", 0), ("on_step_end", 1)])
def test_training_goes_on_from_a_checkpoint_with_its_account(tmp_path: Path, moment: str, lost: int) -> None:
    """To the bit where nothing was released after it; otherwise the lost step is made, and charged, again."""
    import transformers

    class Killed(transformers.TrainerCallback):
        def killing(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.global_step == 3 + lost:
                raise KeyboardInterrupt

    options = {"max_steps": 6, "save_steps": 3, "logging_steps": 1, "lr_scheduler_type": "linear"}
    options |= {"optim": "adamw_torch", "learning_rate": 0.01}
    whole = trainer(tmp_path / "whole", **{**options, "logging_steps": 6})
    whole.train()
    killed = trainer(tmp_path / "killed", **options)
    setattr(Killed, moment, Killed.killing)
    killed.add_callback(Killed())
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    again = trainer(tmp_path / "killed", **options)
    again.train(resume_from_checkpoint=True)
    assert torch.equal(tiny_bert.trained(again.model), tiny_bert.trained(whole.model)) == (not lost)
    assert again.engine.steps == again.state.global_step == 6
    assert again.engine.account.steps == 6 + lost
    logged = [(entry["step"], entry["epoch"]) for entry in again.state.log_history if "loss" in entry]
    assert logged == [(step, pytest.approx(step / tiny_bert.STEPS)) for step in range(1, 7)]
    if lost:
        return
    with pytest.raises(
        ValueError, match=r"checkpoint-3 is not where its run was saved last, which was after 6"
    ):
        trainer(tmp_path, **options).train(resume_from_checkpoint=str(tmp_path / "killed/checkpoint-3"))
    with pytest.raises(ValueError, match=r"run.ckpt holds the account of an earlier training"):
        trainer(tmp_path / "whole", **options).train()
    (tmp_path / "whole/_private/run.ckpt").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-6 cannot be resumed: .*run.ckpt is missing"):
        trainer(tmp_path / "whole", **options).train(resume_from_checkpoint=True)


def in_two_processes(rank: int, folder: Path) -> None:
    """Trains, stops after the second step, and goes on; then trains again, with Lightning."""
    from tests.test_lightning import fitted, modules, private_callback

    tiny_bert.one_of_two(rank, folder)
    options = {"save_steps": 1, "per_device_train_batch_size": tiny_bert.BATCH // 2, "ddp_backend": "gloo"}
    for resumed, steps in ((False, 2), (True, tiny_bert.STEPS)):
        model, engine = tiny_bert.quiet()
        private = trainer(folder / "out", engine, model=model, max_steps=steps, **options)
        private.train(resume_from_checkpoint=resumed)
    epsilon = [entry["epsilon"] for entry in private.state.log_history if "epsilon" in entry][-1]
    found = [(tiny_bert.trained(model), engine.steps, epsilon)]
    module = modules()["classifier"]()
    module.network, engine = tiny_bert.quiet()
    private, options = private_callback(engine), {"devices": 2, "strategy": "ddp"}
    fit = fitted(module, private, folder / "fit", tiny_bert.BATCH // 2, **options)
    found.append((tiny_bert.trained(module), engine.steps, float(fit.callback_metrics["epsilon"])))
    torch.save(found, folder / f"{rank}.pt")


def test_two_processes_train_and_go_on_as_one_does(tmp_path: Path) -> None:
    """Under the Trainer and under Lightning, whose processes import what takes seconds."""
    folder = trained_by_two(in_two_processes, tmp_path)
    expected = tiny_bert.by_hand(*tiny_bert.quiet())
    both = (torch.load(folder / f"{rank}.pt") for rank in (0, 1))
    for (first, steps, epsilon), other in zip(*both, strict=True):
        assert torch.equal(first, other[0])
        torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-6)
        assert (steps, epsilon) == other[1:]
        assert steps == tiny_bert.STEPS


def test_half_precision_takes_the_fused_pass(tmp_path: Path) -> None:
    private = trainer(tmp_path, bf16=True, save_strategy="no")
    private.train()
    assert private.engine.fallback_reason is None
    assert not private.engine.slower_layers
    with torch.autocast("cpu", torch.bfloat16):
        expected = tiny_bert.by_hand()
    assert not torch.equal(expected, tiny_bert.by_hand())
    torch.testing.assert_close(tiny_bert.trained(private.model), expected, rtol=1e-6, atol=1e-7)


def test_what_cannot_be_trained_so_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="target_epsilon needs a whole number of epochs and no max_steps"):
        trainer(tmp_path, target=1.0).train()
    with pytest.raises(ValueError, match="needs a batch of the whole dataset, got batch size 8"):
        trainer(tmp_path, tiny_bert.engine(sampling="full")).train()
    with pytest.raises(ValueError, match="loss_reduction must be 'mean', got 'sum'"):
        trainer(tmp_path, tiny_bert.engine(loss_reduction="sum"))
    secure = rf.PrivacyEngine(
        rf.Gaussian(1.0), rf.Norm(1.0), secure=True, public_size=24, loss=lambda *_: None
    )
    with pytest.raises(ValueError, match="must not be secure in a Trainer, whose loss is a mean"):
        trainer(tmp_path, secure)


def test_a_loss_over_tokens_has_to_be_given() -> None:
    from ringfence.huggingface import example_loss

    logits, labels = torch.zeros(2, 5, 3), torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"compute_loss_func must be given for logits \[2, 5, 3\]"):
        example_loss({"logits": logits}, labels)
