"""Linear layers and convolutions: fused sums against examples alone."""

from collections.abc import Callable

import pytest
from torch import nn

from tests.training.per_example.fused.alone import agree, drawn

MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Conv2d(2, 4, 3),
    "everything": lambda: nn.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 2), dilation=2, groups=2, bias=False),
    "same": lambda: nn.Conv2d(2, 4, 3, padding="same", dilation=2),
    "valid": lambda: nn.Conv2d(2, 4, 1, padding="valid"),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_convolutions(make: Callable[[], nn.Module]) -> None:
    found = agree(lambda: nn.Sequential(make(), nn.ReLU(inplace=True), nn.Flatten()), drawn(4, 2, 6, 6))
    assert not found.slower_layers


def test_convolutions_in_one_and_three_dimensions() -> None:
    agree(lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.Tanh(), nn.Conv1d(4, 2, 2)), drawn(4, 2, 6))
    agree(lambda: nn.Conv3d(2, 3, 2), drawn(4, 2, 3, 3, 3))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_padding_on_one_side_and_by_reflection_is_not_known() -> None:
    for options in (
        {"kernel_size": 2, "padding": "same"},
        {"kernel_size": 3, "padding_mode": "reflect", "padding": 1},
    ):
        found = agree(lambda: nn.Sequential(nn.Conv1d(2, 2, **options), nn.Flatten()), drawn(4, 2, 6))  # noqa: B023
        assert found.slower_layers == dict.fromkeys(("0.weight", "0.bias"), "Conv1d is not known")


@pytest.mark.parametrize("middle", [(), (3,), (2, 3)])
def test_linear_layers_with_any_number_of_positions(middle: tuple[int, ...]) -> None:
    agree(
        lambda: nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2, bias=False)), drawn(5, *middle, 4)
    )
