"""The source of random numbers: one object, handed down, never torch's global state.

A ``Noise`` has a key of 256 bits. Every *place* in a run (its purpose, its step)
has a key of its own, the HMAC-SHA-256 of the place, and with it a stream of AES-256 in counter mode.
An attacker who does not know the key, and cannot break AES or SHA-256, cannot tell the streams of all places
from independent uniform bits.

Keys and the numbers made from them stay in one file, although it is long: whether noise may be predicted
is one question, and a reviewer reads one file.
"""

import hmac
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.blocks import one_thread

Place = str | int | bytes

_SEEDS = b"ringfence seed"  # the key under which a seed becomes a key
_BLOCK = 1 << 16  # how many numbers of a place are made at once: they stay in cache
_STEP = 2.0**-53  # spacing of float64 uniforms
_DROPPED = 11  # of the 64 bits of a word, those that a uniform number does not have
_TWISTER = slice(24, 24 + 8 * 624)  # bytes of the words of a Mersenne Twister in torch's state of it


class Noise:
    """The source of all random numbers of a run: a key of 256 bits.

    Without a seed the key comes from the operating system. With a seed, an integer from 0 to 2^256 - 1,
    the key is a function of the seed. A seed gives the same bits, uniform numbers and Poisson samples on
    every machine and with every version of torch, and the same normal numbers up to the last digits of
    log, sin and cos. The seed determines every number. A ``Noise`` serves the process that made it
    and has no copies: they would draw the same numbers. ``Noise(seed)`` elsewhere repeats them on purpose.

    Numbers for a GPU are made on it, by torch's generator, which is counter-based and has a key of 64
    bits: each place gets a fresh key, 64 bits of the place's own key. Against someone who could search
    2^64 keys, and for releases on a public grid, only numbers made on the CPU are good enough.

    >>> noise = Noise(seed=7)
    >>> first, again = (noise.at("noise", 3).normals((2,)) for _ in range(2))
    >>> bool((first == again).all()), bool((first == noise.at("noise", 4).normals((2,))).any())
    (True, False)
    >>> bool((first == Noise(seed=7 + 2**32).at("noise", 3).normals((2,))).any())
    False
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seeded = seed is not None
        self.seed = secrets.randbits(256) if seed is None else checks.seed(seed)
        self._process = os.getpid()
        self._key = hmac.digest(_SEEDS, b"%x" % self.seed, "sha256")

    def of(self, *part: Place) -> "Noise":
        """The noise of a part of the run, such as one setting: its places are shared with no other part.

        >>> noise = Noise(seed=7)
        >>> noise.of("setting", 1).at("noise").word() == noise.of("setting", 2).at("noise").word()
        False
        """
        one = Noise(self.seed)
        one.seeded, one._key = self.seeded, self._derived(b"part", *part)
        return one

    def at(self, *place: Place) -> "CipherDraws":
        """The random numbers that belong to a place, beginning with the first, made on the CPU.

        >>> Noise(seed=7).at("noise", 3).uniforms((2,)).shape
        torch.Size([2])
        """
        return CipherDraws(self._derived(b"place", *place))

    def draws(self, *place: Place, device: torch.device) -> "Draws":
        """The random numbers that belong to a place, made on a device.

        >>> noise, cpu = Noise(seed=7), torch.device("cpu")
        >>> bool(noise.draws("noise", 3, device=cpu).uniforms(()) == noise.at("noise", 3).uniforms(()))
        True
        """
        if device.type == "cpu":
            return self.at(*place)
        return GeneratorDraws(torch.Generator(device).manual_seed(self.torch_seed(*place)))

    def digest(self, values: Tensor) -> bytes:
        """32 bytes, by HMAC-SHA-256, that are the same for the same numbers and look random without the key.

        Guarantee: two different tensors have different digests, unless SHA-256 is broken.

        >>> noise, zeros = Noise(seed=7), torch.zeros(2)
        >>> noise.digest(zeros) == noise.digest(zeros), noise.digest(zeros) == noise.digest(torch.ones(2))
        (True, False)
        """
        values = values.detach().cpu().contiguous()
        shape = repr((values.dtype, tuple(values.shape)))
        return self._derived(b"digest", shape, hmac.digest(self._key, values.numpy().tobytes(), "sha256"))

    def torch_seed(self, *place: Place) -> int:
        """A seed of 64 bits for a torch generator. On the CPU those keep 32 bits of it: not for noise.

        >>> 0 <= Noise(seed=7).torch_seed("dropout") < 2**64
        True
        """
        return int.from_bytes(self._derived(b"torch", *place)[:8], "big")

    @contextmanager
    def global_draws(self, *place: Place, device: torch.device) -> Iterator[None]:
        """Inside, torch's global generators are seeded for a place; afterwards they are as they were.

        This is for layers, such as dropout, that know no other generator. Privacy rests on them: what an
        example draws depends on its place in the batch, and so on who else is there, unless draws are secret.
        On the CPU all of the state is drawn, because a seed would leave 32 bits to guess.
        """
        generators = [torch.default_generator]
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            generators.append(torch.cuda.default_generators[index])
        before = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                generator.manual_seed(self.torch_seed(*place))
            state = torch.default_generator.get_state()
            words = state[_TWISTER].view(torch.int64)
            words.copy_(self.at("torch", *place).words(len(words)) & (2**32 - 1))
            torch.default_generator.set_state(state)
            yield
        finally:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)

    def require_own_process(self) -> None:
        """Refuses to serve a process that was forked from the one that made this."""
        if self._process != os.getpid():
            raise RuntimeError(
                f"Noise and engines serve the process that made them, {self._process}: process {os.getpid()} "
                "would draw the same numbers. Make another one here, or load a saved run into it"
            )

    def __reduce__(self: object) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled, because a copy would draw the same numbers: "
            "make another one where it is needed, or load a saved run into it"
        )

    def _derived(self, *place: Place) -> bytes:
        self.require_own_process()
        parts = (part if isinstance(part, bytes) else str(part).encode() for part in place)
        # every part comes with its length, so that no two places give the same bytes
        text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._key, text, "sha256")


class Draws(ABC):
    """Random numbers of a place, in the order in which they are asked for."""

    device: torch.device

    @staticmethod
    def of(generator: object, name: str, values: Tensor) -> "Draws":
        """The numbers of a generator, which must be on the device of these values."""
        draws = GeneratorDraws(generator) if isinstance(generator, torch.Generator) else generator
        if not isinstance(draws, Draws):
            raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
        if draws.device.type != values.device.type:
            raise ValueError(f"generator is on {draws.device}, {name} on {values.device}")
        return draws

    @abstractmethod
    def uniforms(self, shape: Sequence[int]) -> Tensor:
        """Uniform numbers on [0, 1), multiples of 2^-53, in float64."""

    @abstractmethod
    def normals(self, shape: Sequence[int]) -> Tensor:
        """N(0, 1) numbers in float64, made from 53-bit uniform numbers: none is beyond 8.6."""

    def normals_like(self, *tensors: Tensor) -> Tensor:
        """N(0, 1) numbers of the shape that the tensors broadcast to."""
        return self.normals(torch.broadcast_tensors(*tensors)[0].shape)


class GeneratorDraws(Draws):
    """Numbers of a torch generator, on its device."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator, self.device = generator, generator.device

    def uniforms(self, shape: Sequence[int]) -> Tensor:
        return self._empty(shape).uniform_(generator=self._generator)

    def normals(self, shape: Sequence[int]) -> Tensor:
        return self._empty(shape).normal_(generator=self._generator)

    def _empty(self, shape: Sequence[int]) -> Tensor:
        return torch.empty(tuple(shape), dtype=torch.float64, device=self.device)


