"""The callback for Lightning, against the engine alone and with the real libraries."""

import doctest
import importlib
import re
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests import tiny_bert

# Lightning warns about few workers, few batches and its own dependencies
pytestmark = pytest.mark.filterwarnings("ignore")


@cache
def modules() -> dict[str, Any]:
    """The LightningModules of these tests, made late: a process that only collects would lose seconds."""
    from lightning.pytorch import LightningModule

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = tiny_bert.model()

        def training_step(self, batch: dict[str, Tensor], number: int) -> Tensor:
            labels = batch.pop("labels")
            return nn.functional.cross_entropy(self.network(**batch).logits, labels)

        def validation_step(self, batch: dict[str, Tensor], number: int) -> None:
            self.log("accuracy", (self.network(**batch).logits.argmax(1) == batch["labels"]).float().mean())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=tiny_bert.RATE)

    class Two(Classifier):
        def configure_optimizers(self) -> list[torch.optim.Optimizer]:
            return [super().configure_optimizers(), super().configure_optimizers()]

        automatic_optimization = False

    class Apart(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

    class Halves(Apart):
        """A backbone and a head in two attributes, which ``forward`` puts together."""

        def forward(self, **batch: Tensor) -> Tensor:
            logits: Tensor = self.network(**batch).logits * self.scale
            return logits

        def training_step(self, batch: dict[str, Tensor], number: int) -> Tensor:
            labels = batch.pop("labels")
            loss = nn.functional.cross_entropy(self(**batch), labels)
            self.log("loss", loss, on_epoch=True)
            return loss

        def validation_step(self, batch: dict[str, Tensor], number: int) -> None:
            assert not self(
                **{name: value for name, value in batch.items() if name != "labels"}
            ).requires_grad

    class Past(Halves):
        """Whose training goes past ``forward``."""

        training_step, validation_step = Classifier.training_step, Classifier.validation_step

    return {"classifier": Classifier, "two": Two, "apart": Apart, "halves": Halves, "past": Past}


def private_callback(engine: Any, **options: Any) -> Any:
    from ringfence.lightning import PrivacyCallback

    return PrivacyCallback(engine, **{"delta": tiny_bert.DELTA, **options})


def fitted(
    module: nn.Module,
    private: Any,
    folder: Path,
    size: int = tiny_bert.BATCH,
    ckpt_path: Any = None,
    callbacks: tuple[Any, ...] = (),
    **options: Any,
) -> Any:
    from lightning.pytorch import Trainer

    settings = {"max_epochs": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu", callbacks=[private, *callbacks], default_root_dir=folder, **{**settings, **options}
    )
    trainer.fit(
        module,
        DataLoader(tiny_bert.data(), batch_size=size),
        DataLoader(tiny_bert.data()),
        ckpt_path=ckpt_path,
    )
    return trainer


def test_lightning_takes_the_steps_of_the_engine(tmp_path: Path) -> None:
    module, private = modules()["classifier"](), private_callback(tiny_bert.engine())
    network, names = module.network, set(module.state_dict())
    trainer = fitted(module, private, tmp_path)
    torch.testing.assert_close(tiny_bert.trained(module), tiny_bert.by_hand(), rtol=1e-6, atol=1e-7)
    claim = private.guarantee()
    assert claim.steps == tiny_bert.STEPS == trainer.global_step
    assert float(trainer.callback_metrics["epsilon"]) == pytest.approx(claim.epsilon)
    assert "accuracy" in trainer.callback_metrics
    assert module.network is network
    assert "network" not in vars(module)
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
    assert set(saved["state_dict"]) == names


def test_what_is_clipped_again_was_released(tmp_path: Path) -> None:
    module, engine = modules()["classifier"](), tiny_bert.engine(sampling="full")
    private = private_callback(engine, delta=0.1, target_epsilon=9.0)
    start = tiny_bert.trained(module)
    options = {"gradient_clip_val": 1e-3, "enable_checkpointing": False}
    fitted(module, private, tmp_path, size=tiny_bert.EXAMPLES, **options)
    moved = (tiny_bert.trained(module) - start).norm()
    assert float(moved) == pytest.approx(1e-3 * tiny_bert.RATE, rel=1e-3)
    assert 8.9 < private.guarantee().epsilon <= 9.0


@pytest.mark.parametrize(
    ("kind", "options", "match"),
    [
        ("classifier", {"accumulate_grad_batches": 2}, "accumulate_grad_batches must be 1, got 2: each"),
        ("classifier", {"precision": "16-true"}, "precision must be '32-true'"),
        (
            "classifier",
            {"reload_dataloaders_every_n_epochs": 1},
            "reload_dataloaders_every_n_epochs must be 0",
        ),
        ("two", {}, "number of optimizers must be 1, got 2"),
        ("apart", {}, r"or have a forward that uses them, got \['network', 'scale'\] and no forward"),
        ("past", {}, r"training_step must call once .* or self\(inputs\)"),
    ],
)
def test_what_would_be_another_mechanism_is_refused(
    kind: str, options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    module, private = modules()[kind](), private_callback(tiny_bert.engine())
    with pytest.raises(ValueError, match=match):
        fitted(module, private, tmp_path, enable_checkpointing=False, **options)
    assert private.engine.steps == 0


def test_a_strategy_that_shards_is_refused(tmp_path: Path) -> None:
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class Sharding(SingleDeviceStrategy):
        """Stands for those that need a GPU."""

    with pytest.raises(ValueError, match=r"strategy must be .* or 'DDPStrategy', got 'Sharding': shard"):
        fitted(
            modules()["classifier"](),
            private_callback(tiny_bert.engine()),
            tmp_path,
            strategy=Sharding("cpu"),
        )


def by_loop(module: Any) -> Tensor:
    """The weights of a module of two parts after the same steps of a plain loop."""

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.network = module.scale, module.network

        def forward(self, **batch: Tensor) -> Tensor:
            logits: Tensor = self.network(**batch).logits * self.scale
            return logits

    model = Plain()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=tiny_bert.RATE)
    loader = DataLoader(tiny_bert.data(), batch_size=tiny_bert.BATCH)
    private, optimizer, loader = tiny_bert.engine().make_private(model.train(), optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        labels = batch.pop("labels")
        nn.functional.cross_entropy(private(**batch), labels).backward()
        optimizer.step()
    return tiny_bert.trained(model)


def test_a_backbone_and_a_head_in_two_attributes(tmp_path: Path) -> None:
    module, private = modules()["halves"](), private_callback(tiny_bert.engine())
    kind = type(module)
    fitted(module, private, tmp_path)
    torch.testing.assert_close(
        tiny_bert.trained(module), by_loop(modules()["halves"]()), rtol=1e-6, atol=1e-7
    )
    assert type(module) is kind
    assert private.engine.steps == tiny_bert.STEPS


def test_a_compiled_network_and_a_call_of_forward(tmp_path: Path) -> None:
    class Forward(modules()["halves"]):  # type: ignore[misc]
        def training_step(self, batch: dict[str, Tensor], number: int) -> Tensor:
            labels = batch.pop("labels")
            return nn.functional.cross_entropy(self.forward(**batch), labels)

    compiled, called = modules()["classifier"](), Forward()
    compiled.network = torch.compile(compiled.network)
    for module, expected in ((compiled, tiny_bert.by_hand()), (called, by_loop(Forward()))):
        fitted(module, private_callback(tiny_bert.engine()), tmp_path, enable_checkpointing=False)
        torch.testing.assert_close(tiny_bert.trained(module), expected, rtol=1e-6, atol=1e-7)


def test_half_precision_takes_the_fused_pass(tmp_path: Path) -> None:
    module, private = modules()["classifier"](), private_callback(tiny_bert.engine())
    fitted(module, private, tmp_path, precision="bf16-mixed", enable_checkpointing=False)
    with torch.autocast("cpu", torch.bfloat16):
        expected = tiny_bert.by_hand()
    assert not torch.equal(expected, tiny_bert.by_hand())
    torch.testing.assert_close(tiny_bert.trained(module), expected, rtol=1e-6, atol=1e-7)
    assert private.engine.fallback_reason is None
    assert not private.engine.slower_layers


@pytest.mark.parametrize(("kind", "lost"), [("classifier", 1), ("halves", 0)])
def test_a_fit_goes_on_from_a_checkpoint_with_its_account(kind: str, lost: int, tmp_path: Path) -> None:
    """To the bit where nothing was released after it; otherwise a lost step is made, and charged, again."""
    from lightning.pytorch import Callback
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    class Killed(Callback):
        def on_train_batch_start(self, trainer: Any, *others: Any) -> None:
            if trainer.global_step == 2 + lost:
                raise ArithmeticError("killed")

    def checkpoints(folder: str) -> Any:
        return ModelCheckpoint(tmp_path / folder, "{step}", every_n_train_steps=2, save_top_k=-1)

    whole, first, second = (modules()[kind]() for _ in range(3))
    private = private_callback(tiny_bert.engine())
    logger = CSVLogger(tmp_path, name="", version="logs")
    options = {"max_epochs": 2, "callbacks": (checkpoints("whole"),)}
    fitted(whole, private, tmp_path, **options, logger=logger)
    with pytest.raises(ArithmeticError, match="killed"):
        fitted(
            first, private_callback(tiny_bert.engine()), tmp_path, max_epochs=2,
            callbacks=(Killed(), checkpoints("killed")),
        )  # fmt: skip
    again, at = private_callback(tiny_bert.engine()), tmp_path / "killed"
    trainer = fitted(
        second, again, tmp_path, max_epochs=2, callbacks=(checkpoints("again"),), ckpt_path=at / "step=2.ckpt"
    )
    assert torch.equal(tiny_bert.trained(second), tiny_bert.trained(whole)) == (not lost)
    assert again.engine.steps == trainer.global_step == 6
    assert again.engine.account.steps == 6 + lost
    logged = (tmp_path / "logs/metrics.csv").read_text().splitlines()
    place = logged[0].split(",").index("epsilon")
    epsilons = [line.split(",")[place] for line in logged[1:]]
    assert float([each for each in epsilons if each][-1]) == pytest.approx(private.guarantee().epsilon)
    if not lost:
        return
    for folder, ckpt_path, match in (
        ("new", at / "step=2.ckpt", "the run went on in another file"),
        ("new", tmp_path / "again/step=2.ckpt", "is not where its run was saved last, which was after 6"),
        ("again", None, "run.ckpt holds the account of an earlier training"),
    ):
        if ckpt_path is not None and ckpt_path.parent.name == "again":
            (at / "step=2.ckpt").rename(ckpt_path)
        with pytest.raises(ValueError, match=match):
            fitted(
                modules()[kind](), private_callback(tiny_bert.engine()), tmp_path, max_epochs=2,
                callbacks=(checkpoints(folder),), ckpt_path=ckpt_path,
            )  # fmt: skip
    (tmp_path / "whole/_private/run.ckpt").unlink()
    with pytest.raises(ValueError, match=r"cannot be resumed: .*run.ckpt is missing"):
        fitted(
            second, private_callback(tiny_bert.engine()), tmp_path, ckpt_path=tmp_path / "whole/step=6.ckpt"
        )


def test_an_engine_must_be_one() -> None:
    with pytest.raises(TypeError, match="engine must be a PrivacyEngine, got 3"):
        private_callback(3)


def test_a_step_that_fails_leaves_the_module_as_it_was(tmp_path: Path) -> None:
    class Broken(modules()["classifier"]):  # type: ignore[misc]
        def training_step(self, batch: dict[str, Tensor], number: int) -> Tensor:
            self.network(**{name: value for name, value in batch.items() if name != "labels"})
            raise ArithmeticError("broken")

    module, private = Broken(), private_callback(tiny_bert.engine())
    with pytest.raises(ArithmeticError, match="broken"):
        fitted(module, private, tmp_path, enable_checkpointing=False)
    assert "network" not in vars(module)
    assert private.engine.steps == 0


def test_the_guide_runs_and_names_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parent.parent / "docs" / "huggingface.md").read_text()
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", guide, re.S):
        exec(code, names)
    assert capsys.readouterr().out.count("the 4 releases satisfy") == 2
    listed = dict(re.findall(r"(opacus|transformers|accelerate|peft|lightning) (\d[\d.]*\d)", guide))
    assert listed == {name: version(name) for name in listed}
    assert len(listed) == 5


@pytest.mark.parametrize(
    ("name", "missing"),
    [("opacus", "opacus"), ("huggingface", "accelerate"), ("lightning", "lightning.pytorch")],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, f"ringfence.{name}", raising=False)
    needed = rf"^ringfence\.{name} needs .*: pip install 'ringfence\[{name}\]'$"
    with pytest.raises(ModuleNotFoundError, match=needed):
        importlib.import_module(f"ringfence.{name}")


@pytest.mark.parametrize("name", ["huggingface", "lightning"])
def test_the_examples_of_the_docstrings(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(f"ringfence.{name}"))
    assert ran.failed == 0 < ran.attempted
