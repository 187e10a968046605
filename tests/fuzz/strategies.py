"""What is thrown at the package: things that are no numbers, numbers that are hardly any, and extremes."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import ringfence as rf


class Unrelated:
    """An object that has nothing to do with numbers."""

    def __repr__(self) -> str:
        return "Unrelated()"


FLOATS = (
    *(0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 1e-310, 2.2250738585072014e-308),
    *(1e-300, -1e-300, 1e300, -1e300, 1.7976931348623157e308, 1e-160, 1e160, 3.5e38, 1e-46, 1e16),
    *(1.0, -1.0, 0.5, 2.0, 1 + 2.0**-52, 1 + 1e-12, 1 - 2.0**-53, 1e-8, 100.0, 1e6),
)
INTEGERS = (
    *(0, 1, -1, 2, 3, 17, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64),
    *(10**30, 10**400, -(10**400)),
)
OTHERS = (
    *(None, True, False, "", "nan", "1.0", "theta", b"", b"1", 1j, complex(math.nan, 0.0)),
    *([], (), {}, set(), [1.0], [math.nan], [[1.0], [2.0, 3.0]], [None], ["a"], [10**400], (1.0, 2.0, 3.0)),
    *((0.0, 1.0), [1, 2, 3], {"sigma": 1.0}, Unrelated(), Decimal("1"), Decimal("NaN"), Fraction(1, 3)),
    *(torch.float64, len, range(3), range(0), iter(()), slice(None)),
    *(np.float64(1.0), np.float32("nan"), np.int64(3), np.bool_(True), np.float16(1.0), np.longdouble(1.0)),
    *(np.datetime64("2020-01-01"), np.complex128(1.0), np.uint64(2**64 - 1), np.str_("1")),
)


def _tensors() -> tuple[torch.Tensor, ...]:
    grid = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    holes = torch.tensor([1.0, math.nan, math.inf], dtype=torch.float64)
    return (
        *(torch.ones(shape, dtype=torch.float64) for shape in ((), (0,), (1,), (3,), (2, 3), (0, 3), (4,))),
        *(torch.full(shape, 0.25) for shape in ((), (0,), (3,), (2, 1), (1, 1, 3), (3, 1, 1, 1))),
        *(torch.ones(3).to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.int32)),
        *(torch.ones(3).to(dtype) for dtype in (torch.uint8, torch.bool, torch.complex64)),
        torch.ones((), dtype=torch.int64),
        torch.zeros(3, dtype=torch.float8_e4m3fn),
        *(holes, holes.float(), holes[:2], holes[2:], -holes[2:]),
        *(torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.zeros(2, 3))),
        *(grid.T, grid[:, ::2], grid[1:, 1:3], torch.ones(1).expand(3), torch.ones(1, 1).expand(2, 3)),
        *(torch.ones(3).to_sparse(), torch.ones(3, device="meta"), torch.tensor([1j]).conj().imag),
        *(torch.full((3,), value, dtype=torch.float64) for value in (1e300, -1e300, 5e-324, -0.0)),
        *(torch.full((3,), value) for value in (3e38, 1e-45)),
    )


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


TENSORS = _tensors()
ARRAYS = (
    *(np.array(1.0), np.zeros(0), np.ones(3), np.ones((2, 3), np.float32), np.array([1.0, np.nan])),
    *(np.array([None, 1.0]), np.array(["a"]), np.ones(3, ">f8"), np.ones(4)[::-1], np.ones(3, np.int8)),
    *(np.ones(3, np.float16), np.ones(3, np.longdouble), np.ones(3, "m8[s]"), np.ones(3, bool)),
    *(_frozen(np.ones(3)), np.broadcast_to(1.0, (3,)), np.ones(3, [("a", float)]), np.ones(3, np.complex64)),
)
HOSTILE = (*FLOATS, *INTEGERS, *OTHERS, *TENSORS, *ARRAYS)


@st.composite
def hostile(draw: Callable[..., Any]) -> Any:
    """Anything at all."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.floats())
    if kind == 1:
        return draw(st.text(max_size=6))
    if kind == 2:
        return draw(st.lists(st.sampled_from(FLOATS), max_size=4))
    return draw(st.sampled_from((FLOATS, INTEGERS, OTHERS, OTHERS, TENSORS, TENSORS, ARRAYS)[kind - 3]))


@st.composite
def mostly(draw: Callable[..., Any], valid: SearchStrategy[Any], one_in: int = 4) -> Any:
    """What belongs there, but for one time in a few."""
    return draw(hostile() if draw(st.integers(1, one_in)) == one_in else valid)


