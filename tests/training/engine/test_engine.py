"""Private training of any model: what is released, what it costs, what is refused, what stays as it was."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.noise import Noise, side_by_side
from ringfence.training.engine.sampling import PoissonBatches
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, Run, clipped_sum, network


def test_a_full_step_is_the_mechanism_on_the_sum_over_a_public_constant() -> None:
    start = network()
    theta = clipped_sum(start, INPUTS, LABELS, CLIP)
    run = Run(mechanism=rf.Gaussian(1e-7)).train(1)
    flat = torch.cat([p.detach().reshape(-1) for p in start.parameters()])
    assert torch.allclose((flat - run.weights()) * 60, theta, atol=1e-4)


@pytest.mark.parametrize("size", [60, 100])
def test_the_divisor_is_public_and_not_the_number_of_examples(size: int) -> None:
    """The same settings with half of the examples: the sum halves, what divides it does not."""
    flat = torch.cat([p.detach().reshape(-1) for p in network().parameters()])
    half = Run(inputs=INPUTS[:30], labels=LABELS[:30], mechanism=rf.Gaussian(1e-7), public_size=size).train(1)
    theta = clipped_sum(network(), INPUTS[:30], LABELS[:30], CLIP)
    assert torch.allclose((flat - half.weights()) * size, theta, atol=1e-4)


def test_micro_batches_change_nothing() -> None:
    whole, parts = Run(batch_size=60).train(3), Run(batch_size=7).train(3)
    # other sums in the last bit, hence other noise: compare without any
    whole, parts = (Run(batch_size=size, mechanism=rf.Gaussian(1e-9)).train(3) for size in (60, 7))
    assert torch.allclose(whole.weights(), parts.weights(), atol=1e-5)
    assert parts.engine.steps == 3


def test_every_release_is_charged_and_what_the_account_says_is_recomputed() -> None:
    charged = []
    run = Run()
    step = run.engine.account.step
    run.engine.account.step = lambda theta: (charged.append(theta.clone()), step(theta))[1]
    run.train(4)
    assert len(charged) == run.engine.account.steps == run.engine.guarantee(1e-5).steps == 4
    account = rf.PerInstanceAccountant(LAW, CLIP.sensitivity)
    for theta in charged:
        account.step(theta)
    assert torch.equal(account.forward, run.engine.account.forward)


def test_noise_has_the_law_of_the_mechanism() -> None:
    """Releases of the first step over many seeds: their mean is theta, their spread sigma."""
    theta = clipped_sum(network(), INPUTS, LABELS, CLIP)
    flat = torch.cat([p.detach().reshape(-1) for p in network().parameters()])
    moves = torch.stack([
        (flat - Run(mechanism=rf.Gaussian(0.5), seed=seed).train(1).weights()) * 60 - theta
        for seed in range(40)
    ])  # fmt: skip
    assert abs(float(moves.std()) / 0.5 - 1) < 0.06  # 40 x 48 draws
    assert abs(float(moves.mean())) < 5 * 0.5 / moves.numel() ** 0.5
    assert len({tuple(row.tolist()) for row in moves}) == 40


def test_the_same_sum_at_the_same_step_gives_the_same_release_and_no_other_does() -> None:
    law, theta = rf.Gaussian(1.0), torch.zeros(4)

    def noise(theta: torch.Tensor, step: int) -> torch.Tensor:
        source = Noise(3)
        draws = side_by_side([source], "noise", step, source.digest(theta))
        return law.sample(theta, generator=draws) - theta

    assert torch.equal(noise(theta, 0), noise(theta, 0))
    assert not torch.equal(noise(theta, 0), noise(theta, 1))
    assert not torch.allclose(noise(theta, 0), noise(theta + 1e-6, 0), atol=1e-3)


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_the_same_seed_gives_the_same_run(sampling: str) -> None:
    one, two = (Run(network(nn.Dropout(0.3)), sampling=sampling).train(5) for _ in range(2))
    other = Run(network(nn.Dropout(0.3)), sampling=sampling, seed=4).train(5)
    assert torch.equal(one.weights(), two.weights())
    assert not torch.equal(one.weights(), other.weights())
    assert rf.PrivacyEngine(LAW, CLIP).seed != rf.PrivacyEngine(LAW, CLIP).seed


def test_poisson_steps_hold_their_sample_and_divide_by_the_expected_size() -> None:
    run = Run(sampling="poisson", batch_size=20, mechanism=rf.Gaussian(1e-7), seed=4)
    seen = []
    start = run.weights().clone()
    for inputs, labels in run.loader:
        seen.append(len(labels))
        theta = clipped_sum(network(), inputs, labels, CLIP)
        run.batch(inputs, labels)
        assert torch.allclose((start - run.weights()) * 20, theta, atol=1e-4)
        break
    assert seen[0] != 20  # this seed's first batch


def test_empty_batches_are_steps_like_others() -> None:
    run = Run(sampling="poisson", batch_size=1, public_size=600).train(30)
    assert run.engine.account.steps == 30
    assert bool(torch.isfinite(run.weights()).all())


def test_a_sampled_run_is_charged_with_what_holds_for_every_dataset() -> None:
    run = Run(sampling="poisson", batch_size=6).train(10)
    claim = run.engine.guarantee(1e-3)
    account = rf.SampledAccountant(LAW, CLIP.sensitivity, 0.1)
    account.step_of_any(torch.zeros(48), count=10)
    assert claim.epsilon_data_independent == account.guarantee(1e-3).epsilon_data_independent
    assert torch.allclose(run.engine.account.worst, account.worst, rtol=1e-12)
    assert run.engine.account.spent == 0


def test_auxiliary_batches_are_samples_of_the_dataset_at_the_present_parameters() -> None:
    settings: dict[str, Any] = {"sampling": "poisson", "batch_size": 30, "loss": nn.functional.cross_entropy}
    plain = Run(**settings).train(2)
    run = Run(**settings, auxiliary_batches=3)
    heard: list[list[torch.Tensor]] = []
    run.engine.account.step = lambda batches: heard.append(list(batches))
    before = [network(), network()]
    run.train(1)
    before[1].load_state_dict(run.original.state_dict())
    run.train(2)
    assert torch.equal(plain.weights(), run.weights())  # they are never released
    batches = PoissonBatches(60, 30, public_size=60)
    for step in range(2):
        for number in range(3):
            who = list(batches.draw(run.engine.run.ledger.noise, "auxiliary", step, number))
            expected = clipped_sum(before[step], INPUTS[who], LABELS[who], CLIP)
            assert torch.allclose(heard[step][number], expected, atol=1e-5)


def test_what_auxiliary_batches_tell_is_charged() -> None:
    settings: dict[str, Any] = {"sampling": "poisson", "batch_size": 30, "loss": nn.functional.cross_entropy}
    run = Run(**settings, auxiliary_batches=2).train(1)
    assert run.engine.account.spent == 1e-9
    assert run.engine.guarantee(1e-3).failure_probability == 1e-9


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.NAdam(p, lr=0.1),
        lambda p: torch.optim.Rprop(p, lr=0.1),
    ],
)
def test_any_optimizer_gets_the_released_gradient(optimizer: Any) -> None:
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


def test_a_loss_that_is_summed_gives_the_same_run() -> None:
    mean, total = Run(mechanism=rf.Gaussian(1e-9)), Run(mechanism=rf.Gaussian(1e-9), loss_reduction="sum")
    for run, reduction in ((mean, "mean"), (total, "sum")):
        for inputs, labels in run.loader:
            nn.functional.cross_entropy(run.model(inputs), labels, reduction=reduction).backward()
            run.optimizer.step()
    assert torch.allclose(mean.weights(), total.weights(), atol=1e-6)


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


def test_a_mechanism_with_a_bound_for_every_coordinate() -> None:
    bound = torch.linspace(1, 9, 48)
    run = Run(mechanism=rf.RectifiedGaussian(0.5, bound)).train(2)
    grads = torch.cat([p.grad.reshape(-1) for p in run.original.parameters()])
    assert bool((grads.abs() <= bound / 60 + 1e-6).all())
    assert run.engine.account.steps == 2


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
    assert run.engine.fisher.measured == 2


def _gradient(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(x[None]), y[None])
    each = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return CLIP(torch.cat([g.reshape(-1) for g in each])[None])[0]


def test_reports_of_steps() -> None:
    heard: list[rf.StepReport] = []
    run = Run(on_step=heard.append, loss=nn.functional.cross_entropy)
    first = nn.functional.cross_entropy(network()(INPUTS), LABELS)
    run.train(3)
    assert [report.steps for report in heard] == [1, 2, 3]
    assert heard[0].loss == pytest.approx(first.item(), rel=1e-5)
    assert heard[-1].guarantee(1e-5) == run.engine.guarantee(1e-5)


def refused(message: str, error: type[Exception] = ValueError) -> Any:
    return pytest.raises(error, match=message)


def test_settings_are_refused_by_name() -> None:
    with refused("mechanism must be a ringfence mechanism", TypeError):
        rf.PrivacyEngine("gaussian", CLIP)
    with refused("clip must be a ringfence Clip", TypeError):
        rf.PrivacyEngine(LAW, 0.1)
    with refused("clip must be > 0, got 0"):
        rf.PrivacyEngine(LAW, rf.Clamp(0))
    with refused(r"sampling must be one of \['full', 'poisson'\], got 'shuffle'"):
        rf.PrivacyEngine(LAW, CLIP, sampling="shuffle")
    with refused("auxiliary_batches must be 0, or at least 2"):
        rf.PrivacyEngine(LAW, CLIP, sampling="full", auxiliary_batches=9, loss=nn.functional.mse_loss)
    with refused("fisher_every needs loss"):
        rf.PrivacyEngine(LAW, CLIP, fisher_every=1)
    with refused("public_size must be > 0, got -1"):
        Run(public_size=-1)
    with refused("call make_private first"):
        rf.PrivacyEngine(LAW, CLIP).guarantee(1e-5)
    with refused("fisher_information_loss needs fisher_every and loss"):
        Run().engine.fisher_information_loss()


def test_models_and_optimizers_are_refused_by_name() -> None:
    with refused(r"layer '3' \(BatchNorm1d\) mixes the examples of a batch: use GroupNorm"):
        Run(network(nn.BatchNorm1d(18)))
    with refused("keeps running statistics of private data"):
        Run(network(nn.InstanceNorm1d(18, track_running_stats=True)))
    with refused("parameters that require a gradient, got none"):
        Run(network().requires_grad_(False))
    with refused("must be float32 or float64, got torch.float16"):
        Run(network().half())
    with refused("LBFGS asks for several gradients"):
        Run(optimizer=torch.optim.LBFGS)
    with refused("'0.weight' is missing"):
        Run(optimizer=lambda p: torch.optim.SGD(list(p)[1:], lr=1.0))
    with refused("holds 1 parameters that are not the model's"):
        Run(optimizer=lambda p: torch.optim.SGD([*p, nn.Parameter(torch.zeros(1))], lr=1.0))
    with refused("must fit the model's 48 trained parameters as one vector, its own shape is"):
        Run(mechanism=rf.Gaussian(torch.ones(2, 48)))
    with refused("shapes do not broadcast"):
        Run(mechanism=rf.Gaussian(torch.ones(7)))
    run = Run()
    with refused("already serves a run"):
        run.engine.make_private(run.original, run.optimizer, DataLoader(TensorDataset(INPUTS, LABELS)))
    with refused("parameters cannot be added"):
        run.optimizer.add_param_group({"params": []})


def test_loops_that_would_count_an_example_twice_are_refused() -> None:
    run = Run()
    with refused("outside of the private loader's loop"):
        run.model(INPUTS)
    with refused("needs a batch"):
        run.optimizer.step()
    inputs, labels = next(iter(run.loader))
    with refused("argument 0 has 8 rows, the batch 16"):
        run.model(inputs[:8])
    with refused("takes tensors with one row for each example, got list as argument 0", TypeError):
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


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_two_backward_passes_before_one_step_are_refused(sampling: str) -> None:
    """The first batch was dropped: the release was the second batch's sum alone, to 6e-7."""
    run = Run(sampling=sampling)
    batches = iter(run.loader)
    inputs, labels = next(batches)
    nn.functional.cross_entropy(run.model(inputs), labels).backward()
    inputs, _ = next(batches)
    with refused(
        r"optimizer\.step\(\) was not called for every batch .* after every batch, also an empty one"
    ):
        run.model(inputs)
    assert run.engine.steps == run.engine.account.steps == 0
    run.train(1)  # a new loop begins with the step that is due
    assert run.engine.account.steps == 1


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_a_batch_that_was_skipped_ends_the_loop(sampling: str) -> None:
    """It did not: a full sum lacked part of the dataset, and a Poisson sample was released twice."""
    run = Run(sampling=sampling, batch_size=12)
    due = (
        r"step 0, part 1 is due, got step 0, part 2"
        if sampling == "full"
        else "step 1, part 0 is due, got step 2"
    )
    for number, (inputs, labels) in enumerate(run.loader):
        if number == 1:
            continue
        if number == 2:
            with refused(due):
                run.batch(inputs, labels)
            break
        run.batch(inputs, labels)


