"""Opacus runs: the registered accountant, conversion, and accounts of single examples that change nothing."""

import copy
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

opacus = pytest.importorskip("opacus")

from opacus.accountants import PRVAccountant, create_accountant  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402

import ringfence.opacus  # noqa: E402
from ringfence.opacus import convert, watch  # noqa: E402

EXAMPLES = 40
SEED = 7  # of the batches; noise comes from torch's global generator
CLIP, NOISE = 0.5, 0.8
LOSS = nn.functional.cross_entropy


def examples() -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    # gradients of very different lengths, on both sides of the clip
    sizes = torch.logspace(-2, 1, EXAMPLES).unsqueeze(1)
    return TensorDataset(
        sizes * torch.randn(EXAMPLES, 3, generator=generator),
        torch.randint(0, 2, (EXAMPLES,), generator=generator),
    )


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))


def made_private(
    module: nn.Module, batch_size: int = 10, learning_rate: float = 0.5, **options: Any
) -> tuple[Any, ...]:
    """An Opacus engine and what it returns."""
    options = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about random numbers that are not secure
        engine = opacus.PrivacyEngine(accountant="rdp")
        private = engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=learning_rate),
            data_loader=DataLoader(
                examples(), batch_size=batch_size, generator=torch.Generator().manual_seed(SEED)
            ),
            criterion=nn.CrossEntropyLoss(),
            **options,
        )
    return engine, *private


def trained(loader: Any, model: nn.Module, optimizer: Any, criterion: Any = None, epochs: int = 2) -> None:
    criterion = nn.CrossEntropyLoss() if criterion is None else criterion
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about hooks on a module whose inputs need no gradient
        for _ in range(epochs):
            for inputs, labels in loader:
                optimizer.zero_grad()
                criterion(model(inputs), labels).backward()
                optimizer.step()


def gradient_lengths(module: nn.Module) -> Tensor:
    """The lengths of all examples' gradients, one example after the other."""
    lengths = []
    for inputs, label in examples():
        loss = nn.functional.cross_entropy(module(inputs.unsqueeze(0)), label.unsqueeze(0))
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        lengths.append(torch.cat([gradient.flatten() for gradient in gradients]).double().norm())
    return torch.stack(lengths)


def test_it_is_registered_and_close_to_the_best_of_opacus() -> None:
    ours, theirs = create_accountant("ringfence"), PRVAccountant()
    assert isinstance(ours, ringfence.opacus.RingfenceAccountant)
    for account in (ours, theirs):
        for noise, rate, steps in ((1.0, 0.02, 40), (2.0, 0.1, 10)):
            for _ in range(steps):
                account.step(noise_multiplier=noise, sample_rate=rate)
    assert len(ours) == 50
    epsilon = ours.get_epsilon(1e-5)
    # PRV errs by up to eps_error = 0.01 on both sides
    assert abs(epsilon - theirs.get_epsilon(1e-5)) < 0.02
    claim = ours.guarantee(1e-5)
    assert "The number of records counts as public: Opacus divides" in claim.statement
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-9)
    again = create_accountant("ringfence")
    again.load_state_dict(ours.state_dict())
    assert again.get_epsilon(1e-5) == epsilon
    assert create_accountant("ringfence").get_epsilon(1e-5) == 0


def test_opacus_finds_its_noise_with_it() -> None:
    module = nn.Linear(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = opacus.PrivacyEngine(accountant="ringfence")
        _, optimizer, _ = engine.make_private_with_epsilon(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(examples(), batch_size=EXAMPLES),
            target_epsilon=3.0,
            target_delta=1e-3,
            epochs=4,
            max_grad_norm=1.0,
            epsilon_tolerance=0.5,
        )
    account = create_accountant("ringfence")
    for _ in range(4):
        account.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=1.0)
    assert 2.5 < account.get_epsilon(1e-3) <= 3.0


def test_no_noise_is_refused() -> None:
    account = create_accountant("ringfence")
    account.step(noise_multiplier=0.0, sample_rate=0.1)
    with pytest.raises(ValueError, match=r"sigma must be > 0"):
        account.get_epsilon(1e-5)


