"""Recurrent layers, unrolled: outputs, last states and gradients against those of torch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ringfence.training.per_example.gradients import ExampleGradients
from tests.training.per_example.alone import agree, drawn


class Reading(nn.Module):
    """Returns the outputs and the last states; begins with states of its own if ``begins``."""

    def __init__(self, kind: type[nn.RNNBase], begins: bool, **options: Any) -> None:
        super().__init__()
        self.layer, self.start = kind(4, 3, **options), nn.Linear(4, 3) if begins else None

    def forward(self, x: Tensor) -> Any:
        state = None
        if self.start is not None:
            state = self.start(x[:, 0]).expand(len(self.layer.all_weights), -1, -1)
            state = (state, 2 * state) if isinstance(self.layer, nn.LSTM) else state
        outputs, last = self.layer(x if self.layer.batch_first else x.transpose(0, 1), state)
        last = torch.cat(last) if isinstance(last, tuple) else last
        return (outputs if self.layer.batch_first else outputs.transpose(0, 1)), last.transpose(0, 1)


OPTIONS: list[tuple[bool, dict[str, Any]]] = [
    (False, {"batch_first": True}),
    (True, {"num_layers": 2, "bidirectional": True, "dropout": 0.3}),
    (False, {"num_layers": 2, "bias": False, "batch_first": True}),
]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(("begins", "options"), OPTIONS)
def test_sums_are_those_of_examples_alone(
    kind: type[nn.RNNBase], begins: bool, options: dict[str, Any]
) -> None:
    assert not agree(lambda: Reading(kind, begins, **options).eval(), drawn(4, 5, 4)).slower_layers


def test_rectified_states() -> None:
    assert not agree(lambda: Reading(nn.RNN, False, nonlinearity="relu"), drawn(4, 5, 4)).slower_layers


def test_dropout_between_layers_is_the_same_forward_and_back() -> None:
    """What is too large to be kept passes twice: outputs and gradients must belong to the same masks."""
    gradients = ExampleGradients(Reading(nn.GRU, False, num_layers=2, dropout=0.5, batch_first=True))
    inputs = ((drawn(6, 5, 4),), {})
    gradients.forward(inputs)
    assert gradients.fallback_reason is None
    gradients._fitting = 3
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        outputs, _ = gradients.forward(inputs)
        assert gradients._kept is None
        torch.manual_seed(1)
        again = [one.outputs[0] for one in gradients._passes(inputs)]
    assert torch.allclose(outputs, torch.cat(again))


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:examples go through the model")
def test_packed_sequences_go_one_by_one() -> None:
    class Packing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.GRU(4, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            lengths = torch.full((len(x),), 3)
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            return self.last(self.layer(packed)[1][0])

    gradients, inputs = ExampleGradients(Packing()), drawn(6, 5, 4)
    outputs = gradients.forward(((inputs,), {}))
    assert "vmap" in gradients.fallback_reason
    assert torch.allclose(outputs, gradients.model(inputs), atol=1e-6)
