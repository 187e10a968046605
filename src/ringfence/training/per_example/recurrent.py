"""RNN, LSTM and GRU with the same weights, unrolled over time.

The gates of a time step are the sum of what comes from the input, multiplied for all steps at once, and of
what comes from the state before: one use of the second weight for each step.
"""

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ringfence.training.per_example.isolation import SteppedRule, Tape, enter_rows

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

    def forward(self, tape: Tape, input: Any, hx: Any = None) -> tuple[Tensor, Any]:
        """The outputs of all time steps, and the last states."""
        layer, at = self.layer, 0 if self.layer.batch_first else 1
        x = self.rows(tape, input, at).movedim(at, 0)
        zeros = x.new_zeros(layer.num_layers * (1 + layer.bidirectional), len(x), layer.hidden_size)
        states: State = (zeros, zeros) if isinstance(layer, nn.LSTM) else (zeros,)
        if hx is not None:
            states = tuple(self.rows(tape, each, 1) for each in (hx if isinstance(hx, tuple) else (hx,)))
        last: list[State] = []
        for number in range(layer.num_layers):
            outputs = []
            for direction in ("", "_reverse")[: 1 + layer.bidirectional]:
                start = tuple(each[len(last)] for each in states)
                output, end = self._unrolled(tape, x, start, f"_l{number}{direction}")
                outputs.append(output)
                last.append(end)
            x = torch.cat(outputs, dim=2)
            if layer.dropout and number < layer.num_layers - 1:
                x = functional.dropout(x, layer.dropout, layer.training)
        ends = tuple(enter_rows(tape, torch.stack(each), 1) for each in zip(*last, strict=True))
        return enter_rows(tape, x.movedim(0, at), at), ends if isinstance(layer, nn.LSTM) else ends[0]

    def _unrolled(self, tape: Tape, x: Tensor, state: State, suffix: str) -> tuple[Tensor, State]:
        """One layer in one direction: its outputs (n, T, width), and its last state."""
        layer, width = self.layer, self.layer.hidden_size

        def multiplied(values: Tensor, to: str) -> Tensor:
            bias = f"bias_{to}{suffix}" if layer.bias else ""
            return self.linear(tape, values, f"weight_{to}{suffix}", bias)

        arriving = multiplied(x, "ih").unbind(1)
        for own in (f"weight_hh{suffix}", f"bias_hh{suffix}"):
            if own in self.trained:
                tape.uses[self.trained[own]] += len(arriving) - 1  # beside the call itself
        outputs: list[Tensor] = []
        backward = suffix.endswith("_reverse")
        for here in reversed(arriving) if backward else arriving:
            there = multiplied(state[0], "hh")
            if isinstance(layer, nn.LSTM):
                enter, keep, new, leave = (here + there).chunk(4, dim=1)
                cell = keep.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
                state = leave.sigmoid() * cell.tanh(), cell
            elif isinstance(layer, nn.GRU):
                here, here_new = here.split([2 * width, width], dim=1)
                there, there_new = there.split([2 * width, width], dim=1)
                reset, keep = (here + there).sigmoid().chunk(2, dim=1)
                new = (here_new + reset * there_new).tanh()
                state = (new + keep * (state[0] - new),)
            else:
                state = (torch.tanh(here + there) if layer.mode == "RNN_TANH" else torch.relu(here + there),)
            outputs.append(state[0])
        if backward:  # as if time had run forward
            outputs.reverse()
        return torch.stack(outputs, dim=1), state
