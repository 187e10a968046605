"""A step is the mechanism on the sum of its examples over a public constant; each of them counts once."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.mechanisms.base import Sampler
from ringfence.training.engine.run import Findings, StepReport, TrainingRun
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, Run, charged, clipped_sum, network, refused


@pytest.mark.parametrize(("examples", "size", "parts"), [(60, 60, 16), (30, 60, 7), (30, 100, 60)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_divisor_is_public_and_not_the_number_of_examples(
    examples: int, size: int, parts: int, reduction: Any
) -> None:
    """With half of the examples the sum halves, what divides it does not; micro-batches change nothing."""
    data = {"inputs": INPUTS[:examples], "labels": LABELS[:examples]}
    settings = {"mechanism": rf.Gaussian(1e-7), "public_size": size, "loss_reduction": reduction}
    run, theta = Run(**data, **settings, batch_size=parts), clipped_sum(network(), **data, clip=CLIP)
    start = run.weights()
    assert repr(run.optimizer).startswith("PrivateOptimizer(SGD")
    run.batch(*next(iter(run.loader)), reduction)  # a loop that breaks off: its half step is forgotten
    if run.engine.steps == 0:
        for inputs, labels in run.loader:
            run.batch(inputs, labels, reduction)
    assert run.engine.steps == 1
    assert torch.allclose((start - run.weights()) * size, theta, atol=1e-4)


def test_an_l2_clip_is_of_the_whole_gradient_and_not_of_each_parameter() -> None:
    """Every example's gradient is longer than C, and so is that of most of its parameters."""
    short, start = rf.Norm(1e-3), network()
    theta = clipped_sum(start, INPUTS[:1], LABELS[:1], short)
    run = Run(inputs=INPUTS[:1], labels=LABELS[:1], clip=short, mechanism=rf.Gaussian(1e-9), public_size=1)
    flat = run.weights().clone()
    moved = flat - run.train(1).weights()
    assert torch.allclose(moved, theta, atol=1e-6)
    assert float(moved.norm()) == pytest.approx(1e-3, rel=1e-2)
    assert run.engine.account.sensitivity == charged(rf.Sensitivity(norm=1e-3))


def test_poisson_training_under_an_l2_clip_costs_what_every_accountant_says() -> None:
    """Noise multiplier 2, rate 1/4, 8 steps: the field's usual way to train."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    run = Run(mechanism=rf.Gaussian(1.0), clip=rf.Norm(0.5), sampling="poisson", batch_size=15).train(8)
    claim = run.engine.guarantee(1e-5)
    release = SelfComposedDpEvent(PoissonSampledDpEvent(0.25, GaussianDpEvent(2.0)), 8)
    exact = PLDAccountant().compose(release).get_epsilon(1e-5)
    assert exact < claim.epsilon == pytest.approx(exact, rel=1e-4)  # a mean is rounded
    opacus_prv, opacus_rdp = 1.829670, 2.075787  # of Opacus 1.6.0; the first up to its error of 0.001
    assert opacus_prv - 0.002 <= claim.epsilon <= opacus_prv
    assert claim.per_instance.renyi_epsilon == pytest.approx(opacus_rdp, rel=1e-4)


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_the_same_seed_gives_the_same_run(sampling: str) -> None:
    one, two = (Run(network(nn.Dropout(0.3)), sampling=sampling).train(5) for _ in range(2))
    other = Run(network(nn.Dropout(0.3)), sampling=sampling, seed=4).train(5)
    assert torch.equal(one.weights(), two.weights())
    assert not torch.equal(one.weights(), other.weights())
    assert rf.PrivacyEngine(LAW, CLIP).seed != rf.PrivacyEngine(LAW, CLIP).seed


def test_different_sums_of_one_seed_have_different_noise() -> None:
    """With the same noise, the difference of two runs would have been that of their sums."""
    noises = []
    for rate in (1.0, 2.0):
        run, noise = Run(optimizer=lambda p, rate=rate: torch.optim.SGD(p, lr=rate)), []
        for step in (1, 2):
            run.train(step)
            released = torch.cat([p.grad.flatten() for p in run.original.parameters()]) * 60
            noise.append(released - run.engine.run.theta)
        noises.append(noise)
    assert torch.equal(noises[0][0], noises[1][0])
    assert float((noises[0][1] - noises[1][1]).std()) > 0.5  # sqrt(2) sigma if they are independent


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks are read as on a GPU: a step later."""

    class There:
        def synchronize(self) -> None: ...

    def later(findings: Findings, good: torch.Tensor, message: str) -> None:
        findings._later.append((good, There(), message))  # type: ignore[arg-type]

    monkeypatch.setattr(Findings, "require", later)


