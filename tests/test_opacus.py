"""Opacus runs: the registered accountant, and conversion."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

opacus = pytest.importorskip("opacus")

from opacus.accountants import PRVAccountant, create_accountant  # noqa: E402

import ringfence.opacus  # noqa: E402
from ringfence.opacus import convert  # noqa: E402

EXAMPLES = 40
SEED = 7  # of the batches; noise comes from torch's global generator
CLIP, NOISE = 0.5, 0.8


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
    before, after = ((one.mu, one.rate, one.count) for one in engine.account.releases)
    assert before == pytest.approx((1 / 0.2, rate, 3), rel=1e-9)
    assert after == pytest.approx((1 / 0.2, rate, 3), rel=1e-4)  # with the rounding of a mean loss
    claim = engine.guarantee(1e-3)
    assert "number of records counts as public" in claim.statement


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"poisson_sampling": False}, "loader must draw Poisson samples"),
        ({"clipping": "per_layer", "max_grad_norm": [1.0, 1.0]}, "got DPPerLayerOptimizer"),
        ({"loss_reduction": "sum"}, "loss_reduction must be 'mean', got 'sum'"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0, got 0.0"),
    ],
)
def test_runs_without_an_account_are_refused(options: dict[str, Any], match: str) -> None:
    engine, model, optimizer, loader = made_private(network(), **options)
    with pytest.raises(ValueError, match=match):
        convert(engine, model, optimizer, loader)


def test_a_run_in_secure_mode_takes_its_loss_along() -> None:
    theirs, model, optimizer, loader = made_private(network(), batch_size=16)
    theirs.secure_mode = True  # which Opacus grants where torchcsprng is installed
    with pytest.raises(ValueError, match="a secure run needs loss"):
        convert(theirs, model, optimizer, loader)
    engine, model, optimizer, private = convert(theirs, model, optimizer, loader, loss=nn.CrossEntropyLoss())
    trained(private, model, optimizer, epochs=1)
    assert engine.secure
    assert engine.account.steps == 3


def test_objects_that_opacus_did_not_make_are_refused() -> None:
    engine, model, optimizer, loader = made_private(network())
    for wrong, name in (
        ((nn.Linear(1, 1), optimizer, loader), "model"),
        ((model, optimizer.original_optimizer, loader), "optimizer"),
        ((model, optimizer, list(loader)), "loader"),
    ):
        with pytest.raises(TypeError, match=f"{name} must be what make_private of Opacus"):
            convert(engine, *wrong)


def test_the_guide_runs() -> None:
    guide = (Path(__file__).parents[1] / "docs" / "opacus.md").read_text()
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus and torch
        for code in re.findall(r"```python\n(.*?)```", guide, re.S):
            exec(code, names)
    assert names["theirs"].accountant.history == []
    assert names["engine"].clip.norm == 1.0
