"""The way over from Opacus to the engine here."""

import pytest
import torch
from torch import nn

opacus = pytest.importorskip("opacus")

from ringfence.opacus import convert  # noqa: E402
from tests.opacus.runs import EXAMPLES, made_private, network, trained  # noqa: E402


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
    batches = engine.run.batches
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
