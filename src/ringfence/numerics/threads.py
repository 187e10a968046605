"""Several threads only where they save time."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LARGE = 10**7  # data of so many numbers is worth several threads


@contextmanager
def one_thread(numbers: int = 0) -> Iterator[None]:
    """Inside, torch works on one thread, unless ``numbers``, the size of the data, is very large.

    Short operations wait for threads longer than they compute; on a busy machine, many times longer.

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
