"""Watching changes nothing, and what it says of single examples is theirs."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

opacus = pytest.importorskip("opacus")

from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402

from ringfence.opacus import watch  # noqa: E402
from tests.opacus.runs import EXAMPLES, gradient_lengths, made_private, network, times_drawn, trained  # noqa: E402

CLIP, NOISE = 0.5, 0.8  # those of ``made_private``
LOSS = nn.functional.cross_entropy


def weights_after(watched: bool, mode: str, size: int, **options: Any) -> tuple[Tensor, Tensor]:
    """The weights of a run, and the random number that torch would draw next."""
    module = network()
    engine, model, optimizer, *criterion, loader = made_private(module, size, grad_sample_mode=mode)
    torch.manual_seed(11)
    if watched:
        loader = watch(engine, model, optimizer, loader, **options).loader
    trained(loader, model, optimizer, *criterion, epochs=2 if size > 1 else 1)
    return nn.utils.parameters_to_vector(module.parameters()), torch.rand(3)


@pytest.mark.parametrize(("mode", "size"), [("hooks", 10), ("ghost", 10), ("hooks", 1)])
def test_training_is_the_same_to_the_bit(mode: str, size: int) -> None:
    """With batches of one example on average, a third of them are empty."""
    plain = weights_after(False, mode, size)
    watched = weights_after(True, mode, size, loss=LOSS, lengths_every=2, fisher_every=3)
    assert torch.equal(plain[0], watched[0])
    assert torch.equal(plain[1], watched[1])
    assert not torch.equal(plain[0], nn.utils.parameters_to_vector(network().parameters()))


def expected(lengths: Tensor, steps: Tensor | int, rate: float) -> Tensor:
    """The Rényi divergence of order 2 of so many sampled Gaussians: log(1 + q^2 (e^(s^2) - 1)) each."""
    shift = lengths.clamp(max=CLIP) / (CLIP * NOISE)
    return steps * torch.log1p(rate**2 * torch.expm1(shift.square()))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("lengths_every", [0, 1])
def test_each_example_is_charged_with_its_own_gradient_where_it_was_measured(
    mode: str, lengths_every: int
) -> None:
    module = network()
    engine, model, optimizer, *criterion, loader = made_private(
        module, learning_rate=0.0, grad_sample_mode=mode
    )
    run = watch(engine, model, optimizer, loader, loss=LOSS, lengths_every=lengths_every)
    trained(run.loader, model, optimizer, *criterion)
    steps = 2 * 4
    assert run.steps == steps
    measured = torch.full((EXAMPLES,), steps) if lengths_every else times_drawn()
    assert torch.equal(run.examples.measured, measured)
    lengths = gradient_lengths(copy_of(module))
    own = expected(lengths, measured, 0.25) + expected(torch.tensor(math.inf), steps - measured, 0.25)
    found = run.examples.sums[:, 0]
    torch.testing.assert_close(found, own, rtol=2e-4, atol=0)
    assert bool((found >= own * (1 - 1e-5)).all())
    assert lengths.min() < 0.2 * CLIP < CLIP < lengths.max()


def copy_of(module: nn.Module) -> nn.Module:
    other = network()
    other.load_state_dict(copy.deepcopy(module.state_dict()))
    return other


def test_parts_of_a_batch_count_as_one_step() -> None:
    weights = []
    for watched in (False, True):
        module = network()
        engine, model, optimizer, loader = made_private(module)
        torch.manual_seed(4)
        if watched:
            run = watch(engine, model, optimizer, loader)
            loader = run.loader
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=3, optimizer=optimizer) as parts:
            trained(parts, model, optimizer)
        weights.append(nn.utils.parameters_to_vector(module.parameters()))
    assert torch.equal(*weights)
    assert run.steps == 8
    assert torch.equal(run.examples.measured, times_drawn())


def test_eta_is_that_of_the_jacobian() -> None:
    module = network()
    engine, model, optimizer, loader = made_private(module, batch_size=EXAMPLES, learning_rate=0.0)
    run = watch(engine, model, optimizer, loader, loss=LOSS, fisher_every=1)
    trained(run.loader, model, optimizer, epochs=1)
    plain, (inputs, labels) = copy_of(module).double(), next(iter(loader))
    found = run.fisher_information_loss()

    def clipped(example: Tensor, label: Tensor) -> Tensor:
        loss = LOSS(plain(example.unsqueeze(0)), label.unsqueeze(0))
        gradients = torch.autograd.grad(loss, list(plain.parameters()), create_graph=True)
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        return flat * (CLIP / flat.norm()).clamp(max=1.0)

    for i in (0, 20, 39):
        jacobian = torch.autograd.functional.jacobian(
            lambda example, i=i: clipped(example, labels[i]), inputs[i].double()
        )
        eta = torch.linalg.matrix_norm(jacobian, 2) / (CLIP * NOISE)
        assert eta * (1 - 1e-5) <= found[i] <= 1.1 * eta


def test_the_claim_is_that_of_the_sampled_gaussian_and_says_what_it_assumes() -> None:
    # large losses, which are held by fewer points than medium ones
    engine, model, optimizer, loader = made_private(network(), noise_multiplier=0.2)
    run = watch(engine, model, optimizer, loader)
    trained(run.loader, model, optimizer)
    claim = run.guarantee(1e-3)
    theirs = engine.get_epsilon(1e-3)  # Rényi: a little larger
    assert 0.8 * theirs < claim.epsilon_data_independent <= theirs
    for said in ("number of records counts as public", "Floating point:"):
        assert said in claim.statement
        assert said in run.account.guarantee(1e-3).statement
    assert "made no step" not in claim.statement
    assert float(run.example_epsilons(1e-3).max()) <= claim.epsilon * (1 + 1e-9)
    next(iter(run.loader))
    next(iter(run.loader))
    assert "Batches that made no step: 1." in run.guarantee(1e-3).statement


def test_the_hook_of_opacus_still_counts_and_close_lets_go() -> None:
    engine, model, optimizer, loader = made_private(network())
    before, hook = set(vars(optimizer)), optimizer.step_hook
    run = watch(engine, model, optimizer, loader)
    trained(run.loader, model, optimizer, epochs=1)
    assert sum(steps for _, _, steps in engine.accountant.history) == run.steps == 4
    run.close()
    assert set(vars(optimizer)) == before
    assert optimizer.step_hook is hook


def test_a_step_whose_examples_are_not_known_is_refused() -> None:
    engine, model, optimizer, loader = made_private(network())
    watch(engine, model, optimizer, loader)
    with pytest.raises(ValueError, match=r"go through run\.loader"):
        trained(loader, model, optimizer)


def test_dropout_leaves_the_claim_and_refuses_the_examples() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    engine, model, optimizer, loader = made_private(module, noise_multiplier=0.2)
    run = watch(engine, model, optimizer, loader)
    trained(run.loader, model, optimizer, epochs=1)
    assert run.guarantee(1e-3).steps == 4
    with pytest.raises(ValueError, match=r"layer '1' \(Dropout\) draws at random"):
        run.example_epsilons(1e-3)
    with pytest.raises(ValueError, match="fisher_every needs loss"):
        watch(engine, model, optimizer, loader, fisher_every=1)


def test_what_was_released_before_is_charged_too() -> None:
    engine, model, optimizer, loader = made_private(network(), noise_multiplier=0.2)
    trained(loader, model, optimizer, epochs=1)
    late = watch(engine, model, optimizer, loader)
    assert late.steps == 4
    assert float(late.example_epsilons(1e-3).min()) == pytest.approx(late.guarantee(1e-3).epsilon, rel=1e-9)
    trained(late.loader, model, optimizer, epochs=1)
    assert late.steps == late.guarantee(1e-3).steps == late.examples.steps == 8
    assert int(late.examples.measured.sum()) == int((times_drawn(2) - times_drawn(1)).sum())
