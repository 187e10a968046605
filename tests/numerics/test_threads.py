"""One thread inside, and as many as before afterwards, whatever happens."""

import pytest
import torch

from ringfence.numerics.threads import one_thread


@pytest.mark.parametrize(("numbers", "inside"), [(0, 1), (10**7 - 1, 1), (10**7, 3)])
def test_one_thread_unless_the_data_is_large(numbers: int, inside: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread(numbers):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
