"""The noise of one run: it belongs to the seed, to the settings and to the data."""

import hashlib

from torch import Tensor

from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.training.clipping import Clip


def data_digest(*data: Tensor) -> bytes:
    """SHA-256 of tensors: their dtypes, their shapes and their numbers.

    >>> import torch
    >>> data_digest(torch.zeros(2)) == data_digest(torch.zeros(2, 1))
    False
    """
    total = hashlib.sha256()
    for values in data:
        total.update(repr((values.dtype, tuple(values.shape))).encode())
        total.update(values.detach().cpu().contiguous().numpy().data)
    return total.digest()


def run_noise(
    seed: int | None, data: bytes, mechanism: Mechanism, clip: Clip, numbers: tuple[float, ...]
) -> Noise:
    """The noise of one run. It shares nothing with that of other settings, other data or another seed.

    A seed that is used twice would otherwise put the same noise on two different sums, and the
    difference of the two releases would be free of noise.

    >>> from ringfence import Clamp, Gaussian
    >>> words = [run_noise(7, b"data", Gaussian(1.0), Clamp(c), (1.0, 3)).at(0).word() for c in (0.1, 0.2)]
    >>> words[0] == words[1]
    False
    """
    setting = (
        repr(mechanism.state_dict()),
        repr((type(clip).__qualname__, vars(clip))),
        *(repr(float(number)) for number in numbers),
    )
    return Noise(seed).of("linear", *setting, data)
