"""A pass under vmap: which layers are watched, and sums that are those of examples alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations

import ringfence as rf
from ringfence.training.kernels.clipped_sums import ALL, Rows
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.isolation import Calls, Tape, without_gradients
from tests.training.per_example.alone import agree, drawn


class Several(nn.Module):
    """Calls a layer once more, or another one, for numbers above 100."""

    def __init__(self, other: bool = False) -> None:
        super().__init__()
        self.other = nn.Linear(4, 4) if other else None
        self.layer, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(x, x, x)[0] + self.layer(x)
        return (self.other or self.layer)(y) if bool((x > 100).any()) else y


def test_nothing_is_left_on_the_model() -> None:
    model, inputs = Several(), ((drawn(3, 2, 4),), {})
    before = [dict(vars(layer)) for layer in model.modules()]
    gradients = ExampleGradients(model)
    gradients.forward(inputs)
    assert gradients.fallback_reason is None
    gradients.clipped_sum(inputs, torch.ones(3, 2, 4), rf.Clamp(0.1))
    assert [dict(vars(layer)) for layer in model.modules()] == before
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("other", [False, True])
def test_examples_that_decide_differently_go_in_separate_passes(other: bool) -> None:
    """Some call a layer again, whose two uses are clipped together, and some do not."""
    inputs = drawn(6, 2, 4)
    inputs[[1, 4]] += 200
    assert not agree(lambda: Several(other), inputs).slower_layers
    gradients = ExampleGradients(Several(other))
    passes = [] if gradients._falls_back(((inputs,), {})) else gradients._passes(((inputs,), {}))
    assert sorted(one.rows.tolist() for one in passes) == [[0, 2, 3, 5], [1, 4]]


def test_hooks_of_others_stay_and_come_after() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        model[0].register_forward_hook(lambda layer, args, output: output.cos())
        model[1].register_forward_pre_hook(lambda layer, args: (2 * args[0],))
        return model

    assert not agree(make, drawn(5, 4)).slower_layers


def test_code_of_others_sees_one_example_also_inside_of_a_sequence() -> None:
    """A layer that somebody listens to steps back into vmap, and so does everything under a global hook."""
    shapes: list[tuple[int, ...]] = []

    def listen(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        shapes.append(tuple(output.shape))

    for listens in (
        lambda model: model[1].register_forward_hook(listen),
        lambda model: register_module_forward_hook(listen),
    ):
        model, inputs = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), ((drawn(5, 4),), {})
        handle = listens(model)
        gradients = ExampleGradients(model)
        gradients.forward(inputs)
        gradients.clipped_sum(inputs, torch.ones(5, 2), rf.Clamp(0.1))
        handle.remove()
        assert {1} <= {shape[0] for shape in shapes} <= {1, 2}  # two copies of one, to measure memory
        shapes.clear()


def test_sequences_of_layers_that_take_all_examples_at_once() -> None:
    """Views, layers that work in place, dropout that is off, unknown layers and sequences between them."""

    def make() -> nn.Module:
        inner = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 3, 1), nn.ReLU(inplace=True), nn.Identity())
        images = (nn.Conv2d(2, 3, 2), inner, nn.MaxPool2d(2), nn.BatchNorm2d(3).eval(), nn.Hardswish(True))
        ends = (nn.PReLU(), nn.Flatten(), nn.ELU(inplace=True), nn.Dropout(0.0), nn.Linear(12, 4), nn.SiLU())
        model = nn.Sequential(*images, *ends, nn.Unflatten(1, (2, 2)), nn.LayerNorm(2), nn.Linear(2, 2))
        model[0].requires_grad_(False)
        return model

    assert agree(make, drawn(4, 2, 5, 5)).slower_layers == {"5.weight": "PReLU is not known"}


def test_a_sequence_that_is_given_one_dimension_or_several_tensors() -> None:
    class Squeezing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.LayerNorm(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x[0]).unsqueeze(0)

    assert not agree(Squeezing, drawn(5, 4)).slower_layers
    model = nn.Sequential(nn.Tanh(), nn.Linear(4, 3))
    with pytest.raises(TypeError, match="takes 2 positional arguments"):
        ExampleGradients(model).forward(((drawn(5, 4), drawn(5, 4)), {}))


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


USED = "Linear has a parameter that is used elsewhere"
NAMES = ("last.weight", "last.bias")
COPIED = {
    **{how: {} for how in ("tied", "twice", "unused", "frozen")},
    "borrowed": dict.fromkeys(NAMES, USED),
    "lent": dict.fromkeys(NAMES, USED),
    "mapped": dict.fromkeys(NAMES, "Linear is called under a transformation of torch.func"),
    "normalised": {
        "last.bias": "ParametrizedLinear is not known",
        **{f"last.parametrizations.weight.original{i}": "ParametrizationList is not known" for i in (0, 1)},
    },
}


@pytest.mark.parametrize("how", COPIED)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_what_takes_copies(how: str) -> None:
    assert agree(lambda: Using(how), drawn(5, 3)).slower_layers == COPIED[how]


class Shared(nn.Module):
    """Two attentions with one matrix, of which one attends to others and so has it in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.MultiheadAttention(4, 2, batch_first=True) for _ in range(2))
        self.second.in_proj_weight = self.first.in_proj_weight
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x, x, x)[0]
        return self.last(self.second(y, x, x)[0])