class CipherDraws(Draws):
    """Numbers made from the key stream of AES-256 in counter mode, on the CPU."""

    device = torch.device("cpu")

    def __init__(self, key: bytes) -> None:
        # imported here, because only numbers made on the CPU need it
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> Tensor:
        """``count`` integers of 64 random bits."""
        if not count:
            return torch.empty(0, dtype=torch.int64)
        return torch.frombuffer(bytearray(self._stream.update(bytes(8 * count))), dtype=torch.int64)

    def word(self) -> int:
        """The next 64 random bits, as an integer."""
        return int(self.words(1))

    def chosen(self, count: int, rate: float) -> list[int]:
        """A Poisson sample of 0 .. count - 1: each number enters with probability ``rate``, independently.

        Guarantee: the probability is at most ``rate``, and at least ``rate`` - 2^-53.

        >>> Noise(seed=7).at("sample").chosen(5, 1.0)
        [0, 1, 2, 3, 4]
        """
        limit = int(rate / _STEP)  # a uniform number u enters where u + 2^-53 <= rate: compared as integers
        chosen: list[int] = []
        for start in range(0, count, _BLOCK):
            words = self.words(min(_BLOCK, count - start)).numpy().view(np.uint64)
            chosen += (np.flatnonzero(words >> _DROPPED < limit) + start).tolist()
        return chosen

    def uniforms(self, shape: Sequence[int]) -> Tensor:
        return self._in_blocks(shape, uniforms)

    def normals(self, shape: Sequence[int]) -> Tensor:
        return self._in_blocks(shape, _box_muller)

    def _in_blocks(self, shape: Sequence[int], made: Callable[[Tensor], Tensor]) -> Tensor:
        result = torch.empty(tuple(shape), dtype=torch.float64)
        with one_thread():
            for block in result.view(-1).split(_BLOCK):
                some = len(block)
                # normal numbers come in pairs, so an even number of words is drawn
                block.copy_(made(self.words(some + some % 2))[:some])
        return result


def uniforms(words: Tensor) -> Tensor:
    """Uniform numbers on [0, 1), words of 64 bits rounded down to 53.

    >>> uniforms(torch.tensor([0, -1])).tolist() == [0.0, 1 - 2**-53]
    True
    """
    return (words >> _DROPPED).bitwise_and_(2**53 - 1).double().mul_(_STEP)


def _box_muller(words: Tensor) -> Tensor:
    """sqrt(-2 log u) times cos and sin of 2 pi v (Box and Muller 1958), u in (0, 1] and v in [0, 1)."""
    radius, angle = uniforms(words).chunk(2)
    radius = radius.add_(_STEP).log_().mul_(-2).sqrt_()
    angle = angle.mul_(2 * torch.pi)
    return torch.cat((radius * angle.cos(), radius * angle.sin()))
