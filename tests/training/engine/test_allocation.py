"""Random allocation in a run: partitions, what they cost, and what comes again."""

from pathlib import Path

import pytest
import torch

import ringfence as rf
from ringfence.mechanisms.base import Sampler
from ringfence.noise import Noise
from ringfence.report.certificate import read_source
from ringfence.training.engine.batches import Batches
from tests.training.engine.runs import CLIP, Run

ALLOCATED = {"sampling": "random_allocation"}


def test_every_example_is_in_one_batch_of_every_epoch() -> None:
    run = Run(**ALLOCATED)
    released = run.samples()
    run.train(12)  # three epochs of four steps
    epochs = [[indices for step, indices in released if step // 4 == epoch] for epoch in range(3)]
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(60))
    assert len({tuple(batches) for batches in epochs}) == 3
    assert run.engine.run.plan.batches.divisor == 60 / 4
    account = run.engine.account
    assert (account.steps, account.epochs) == (12, 3)
    (epochs_charged,) = account.privacy_loss().releases
    assert (epochs_charged.epoch, epochs_charged.count) == (4, 3)
    assert epochs_charged.mu == pytest.approx(2 * 0.05 * 48**0.5, rel=1e-3)
    assert any(
        "in one batch, which is drawn at random" in said for said in run.engine.run.releases.assumptions
    )


def test_where_an_example_goes_does_not_depend_on_the_others() -> None:
    short, long = (Batches("random_allocation", count, 16, 60) for count in (40, 60))
    for step in range(8):
        own, others = (set(batches.of_step(step, Noise(7))[0].indices) for batches in (short, long))
        assert own == others & set(range(40))


def test_a_target_is_met(tmp_path: Path) -> None:
    engine = rf.PrivacyEngine(rf.Gaussian(1.0), rf.Norm(1.0), **ALLOCATED)
    model = torch.nn.Linear(2, 1)
    data = torch.utils.data.TensorDataset(torch.ones(40, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private, optimizer, loader = engine.make_private_with_epsilon(
        model, optimizer, loader, target_epsilon=0.5, target_delta=1e-3, epochs=2
    )
    for _ in range(2):
        for (inputs,) in loader:
            private(inputs).mean().backward()
            optimizer.step()
    assert engine.steps == engine.planned_steps == 4
    assert 0.499 < engine.guarantee(1e-3).epsilon <= 0.5
    engine.save(tmp_path / "run.ckpt")
    engine.close()
    assert "each example once in 2 batches, drawn at random" in str(
        read_source(tmp_path / "run.ckpt").settings
    )


@pytest.mark.parametrize("secure", [False, True])
def test_a_run_that_goes_on_counts_no_epoch_too_few(tmp_path: Path, secure: bool) -> None:
    settings = {**ALLOCATED, "secure": secure, "public_size": 60, "seed": None if secure else 3}
    run = Run(**settings).train(6)
    run.engine.save(tmp_path / "run.ckpt")
    run.train(7)
    run.engine.close()
    again = Run(**settings)
    again.engine.load(tmp_path / "run.ckpt")
    again.train(8)
    account = again.engine.account
    assert (account.steps, account.epochs) == (9, 3)  # the second epoch was begun twice


def test_a_step_that_failed_is_in_another_draw_of_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(**ALLOCATED).train(2)

    def broken(*_: object) -> torch.Tensor:
        raise ArithmeticError("broken")

    monkeypatch.setattr(Sampler, "draw", broken)
    with pytest.raises(ArithmeticError):
        run.train(3)
    monkeypatch.undo()
    run.train(4)
    assert (run.engine.account.steps, run.engine.account.epochs) == (5, 2)


def test_a_ledger_is_charged_for_every_draw_of_an_epoch(tmp_path: Path) -> None:
    """Four draws of one step each: the ledger said 3.03 where delta was 2.6e-4 and not 1e-5."""
    settings = {**ALLOCATED, "secure": True, "public_size": 60, "seed": None, "mechanism": rf.Gaussian(1.0)}
    ledger, path = rf.Ledger(delta=1e-5, planned=True), tmp_path / "run.ckpt"
    for step in range(4):
        run = Run(clip=rf.Norm(1.0), **settings)
        if path.exists():
            run.engine.load(path)
            with pytest.raises(ValueError, match=f"is beyond the {step} epochs that were charged beforehand"):
                run.train(step + 1)
        ledger.train(run.engine, 4 - step)
        run.train(step + 1).engine.save(path)
        run.engine.close()
    assert ledger.guarantee().epsilon == pytest.approx(run.engine.guarantee(1e-5).epsilon)
    assert ledger.entries[0].until == run.engine.account.epochs == 4


def test_a_ledger_that_comes_in_the_middle_of_an_epoch_pays_for_all_of_it() -> None:
    run, ledger = Run(**ALLOCATED).train(2), rf.Ledger(delta=1e-5)
    assert run.engine.planned_cost(4).releases[0].count == 2  # two steps of this epoch, two of the next
    ledger.train(run.engine, 4)
    assert (ledger.entries[0].cost.releases[0].count, ledger.entries[0].until) == (2, 2)
    run.train(8)
    with pytest.raises(ValueError, match="step 8 is beyond the 2 epochs"):
        run.train(9)
    ledger.train(run.engine, 4)
    run.train(12)
    assert ledger.entries[0].cost.releases[0].count == run.engine.account.epochs == 3


@pytest.mark.parametrize("arguments", [{"max_batch_size": 20}, {"track_examples": True}])
def test_what_is_not_proved_is_refused(arguments: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        rf.PrivacyEngine(rf.Gaussian(1.0), CLIP, **ALLOCATED, **arguments)
