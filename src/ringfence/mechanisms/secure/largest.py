"""Decides exactly which of several noisy values is the largest: only the number of the winner is released.

The noisy value of candidate k is value_k + sigma Phi^-1(U_k), with U_k uniform numbers from a cryptographic
stream. 53 bits of each U_k put the noisy value into an interval. Where the intervals leave a doubt, 256 bits
of U_k and 512 bits of the quantile decide.
"""

from typing import Any

import torch
from torch import Tensor

from ringfence.noise import CipherDraws
from ringfence.numerics import exact_normal

_STEP = 2.0**-53  # the first bits of U
_DOUBT = 1e-9  # of sigma (1 + |z|): a million times what a quantile in float64 may be off (docs/security.md)
_ROUNDING = 1e-15  # of a value and its noise, when they are added
_MORE_WORDS = 3  # of 64 bits of U, where the first 64 leave a doubt


def largest(values: Tensor, sigma: float, bits: CipherDraws) -> Tensor:
    """The number of the largest of each row of ``values`` (rows, K) plus N(0, sigma^2), in float64 on the
    CPU.

    Guarantee: for up to a million candidates the total variation distance from the exact law is below 2^-200
    per row.

    >>> from ringfence.noise import Noise
    >>> largest(torch.tensor([[0.0, 90.0], [90.0, 0.0]]).double(), 1.0, Noise().at("example")).tolist()
    [1, 0]
    """
    words = bits.words(values.numel())[0].view(values.shape)
    uniform = ((words >> 11) & (2**53 - 1)).double() * _STEP  # U rounded down to 53 bits
    low, high = (torch.special.ndtri(uniform + more) for more in (0.0, _STEP))
    low, high = (_widened(values, sigma, low, -1), _widened(values, sigma, high, 1))
    best = low.argmax(dim=1, keepdim=True)
    reached = low.gather(1, best)
    doubted = (high >= reached).scatter_(1, best, True)  # who may still be the largest
    winner = best.squeeze(1)
    for row in (doubted.sum(dim=1) > 1).nonzero().flatten().tolist():
        rivals = doubted[row].nonzero().flatten().tolist()
        noisy = [_exactly(float(values[row, k]), sigma, int(words[row, k]), bits) for k in rivals]
        winner[row] = rivals[max(range(len(rivals)), key=noisy.__getitem__)]  # the first of equal ones
    return winner


def _widened(values: Tensor, sigma: float, z: Tensor, sign: int) -> Tensor:
    """value + sigma z, moved outwards by what it may be off."""
    noise = sigma * z
    return values + noise + sign * (_DOUBT * (sigma + noise.abs()) + _ROUNDING * (values.abs() + noise.abs()))


def _exactly(value: float, sigma: float, word: int, bits: CipherDraws) -> Any:
    """The noisy value, from 256 bits of U that begin with ``word``."""
    uniform = 0
    for part in (word, *bits.words(_MORE_WORDS)[0].tolist()):
        uniform = (uniform << 64) + part % 2**64
    return exact_normal.quantile(uniform, 64 * (1 + _MORE_WORDS), value, sigma)
