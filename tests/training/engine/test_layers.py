"""Which layers can be trained privately: each gives every example's own gradient, or is refused by name."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import ringfence as rf
from ringfence.training.per_example.layers import refuse_random_layers
from tests.training.engine.runs import CLIP, INPUTS, Run, clipped_sum, network

# torch falls back to a loop over the examples for some of these
pytestmark = [
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:examples go through the model one by one"),
]

WORDS = torch.randint(0, 10, (60, 5), generator=torch.Generator().manual_seed(0))
SERIES = torch.randn(60, 5, 4, generator=torch.Generator().manual_seed(0))
ROWS = SERIES[:, 0]


class First(nn.Module):
    """The first tensor of what a layer returns, a row an example."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        found = self.layer(x)
        return (found if isinstance(found, Tensor) else found[0]).flatten(1)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


def frozen(layer: nn.Module, trained: bool = True) -> nn.Module:
    """With statistics as if of public data."""
    layer.running_mean.fill_(0.2)
    layer.running_var.fill_(1.5)
    return layer.eval().requires_grad_(trained)


WORKING: list[tuple[Callable[[], nn.Module], Tensor]] = [
    (lambda: nn.Embedding(10, 4, padding_idx=0), WORDS),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), SERIES),
    (lambda: frozen(nn.InstanceNorm1d(5, affine=True, track_running_stats=True)), SERIES),
    (lambda: frozen(nn.BatchNorm1d(5)), SERIES),
    (lambda: nn.Sequential(nn.Linear(4, 4), frozen(nn.BatchNorm1d(5), trained=False)), SERIES),
    (lambda: parametrizations.orthogonal(nn.Linear(4, 3)), ROWS),
    (Tied, ROWS),
    (lambda: nn.LSTM(4, 3, proj_size=2, batch_first=True), SERIES),
    (lambda: nn.GRUCell(4, 3), ROWS),
]


@pytest.mark.parametrize(("make", "inputs"), WORKING, ids=lambda x: type(x()).__name__ if callable(x) else "")
def test_layers_that_work_give_every_examples_own_gradient(
    make: Callable[[], nn.Module], inputs: Tensor
) -> None:
    torch.manual_seed(0)
    run = Run(First(make()), inputs=inputs, mechanism=rf.Gaussian(1e-7), labels=WORDS[:, 0] % 2)
    trained = [p for p in run.original.parameters() if p.requires_grad]
    start = torch.cat([p.detach().reshape(-1) for p in trained])
    theta = clipped_sum(run.original, inputs, WORDS[:, 0] % 2, CLIP)
    buffers = {name: value.clone() for name, value in run.original.named_buffers()}
    run.model.train()
    run.train(1)
    moved = (start - torch.cat([p.detach().reshape(-1) for p in trained])) * 60
    assert torch.allclose(moved, theta, atol=1e-4)
    assert float(theta.norm()) > 0.1
    assert all(torch.equal(value, buffers[name]) for name, value in run.original.named_buffers())


REFUSED: list[tuple[Callable[[], nn.Module], str]] = [
    (
        lambda: nn.BatchNorm1d(4),
        r"\(BatchNorm1d\) mixes the examples .* GroupNorm or LayerNorm, or freeze it: eval",
    ),
    (lambda: nn.BatchNorm1d(4, track_running_stats=False).eval(), r"\(BatchNorm1d\) mixes the examples"),
    (lambda: nn.InstanceNorm1d(4, track_running_stats=True), r"\(InstanceNorm1d\) keeps running statistics"),
    (lambda: nn.Embedding(10, 4, sparse=True), r"\(Embedding\) has sparse gradients: use sparse=False"),
    (lambda: nn.Embedding(10, 4, max_norm=0.5), r"\(Embedding\) changes its weights .* use max_norm=None"),
    (lambda: nn.EmbeddingBag(10, 4, max_norm=0.5), r"\(EmbeddingBag\) changes its weights"),
    (lambda: nn.Sequential(nn.Linear(4, 2), nn.RReLU()), r"layer 'layer.1' \(RReLU\) .* use LeakyReLU"),
    (
        lambda: parametrizations.spectral_norm(nn.Linear(4, 3)),
        r"\(_SpectralNorm\) .* how often the model was called",
    ),
    (lambda: nn.utils.spectral_norm(nn.Linear(4, 3)), r"layer 'layer' \(Linear\) has spectral_norm"),
    (lambda: nn.LazyLinear(3), r"\(LazyLinear\) has no parameters yet: call the model once"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
@pytest.mark.filterwarnings("ignore:Lazy modules", "ignore:`torch.nn.utils.spectral_norm`")
def test_layers_that_do_not_work_are_refused_before_anything_else(
    make: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Run(First(make()), optimizer=lambda _: None, inputs=INPUTS)


def test_a_frozen_batch_normalisation_stays_frozen() -> None:
    run = Run(network(frozen(nn.BatchNorm1d(18))))
    layer = run.original[3]
    assert run.model.train() is run.model
    assert run.original.training
    assert not layer.training
    run.train(1)
    run.original.train()  # behind the engine's back
    inputs, _ = next(iter(run.loader))
    with pytest.raises(ValueError, match=r"layer '3' \(BatchNorm1d\) mixes the examples"):
        run.model(inputs)
    with torch.no_grad(), pytest.raises(ValueError, match=r"layer '3' \(BatchNorm1d\) mixes the examples"):
        run.model(inputs)
    assert float(layer.running_mean[0]) == pytest.approx(0.2)
    assert run.engine.account.steps == 1


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.1), nn.MultiheadAttention(4, 2, dropout=0.1), nn.FractionalMaxPool2d(2, output_size=2)],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_that_draw_have_no_information(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match=rf"layer '' \({type(layer).__name__}\) draws at random"):
        refuse_random_layers(layer)
