"""A step is the mechanism on the sum of its examples over a public constant, whatever its parts."""

import pytest
import torch
from torch import nn

import ringfence as rf
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, Run, charged, clipped_sum, network


def test_a_full_step_is_the_mechanism_on_the_sum_over_a_public_constant() -> None:
    start = network()
    theta = clipped_sum(start, INPUTS, LABELS, CLIP)
    run = Run(mechanism=rf.Gaussian(1e-7)).train(1)
    flat = torch.cat([p.detach().reshape(-1) for p in start.parameters()])
    assert torch.allclose((flat - run.weights()) * 60, theta, atol=1e-4)


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


@pytest.mark.parametrize("size", [60, 100])
def test_the_divisor_is_public_and_not_the_number_of_examples(size: int) -> None:
    """The same settings with half of the examples: the sum halves, what divides it does not."""
    flat = torch.cat([p.detach().reshape(-1) for p in network().parameters()])
    half = Run(inputs=INPUTS[:30], labels=LABELS[:30], mechanism=rf.Gaussian(1e-7), public_size=size).train(1)
    theta = clipped_sum(network(), INPUTS[:30], LABELS[:30], CLIP)
    assert torch.allclose((flat - half.weights()) * size, theta, atol=1e-4)


def test_the_sample_of_each_step_is_drawn_once_and_before_the_step_begins() -> None:
    """Within an epoch and from one to the next: 5 steps each."""
    run, drawn = Run(sampling="poisson", batch_size=12), []
    batches = run.engine.run.batches
    honest = batches.draw
    batches.draw = lambda noise, *place: (drawn.append(place[1]), honest(noise, *place))[1]
    run.train(7)
    assert drawn == list(range(8))


def test_planned_steps_cost_what_they_take_of_delta_and_the_numbers_they_release() -> None:
    sampled = {"sampling": "poisson", "batch_size": 12, "mechanism": rf.Gaussian(0.5)}
    estimated = Run(auxiliary_batches=2, loss=nn.functional.cross_entropy, **sampled)
    planned, numbers = estimated.engine.planned_cost(3), estimated.engine.run.gradients.size
    assert planned.spent == estimated.train(3).engine.account.spent > 0
    plain, secure = (Run(secure=flag, seed=None, public_size=60, **sampled).engine for flag in (False, True))
    assert [engine.planned_cost(3).spent for engine in (plain, secure)] == [0, 0]
    assert [engine.planned_cost(3).numbers for engine in (plain, secure)] == [0, 3 * numbers]


def test_micro_batches_change_nothing() -> None:
    whole, parts = Run(batch_size=60).train(3), Run(batch_size=7).train(3)
    # other sums in the last bit, hence other noise: compare without any
    whole, parts = (Run(batch_size=size, mechanism=rf.Gaussian(1e-9)).train(3) for size in (60, 7))
    assert torch.allclose(whole.weights(), parts.weights(), atol=1e-5)
    assert parts.engine.steps == 3


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


def test_a_mechanism_with_a_bound_for_every_coordinate() -> None:
    bound = torch.linspace(1, 9, 48)
    run = Run(mechanism=rf.RectifiedGaussian(0.5, bound)).train(2)
    grads = torch.cat([p.grad.reshape(-1) for p in run.original.parameters()])
    assert bool((grads.abs() <= bound / 60 + 1e-6).all())
    assert run.engine.account.steps == 2


def test_released_gradients_lie_in_memory_as_their_parameters_do() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Conv2d(2, 2, 2), nn.Flatten(), nn.Linear(8, 2))
    run = Run(model.to(memory_format=torch.channels_last)).train(1)  # type: ignore[call-overload]
    layouts = [(p.stride(), p.grad.stride()) for p in run.original.parameters()]
    assert layouts[2][0] == (8, 1, 4, 2)
    assert all(own == released for own, released in layouts)


def test_examples_one_by_one_have_the_masks_of_dropout_that_their_outputs_had() -> None:
    """Of y = w (mask x) with x = 1, output and gradient are the same number where w is 1."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1, bias=False))
    nn.init.ones_(model[1].weight)
    ones = torch.ones(20, 1)
    law, clip = rf.Gaussian(1e-7), rf.Clamp(9.0)
    run = Run(model, inputs=ones, labels=ones, batch_size=20, mechanism=law, clip=clip, one_by_one=True)
    outputs = run.model(next(iter(run.loader))[0])
    outputs.mean().backward()
    run.optimizer.step()
    total = outputs.sum().item()
    assert 0 < total < 40
    assert model[1].weight.grad.item() * 20 == pytest.approx(total, abs=1e-4)