def test_a_step_is_that_of_opacus_up_to_rounding() -> None:
    """All examples in the batch and hardly any noise: both engines take the same step."""
    moved = []
    for converted in (False, True):
        module = network()
        options = {"batch_size": EXAMPLES, "noise_multiplier": 1e-7}
        theirs, model, optimizer, loader = made_private(module, **options)
        if converted:
            _, model, optimizer, loader = convert(theirs, model, optimizer, loader)
            assert model.module is module
            assert not any(hasattr(parameter, "grad_sample") for parameter in module.parameters())
        trained(loader, model, optimizer, epochs=2)
        moved.append(nn.utils.parameters_to_vector(module.parameters()).detach())
    start = nn.utils.parameters_to_vector(network().parameters()).detach()
    assert float((moved[0] - start).norm()) > 0.01
    torch.testing.assert_close(*moved, rtol=1e-4, atol=1e-5)


def test_noise_sampling_and_what_was_released_come_along() -> None:
    theirs, model, optimizer, loader = made_private(network(), batch_size=16, noise_multiplier=0.2)
    rate, divisor = loader.batch_sampler.sample_rate, optimizer.expected_batch_size
    trained(loader, model, optimizer, epochs=1)
    engine, model, optimizer, private = convert(theirs, model, optimizer, loader, seed=1)
    batches = engine.run.plan.batches
    assert (batches.sampling_rate, batches.divisor) == (rate, divisor) == (1 / 3, 13)
    assert batches.steps_an_epoch == len(private) == len(loader) == 3
    assert repr((engine.mechanism, engine.clip)) == "(Gaussian(sigma=0.1), Norm(0.5))"
    assert engine.account.steps == 3
    trained(private, model, optimizer, epochs=1)
    before, after = engine.account.settings.items()
    assert before == (pytest.approx((1 / 0.2, rate), rel=1e-9), 3)
    assert after == (pytest.approx((1 / 0.2, rate), rel=1e-4), 3)  # with the rounding of a mean loss
    claim = engine.guarantee(1e-3)
    assert "number of records counts as public" in claim.statement


def test_a_sum_that_is_not_divided_is_refused() -> None:
    theirs, *private = made_private(network(), loss_reduction="sum")
    with pytest.raises(ValueError, match="loss_reduction must be 'mean', got 'sum'"):
        convert(theirs, *private)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"poisson_sampling": False}, "loader must draw Poisson samples"),
        ({"clipping": "per_layer", "max_grad_norm": [1.0, 1.0]}, "got DPPerLayerOptimizer"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0, got 0.0"),
    ],
)
def test_runs_without_an_account_are_refused(options: dict[str, Any], match: str) -> None:
    engine, model, optimizer, loader = made_private(network(), **options)
    with pytest.raises(ValueError, match=match):
        watch(engine, model, optimizer, loader, LOSS)


def test_objects_that_opacus_did_not_make_are_refused() -> None:
    engine, model, optimizer, loader = made_private(network())
    for wrong, name in (
        ((nn.Linear(1, 1), optimizer, loader), "model"),
        ((model, optimizer.original_optimizer, loader), "optimizer"),
        ((model, optimizer, list(loader)), "loader"),
    ):
        with pytest.raises(TypeError, match=f"{name} must be what opacus"):
            watch(engine, *wrong, LOSS)


def weights_after(watched: bool, mode: str, size: int) -> tuple[Tensor, Tensor]:
    """The weights of a run, and the random number that torch would draw next."""
    module = network()
    engine, model, optimizer, *criterion, loader = made_private(module, size, grad_sample_mode=mode)
    torch.manual_seed(11)
    if watched:
        watch(engine, model, optimizer, loader, LOSS, norms_every=2)
    trained(loader, model, optimizer, *criterion, epochs=2 if size > 1 else 1)
    return nn.utils.parameters_to_vector(module.parameters()), torch.rand(3)


@pytest.mark.parametrize(("mode", "size"), [("hooks", 10), ("ghost", 10), ("hooks", 1)])
def test_training_is_the_same_to_the_bit(mode: str, size: int) -> None:
    """With batches of one example on average, a third of them are empty."""
    plain = weights_after(False, mode, size)
    watched = weights_after(True, mode, size)
    assert torch.equal(plain[0], watched[0])
    assert torch.equal(plain[1], watched[1])
    assert not torch.equal(plain[0], nn.utils.parameters_to_vector(network().parameters()))


def expected(lengths: Tensor, steps: Tensor | int, rate: float) -> Tensor:
    """The Rényi divergence of order 2 of so many sampled Gaussians: log(1 + q^2 (e^(s^2) - 1)) each."""
    shift = lengths.clamp(max=CLIP) / (CLIP * NOISE)
    return steps * torch.log1p(rate**2 * torch.expm1(shift.square()))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("norms_every", [1, 3])
