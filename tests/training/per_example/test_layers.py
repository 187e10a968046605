"""Layers and the ways a model uses them: clipped sums are those of examples alone, whatever takes copies."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.layers import rule_of
from ringfence.training.standardised import StandardisedConv2d
from tests.training.per_example.alone import agree, drawn, words
from tests.training.per_example.test_gradients import Around

pytestmark = [
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]


def sequence(*makes: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Makes layers, one after the other, and flattens what comes out."""
    return lambda: nn.Sequential(*(make() for make in makes), nn.Flatten())


def frozen(layer: nn.Module) -> nn.Module:
    layer.running_mean.copy_(torch.linspace(-1, 1, len(layer.running_mean)))
    layer.running_var.copy_(torch.linspace(0.5, 2, len(layer.running_var)))
    return layer.eval()


LAYERS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "convolution": (lambda: nn.Conv2d(2, 4, 3), drawn(4, 2, 6, 6)),
    "convolution, everything": (
        lambda: nn.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 2), dilation=2, groups=2, bias=False),
        drawn(4, 2, 6, 6),
    ),
    "convolution, same": (lambda: nn.Conv2d(2, 4, 3, padding="same", dilation=2), drawn(4, 2, 6, 6)),
    "convolution, valid": (lambda: nn.Conv2d(2, 4, 1, padding="valid"), drawn(4, 2, 6, 6)),
    "standardised convolution": (lambda: StandardisedConv2d(2, 4, 3), drawn(4, 2, 6, 6)),
    "standardised convolution, everything": (
        lambda: StandardisedConv2d(2, 4, (3, 2), stride=2, padding=(1, 2), groups=2, bias=False, eps=0.5),
        drawn(4, 2, 6, 6),
    ),
    "convolution in one dimension": (lambda: nn.Conv1d(2, 4, 3), drawn(4, 2, 6)),
    "convolution in three dimensions": (lambda: nn.Conv3d(2, 3, 2), drawn(4, 2, 3, 3, 3)),
    "linear": (lambda: nn.Linear(4, 3), drawn(5, 4)),
    "linear at positions": (lambda: nn.Linear(4, 3, bias=False), drawn(5, 3, 4)),
    "linear at many positions": (lambda: nn.Linear(4, 3), drawn(5, 2, 3, 4)),
    "words": (lambda: nn.Embedding(5, 3), words(6, 9)),
    "words, padded": (lambda: nn.Embedding(5, 3, 2), words(6, 2, 2)),
    "bags, sum": (lambda: nn.EmbeddingBag(5, 3, mode="sum"), words(6, 9)),
    "bags, mean": (lambda: nn.EmbeddingBag(5, 3, mode="mean"), words(6, 9)),
    "layer norm": (lambda: nn.LayerNorm(4), drawn(5, 3, 4)),
    "layer norm without bias": (lambda: nn.LayerNorm(4, bias=False), drawn(5, 4)),
    "layer norm over two dimensions": (lambda: nn.LayerNorm((3, 4), eps=0.1), drawn(5, 2, 3, 4)),
    "root mean square": (lambda: nn.RMSNorm(4), drawn(5, 3, 4)),
    "root mean square, eps": (lambda: nn.RMSNorm((3, 4), eps=0.1), drawn(5, 2, 3, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4, eps=0.1), drawn(5, 4, 3, 2)),
    "group norm of a vector": (lambda: nn.GroupNorm(2, 4), drawn(5, 4)),
    "frozen batch norm": (lambda: frozen(nn.BatchNorm2d(4)), drawn(5, 4, 3, 2)),
    "frozen batch norm of vectors": (lambda: frozen(nn.BatchNorm1d(4, eps=0.1)), drawn(5, 4)),
}


@pytest.mark.parametrize(("make", "inputs"), LAYERS.values(), ids=LAYERS)
def test_known_layers(make: Callable[[], nn.Module], inputs: Tensor) -> None:
    """What follows works in place."""
    found = agree(sequence(make, lambda: nn.ELU(inplace=True), nn.Tanh), inputs)
    assert not found.slower_layers


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
        if self.to == "masked":  # a mask for each example and head
            masks = {
                **masks,
                "attn_mask": (x[:, :, None, :2] + x[:, None, :, :2]).movedim(3, 1).flatten(0, 1),
            }
        if hidden is not None:
            masks = {**masks, "key_padding_mask": hidden}
        outputs, weights = self.attention(*given, **masks)
        outputs = self.last(outputs if self.attention.batch_first else outputs.transpose(0, 1))
        return outputs if weights is None else (outputs, weights)


CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
HIDDEN = words(6, 5, below=2).bool().index_fill(1, torch.tensor([0]), False)
FIRST, SILENT = {"batch_first": True}, {"need_weights": False}
ATTENTIONS: list[tuple[dict[str, Any], dict[str, Any], str, Tensor | None]] = [
    ({}, {}, "itself", None),
    ({**FIRST, "bias": False}, {"average_attn_weights": False}, "other", HIDDEN),
    (FIRST, {**SILENT, "is_causal": True}, "itself", None),
    ({}, {**SILENT, "is_causal": True}, "itself", HIDDEN),
    (FIRST, {**SILENT, "attn_mask": CAUSAL < 0}, "two", HIDDEN),
    ({"kdim": 6, "vdim": 6}, SILENT, "two", None),
    (FIRST, SILENT, "masked", None),
]


@pytest.mark.parametrize(("options", "call", "to", "hidden"), ATTENTIONS)
def test_attention(options: dict[str, Any], call: dict[str, Any], to: str, hidden: Tensor | None) -> None:
    inputs = (drawn(6, 5, 8),) if hidden is None else (drawn(6, 5, 8), hidden)
    assert not agree(lambda: Attending(options, call, to), *inputs).slower_layers


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


@pytest.mark.parametrize("call", [SILENT, {}])  # without and with its weights
def test_attention_draws_in_training_and_what_is_not_known_takes_copies(call: dict[str, Any]) -> None:
    model, inputs = Attending({"dropout": 0.5}, call, "itself"), ((drawn(6, 5, 8),), {})
    gradients = ExampleGradients(model)
    first = gradients.forward(inputs)
    assert gradients.fallback_reason is None
    assert not torch.equal(first[0], gradients.forward(inputs)[0])
    assert "forward" not in vars(model.attention)
    gradients = ExampleGradients(Attending({"add_bias_kv": True, **FIRST}, call, "itself"))
    gradients.forward(inputs)
    assert gradients.fallback_reason is None
    assert "attention.bias_k" in gradients.slower_layers


class Reading(nn.Module):
    """Returns the outputs and the last states; begins with states of its own if ``begins``."""

    def __init__(self, kind: type[nn.RNNBase], begins: bool = False, **options: Any) -> None:
        super().__init__()
        self.layer, self.start = kind(4, 3, **options), nn.Linear(4, 3) if begins else None

    def forward(self, x: Tensor) -> Any:
        state = None
        if self.start is not None:
            state = self.start(x[:, 0]).expand(len(self.layer.all_weights), -1, -1)
            state = (state, 2 * state) if isinstance(self.layer, nn.LSTM) else state
        outputs, last = self.layer(x if self.layer.batch_first else x.transpose(0, 1), state)
        last = torch.cat(last) if isinstance(last, tuple) else last
        return (outputs if self.layer.batch_first else outputs.transpose(0, 1)), last.transpose(0, 1)


RECURRENT: list[dict[str, Any]] = [
    *({"kind": kind, **FIRST} for kind in (nn.LSTM, nn.GRU, nn.RNN)),
    *(
        {"kind": kind, "begins": True, "num_layers": 2, "bidirectional": True, "dropout": 0.3}
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
    ),
    {"kind": nn.LSTM, "num_layers": 2, "bias": False, **FIRST},
    {"kind": nn.RNN, "nonlinearity": "relu"},
]


@pytest.mark.parametrize("options", RECURRENT)
def test_recurrent_layers(options: dict[str, Any]) -> None:
    assert not agree(lambda: Reading(**options).eval(), drawn(4, 5, 4)).slower_layers


