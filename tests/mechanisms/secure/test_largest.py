"""The exact winner: what float64 decides is right, and what it cannot decide is decided by more bits."""

from itertools import chain, repeat
from statistics import NormalDist
from typing import Any

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from ringfence.mechanisms.secure import largest as file
from ringfence.mechanisms.secure.largest import largest
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics import exact_normal
from tests.oracle import below


class Words(CipherDraws):
    """Chosen words instead of random ones; zeros when they are used up."""

    def __init__(self, *words: int) -> None:
        self.left = chain(words, repeat(0))

    def words(self, count: int) -> Tensor:
        return torch.tensor([[next(self.left) for _ in range(count)]])


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_float64_decides_as_all_bits_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so wide a doubt that every row is decided exactly, the same bits give the same winners."""
    values = torch.randint(0, 4, (150, 3), generator=torch.Generator().manual_seed(0)).double()
    quickly = largest(values, 2.0, Noise(3).at("test"))
    monkeypatch.setattr(file, "_DOUBT", 1e9)
    assert torch.equal(largest(values, 2.0, Noise(3).at("test")), quickly)
    assert len(set(quickly.tolist())) == 3


def test_quantiles_in_float64_are_far_better_than_the_doubt() -> None:
    """At random numbers and at both ends; torch's quantile is trusted a million times less than here."""
    numbers = [*range(1, 12), *(2**53 - k for k in range(1, 12)), *(2**k for k in range(1, 53))]
    numbers += torch.randint(1, 2**53, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    quick = torch.special.ndtri(torch.tensor(numbers, dtype=torch.float64) * 2.0**-53)
    for number, value in zip(numbers, quick.tolist(), strict=True):
        exact = exact_normal.quantile((number << 203) - 1, 256, 0.0, 1.0)  # 2^-256 below number / 2^53
        assert abs(value - float(exact)) < 1e-6 * file._DOUBT * (1 + abs(value))


def test_float64_decides_almost_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bits are asked for only where the noisy values are closer than a billionth of them."""
    monkeypatch.setattr(file, "_exactly", None)
    for scale in (1e-3, 1.0, 1e3):
        values = scale * torch.randn(2000, 3, generator=torch.Generator().manual_seed(2)).double()
        largest(values, 1.0, Noise(4).at("test"))


def test_noises_that_53_bits_do_not_tell_apart() -> None:
    """The first words agree; the last bit of the last word decides."""
    ahead = Words(5 << 40, 5 << 40, 0, 0, 7, 0, 0, 8)
    assert largest(row(1.0, 1.0), 1.0, ahead).tolist() == [1]
    tied = Words(5 << 40, 5 << 40)
    assert largest(row(1.0, 1.0), 1.0, tied).tolist() == [0]  # by a public rule: the first


@pytest.mark.parametrize(("offset", "sigma"), [(0.0, 1.0), (0.0, 1e6), (0.0, 1e-6), (2.0**52, 1.0)])
def test_quantiles_that_are_off_by_less_than_the_doubt_decide_nothing(
    offset: float, sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.5 - 5e-11 and 1 - 0.5 + 5e-11, off by 1e-10 against their order. Around 2^52 only integers are left:
    rounding would make of them 1 and 0, apart by more than the doubt."""
    honest = torch.special.ndtri
    monkeypatch.setattr(torch.special, "ndtri", lambda uniform: (z := honest(uniform)) + 1e-10 * z.sign())
    near = NormalDist().cdf(0.5 - 5e-11)
    words = Words(int(near * 2**64) - 2**64, int((1 - near) * 2**64))
    assert largest(row(offset, offset + sigma), sigma, words).tolist() == [1]


@pytest.mark.parametrize(
    ("value", "z", "half"), [(0.0, -18.0, 1.9e-8), (0.0, 0.0, 1e-9), (2.0**50, 0.0, 1.126)]
)
def test_intervals_grow_by_the_doubt_of_the_noise_and_the_rounding_of_the_value(
    value: float, z: float, half: float
) -> None:
    low, high = (float(file._widened(row(value), 1.0, row(z), sign)) for sign in (-1, 1))
    assert low < value + z < high
    assert (high - low) / 2 == pytest.approx(half, rel=0.06)  # numbers around 2^50 are 1/8 apart or more


def test_a_difference_of_counts_below_float64s_noise_is_seen() -> None:
    """The values differ by one unit in the last place, the noises not at all: the larger value wins."""
    near = 1 + 2.0**-52
    assert largest(row(1.0, near), 1.0, Words(9 << 50, 9 << 50)).tolist() == [1]
    assert largest(row(near, 1.0), 1.0, Words(9 << 50, 9 << 50)).tolist() == [0]


def test_the_ends_of_the_uniform_numbers() -> None:
    """All bits 0 is the least noise, all bits 1 the largest: -18.5 and 18.5 sigma, not infinite."""
    every = -1  # the 64 bits of a word are all 1
    most = Words(0, every, 0, 0, 0, every, every, every)
    assert largest(row(36.0, 0.0), 1.0, most).tolist() == [1]
    assert largest(row(38.0, 0.0), 1.0, Words(0, every, 0, 0, 0, every, every, every)).tolist() == [0]


def test_all_that_the_first_bits_leave_open_is_seen() -> None:
    """U in [1, 2] / 2^53 is a noise from -8.21 to -8.13 sigma, and here almost the upper end."""
    every, half = 2**12 - 1, -(2**63)
    assert largest(row(0.0, -8.14), 1.0, Words(every, half, -1, -1, -1)).tolist() == [0]
    assert largest(row(0.0, -8.11), 1.0, Words(every, half, -1, -1, -1)).tolist() == [1]
    assert largest(row(0.0, 8.14), 1.0, Words(-every - 1, half)).tolist() == [1]


def test_quantiles_invert_the_distribution_function() -> None:
    for number in (0, 1, 2**200, 2**255 - 1, 2**255, 2**256 - 2**190, 2**256 - 1):
        with mp.workdps(160):
            share = (mpf(number) + mpf(1) / 2) / mpf(2) ** 256
            value: Any = (mpf(exact_normal.quantile(number, 256, 3.0, 2.0)) - 3) / 2
            tail, wanted = (below(-value), 1 - share) if value > 0 else (below(value), share)
            assert abs(tail / wanted - 1) < mpf(2) ** -390


def test_no_more_is_doubted_than_float64_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two noises of 0 and values that differ by 2.5 billionths: each interval ends a billionth from its
    middle."""
    monkeypatch.setattr(file, "_exactly", None)
    half = -(2**63)
    assert largest(row(0.0, 2.5e-9), 1.0, Words(half, half)).tolist() == [1]
    with pytest.raises(TypeError):
        largest(row(0.0, 1.9e-9), 1.0, Words(half, half))
    # beside values of a billion, their own rounding is all there is: a millionth each
    assert largest(row(1e9, 1e9 + 2.5e-6), 1e-9, Words(half, half)).tolist() == [1]
    with pytest.raises(TypeError):
        largest(row(1e9, 1e9 + 1.5e-6), 1e-9, Words(half, half))