@pytest.mark.parametrize("end", ["the next step", "guarantee", "save", "close"])
def test_a_sum_that_is_not_finite_moves_nothing_and_is_told_of_at_last(
    end: str, late: None, tmp_path: Path
) -> None:
    optimizer = lambda parameters: torch.optim.SGD(parameters, lr=1.0)  # noqa: E731
    run = Run(sampling="poisson", batch_size=20, optimizer=optimizer).train(2)
    before = run.weights().clone()
    inputs, labels = next(iter(run.loader))
    run.optimizer.zero_grad()
    (nn.functional.cross_entropy(run.model(inputs), labels) * torch.inf).backward()
    run.optimizer.step()
    assert (run.engine.steps, run.engine.account.steps) == (3, 3)  # it was charged
    assert torch.equal(run.weights(), before)
    ends = {
        "the next step": lambda: run.train(4),
        "guarantee": lambda: run.engine.guarantee(1e-5),
        "save": lambda: run.engine.save(tmp_path / "run.ckpt"),
        "close": run.engine.close,
    }
    with refused("sum of clipped gradients of step 2 is not finite and was not released"):
        ends[end]()
    run.train(5)  # told once; then it goes on
    assert run.engine.account.steps == 5
    assert bool(torch.isfinite(run.weights()).all())


def test_a_load_leaves_late_errors_behind(late: None, tmp_path: Path) -> None:
    run = Run(sampling="poisson").train(1)
    run.engine.save(tmp_path / "run.ckpt")
    run.engine.run.releases.findings.require(torch.tensor(False), "the past")
    run.engine.load(tmp_path / "run.ckpt")
    assert run.train(3).engine.account.steps == 3


def test_a_poisson_step_is_divided_by_the_expected_size_and_laid_out_as_the_parameters_are() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Conv2d(2, 2, 2), nn.Flatten(), nn.Linear(8, 2))
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    run = Run(model, sampling="poisson", batch_size=20, mechanism=rf.Gaussian(1e-7), seed=4)
    start = run.weights().clone()
    inputs, labels = next(iter(run.loader))
    theta = clipped_sum(model, inputs, labels, CLIP)
    assert model[1].weight.stride() == (8, 1, 4, 2)
    run.batch(inputs, labels)
    assert len(labels) != 20  # this seed's first batch
    assert torch.allclose((start - run.weights()) * 20, theta, atol=1e-4)
    assert all(p.grad.stride() == p.stride() for p in run.original.parameters())


