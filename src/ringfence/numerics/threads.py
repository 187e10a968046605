"""Threads only where they pay."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LARGE = 10**7  # numbers in the data from which several threads pay


@contextmanager
def one_thread(numbers: int = 0) -> Iterator[None]:
    """torch works on one thread inside, unless the data has very many numbers.

    Short operations wait for threads longer than they compute, on a busy machine many times.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if numbers < _LARGE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
