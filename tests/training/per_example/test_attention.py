"""Attention with the same weights: outputs, weights and gradients against those of torch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ringfence.training.per_example.gradients import ExampleGradients
from tests.training.per_example.alone import agree, drawn, words

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]

CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
HIDDEN = words(6, 5, below=2).bool().index_fill(1, torch.tensor([0]), False)


class Attending(nn.Module):
    """Attends to itself, or to what comes in backwards, and returns the weights where there are any."""

    def __init__(self, options: dict[str, Any], call: dict[str, Any], to: str) -> None:
        super().__init__()
        self.attention, self.call, self.to = nn.MultiheadAttention(8, 2, **options), call, to
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Any:
        other = x if self.to == "itself" else x.flip(1)[..., : self.attention.kdim]
        given = [x, other, other.clone() if self.to == "two" else other]
        if not self.attention.batch_first:
            turned = {id(each): each.transpose(0, 1) for each in given}
            given = [turned[id(each)] for each in given]
        masks = {"attn_mask": CAUSAL.to(x), **self.call} if "is_causal" in self.call else self.call
        if hidden is not None:
            masks = {**masks, "key_padding_mask": hidden}
        outputs, weights = self.attention(*given, **masks)
        outputs = self.last(outputs if self.attention.batch_first else outputs.transpose(0, 1))
        return outputs if weights is None else (outputs, weights)


CASES: list[tuple[dict[str, Any], dict[str, Any], str, Tensor | None]] = [
    ({}, {}, "itself", None),
    ({"batch_first": True, "bias": False}, {"average_attn_weights": False}, "other", HIDDEN),
    ({"batch_first": True}, {"need_weights": False, "is_causal": True}, "itself", None),
    ({}, {"need_weights": False, "is_causal": True}, "itself", HIDDEN),
    ({"batch_first": True}, {"need_weights": False, "attn_mask": CAUSAL < 0}, "two", HIDDEN),
    ({"kdim": 6, "vdim": 6}, {"need_weights": False}, "two", None),
]


@pytest.mark.parametrize(("options", "call", "to", "hidden"), CASES)
def test_sums_are_those_of_examples_alone(
    options: dict[str, Any], call: dict[str, Any], to: str, hidden: Tensor | None
) -> None:
    inputs = (drawn(6, 5, 8),) if hidden is None else (drawn(6, 5, 8), hidden)
    assert not agree(lambda: Attending(options, call, to), *inputs).slower_layers


class Masked(nn.Module):
    """A mask for each example and head."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = (x[:, :, None, :2] + x[:, None, :, :2]).movedim(3, 1).flatten(0, 1)
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


def test_a_mask_for_each_example() -> None:
    assert not agree(Masked, drawn(6, 5, 8)).slower_layers


@pytest.mark.parametrize("first", [True, False])
def test_transformers(first: bool) -> None:
    class Translating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Transformer(8, 2, 1, 1, 16, dropout=0.3, batch_first=first).eval()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            if first:
                return self.both(x, y)
            return self.both(x.transpose(0, 1), y.transpose(0, 1)).transpose(0, 1)

    assert not agree(Translating, drawn(4, 5, 8), drawn(4, 3, 8)).slower_layers


def test_dropout_is_left_out_of_the_check_and_drawn_in_training() -> None:
    model = Attending({"dropout": 0.5}, {"need_weights": False}, "itself")
    gradients, inputs = ExampleGradients(model), ((drawn(6, 5, 8),), {})
    first = gradients.forward(inputs)
    assert gradients.fallback_reason is None
    assert not torch.equal(first, gradients.forward(inputs))
    assert "forward" not in vars(model.attention)


def test_keys_of_its_own_are_not_known() -> None:
    model = Attending({"add_bias_kv": True, "batch_first": True}, {"need_weights": False}, "itself")
    gradients = ExampleGradients(model)
    gradients.forward(((drawn(6, 5, 8),), {}))
    assert gradients.fallback_reason is None
    assert "attention.bias_k" in gradients.slower_layers
