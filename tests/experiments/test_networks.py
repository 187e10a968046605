"""The two classifiers: their size, that examples do not mix, and that torch.func takes them."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from experiments.networks import small_cnn, wide_resnet_16_4
from tests.accounting.drawing import draw

NETWORKS = {"wide": wide_resnet_16_4, "small": small_cnn}


def parameters(network: nn.Module) -> int:
    return sum(value.numel() for value in network.parameters())


def test_parameters_are_those_of_the_paper() -> None:
    assert parameters(wide_resnet_16_4()) == 2_748_890
    assert (
        sum(isinstance(one, nn.Conv2d) and one.kernel_size == (3, 3) for one in wide_resnet_16_4().modules())
        == 13
    )


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("channels", "size", "classes"), [(3, 32, 10), (1, 8, 7)])
def test_images_of_either_size_one_row_of_logits_each(
    name: str, channels: int, size: int, classes: int
) -> None:
    build = NETWORKS[name]
    network = build(classes, channels, size) if build is small_cnn else build(classes, channels)
    images = draw(2, channels, size, size, dtype=torch.float32)
    together = network(images)
    assert together.shape == (2, classes)
    assert network.training
    assert not list(network.buffers())
    # no batch statistics: alone or with others is the same
    torch.testing.assert_close(network(images[:1]), together[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_by_example_are_those_of_one_at_a_time(name: str) -> None:
    network = NETWORKS[name](channels=1).double()
    images, labels = draw(2, 1, 8, 8), torch.tensor([3, 9])
    weights = {key: value.detach() for key, value in network.named_parameters()}

    def loss(weights: dict, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(network, weights, (image[None],)), label[None])

    batched = vmap(grad(loss), in_dims=(None, 0, 0))(weights, images, labels)
    for index in range(2):
        network.zero_grad()
        nn.functional.cross_entropy(network(images[index : index + 1]), labels[index : index + 1]).backward()
        for key, value in network.named_parameters():
            torch.testing.assert_close(batched[key][index], value.grad, rtol=1e-9, atol=1e-12)
            assert bool((value.grad != 0).any()), key


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="classes must be at least 1, got 0"):
        wide_resnet_16_4(classes=0)
    with pytest.raises(ValueError, match="channels must be at least 1, got 0"):
        wide_resnet_16_4(channels=0)
