"""Random numbers that belong to a place in a run, so that a resumed run draws the same ones."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def fresh_seed() -> int:
    """128 bits from the operating system.

    >>> fresh_seed() == fresh_seed()
    False
    """
    return secrets.randbits(128)


def derived_seed(seed: int, *place: str | int | bytes) -> int:
    """63 bits that look independent for every place, to whoever does not know ``seed``.

    >>> derived_seed(7, "noise", 1) == derived_seed(7, "noise", 1)
    True
    >>> derived_seed(7, "noise", 1) == derived_seed(7, "noise", 2)
    False
    """
    parts = (seed.to_bytes(32, "big"), *(p if isinstance(p, bytes) else str(p).encode() for p in place))
    # every part with its length, so that no two places share their bytes
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def derived_generator(
    seed: int, *place: str | int | bytes, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator that starts from ``derived_seed``.

    >>> first, again = (torch.rand(1, generator=derived_generator(7, "sample", 0)) for _ in range(2))
    >>> bool(first == again)
    True
    """
    return torch.Generator(device).manual_seed(derived_seed(seed, *place))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """torch's global generators start from ``seed`` inside, and are as they were afterwards.

    >>> with seeded(7, torch.device("cpu")):
    ...     inside = torch.rand(1)
    >>> with seeded(7, torch.device("cpu")):
    ...     bool(inside == torch.rand(1))
    True
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def digest(values: Tensor) -> bytes:
    """SHA-256 of the numbers as they lie in memory.

    >>> digest(torch.zeros(2)) == digest(torch.zeros(2)), digest(torch.zeros(2)) == digest(torch.ones(2))
    (True, False)
    """
    return hashlib.sha256(values.detach().cpu().contiguous().numpy().tobytes()).digest()
