"""One unit, many rows: what a step releases is what a loop over units gives, clipped after their rows."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import ringfence as rf
from tests.training.engine.runs import CLIP, INPUTS, LABELS, Run, network

PEOPLE = [f"p{row * row % 46 % 24}" for row in range(60)]  # of one to six rows each
OWNERS = {name: [row for row in range(60) if PEOPLE[row] == name] for name in dict.fromkeys(PEOPLE)}


def shifted(images: Tensor) -> Tensor:
    return images + torch.rand(len(images), 1, 1, 1)


def unit_gradients(batches: list[list[tuple[Tensor, Tensor]]], divisor: int) -> Tensor:
    """The gradients of units by ordinary autograd, given the rows of each: their sum over ``divisor``."""
    model, gradients = network(), []
    for rows in batches:
        total = torch.zeros(sum(p.numel() for p in model.parameters()))
        for image, label in rows:
            loss = nn.functional.cross_entropy(model(image[None]), label[None])
            total += torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        gradients.append(total / divisor)
    return torch.stack(gradients)


def first_sum(reduction: str, **settings: Any) -> tuple[Tensor, list[tuple[Any, Any]]]:
    """The sum of the first step, and what the loader gave."""
    run, given = Run(loss_reduction=reduction, **settings), []
    announce = run.engine.run.announce

    def announced(batch: Any, values: Any) -> None:
        given.append((batch, values))
        announce(batch, values)

    run.engine.run.announce = announced  # type: ignore[method-assign]
    for inputs, labels in run.loader:
        run.batch(inputs, labels, reduction)
        if run.engine.steps:
            break
    assert run.engine.run.theta is not None
    return run.engine.run.theta, given


@pytest.mark.parametrize("clip", [CLIP, rf.Norm(0.3)])
@pytest.mark.parametrize("sampling", ["full", "poisson"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_step_is_that_of_a_loop_over_units(clip: rf.Clip, sampling: str, reduction: str) -> None:
    how: dict[str, Any] = {"clip": clip, "sampling": sampling}
    how |= {"micro_batch_size": 7} if sampling == "poisson" else {}
    theta, given = first_sum(reduction, augmentations=3, transform=shifted, **how)
    units = []
    for batch, (images, labels) in given:
        pairs = list(zip(images, labels, strict=True))
        assert torch.equal(labels, LABELS[list(batch.indices)].repeat_interleave(3))
        units += [pairs[i : i + 3] for i in range(0, len(pairs), 3)]
    assert torch.allclose(theta, clip(unit_gradients(units, 3)).sum(dim=0), atol=1e-5)

    theta, given = first_sum(reduction, units=PEOPLE, rows_per_unit=4, batch_size=8, **how)
    names = list(OWNERS)
    rows = [OWNERS[names[unit]][:4] for batch, _ in given for unit in batch.indices]
    assert {len(own) for own in rows} > {1, 4} or sampling == "poisson"
    units = [[(INPUTS[row], LABELS[row]) for row in own] for own in rows]
    assert torch.allclose(theta, clip(unit_gradients(units, 4)).sum(dim=0), atol=1e-5)


@pytest.mark.parametrize("clip", [CLIP, rf.Norm(0.3), rf.Norm(0.3, each=0.05)])
def test_a_whole_unit_moves_the_sum_by_no_more_than_is_charged(clip: rf.Clip) -> None:
    """Every single person is left out with all her records, which are made enormous."""
    names, sums = list(OWNERS), []
    large = INPUTS * 1e4
    for left in (None, *names):
        kept = [row for row in range(60) if PEOPLE[row] != left]
        people = {"units": [PEOPLE[row] for row in kept], "rows_per_unit": 8, "public_size": len(names)}
        data = {"inputs": large[kept], "labels": LABELS[kept], "batch_size": 64}
        sums.append(first_sum("sum", clip=clip, mechanism=rf.Gaussian(1.0), **data, **people)[0])
    moved = torch.stack(sums[1:]) - sums[0]
    sensitivity = rf.Sensitivity.of(clip.sensitivity)
    if sensitivity.each is not None:
        assert float(moved.abs().max()) <= float(sensitivity.each) * (1 + 1e-4)
        assert float(moved.abs().max()) > 0.99 * float(sensitivity.each)
    if sensitivity.norm is not None:
        assert float(moved.norm(dim=1).max()) <= float(sensitivity.norm) * (1 + 1e-4)


def test_every_row_of_a_large_unit_comes_in_turn() -> None:
    run = Run(units=[0] * 7 + [1] * 53, rows_per_unit=3, batch_size=2)
    rows = [run.engine.run.plan.units.rows((0,), step) for step in range(7)]
    assert rows[:3] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    assert sorted(row for some in rows for row in some) == sorted([*range(7)] * 3)


@pytest.mark.parametrize(
    ("settings", "unit"),
    [
        ({"units": PEOPLE, "rows_per_unit": 2}, "unit with all its rows"),
        ({"augmentations": 2, "transform": shifted}, "example with all its augmentations"),
        ({}, "record"),
    ],
)
def test_every_sentence_is_about_units(settings: dict[str, Any], unit: str) -> None:
    claim = Run(**settings).train(1).engine.guarantee(1e-5)
    kind = unit.split()[0]
    assert f"and every single {unit} added or removed" in claim.statement
    assert f"whether a given {kind} is in the data" in claim.statement
    assert f"each single {unit} added or removed" in claim.per_instance.statement
    assert f"plus or minus any one {unit}" in claim.per_instance.statement
    assert claim.as_dict()["unit"] == claim.as_dict()["per_instance"]["unit"] == unit
    promise = claim.statement.split("Assumed")[0]
    assert unit == "record" or "record" not in promise
    assert ("units names the unit" in claim.statement) == ("units" in settings)


def test_units_are_what_is_sampled_and_what_the_divisor_counts() -> None:
    plan = Run(units=PEOPLE, rows_per_unit=2, batch_size=3, sampling="poisson").engine.run.plan
    assert (plan.batches.count, plan.batches.sampling_rate) == (len(OWNERS), 3 / len(OWNERS))
    parts = rf.PrivacyEngine(rf.Gaussian(1.0), CLIP, micro_batch_size=10)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS, LABELS), 30)
    model = network()
    *_, private = parts.make_private(model, torch.optim.SGD(model.parameters()), loader)
    assert private.batches_a_step == 5
    assert len(private) == 10


def test_a_run_with_units_goes_on_from_its_file_and_from_no_other(tmp_path: Any) -> None:
    how: dict[str, Any] = {"sampling": "poisson", "augmentations": 2, "transform": shifted}
    whole, half = Run(**how).train(4), Run(**how).train(2)
    half.engine.save(tmp_path / "run")
    half.engine.close()
    later = Run(**how)
    later.engine.load(tmp_path / "run")
    assert torch.equal(later.train(4).weights(), whole.weights())
    later.engine.close()
    for other in ({"sampling": "poisson"}, {**how, "augmentations": 3}):
        with pytest.raises(ValueError, match="rows_per_unit 2"):
            Run(**other).engine.load(tmp_path / "run")


def test_averaged_weights_are_those_of_the_private_model() -> None:
    run = Run()
    averaged = AveragedModel(run.model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    wanted = None
    for step in (1, 2, 3):
        run.train(step)
        averaged.update_parameters(run.model)
        wanted = run.weights() if wanted is None else (wanted + run.weights()) / 2
    ours = torch.cat([p.detach().flatten() for p in averaged.parameters()])
    assert torch.allclose(ours, wanted)
    assert torch.isfinite(averaged(INPUTS)).all()


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.last(x) if x.sum() > 0 else self.last(-x)


@pytest.mark.parametrize("clip", [rf.Norm(0.1), rf.Clamp(0.05)], ids=repr)
@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_one_unit_never_go_separate_ways(mixed: bool, clip: rf.Clip) -> None:
    """They are clipped as a whole, also where the model decides differently for some of them."""
    signs = torch.tensor([1.0, 1, -1, -1, 1, -1 if mixed else 1]).view(6, 1, 1, 1)
    inputs, model = INPUTS[:6].abs() * signs, Deciding()
    how: dict[str, Any] = {"units": [0, 0, 1, 1, 2, 2], "rows_per_unit": 2, "clip": clip}
    run = Run(model, inputs=inputs, labels=LABELS[:6], batch_size=3, **how)
    before = torch.stack(
        [
            nn.functional.cross_entropy(model(x[None]), y[None])
            for x, y in zip(inputs, LABELS[:6], strict=True)
        ]
    )
    wanted = [
        torch.autograd.grad(two.sum() / 2, list(model.parameters()), retain_graph=True)
        for two in before.view(3, 2)
    ]
    rows = torch.stack([torch.cat([g.flatten() for g in unit]) for unit in wanted])
    run.train(1)
    assert run.engine.fallback_reason is None
    assert torch.allclose(run.engine.run.theta, clip(rows).sum(dim=0), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"augmentations": 2}, "augmentations 2 needs transform"),
        ({"augmentations": 0, "transform": shifted}, "augmentations"),
        ({"augmentations": 10_001, "transform": shifted}, "augmentations must be at most 10000"),
        ({"transform": "crop"}, "transform must be a function"),
        ({"transform": lambda x: x[:1], "augmentations": 2}, "transform must give a row for each of its 32"),
        ({"units": PEOPLE}, "units and rows_per_unit must be given together"),
        ({"units": PEOPLE, "rows_per_unit": 0}, "rows_per_unit"),
        ({"units": PEOPLE, "rows_per_unit": 10_001}, "rows_per_unit must be at most 10000"),
        ({"units": PEOPLE[1:], "rows_per_unit": 1}, "each of the 60 rows, got 59"),
        (
            {"units": [float(len(name)) for name in PEOPLE], "rows_per_unit": 1},
            "integers or strings, got 2.0",
        ),
        ({"units": PEOPLE, "rows_per_unit": 1, "transform": shifted}, "transform must be None with units"),
        ({"micro_batch_size": 4}, "micro_batch_size must be None with sampling 'full'"),
        (
            {"units": PEOPLE, "rows_per_unit": 1, "fisher_every": 1, "loss": nn.functional.cross_entropy},
            "fisher_every must be 0 with transform or units, got 1",
        ),
    ],
)
def test_bad_units_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message), warnings.catch_warnings():
        Run(**settings).train(1)