def test_attentions_that_share_a_matrix_take_copies() -> None:
    """Their parts would be clipped by themselves."""
    assert "first.in_proj_weight" in agree(Shared, drawn(5, 3, 4)).slower_layers


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_old_weight_norm_is_refused_by_name() -> None:
    """It keeps its product in an attribute; torch's newer one (``parametrizations``) does not."""
    with pytest.warns(FutureWarning, match="weight_norm"):
        layer = nn.utils.weight_norm(nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"layer '0' \(Linear\) keeps 'weight' of a pass"):
        ExampleGradients(nn.Sequential(layer, nn.Linear(3, 2))).forward(((drawn(5, 3),), {}))


class Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.ones(3)), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x * self.weight)


def test_an_unknown_layer_may_draw() -> None:
    """Each example has a mask of its own, and its gradient the same one."""
    gradients = ExampleGradients(Drawing())
    inputs = ((torch.ones(50, 3),), {})
    outputs = gradients.forward(inputs)
    total = gradients.clipped_sum(inputs, torch.ones(50, 3), rf.Clamp(10.0))
    assert torch.equal(total, outputs.sum(dim=0))
    assert 0 < len(outputs.unique(dim=0)) > 2


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


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_layers_with_parameters_of_their_own() -> None:
    assert agree(Viewing, drawn(5, 2, 6)).slower_layers == {
        **dict.fromkeys(("tokens.first", "tokens.positions"), "Tokens is not known"),
        **dict.fromkeys(("pair.weight", "pair.bias"), "Bilinear is not known"),
    }


class Mixing(nn.Module):
    """Two layers, and between them something that looks at other examples."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.how, self.last = nn.Linear(3, 3), how, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.how == "mean":
            y = y - y.mean(dim=0)
        elif self.how == "backward only":  # the outputs are those of examples alone, the gradients are not
            y = y + (y.sum(dim=0) - y.sum(dim=0).detach())
        elif self.how == "a little":  # as rounding to a grid that depends on the largest number
            y = y + 1e-5 * y.mean(dim=0).detach()
        elif self.how == "order":
            y = y.roll(1, dims=0)
        return self.last(torch.tanh(y))


@pytest.mark.parametrize("how", ["mean", "backward only", "a little", "order"])
def test_what_mixes_examples_mixes_nothing_here(how: str) -> None:
    agree(lambda: Mixing(how), drawn(5, 3))


def test_in_place_activations_and_precisions() -> None:
    def make() -> nn.Module:
        layers = (nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.GroupNorm(2, 4), nn.ReLU(inplace=True))
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 9, 3), nn.Hardswish(inplace=True))

    assert not agree(make, drawn(4, 2, 5, 5)).slower_layers


def test_a_gradient_comes_before_what_was_done_in_place() -> None:
    """Activations that work in place follow layers everywhere."""
    x, seen = torch.tensor([[1.0], [-1.0]]), []
    tape = Tape(((x,), {}), tracing=False)
    output = tape.watch(x.clone(), x, lambda gradient, kept: [("weight", ALL, Rows(gradient * kept))])
    tape.receive = seen.extend
    (3 * output.relu_()).sum().backward()
    ((name, rows, contribution),) = seen
    assert (name, rows) == ("weight", ALL)
    assert contribution.gradients.tolist() == [[3.0], [0.0]]


def test_an_input_that_was_changed_is_refused() -> None:
    x = torch.ones(1, 1)
    output = Tape(((x,), {}), tracing=False).watch(2 * x, x, lambda gradient, kept: [])
    x.add_(1)
    with pytest.raises(RuntimeError, match="was changed in place"):
        output.sum().backward()


def test_what_is_switched_off_is_switched_on_again() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    tape = Tape(((torch.ones(1, 2),), {}), tracing=False)
    with without_gradients(layer.parameters()), Calls(layer, ()).replaced(tape):
        assert not layer.weight.requires_grad
        assert not mha.get_fastpath_enabled()
    assert layer.weight.requires_grad
    assert not layer.bias.requires_grad
    assert mha.get_fastpath_enabled()
