"""eta of a run against dense jacobians, and a cross-entropy whose derivatives survive rounding."""

import pytest
import torch
from torch import nn

from experiments.information.full_size import information
from experiments.information.full_size.information import Moment, exact_cross_entropy, run_etas
from ringfence import Clamp, Gaussian, TruncatedGaussian
from tests.accounting.drawing import draw

INPUTS, TARGETS = draw(4, 1, 2, 3), torch.tensor([0, 1, 2, 0])
CLIP = Clamp(0.3)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double()


def clipped(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(x[None]), y[None])
    parts = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return CLIP(torch.cat([part.reshape(-1) for part in parts])[None])[0]


def test_the_run_is_q_times_all_steps_times_the_mean_of_the_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(information, "_BLOCK", 3)  # two blocks
    law, models = TruncatedGaussian(1.5, bound=1.0), [network(seed) for seed in (1, 2)]
    theta = [draw(21, seed=seed) for seed in (3, 4)]
    spectral, trace = torch.zeros(4).double(), torch.zeros(4).double()
    for model, sums in zip(models, theta, strict=True):
        for i in range(4):
            jacobian = torch.autograd.functional.jacobian(
                lambda x, i=i, model=model: clipped(model, x, TARGETS[i]), INPUTS[i]
            ).reshape(21, 6)
            seen = law.fisher_information(sums).sqrt()[:, None] * jacobian
            spectral[i] += torch.linalg.matrix_norm(seen, 2) ** 2
            trace[i] += (seen**2).sum() / 6
    moments = [Moment(m.state_dict(), sums) for m, sums in zip(models, theta, strict=True)]
    paused: list[None] = []
    etas = run_etas(
        *(network(9), law, CLIP, moments, INPUTS, TARGETS),
        sampling_rate=0.01,
        steps=500,
        probes=50,
        generator=torch.Generator().manual_seed(0),
        pause=lambda: paused.append(None),
    )
    expected = (spectral * 0.01 * 500 / 2).sqrt()
    assert expected.max() <= etas.spectral_max <= 1.1 * expected.max()
    assert etas.spectral_median <= 1.1 * expected.sort().values[2]
    exact = float((trace * 0.01 * 500 / 2).sqrt().max())
    assert etas.trace_max == pytest.approx(
        exact, rel=1e-6
    )  # as many probes as pixels: nothing is left to chance
    assert etas.estimate_max == pytest.approx(exact, rel=1e-6)
    assert len(paused) == 2 * 2 * 2  # moments, blocks, and kinds of norm


def test_a_network_that_is_sure_still_has_derivatives() -> None:
    outputs = draw(5, 4).mul(3).requires_grad_()
    targets = torch.tensor([0, 1, 2, 3, 0])
    ours, theirs = exact_cross_entropy(outputs, targets), nn.functional.cross_entropy(outputs, targets)
    torch.testing.assert_close(ours, theirs)
    for one, other in zip(*(torch.autograd.grad(loss, outputs) for loss in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other)
    sure = torch.tensor([[30.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(exact_cross_entropy(sure, torch.tensor([0])), sure)
    assert float(gradient[0, 0]) == pytest.approx(-torch.exp(torch.tensor(-30.0)).item(), rel=1e-5)
    # in float32 torch's own has no digit left of this
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double()
    model[1].bias.data[0] += 25.0
    moment = Moment(model.state_dict(), torch.zeros(21).double())
    etas = run_etas(
        *(model, Gaussian(1.0), CLIP, [moment], INPUTS, torch.zeros(4, dtype=torch.int64)),
        sampling_rate=1.0,
        steps=1,
        probes=2,
        generator=torch.Generator().manual_seed(0),
    )
    assert 0 < etas.spectral_max < 1e-8
