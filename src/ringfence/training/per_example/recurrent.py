"""RNN, LSTM and GRU with the same weights, unrolled over time.

The gates of a time step are the sum of what comes from the input, multiplied for all steps at once, and of
what comes from the state before. So the gradient by the first is that by the second too (of the last gate of
a GRU, up to a known factor), and one watched product gives the factors of all four parameters.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ringfence.training.kernels.clipped_sums import ALL, Part, matrix_and_bias
from ringfence.training.per_example.isolation import Rule, Tape, enter_rows, in_autocast

State = tuple[Tensor, ...]  # (n, width) each: the hidden state, and the cell of an LSTM


class Recurrent(Rule):
    """``nn.RNN``, ``nn.LSTM`` and ``nn.GRU`` over a batch of sequences of one length."""

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether a recurrent layer has its usual parameters, and no projection of its outputs.

        >>> Recurrent.suits(nn.LSTM(2, 3)), Recurrent.suits(nn.LSTM(2, 3, proj_size=1))
        (True, False)
        """
        names = {name for name, _ in layer.named_parameters()}
        return not layer.proj_size and names == set(chain.from_iterable(layer._all_weights))

    def computed(self, tape: Tape, input: Any, hx: Any = None) -> tuple[Tensor, Any]:
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
        weights = [getattr(layer, f"weight_{to}{suffix}") for to in ("ih", "hh")]
        biases = [getattr(layer, f"bias_{to}{suffix}", None) for to in ("ih", "hh")]
        before: list[Tensor] = []  # the hidden state before each time step
        resets: list[Tensor] = []  # what a GRU multiplies the state's part of its last gate by
        backward = suffix.endswith("_reverse")

        def stacked(values: list[Tensor]) -> Tensor:
            return torch.stack(values[::-1] if backward else values, dim=1)  # as if time had run forward

        def parts(gradient: Tensor, x: Tensor) -> Iterator[Part]:
            by_state = gradient
            if resets:
                first, last = gradient.split([2 * width, width], dim=2)
                by_state = torch.cat([first, last * stacked(resets).to(last.dtype)], dim=2)
            for to, slopes, seen in (("ih", gradient, x), ("hh", by_state, stacked(before))):
                names = f"weight_{to}{suffix}", f"bias_{to}{suffix}"
                yield from zip(names, (ALL, ALL), matrix_and_bias(tape.units, slopes, seen), strict=True)

        x = in_autocast(x)
        arriving = self.watch(tape, functional.linear(x, weights[0], biases[0]), x, parts).unbind(1)
        outputs: list[Tensor] = []
        for here in reversed(arriving) if backward else arriving:
            before.append(state[0].detach())
            there = functional.linear(state[0], weights[1], biases[1])
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
        return stacked(outputs), state
