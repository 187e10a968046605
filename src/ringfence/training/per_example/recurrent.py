"""RNN, LSTM and GRU with the same weights, unrolled over time.

The gates of a time step are the sum of what comes from the input, computed for all steps at once, and of
what comes from the state before. The gradient by the first is the gradient by the gates (for the last gate of
a GRU, up to a known factor), so that one backward pass gives the factors of all four parameters of a layer.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ringfence.training.kernels.clipped_sums import ALL, Part, Products, Rows, summed
from ringfence.training.per_example.isolation import LayerCall, SteppedRule, in_autocast

State = tuple[Tensor, ...]  # (n, width) each: the hidden state, and the cell of an LSTM


class Recurrent(SteppedRule):
    """``nn.RNN``, ``nn.LSTM`` and ``nn.GRU`` over a batch of sequences of one length."""

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether a recurrent layer has its usual parameters, and no projection of its outputs.

        >>> Recurrent.suits(nn.LSTM(2, 3)), Recurrent.suits(nn.LSTM(2, 3, proj_size=1))
        (True, False)
        """
        names = {name for name, _ in layer.named_parameters()}
        return not layer.proj_size and names == set(chain.from_iterable(layer._all_weights))

    def forward(self, call: LayerCall, input: Any, hx: Any = None) -> tuple[Tensor, Any]:
        """The outputs of all time steps, and the last states."""
        layer, at = self.layer, 0 if self.layer.batch_first else 1
        x = call.rows(input, at).movedim(at, 0)
        states = () if hx is None else (hx if isinstance(hx, tuple) else (hx,))
        given = [call.rows(each, 1) for each in states]
        directions = ("", "_reverse") if layer.bidirectional else ("",)
        last: list[State] = []
        for number in range(layer.num_layers):
            outputs = []
            for direction in directions:
                start = tuple(each[len(last)] for each in given) or _nothing(layer, x)
                output, end = _unrolled(layer, call, x, start, f"_l{number}{direction}")
                outputs.append(output)
                last.append(end)
            x = torch.cat(outputs, dim=2)
            if layer.dropout and number < layer.num_layers - 1:
                x = functional.dropout(x, layer.dropout, layer.training)
        ends = tuple(call.enter(torch.stack(each), 1) for each in zip(*last, strict=True))
        return call.enter(x.movedim(0, at), at), ends if isinstance(layer, nn.LSTM) else ends[0]


def _nothing(layer: nn.RNNBase, x: Tensor) -> State:
    zeros = x.new_zeros(len(x), layer.hidden_size)
    return (zeros, zeros) if isinstance(layer, nn.LSTM) else (zeros,)


def _unrolled(
    layer: nn.RNNBase, call: LayerCall, x: Tensor, state: State, suffix: str
) -> tuple[Tensor, State]:
    """One layer in one direction: its outputs (n, T, width), and its last state."""
    x, width = in_autocast(x), layer.hidden_size
    names = [f"{kind}{suffix}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    inward, onward = getattr(layer, names[0]), getattr(layer, names[1])
    biases = [getattr(layer, name, None) for name in names[2:]]
    before: list[Tensor] = []  # the hidden state before each time step
    resets: list[Tensor] = []  # what a GRU multiplies the state's part of its last gate by

    def parts(gradient: Tensor, x: Tensor) -> Iterator[Part]:
        def stacked(values: list[Tensor]) -> Tensor:
            return torch.stack(values, dim=1).reshape(*gradient.shape[:2], width).to(gradient.dtype)

        onward_gradient = gradient
        if resets:
            first, last = gradient.split([2 * width, width], dim=2)
            onward_gradient = torch.cat([first, last * stacked(resets)], dim=2)
        yield names[0], ALL, Products(gradient.mT, x.to(gradient.dtype).mT)
        yield names[1], ALL, Products(onward_gradient.mT, stacked(before).mT)
        yield names[2], ALL, Rows(summed(gradient, 1))
        yield names[3], ALL, Rows(summed(onward_gradient, 1))

    arriving = call.watch(functional.linear(x, inward, biases[0]), x, parts).unbind(1)
    outputs: list[Tensor] = []
    backward = suffix.endswith("_reverse")
    for here in reversed(arriving) if backward else arriving:
        before.append(state[0].detach())
        there = functional.linear(state[0], onward, biases[1])
        if isinstance(layer, nn.LSTM):
            enter, keep, new, leave = (here + there).chunk(4, dim=1)
            cell = keep.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
            state = leave.sigmoid() * cell.tanh(), cell
        elif isinstance(layer, nn.GRU):
            here, here_new = here.split([2 * width, width], dim=1)
            there, there_new = there.split([2 * width, width], dim=1)
            reset, keep = (here + there).sigmoid().chunk(2, dim=1)
            resets.append(reset.detach())
            new = (here_new + reset * there_new).tanh()
            state = (new + keep * (state[0] - new),)
        else:
            state = (torch.tanh(here + there) if layer.mode == "RNN_TANH" else torch.relu(here + there),)
        outputs.append(state[0])
    if backward:  # as if time had run forward
        for each in (outputs, before, resets):
            each.reverse()
    return torch.stack(outputs, dim=1), state
