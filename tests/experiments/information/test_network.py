"""The network of Figure 4: the same every time, and another one where it is asked for."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from experiments.information.network import NetworkSettings
from experiments.information.rows import information
from tests.experiments.information.test_rows import NETWORK, SETTINGS


def test_fresh_networks_are_equal_and_leave_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = NETWORK.fresh(10), NETWORK.fresh(10)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_another_network_can_be_given():
    given = NetworkSettings(model=lambda image, classes: nn.Linear(image[1] * image[2], classes))
    assert given.fresh(3).weight.shape == (3, 64)


def test_images_of_another_size_are_refused_by_name():
    settings = replace(SETTINGS, network=replace(NETWORK, image=(3, 8, 8)))
    with pytest.raises(ValueError, match=r"image must have as many pixels .* 64, got \(3, 8, 8\)"):
        list(information(settings))
