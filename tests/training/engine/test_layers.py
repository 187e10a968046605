"""Layers that cannot be trained privately are refused by name, and frozen ones stay frozen."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from ringfence.training.per_example.layers import refuse_random_layers
from tests.training.engine.runs import INPUTS, Run, network


def frozen(layer: nn.Module) -> nn.Module:
    """With statistics as if of public data."""
    layer.running_mean.fill_(0.2)
    return layer.eval()


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
    (lambda: nn.Sequential(nn.Linear(4, 2), nn.RReLU()), r"layer '0.1' \(RReLU\) .* use LeakyReLU"),
    (
        lambda: parametrizations.spectral_norm(nn.Linear(4, 3)),
        r"\(_SpectralNorm\) .* how often the model was called",
    ),
    (lambda: nn.utils.spectral_norm(nn.Linear(4, 3)), r"layer '0' \(Linear\) has spectral_norm"),
    (lambda: nn.LazyLinear(3), r"\(LazyLinear\) has no parameters yet: call the model once"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
@pytest.mark.filterwarnings("ignore:Lazy modules", "ignore:`torch.nn.utils.spectral_norm`")
def test_layers_that_do_not_work_are_refused_before_anything_else(
    make: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Run(nn.Sequential(make()), optimizer=lambda _: None, inputs=INPUTS)


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
