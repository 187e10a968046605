"""The geometry of a convolution against torch's own."""

import itertools

import pytest
import torch
from torch.nn import functional

from ringfence.training.kernels.window import Window


def test_patches_are_those_of_torch() -> None:
    x = torch.arange(2 * 4 * 7 * 9, dtype=torch.float32).view(2, 4, 7, 9)
    window = Window((3, 2), (2, 3), (1, 0), (2, 1), 2)
    patches = window.patches(x.contiguous(memory_format=torch.channels_last))
    wanted = functional.unfold(x, window.kernel, window.dilation, window.padding, window.stride)
    assert torch.equal(patches.flatten(1, 2), wanted)
    assert patches.shape[1] == 2


def test_the_overlap_is_the_largest_number_of_places_that_see_one_number() -> None:
    for kernel, stride, dilation in itertools.product(range(1, 6), repeat=3):
        window = Window((kernel,), (stride,), (0,), (dilation,))
        marks = torch.arange(1.0, 101.0).view(1, 1, 100)
        seen = window.patches(marks).flatten().unique(return_counts=True)[1]
        assert int(seen.max()) == window.overlap, window


def test_a_window_without_one_length_is_refused() -> None:
    with pytest.raises(ValueError, match="window must have one to three numbers of each kind"):
        Window((3, 3), (1,), (0, 0), (1, 1))
