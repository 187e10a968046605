"""Every example counts once: loops that would count it twice, or not at all, are refused."""

import pytest
import torch
from torch import nn

import ringfence as rf
from tests.training.engine.runs import INPUTS, Run, refused


def test_a_loss_that_is_summed_gives_the_same_run() -> None:
    mean, total = Run(mechanism=rf.Gaussian(1e-9)), Run(mechanism=rf.Gaussian(1e-9), loss_reduction="sum")
    for run, reduction in ((mean, "mean"), (total, "sum")):
        for inputs, labels in run.loader:
            nn.functional.cross_entropy(run.model(inputs), labels, reduction=reduction).backward()
            run.optimizer.step()
    assert torch.allclose(mean.weights(), total.weights(), atol=1e-6)


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


@pytest.mark.filterwarnings("ignore:.*not finite on made-up inputs")
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
