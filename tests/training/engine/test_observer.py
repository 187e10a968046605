"""What the user sees of each step is what happened in it."""

from typing import Any

import pytest
import torch
from torch import nn

import ringfence as rf
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, Run, clipped_sum, network


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


def test_the_sum_of_a_step_belongs_to_the_parameters_seen_in_on_step() -> None:
    """Whoever measures other examples at a step needs both."""
    heard: list[bool] = []

    def compare(report: rf.StepReport) -> None:
        expected = clipped_sum(run.original, INPUTS, LABELS, CLIP)
        heard.append(torch.allclose(run.engine.run.theta, expected, atol=1e-6))

    run = Run(on_step=compare)
    run.train(2)
    assert heard == [True, True]


def test_reports_of_steps() -> None:
    heard: list[rf.StepReport] = []
    run = Run(on_step=heard.append, loss=nn.functional.cross_entropy)
    first = nn.functional.cross_entropy(network()(INPUTS), LABELS)
    run.train(3)
    assert [report.steps for report in heard] == [1, 2, 3]
    assert heard[0].loss == pytest.approx(first.item(), rel=1e-5)
    assert heard[-1].guarantee(1e-5) == run.engine.guarantee(1e-5)
