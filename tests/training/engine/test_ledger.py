"""Every release is charged, and has noise of its own."""

import pytest
import torch

import ringfence as rf
from ringfence.noise import Noise, side_by_side
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, Run, clipped_sum, refused
from tests.training.engine.runs import charged as with_rounding


def test_every_release_is_charged_and_what_the_account_says_is_recomputed() -> None:
    charged = []
    run = Run()
    step = run.engine.account.step
    run.engine.account.step = lambda theta: (charged.append(theta.clone()), step(theta))[1]
    run.train(4)
    assert len(charged) == run.engine.account.steps == run.engine.guarantee(1e-5).steps == 4
    account = rf.PerInstanceAccountant(LAW, with_rounding(CLIP.sensitivity))
    for theta in charged:
        account.step(theta)
    assert torch.equal(account.forward, run.engine.account.forward)


def test_a_sampled_run_is_charged_with_what_holds_for_every_dataset() -> None:
    run = Run(sampling="poisson", batch_size=6).train(10)
    claim = run.engine.guarantee(1e-3)
    account = rf.SampledAccountant(LAW, with_rounding(CLIP.sensitivity, 6), 0.1)
    account.step_of_any(torch.zeros(48), count=10)
    assert claim.epsilon == account.guarantee(1e-3).epsilon
    assert torch.allclose(run.engine.account.worst, account.worst, rtol=1e-12)
    assert run.engine.account.spent == 0


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


def test_the_same_sum_at_the_same_step_gives_the_same_release_and_no_other_does() -> None:
    law, theta = rf.Gaussian(1.0), torch.zeros(4)

    def noise(theta: torch.Tensor, step: int) -> torch.Tensor:
        source = Noise(3)
        draws = side_by_side([source], "noise", step, source.digest(theta))
        return law.sample(theta, generator=draws) - theta

    assert torch.equal(noise(theta, 0), noise(theta, 0))
    assert not torch.equal(noise(theta, 0), noise(theta, 1))
    assert not torch.allclose(noise(theta, 0), noise(theta + 1e-6, 0), atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*not finite on made-up inputs")
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


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_sum_with_one_bad_coordinate_is_neither_charged_nor_released(bad: float) -> None:
    """A law with bounded support would make a number of an infinity."""
    ledger, theta = Run(mechanism=rf.RectifiedGaussian(1.0, bound=2.0)).engine.run.ledger, torch.zeros(48)
    theta[7] = bad
    with refused("the sum of clipped gradients of step 3 is not finite"):
        ledger.release(3, theta)
    assert ledger.account.steps == 0