def test_dropout_is_between_recurrent_layers_and_not_after_the_last() -> None:
    model = Reading(nn.GRU, num_layers=2, dropout=1.0, **FIRST)  # all of it: nothing is left to chance
    inputs = ((drawn(4, 5, 4),), {})
    outputs, _ = ExampleGradients(model).forward(inputs)
    torch.testing.assert_close(outputs, model(*inputs[0])[0])
    assert outputs.abs().min() > 0


class Changed(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Inner(nn.Conv1d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input - input.mean(dim=0), weight, bias)


class Named(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.label = "named"

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)


def patched() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x - x.mean(dim=0)
    return layer


def test_which_layers_are_known() -> None:
    """Not those that compute something else, mix examples, or have weights that are made of others."""
    for layer in (nn.Linear(2, 2), Named(), nn.BatchNorm1d(2).eval()):
        assert rule_of(layer) is not None, layer
    for layer in (
        *(Changed(2, 2), Inner(2, 2, 1), patched(), nn.Bilinear(2, 2, 1)),
        *(nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False).eval()),
        *(nn.InstanceNorm1d(2, affine=True, track_running_stats=True), nn.LSTM(2, 2, proj_size=1)),
        *(
            nn.Embedding(5, 3, scale_grad_by_freq=True),
            nn.EmbeddingBag(5, 3, mode="max"),
            nn.EmbeddingBag(5, 3, mode="sum", padding_idx=0),
        ),
        parametrizations.weight_norm(nn.GRU(2, 2), "weight_hh_l0"),
        parametrizations.weight_norm(nn.MultiheadAttention(2, 1), "in_proj_weight"),
    ):
        assert rule_of(layer) is None, layer


class Using(nn.Module):
    """A linear layer, and another that is used in an unusual way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.how, self.last = nn.Linear(3, 3), how, nn.Linear(3, 3)
        if how == "tied":
            self.last.weight = self.first.weight
        if how == "frozen":
            self.last.weight.requires_grad_(False)
        if how == "normalised":
            parametrizations.weight_norm(self.last)
        if how == "unused":
            self.other = nn.Linear(3, 3)
        self.end = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        if self.how == "borrowed":
            return self.end(nn.functional.linear(y, self.last.weight, self.last.bias))
        if self.how == "lent":
            return self.end(self.last(y) @ self.last.weight)
        if self.how == "mapped":
            return self.end(torch.func.vmap(self.last)(y))
        y = self.last(y)
        return self.end(self.last(y) if self.how == "twice" else y)


class Unusual(nn.Module):
    """Calls a layer as few do: with weights of words, of one row alone, or of what all examples share."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.bag = nn.EmbeddingBag(5, 4, mode="sum")
        self.attention, self.filters = nn.MultiheadAttention(4, 2), nn.Conv1d(4, 4, 1)
        self.register_buffer("grid", torch.linspace(-1, 1, 12).view(1, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        words = (x > 0).long()
        y = self.bag(words, per_sample_weights=x) if self.how == "weighted" else self.bag(words)
        if self.how == "unbatched":
            y = y + self.attention(y, y, y)[0].squeeze(1)
        if self.how == "by hand":
            y = y + nn.functional.scaled_dot_product_attention(y, y, y)
        return y + self.filters(self.grid).sum(dim=2)


class Repeated(nn.Module):
    """One layer several times, at more and more positions."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layer, self.last = make(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for stop in (1, 2, 3):
            x = torch.cat([torch.tanh(self.layer(x[:, :stop])), x[:, stop:]], dim=1)
        return self.last(x)


class Positions(nn.Module):
    """Words and positions; the positions have a row of their own, or none."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.words, self.positions = shape, nn.Embedding(5, 3), nn.Embedding(9, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1]).reshape(self.shape)
        return self.last(torch.tanh(self.words(x) + self.positions(places)))


class Fixed(nn.Module):
    """Adds what layers that are not trained make of an input that all share, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed, self.last = nn.Embedding(9, 3).requires_grad_(False), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(x + self.fixed(torch.arange(x.shape[1])).relu_()))


class Writing(nn.Module):
    """Words in and words out, by one table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle, self.last = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 5, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.table(x).cumsum(dim=1)))