@pytest.mark.parametrize("units", [{}, {"units": [row // 3 for row in range(60)], "rows_per_unit": 4}])
def test_empty_batches_are_steps_like_others(units: dict[str, Any]) -> None:
    run = Run(sampling="poisson", batch_size=1, public_size=600, **units).train(30)
    assert run.engine.account.steps == 30
    assert bool(torch.isfinite(run.weights()).all())


def test_a_mechanism_with_a_bound_for_every_coordinate() -> None:
    bound = torch.linspace(1, 9, 48)
    run = Run(mechanism=rf.RectifiedGaussian(0.5, bound)).train(2)
    grads = torch.cat([p.grad.reshape(-1) for p in run.original.parameters()])
    assert bool((grads.abs() <= bound / 60 + 1e-6).all())
    assert run.engine.account.steps == 2


@pytest.mark.parametrize("budget", [None, 1], ids=["one pass", "another pass for the gradient"])
@pytest.mark.parametrize("formed", [False, True], ids=["fused", "formed"])
def test_examples_have_the_masks_of_dropout_that_their_outputs_had(formed: bool, budget: int | None) -> None:
    """Of y = w (mask x) with x = 1, output and gradient are the same number where w is 1."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1, bias=False))
    nn.init.ones_(model[1].weight)
    ones = torch.ones(20, 1)
    settings: dict[str, Any] = {
        "mechanism": rf.Gaussian(1e-7),
        "clip": rf.Clamp(9.0),
        "memory_budget": budget,
    }
    if formed:
        settings |= {"secure": True, "seed": None, "public_size": 20, "loss": lambda out, _: out.mean()}
    run = Run(model, inputs=ones, labels=ones, batch_size=20, **settings)
    outputs = run.model(next(iter(run.loader))[0])
    outputs.mean().backward()
    run.optimizer.step()
    total = outputs.sum().item()
    assert 0 < total < 40
    assert model[1].weight.grad.item() * 20 == pytest.approx(total, abs=1e-4)


def test_loops_that_would_count_an_example_twice_are_refused() -> None:
    run = Run()
    with refused("outside of the private loader's loop: call eval"):
        run.model(INPUTS)
    with refused("needs a batch"):
        run.optimizer.step()
    inputs, labels = next(iter(run.loader))
    with refused("input 0 has 8 rows, the batch 16"):
        run.model(inputs[:8])
    with refused("takes tensors of rows, got list as input 0", TypeError):
        run.model([inputs])
    loss = nn.functional.cross_entropy(run.model(inputs), labels)
    with refused("needs a gradient: call loss.backward"):
        run.optimizer.step()
    with refused("called twice for one batch"):
        run.model(inputs)
    loss.backward()
    run.optimizer.step()
    with refused("needs a batch"):
        run.optimizer.step()
    assert run.engine.steps == run.engine.account.steps == 0  # nothing was released


def test_a_mean_over_more_than_is_charged_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rounding grows with the batch; a Poisson sample is that large once in 10^12 times."""
    monkeypatch.setattr("ringfence.training.engine.run.largest_batch", lambda size: size - 1)
    with refused("a mean over 16 examples is not charged for: give loss"):
        Run().train(1)
    assert Run(loss=nn.functional.cross_entropy).train(1).engine.steps == 1


def test_a_loss_needs_pairs_and_a_model_of_one_tensor() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = network()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.inside(x), x

    run = Run(Two(), loss=nn.functional.cross_entropy)
    inputs, labels = next(iter(run.loader))
    nn.functional.cross_entropy(run.model(inputs)[0], labels).backward()
    with refused("with loss, the model must return one tensor, got tuple"):
        run.optimizer.step()
    engine, model = rf.PrivacyEngine(LAW, CLIP, sampling="full", loss=nn.functional.mse_loss), network()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS), batch_size=60)
    model, optimizer, loader = engine.make_private(model, torch.optim.SGD(model.parameters()), loader)
    ((inputs,),) = loader
    model(inputs).mean().backward()
    with refused(r"with loss, loader must give pairs \(inputs, targets\), got list"):
        optimizer.step()
    assert engine.steps == run.engine.steps == 0


@pytest.mark.parametrize(
    ("sampling", "due"),
    [("full", "step 0, part 1 is due, got step 0, part 2"), ("poisson", "step 1, part 0 is due, got step 2")],
)
def test_a_batch_without_a_step_ends_the_loop(sampling: str, due: str) -> None:
    """A full sum lacked part of the dataset, and a Poisson sample was released twice or not at all."""
    run = Run(sampling=sampling, batch_size=12)
    batches = iter(run.loader)
    run.batch(*next(batches))
    inputs, labels = next(batches)
    nn.functional.cross_entropy(run.model(inputs), labels).backward()
    with refused(rf"optimizer\.step\(\) was not called for every batch .*{due}"):
        run.batch(*next(batches))
    assert run.train(2).engine.account.steps == 2  # a new loop begins with the step that is due


def test_two_loops_at_once_release_no_sample_twice() -> None:
    run = Run(sampling="poisson", batch_size=12)
    one, two = iter(run.loader), iter(run.loader)
    run.batch(*next(one))
    run.batch(*next(two))
    with refused("step 2, part 0 is due, got step 1, part 0"):
        run.batch(*next(one))
    assert run.engine.steps == 2


WEIGHTS = torch.tensor([1.0, 7.0])


@pytest.mark.parametrize("way", ["weights", "mixup"])
def test_a_mean_that_weights_or_mixes_examples_is_refused_where_the_loss_is_given(way: str) -> None:
    """CrossEntropyLoss(weight=) divides by the weights of all labels, and mixup has two examples in a row."""
    weighted = nn.CrossEntropyLoss(weight=WEIGHTS if way == "weights" else None)
    run = Run(batch_size=60, loss=weighted)
    ((inputs, labels),) = run.loader
    if way == "weights":
        loss = weighted(run.model(inputs), labels)
    else:
        outputs = run.model(0.6 * inputs + 0.4 * inputs.flip(0))
        loss = 0.6 * weighted(outputs, labels) + 0.4 * weighted(outputs, labels.flip(0))
    loss.backward()
    with refused(r"neither mixup nor a mean with CrossEntropyLoss\(weight=\)"):
        run.optimizer.step()
    assert run.engine.steps == 0


def test_a_sum_of_weighted_losses_is_right() -> None:
    summed = nn.CrossEntropyLoss(weight=WEIGHTS, reduction="sum")
    run, model = Run(batch_size=60, loss=summed, loss_reduction="sum", clip=rf.Norm(0.5)), network()
    ((inputs, labels),) = run.loader
    summed(run.model(inputs), labels).backward()
    run.optimizer.step()
    each = summed.weight[labels] * nn.functional.cross_entropy(model(inputs), labels, reduction="none")
    rows = [torch.autograd.grad(one, list(model.parameters()), retain_graph=True) for one in each]
    wanted = rf.Norm(0.5)(torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])).sum(dim=0)
    assert torch.allclose(run.engine.run.theta, wanted, atol=1e-5)