def test_each_example_is_charged_with_its_own_gradient_where_it_was_measured(
    mode: str, norms_every: int
) -> None:
    module = network()
    engine, model, optimizer, *criterion, loader = made_private(
        module, learning_rate=0.0, grad_sample_mode=mode
    )
    run = watch(engine, model, optimizer, loader, LOSS, norms_every=norms_every)
    trained(loader, model, optimizer, *criterion)
    steps, measured = 2 * 4, 8 if norms_every == 1 else 3
    assert run.steps == steps
    assert run.examples.measured.tolist() == [measured] * EXAMPLES
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


@pytest.mark.parametrize("workers", [0, 1])
def test_parts_of_a_batch_count_as_one_step(workers: int) -> None:
    engine, model, optimizer, loader = made_private(network())
    run = watch(engine, model, optimizer, loader, LOSS)
    loader.num_workers = workers
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=3, optimizer=optimizer) as parts:
        trained(parts, model, optimizer)
    assert run.steps == run.examples.steps == 8
    assert run.examples.measured.tolist() == [8] * EXAMPLES


def test_the_claim_is_that_of_the_sampled_gaussian_and_says_what_it_assumes() -> None:
    # large losses, which are held by fewer points than medium ones
    engine, model, optimizer, loader = made_private(network(), noise_multiplier=0.2)
    run = watch(engine, model, optimizer, loader, LOSS)
    trained(loader, model, optimizer)
    claim = run.guarantee(1e-3)
    theirs = engine.get_epsilon(1e-3)  # Rényi: a little larger
    assert 0.8 * theirs < claim.epsilon <= theirs
    for said in ("number of records counts as public", "for every batch that was drawn", "Floating point:"):
        assert said in claim.statement
    assert float(run.example_epsilons(1e-3).max()) <= claim.per_instance.ex_post_epsilon * (1 + 1e-9)


def test_the_hook_of_opacus_still_counts_and_close_lets_go() -> None:
    engine, model, optimizer, loader = made_private(network())
    before, hook = set(vars(optimizer)), optimizer.step_hook
    run = watch(engine, model, optimizer, loader, LOSS)
    trained(loader, model, optimizer, epochs=1)
    assert sum(steps for _, _, steps in engine.accountant.history) == run.steps == 4
    run.close()
    assert set(vars(optimizer)) == before
    assert optimizer.step_hook is hook


def test_dropout_and_no_measurements_are_refused() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    with pytest.raises(ValueError, match=r"layer '1' \(Dropout\) draws at random"):
        watch(*made_private(module), LOSS)
    with pytest.raises(ValueError, match="norms_every must be at least 1, got 0"):
        watch(*made_private(network()), LOSS, norms_every=0)


def test_what_was_released_before_is_charged_too() -> None:
    engine, model, optimizer, loader = made_private(network(), noise_multiplier=0.2)
    trained(loader, model, optimizer, epochs=1)
    late = watch(engine, model, optimizer, loader, LOSS)
    assert late.steps == 4
    assert float(late.example_epsilons(1e-3).min()) == pytest.approx(
        late.guarantee(1e-3).per_instance.ex_post_epsilon, rel=1e-9
    )
    trained(loader, model, optimizer, epochs=1)
    assert late.steps == late.guarantee(1e-3).steps == late.examples.steps == 8
    assert late.examples.measured.tolist() == [4] * EXAMPLES


def test_norms_are_those_of_the_present_parameters_and_the_copy_has_no_hooks() -> None:
    module = network()
    engine, model, optimizer, loader = made_private(module)
    run = watch(engine, model, optimizer, loader, LOSS, norms_every=100)
    trained(loader, model, optimizer)
    kept = [parameter.grad_sample for parameter in module.parameters()]
    before = torch.get_rng_state()
    found = run.gradient_norms()
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.grad_sample is value for p, value in zip(module.parameters(), kept, strict=True))
    assert not any(layer._forward_hooks or layer._backward_hooks for layer in run._copy.modules())
    assert any(layer._forward_hooks for layer in module.modules())
    torch.testing.assert_close(found, gradient_lengths(copy_of(module)), rtol=1e-5, atol=0)


def test_the_guide_runs() -> None:
    guide = (Path(__file__).parents[1] / "docs" / "opacus.md").read_text()
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus and torch
        for code in re.findall(r"```python\n(.*?)```", guide, re.S):
            exec(code, names)
    assert names["run"].steps == 4
    assert names["engine"].clip.norm == 1.0
