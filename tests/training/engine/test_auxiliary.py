"""Auxiliary batches are samples like those of a step, and the account hears what they tell."""

from typing import Any

import torch
from torch import nn

from ringfence.training.engine.sampling import PoissonBatches
from tests.training.engine.runs import CLIP, INPUTS, LABELS, Run, clipped_sum, network


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
    assert run.engine.guarantee(1e-3).per_instance.failure_probability == 1e-9