def test_two_loops_at_once_release_no_sample_twice() -> None:
    run = Run(sampling="poisson", batch_size=12)
    one, two = iter(run.loader), iter(run.loader)
    run.batch(*next(one))
    run.batch(*next(two))
    with refused("step 2, part 0 is due, got step 1, part 0"):
        run.batch(*next(one))
    assert run.engine.steps == 2


def test_the_loader_may_be_looked_through_without_training() -> None:
    run = Run(sampling="poisson", batch_size=12)
    run.model.eval()
    assert sum(len(run.model(inputs)) for inputs, _ in run.loader) > 0
    run.model.train()
    run.train(1)


def test_a_broken_loop_forgets_its_half_step() -> None:
    run, whole = Run(mechanism=rf.Gaussian(1e-9)), Run(mechanism=rf.Gaussian(1e-9)).train(1)
    run.batch(*next(iter(run.loader)))
    run.train(1)
    assert torch.allclose(run.weights(), whole.weights(), atol=1e-6)


def test_bad_numbers_release_nothing() -> None:
    bad = INPUTS.clone()
    bad[5, 0, 1, 1] = torch.nan
    run = Run(inputs=bad)
    with refused(r"inputs \(argument 0\) must be finite, got nan at index \[5, 0, 1, 1\]"):
        run.train(1)
    assert run.engine.account.steps == 0
    run = Run(labels=torch.full((60,), 2))
    with pytest.raises(IndexError, match="Target 2 is out of bounds"):
        run.train(1)
    assert run.engine.account.steps == 0
    run = Run()
    with torch.no_grad():
        run.original[3].weight.fill_(torch.inf)
    with refused("the sum of clipped gradients of step 0 is not finite"):
        run.train(1)
    assert run.engine.account.steps == 0


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