def test_the_loader_may_be_looked_through_without_training() -> None:
    run = Run(sampling="poisson", batch_size=12)
    run.model.eval()
    assert sum(len(run.model(inputs)) for inputs, _ in run.loader) > 0
    run.model.train()
    run.train(1)


@pytest.mark.filterwarnings("ignore:.*not finite on made-up inputs")
@pytest.mark.parametrize("line", range(14))
def test_an_interrupted_step_that_is_called_again_adds_no_example_twice(line: int) -> None:
    """Ctrl-C before any line of ``finish``, and then the cell with ``optimizer.step()`` is run again."""
    run = Run(sampling="poisson", mechanism=rf.Gaussian(1e-7), batch_size=20, micro_batch_size=16)
    finish, start, left = TrainingRun.finish.__code__, run.weights(), [line]

    def interrupting(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is not finish:
            return None if event == "call" else interrupting
        if event == "line":
            left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt
        return interrupting

    before = sys.gettrace()
    sys.settrace(interrupting)
    try:
        with pytest.raises(KeyboardInterrupt):
            run.train(1)
    finally:
        sys.settrace(before)
    with suppress(ValueError):
        run.optimizer.step()
    run.train(1)
    units = [
        i
        for batch in run.engine.run.plan.batches.of_step(0, run.engine.run.releases.noise)
        for i in batch.indices
    ]
    theta = clipped_sum(network(), INPUTS[units], LABELS[units], CLIP)
    if run.optimizer.state:  # the step that was interrupted last moves nothing
        assert torch.allclose((start - run.weights()) * 20, theta, atol=1e-4)
    assert run.engine.account.steps == run.engine.steps == 1


def test_a_release_that_failed_is_not_passed_over() -> None:
    run = Run(sampling="poisson")
    weight = run.original[3].weight.detach().clone()
    batches = iter(run.loader)
    with torch.no_grad():
        run.original[3].weight.fill_(torch.inf)
    with refused("the sum of clipped gradients of step 0 is not finite"):
        run.batch(*next(batches))
    with torch.no_grad():
        run.original[3].weight.copy_(weight)
    with refused("step 0, part 0 is due, got step 1"):
        run.batch(*next(batches))


def test_a_release_that_fails_after_its_charge_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(sampling="poisson", batch_size=12)
    batches, start = iter(run.loader), run.weights()
    monkeypatch.setattr(Sampler, "draw", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.batch(*next(batches))
    monkeypatch.undo()
    assert torch.equal(run.weights(), start)
    run.batch(*next(batches))
    assert (run.engine.steps, run.engine.account.steps) == (1, 2)
    assert len(list(run.loader)) == 4  # of the epoch


def test_every_release_is_charged_and_what_the_account_says_is_recomputed() -> None:
    heard = []
    run = Run()
    step = run.engine.account.step
    run.engine.account.step = lambda theta: (heard.append(theta.clone()), step(theta))[1]
    run.train(4)
    assert len(heard) == run.engine.account.steps == run.engine.guarantee(1e-5).steps == 4
    account = rf.PerInstanceAccountant(LAW, charged(CLIP.sensitivity))
    for theta in heard:
        account.step(theta)
    assert torch.equal(account.forward, run.engine.account.forward)


def test_a_sampled_run_is_charged_with_what_holds_for_every_dataset() -> None:
    run = Run(sampling="poisson", batch_size=6).train(10)
    claim = run.engine.guarantee(1e-3)
    account = rf.SampledAccountant(LAW, charged(CLIP.sensitivity, 6), 0.1)
    account.step_worst_case(torch.zeros(48), count=10)
    assert claim.epsilon == account.guarantee(1e-3).epsilon
    assert run.engine.account.releases == account.releases


def test_noise_has_the_law_of_the_mechanism() -> None:
    """Releases of some steps over many seeds: their mean is theta, their spread sigma."""
    found, data = [], {"inputs": INPUTS[:12], "labels": LABELS[:12]}
    for seed in range(10):
        plain = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=1.0)}
        run = Run(mechanism=rf.Gaussian(0.5), seed=seed, **data, **plain)
        for step in range(4):
            before, theta = run.weights(), clipped_sum(run.original, **data, clip=CLIP)
            found.append((before - run.train(step + 1).weights()) * 12 - theta)
    moves = torch.stack(found)
    assert abs(float(moves.std()) / 0.5 - 1) < 0.06  # 40 x 48 draws
    assert abs(float(moves.mean())) < 5 * 0.5 / moves.numel() ** 0.5
    assert len({tuple(row.tolist()) for row in moves}) == 40


