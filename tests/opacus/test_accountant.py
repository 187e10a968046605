"""The accountant that is registered with Opacus."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

opacus = pytest.importorskip("opacus")

from opacus.accountants import PRVAccountant, create_accountant  # noqa: E402

import ringfence.opacus  # noqa: E402
from tests.opacus.runs import EXAMPLES, examples  # noqa: E402


def test_it_is_registered_and_close_to_the_best_of_opacus() -> None:
    ours, theirs = create_accountant("ringfence"), PRVAccountant()
    assert isinstance(ours, ringfence.opacus.RingfenceAccountant)
    for account in (ours, theirs):
        for noise, rate, steps in ((1.0, 0.02, 40), (2.0, 0.1, 10)):
            for _ in range(steps):
                account.step(noise_multiplier=noise, sample_rate=rate)
    assert len(ours) == 50
    # PRV errs by up to eps_error = 0.01 on both sides
    assert abs(ours.get_epsilon(1e-5) - theirs.get_epsilon(1e-5)) < 0.02
    claim = ours.guarantee(1e-5)
    assert "The number of records counts as public: Opacus divides" in claim.statement
    assert claim.epsilon_data_independent == pytest.approx(ours.get_epsilon(1e-5), rel=1e-9)
    again = create_accountant("ringfence")
    again.load_state_dict(ours.state_dict())
    assert again.get_epsilon(1e-5) == ours.get_epsilon(1e-5)
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