class Folded(nn.Module):
    """Several rows of the batch belong to one example."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.layer, self.linear = nn.GroupNorm(2, 4), nn.LayerNorm(3), nn.Linear(3, 2)
        self.filters = nn.Conv1d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.linear(self.layer(torch.tanh(self.group(x.flatten(0, 1)))))
        return self.filters(rows).unflatten(0, x.shape[:2])


class Squeezing(nn.Module):
    """Gives a sequence of layers one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.LayerNorm(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x[0]).unsqueeze(0)


class Sharing(nn.Module):
    """Two attentions with one matrix, of which one attends to others and so has it in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.MultiheadAttention(4, 2, batch_first=True) for _ in range(2))
        self.second.in_proj_weight = self.first.in_proj_weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x, x, x)[0], x, x)[0]


class Looking(nn.Module):
    """Attention by torch's function, with a mask for each example, one for all, or none."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask, self.inward, self.outward = mask, nn.Linear(4, 12), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inward(x).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        masks = {"own": x[:, None, :, :3], "shared": torch.eye(3, dtype=x.dtype)}
        heads = nn.functional.scaled_dot_product_attention(*parts, masks.get(self.mask))
        return self.outward(heads.transpose(1, 2).flatten(2))


class Tokens(nn.Module):
    """As in a vision transformer: parameters of its own, and children that are known."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv1d(2, 3, 2, stride=2), nn.Parameter(torch.zeros(1, 1, 3))
        self.positions = nn.Parameter(torch.zeros(1, 4, 3))

    def forward(self, x: Tensor, scale: float, shared: Tensor, *, names: list[str]) -> Tensor:
        rows = self.patches(x).mT
        return shared * scale * (torch.cat([self.first.expand(len(x), -1, -1), rows], dim=1) + self.positions)


class Viewing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.pair, self.last = Tokens(), nn.Bilinear(3, 3, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.tokens(x, 2.0, torch.linspace(0, 1, 4).to(x).view(4, 1), names=["a"])
        rows = rows.flatten(0, 1)  # several rows for each example
        return self.last(torch.tanh(self.pair(rows, rows.cos()))).unflatten(0, (len(x), 4))


def in_sequence() -> nn.Module:
    """Views, layers that work in place, dropout that is off, unknown layers and sequences between them."""
    inner = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 3, 1), nn.ReLU(inplace=True), nn.Identity())
    images = (nn.Conv2d(2, 3, 2), inner, nn.MaxPool2d(2), nn.BatchNorm2d(3).eval(), nn.Hardswish(True))
    ends = (nn.PReLU(), nn.Flatten(), nn.ELU(inplace=True), nn.Dropout(0.0), nn.Linear(12, 4), nn.SiLU())
    model = nn.Sequential(*images, *ends, nn.Unflatten(1, (2, 2)), nn.LayerNorm(2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    return model


def listened_to() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].register_forward_hook(lambda layer, args, output: output.cos())
    model[1].register_forward_pre_hook(lambda layer, args: (2 * args[0],))
    return model


def copied(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


LAST, USED = ("last.weight", "last.bias"), "Linear has a parameter that is used elsewhere"
MASKS = ("own", "shared", "none")
ATTENTION = ("in_proj_bias", "out_proj.weight", "out_proj.bias")
SHARED = "is called several times in one pass, or shares a parameter"
HARMLESS = ("tied", "twice", "unused", "frozen")
USES: dict[str, tuple[Callable[[], nn.Module], Tensor, dict[str, str]]] = {
    **{how: (lambda how=how: Using(how), drawn(5, 3), {}) for how in HARMLESS},
    "borrowed": (lambda: Using("borrowed"), drawn(5, 3), copied(USED, *LAST)),
    "lent": (lambda: Using("lent"), drawn(5, 3), copied(USED, *LAST)),
    "mapped": (
        lambda: Using("mapped"),
        drawn(5, 3),
        copied("Linear is called under a transformation of torch.func", *LAST),
    ),
    "normalised": (
        lambda: Using("normalised"),
        drawn(5, 3),
        {
            "last.bias": "ParametrizedLinear is not known",
            **copied(
                "ParametrizationList is not known",
                *(f"last.parametrizations.weight.original{i}" for i in (0, 1)),
            ),
        },
    ),
    "linear several times": (lambda: Repeated(lambda: nn.Linear(4, 4)), drawn(5, 3, 4), {}),
    "recurrent several times": (
        lambda: Repeated(lambda: Around(nn.GRU(4, 4, batch_first=True))),
        drawn(5, 3, 4),
        {},
    ),
    "normalisation several times": (lambda: Repeated(lambda: nn.LayerNorm(4)), drawn(5, 3, 4), {}),
    "unknown several times": (
        lambda: Repeated(lambda: nn.PReLU(init=0.3)),
        drawn(5, 3, 4),
        {"layer.weight": "PReLU is not known"},
    ),
    "attentions that share": (  # whose parts would be clipped by themselves
        Sharing,
        drawn(5, 3, 4),
        {
            **copied(f"MultiheadAttention {SHARED}", *(f"second.{name}" for name in ATTENTION)),
            **copied(
                "MultiheadAttention has a parameter that is used elsewhere",
                *(f"first.{name}" for name in ("in_proj_weight", *ATTENTION)),
            ),
        },
    ),
    **{f"mask: {mask}": (lambda mask=mask: Looking(mask), drawn(5, 3, 4), {}) for mask in MASKS},
    "positions that all share": (lambda: Positions((7,)), words(6, 7), {}),
    "a row of positions that all share": (lambda: Positions((1, 7)), words(6, 7), {}),
    "fixed positions that all share": (Fixed, drawn(5, 7, 3), {}),
    "words in and out": (Writing, words(5, 3), {}),
    "several rows for one example": (Folded, drawn(4, 2, 4, 3), {}),
    "a sequence": (in_sequence, drawn(4, 2, 5, 5), {"5.weight": "PReLU is not known"}),
    "a sequence with hooks": (listened_to, drawn(5, 4), {}),
    "a sequence of one dimension": (Squeezing, drawn(5, 4), {}),
    "parameters of its own": (
        Viewing,
        drawn(5, 2, 6),
        {
            **copied("Tokens is not known", "tokens.first", "tokens.positions"),
            **copied("Bilinear is not known", "pair.weight", "pair.bias"),
        },
    ),
    "instance norm": (
        sequence(lambda: nn.InstanceNorm2d(4, eps=0.1, affine=True), lambda: nn.ELU(inplace=True)),
        drawn(5, 4, 3, 2),
        copied("InstanceNorm2d is not known", "0.weight", "0.bias"),
    ),
    "frozen instance norm": (
        sequence(lambda: frozen(nn.InstanceNorm1d(4, affine=True, track_running_stats=True))),
        drawn(5, 4, 3),
        copied("InstanceNorm1d is not known", "0.weight", "0.bias"),
    ),
    "a cell": (
        sequence(lambda: nn.GRUCell(3, 2)),
        drawn(5, 3),
        copied(
            "GRUCell is not known", *(f"0.{kind}_{to}" for kind in ("weight", "bias") for to in ("ih", "hh"))
        ),
    ),
    "an input that all share": (lambda: Unusual("shared"), drawn(5, 6), {}),
    "weights of words": (
        lambda: Unusual("weighted"),
        drawn(5, 6),
        copied("EmbeddingBag is called with more than one tensor", "bag.weight"),
    ),
    "attention of one example": (
        lambda: Unusual("unbatched"),
        drawn(5, 6),
        copied(
            "MultiheadAttention is given something else than a tensor of 3 dimensions",
            *(f"attention.{name}" for name in ("in_proj_weight", *ATTENTION)),
        ),
    ),
    "attention by hand": (lambda: Unusual("by hand"), drawn(5, 6), {}),
    "padding on one side": (
        sequence(lambda: nn.Conv1d(2, 2, 2, padding="same")),
        drawn(4, 2, 6),
        copied("Conv1d is not known", "0.weight", "0.bias"),
    ),
    "padding by reflection": (
        sequence(lambda: nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect")),
        drawn(4, 2, 6),
        copied("Conv1d is not known", "0.weight", "0.bias"),
    ),
}


@pytest.mark.parametrize(("make", "inputs", "slower"), USES.values(), ids=USES)
def test_uses_of_layers(make: Callable[[], nn.Module], inputs: Tensor, slower: dict[str, str]) -> None:
    assert agree(make, inputs).slower_layers == slower