def test_bad_numbers_release_nothing() -> None:
    bad = INPUTS.clone()
    bad[5, 0, 1, 1] = torch.nan
    runs = Run(inputs=bad), Run(labels=torch.full((60,), 2))
    with refused(r"input 0 must be finite, got nan at index \[5, 0, 1, 1\]"):
        runs[0].train(1)
    with pytest.raises(IndexError, match="Target 2 is out of bounds"):
        runs[1].train(1)
    assert [run.engine.account.steps for run in runs] == [0, 0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_sum_with_one_bad_coordinate_is_neither_charged_nor_released(bad: float) -> None:
    """A law with bounded support would make a number of an infinity."""
    run, theta = Run(mechanism=rf.RectifiedGaussian(1.0, bound=2.0)), torch.zeros(48)
    theta[7] = bad
    with refused("the sum of clipped gradients of step 0 is not finite"):
        run.engine.run.releases.release(theta)
    assert run.engine.account.steps == 0


@pytest.mark.parametrize(
    ("law", "clip"),
    [
        (LAW, CLIP),
        (rf.Gaussian(0.5), rf.Norm(1.0)),
        (rf.RectifiedGaussian(0.5, 9.0), rf.Norm(1.0, each=0.05)),
    ],
)
def test_each_example_pays_for_its_own_clipped_gradients(
    law: rf.Mechanism, clip: rf.Clip, tmp_path: Any
) -> None:
    """Against gradients by plain autograd; a run that goes on from its file goes on with them."""
    how: dict[str, Any] = {"mechanism": law, "clip": clip, "track_examples": True}
    run, account = Run(**how), rf.ExampleAccountant(law)
    for step in range(3):
        rows = [clipped_sum(run.original, INPUTS[[i]], LABELS[[i]], clip) for i in range(60)]
        run.train(step + 1)
        account.step(run.engine.run.theta, torch.stack(rows))
        if step == 1:
            run.engine.save(tmp_path / "run")
            run.engine.close()
            weights = run.weights().clone()
            run = Run(**how)
            run.engine.load(tmp_path / "run")
            assert torch.equal(run.weights(), weights)
    for kind in ("ex_post", "per_instance"):
        found = run.engine.example_epsilons(1e-5, kind)
        assert torch.allclose(found, account.epsilons(1e-5, kind), rtol=1e-4)
        assert found.shape == (60,)
        assert float(found.max()) > 1.03 * float(found.min())
    assert float(found.max()) <= run.engine.guarantee(1e-5).epsilon
    run.engine.close()


def test_the_epsilons_of_units_are_those_of_their_rows_together() -> None:
    people = {"units": [i // 3 for i in range(60)], "rows_per_unit": 3, "clip": rf.Norm(0.2)}
    run = Run(**people, track_examples=True, batch_size=7)
    rows = [
        clipped_sum(run.original, INPUTS[i : i + 3], LABELS[i : i + 3], rf.Norm(9.0)) / 3
        for i in range(0, 60, 3)
    ]
    run.train(1)
    account = rf.ExampleAccountant(LAW)
    account.step(run.engine.run.theta, rf.Norm(0.2)(torch.stack(rows)))
    assert torch.allclose(run.engine.example_epsilons(1e-5), account.epsilons(1e-5), rtol=1e-4)


def test_the_gradients_of_examples_add_up_to_what_was_released() -> None:
    """With the masks of dropout that they had in it."""
    run, sums = Run(network(nn.Dropout(0.5)), track_examples=True, clip=rf.Norm(0.2)), []
    assert run.engine.run.examples is not None
    run.engine.run.examples.step = lambda theta, rows: sums.append((theta, torch.cat(list(rows)).sum(dim=0)))
    run.train(2)
    for theta, total in sums:
        assert torch.allclose(theta, total, atol=1e-5)


def test_epsilons_of_examples_need_every_release(tmp_path: Any) -> None:
    with refused("example_epsilons needs track_examples=True"):
        Run().engine.example_epsilons(1e-5)
    with refused("track_examples must be False with sampling 'poisson', got True"):
        Run(track_examples=True, sampling="poisson")
    run = Run().train(1)
    run.engine.save(tmp_path / "run")
    run.engine.close()
    later = Run(track_examples=True)
    later.engine.load(tmp_path / "run")
    with refused("needs every release, got 1 of 2"):
        later.train(2).engine.example_epsilons(1e-5)
    later.engine.close()


def test_information_of_examples_while_training() -> None:
    """Against the dense jacobian of the clipped gradient, at the two steps that are measured."""
    settings: dict[str, Any] = {
        "inputs": INPUTS[:6], "labels": LABELS[:6], "loss": nn.functional.cross_entropy, "batch_size": 4,
    }  # fmt: skip
    run = Run(**settings, fisher_every=2)
    expected = torch.zeros(6, dtype=torch.float64)
    for step in range(3):
        if step % 2 == 0:
            model = network()
            model.load_state_dict(run.original.state_dict())
            theta = clipped_sum(model, INPUTS[:6], LABELS[:6], CLIP)
            eta = LAW.fisher_information(theta).sqrt().double()
            for i in range(6):
                jacobian = torch.autograd.functional.jacobian(
                    lambda x, i=i, model=model: _gradient(model, x, LABELS[i]), INPUTS[i]
                )
                expected[i] += torch.linalg.matrix_norm(eta[:, None] * jacobian.reshape(48, 16), 2) ** 2
        run.train(step + 1)
    losses = run.engine.fisher_information_loss()
    assert losses.shape == (6,)
    assert bool((losses >= expected.sqrt() * (1 - 1e-4)).all())
    assert bool((losses <= expected.sqrt() * 1.1).all())
    assert run.engine.run.fisher.measured == 2


def _gradient(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(x[None]), y[None])
    each = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return CLIP(torch.cat([g.reshape(-1) for g in each])[None])[0]


def test_a_report_of_a_step_comes_while_the_parameters_are_those_of_its_sum() -> None:
    heard: list[StepReport] = []

    def compare(report: StepReport) -> None:
        expected = clipped_sum(run.original, INPUTS, LABELS, CLIP)
        assert torch.allclose(run.engine.run.theta, expected, atol=1e-6)
        assert report.loss == pytest.approx(run.loss(INPUTS, LABELS).item(), rel=1e-5)
        heard.append(report)

    run = Run(on_step=compare, loss=nn.functional.cross_entropy)
    run.loss = lambda inputs, labels: nn.functional.cross_entropy(run.original(inputs), labels)
    run.train(3)
    assert [report.steps for report in heard] == [1, 2, 3]
    assert heard[-1].guarantee(1e-5) == run.engine.guarantee(1e-5)


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Rprop"])
def test_any_optimizer_gets_the_released_gradient(kind: str) -> None:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return getattr(torch.optim, kind)(parameters, lr=0.1)

    run = Run(optimizer=optimizer)
    by_hand = network()
    theirs = optimizer(by_hand.parameters())
    for _ in range(3):
        run.train(run.engine.steps + 1)
        for p, released in zip(by_hand.parameters(), run.original.parameters(), strict=True):
            p.grad = released.grad.clone()
        theirs.step()
    for ours, expected in zip(run.original.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_schedulers_and_closures_work() -> None:
    run = Run(optimizer=lambda p: torch.optim.SGD(p, lr=1.0), batch_size=60)
    scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, step_size=1, gamma=0.5)
    for inputs, labels in run.loader:

        def closure(inputs: torch.Tensor = inputs, labels: torch.Tensor = labels) -> torch.Tensor:
            run.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(run.model(inputs), labels)
            loss.backward()
            return loss

        assert run.optimizer.step(closure).item() > 0
        scheduler.step()
    assert run.optimizer.param_groups[0]["lr"] == 0.5
    assert run.engine.steps == 1


def test_outside_of_training_the_model_is_the_users() -> None:
    run = Run()
    assert run.model.eval()(INPUTS).grad_fn is not None
    with torch.no_grad():
        assert torch.equal(run.model.train()(INPUTS), run.original(INPUTS))
    assert run.model.append == run.original.append  # other attributes are the model's
    assert list(run.model.state_dict()) == [f"module.{name}" for name in run.original.state_dict()]


def test_nothing_is_left_on_the_users_objects() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = {id(layer): set(vars(layer)) for layer in model.modules()}
    names = set(vars(optimizer))
    run = Run(model, optimizer=lambda _: optimizer).train(2)
    assert all(set(vars(layer)) == before[id(layer)] for layer in model.modules())
    assert all(not layer._forward_hooks and not layer._backward_hooks for layer in model.modules())
    assert set(vars(optimizer)) == names
    for p in model.parameters():
        assert set(vars(p)) == set()
        assert not p._backward_hooks
    run.original(INPUTS)  # still an ordinary model


def test_a_compiled_model_trains_as_the_plain_one_before_and_after_it_is_made_private() -> None:
    """It went through the model one example after the other, because compiled layers cannot be watched."""
    plain = Run().train(2)
    compiled = Run(model=torch.compile(network(), backend="eager"))
    compiled.model = torch.compile(compiled.model, backend="eager")
    compiled.train(2)
    assert compiled.engine.fallback_reason is None
    assert torch.equal(compiled.weights(), plain.weights())
    assert torch.equal(compiled.model.eval()(INPUTS), plain.model.eval()(INPUTS))