def sizes(low: float, high: float) -> SearchStrategy[float]:
    """Positive numbers, log-uniform."""
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def sensitivities(moves: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """What one record can move: each, how many, and how far in all, in every combination."""
    number = st.one_of(st.none(), st.integers(1, 6))
    return st.one_of(
        st.builds(rf.Sensitivity, each=moves, at_most=number, norm=st.one_of(st.none(), moves)),
        st.builds(rf.Sensitivity, at_most=number, norm=moves),
    )


@st.composite
def extreme_sizes(draw: Callable[..., Any]) -> float:
    """Positive numbers: usual ones, far ones, and those at the ends of what a float holds."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.sampled_from((5e-324, 1e-310, 1e-300, 1e-160, 1e160, 1e300, 1.7976931348623157e308)))
    return draw(sizes(1e-12, 1e12) if kind == 1 else sizes(1e-3, 1e3))


@st.composite
def signed(draw: Callable[..., Any]) -> float:
    """Such a number, its negative, or a zero."""
    return draw(extreme_sizes()) * draw(st.sampled_from((1.0, -1.0, 0.0, -0.0, 1.0, -1.0)))


SHAPES = ((), (1,), (3,), (2, 3))


@st.composite
def spread(draw: Callable[..., Any], number: SearchStrategy[float], shapes: Any = SHAPES) -> Any:
    """A number, or a tensor of them: float64 or float32, contiguous or not, with or without gradient."""
    value = draw(number)
    kind = draw(st.integers(0, 5))
    if kind < 2:
        return value
    shape = draw(st.sampled_from(shapes))
    values = [value, *(draw(number) for _ in range(min(2, math.prod(shape) - 1)))]
    wanted = [values[i % len(values)] for i in range(math.prod(shape))]
    tensor = torch.tensor(wanted, dtype=torch.float64).reshape(shape)
    if kind == 2:
        return tensor.float()
    if kind == 3:
        return tensor.reshape(*shape, 1).expand(*shape, 2)[..., 0]  # not contiguous
    return tensor.requires_grad_() if kind == 4 else tensor


@st.composite
def bounds(draw: Callable[..., Any]) -> Any:
    """A bound, a pair, an infinite end."""
    kind, size = draw(st.integers(0, 5)), draw(extreme_sizes())
    if kind == 0:
        return draw(st.sampled_from((math.inf, (-math.inf, size), (-size, math.inf), (-math.inf, math.inf))))
    if kind == 1:
        centre = draw(signed())
        return (centre, max(centre + size, math.nextafter(centre, math.inf)))
    return draw(spread(st.just(size)))


@st.composite
def mechanisms(draw: Callable[..., Any]) -> rf.Mechanism:
    """Every law, with settings that are allowed and may be extreme."""
    for _ in range(20):  # until the settings are allowed: bounds may be equal in float32
        sigma = draw(spread(extreme_sizes()))
        law = draw(st.sampled_from(LAWS))
        try:
            if law in (rf.Gaussian, rf.StochasticSign):
                return law(sigma)
            if law is rf.QuantizedGaussian:
                return law(sigma, draw(bounds()), draw(st.integers(2, 33)))
            return law(sigma, draw(bounds()))
        except ValueError:
            continue
    return rf.Gaussian(1.0)


@st.composite
def usual_mechanisms(draw: Callable[..., Any]) -> rf.Mechanism:
    """Every law with one sigma and one bound of usual size."""
    law, sigma = draw(st.sampled_from(LAWS)), draw(sizes(1e-2, 1e2))
    if law in (rf.Gaussian, rf.StochasticSign):
        return law(sigma)
    bound = sigma * draw(sizes(1e-2, 30.0))
    return law(sigma, bound, draw(st.integers(2, 17))) if law is rf.QuantizedGaussian else law(sigma, bound)


LAWS: tuple[Any, ...] = (
    rf.Gaussian,
    rf.RectifiedGaussian,
    rf.TruncatedGaussian,
    rf.StochasticSign,
    rf.QuantizedGaussian,
)
deltas = st.one_of(sizes(1e-12, 0.5), st.sampled_from((1e-300, 0.5, 1 - 2.0**-53, 5e-324)))
generators = st.integers(0, 99).map(lambda seed: torch.Generator().manual_seed(seed))


@st.composite
def changed(draw: Callable[..., Any], state: Any) -> Any:
    """A saved state with one of its parts replaced, dropped or added."""
    if isinstance(state, dict) and state and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(state)))
        if draw(st.integers(0, 5)) == 0:
            return {name: value for name, value in state.items() if name != key}
        return {**state, key: draw(changed(state[key]))}
    if isinstance(state, list) and state and draw(st.integers(0, 2)):
        at = draw(st.integers(0, len(state) - 1))
        return [*state[:at], draw(changed(state[at])), *state[at + 1 :]]
    return draw(hostile())


@st.composite
def mutated(draw: Callable[..., Any], content: bytes) -> bytes:
    """Bytes with a few changes: flipped, cut, put in, moved, repeated, or all of them made up."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.binary(max_size=64))
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 6))):
        at, to = sorted(draw(st.tuples(*(st.integers(0, len(result)),) * 2)))
        kind = draw(st.integers(0, 6))
        if kind == 0:
            del result[at : min(to, at + 16)]
        elif kind == 1:
            result[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif kind == 2:
            result[at:at] = result[at : min(to, at + 64)]
        elif kind == 3:
            del result[to:]
        elif kind == 4:
            width = draw(st.sampled_from((1, 2, 4, 8)))
            value = draw(st.sampled_from((0, 1, 2**7, 2**15, 2**31, 2**62, -1)))
            part = (value % 256**width).to_bytes(width, draw(st.sampled_from(("little", "big"))))
            result[at : at + width] = part
        elif at < len(result):
            result[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(result)
