"""Attacks on isolation: models that look past their example, and what one example can then move."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import ringfence as rf
from ringfence.training.engine.batches import collated
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.layers import LayerNorm, known_layers
from tests.training.engine.runs import Run

CLIP = rf.Norm(1.0)
INPUTS = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
OUTLIER = torch.cat([INPUTS, 300 + torch.arange(6.0).unsqueeze(0)])  # the last example is the attacker's


class Linear(nn.Module):
    """A linear layer after some code of the user's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.before(x))

    def before(self, x: Tensor) -> Tensor:
        return x


class Sorts(Linear):
    """By size, as packed sequences are by length, and back."""

    def forward(self, x: Tensor) -> Tensor:
        order = x.sum(dim=1).argsort(descending=True)
        return super().forward(x[order])[order.argsort()]


class Scales(Linear):
    def before(self, x: Tensor) -> Tensor:
        return x / 255 if x.max() > 6 else x


class Centres(Linear):
    def before(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0) if self.training else x


class Crowded(Linear):
    """A mixture of experts with room for ten examples."""

    def before(self, x: Tensor) -> Tensor:
        chosen = x.sum(dim=1).topk(min(10, len(x))).indices
        return x * torch.zeros(len(x)).index_fill(0, chosen, 1.0).unsqueeze(1)


class Remembers(Linear):
    """The largest number so far, as a number of Python."""

    largest = 1.0

    def before(self, x: Tensor) -> Tensor:
        self.largest = max(self.largest, x.abs().max().item())
        return x / self.largest


class Following(nn.Module):
    def __init__(self, first: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.first, self.last = first, last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


class Continues(Linear):
    """A recurrent layer whose state goes on from example to example."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.state = nn.LSTM(6, 6, batch_first=True), None

    def before(self, x: Tensor) -> Tensor:
        out, self.state = self.cells(x.unsqueeze(1), self.state)
        return out[:, 0]


MIXING = [Sorts, Scales, Centres, Crowded]
SUMS = pytest.mark.parametrize("dtype", [None, torch.float64], ids=["fused", "formed"])


def moved(make: Callable[[], nn.Module], dtype: torch.dtype | None = None) -> float:
    """How far the last example moves the clipped sum, in multiples of the clip."""
    sums = []
    for some in (OUTLIER, OUTLIER[:-1]):
        gradients, given = ExampleGradients(make()), ((some,), {})
        gradients.forward(given)
        sums.append(gradients.clipped_sum(given, 1e3 * torch.ones(len(some), 3), CLIP, dtype))
    return float((sums[0] - sums[1]).norm())


@SUMS
@pytest.mark.parametrize("make", [Linear, *MIXING])
def test_an_example_moves_the_sum_by_its_clip(make: Callable[[], nn.Module], dtype: Any) -> None:
    """Under vmap there is nothing to mix, to sort or to count."""
    assert moved(make, dtype) <= 1.001
    whole, alone = ExampleGradients(make()), ExampleGradients(make())
    together = whole.forward(((OUTLIER,), {}))
    each = torch.cat([alone.forward(((row.unsqueeze(0),), {})) for row in OUTLIER])
    assert torch.allclose(together, each, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MIXING)
def test_these_models_do_mix(make: Callable[[], nn.Module]) -> None:
    """Called with a batch as usual, they show each example more than itself."""
    if make is Sorts:  # it mixes nothing, but its layer sees row i of another example
        assert not torch.equal(OUTLIER.sum(dim=1).argsort(descending=True), torch.arange(41))
        return
    together, model = make()(OUTLIER), make()
    each = torch.cat([model(row.unsqueeze(0)) for row in OUTLIER])
    assert not torch.allclose(together, each, rtol=1e-2)


@SUMS
def test_nothing_is_remembered_from_example_to_example(dtype: Any) -> None:
    """Where vmap stops, every example goes through a copy that is thrown away."""
    model = Remembers()
    with pytest.warns(UserWarning, match="one by one: RuntimeError: vmap: .*item"):
        ExampleGradients(model).forward(((OUTLIER,), {}))
    with pytest.warns(UserWarning, match="one by one"):
        assert moved(Remembers, dtype) <= 1.001
    assert model.largest == 1.0


def test_a_state_that_goes_on_is_refused() -> None:
    with pytest.raises(ValueError, match="layer '' \\(Continues\\) keeps 'state' of a pass"):
        moved(Continues)


@pytest.mark.parametrize("shape", [(2, 6), (2, 1, 6)])
@pytest.mark.parametrize("inside", [nn.Sequential, lambda layer, last: Following(layer, last)])
def test_a_normalisation_over_examples_has_only_one(shape: tuple[int, ...], inside: Any) -> None:
    """A known layer that takes all rows at once would find the shape of the batch that it asks for."""
    model = inside(nn.LayerNorm(shape), nn.Linear(6, 3))
    with pytest.raises(RuntimeError, match="normalized_shape"):
        ExampleGradients(model)._falls_back(((INPUTS[:2],), {}))
    (rule,) = (rule for rule in known_layers(model).values() if isinstance(rule, LayerNorm))
    assert rule.unfit(torch.zeros(shape)) is not None  # also where no pass of one example came before


def test_a_layer_that_changes_its_ways_later() -> None:
    """In evaluation mode at first, it treats examples apart; in training mode it centres the batch."""
    model = Centres().eval()
    gradients, given = ExampleGradients(model), ((OUTLIER,), {})
    gradients.forward(given)
    model.train()
    outputs = gradients.forward(given)
    assert float(outputs.std(dim=0).max()) < 1e-6  # alone, an example is its own mean


def trained(model: nn.Module, steps: int = 1, **settings: Any) -> Run:
    labels = torch.zeros(len(INPUTS), dtype=torch.long)
    options = {"mechanism": rf.Gaussian(1e-6), "clip": CLIP, "batch_size": len(INPUTS), **settings}
    return Run(model, inputs=INPUTS, labels=labels, **options).train(steps)


def test_unfreezing_and_freezing_are_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    run = trained(model)
    model[0].requires_grad_()
    with pytest.raises(ValueError, match=r"parameter '0.weight' was not trained before"):
        run.train(2)
    model[0].requires_grad_(False)
    model[1].bias.requires_grad_(False)
    with pytest.raises(ValueError, match=r"parameter '1.bias' is trained no longer"):
        run.train(2)


def test_nothing_but_the_release_moves_a_parameter() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    run = trained(model, steps=0)
    before = model[0].weight.clone()
    ((inputs, labels),) = run.loader
    functional.cross_entropy(run.model(inputs), labels).backward()
    model[0].weight.grad = torch.ones(6, 6)  # as a backward pass of the user's own would leave it
    run.optimizer.step()
    assert torch.equal(model[0].weight, before)


class Renorms(nn.Module):
    """Words that occur are shortened."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return functional.embedding((x[:, 0] > 0).long(), self.table, max_norm=0.1)


class Initialises(Linear):
    """ActNorm: the first batch sets shift and scale."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.ready = nn.Parameter(torch.zeros(6)), False

    def before(self, x: Tensor) -> Tensor:
        if not self.ready:
            self.shift.data.copy_(x.mean(dim=0))
            self.ready = True
        return x - self.shift


class Averages(Linear):
    """The moving average of a VQ-VAE."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def before(self, x: Tensor) -> Tensor:
        self.mean.data.mul_(0.9).add_(x.detach().mean(dim=0), alpha=0.1)
        return x


class Counts(Averages):
    """How many passes there were, hence something about the size of a batch."""

    def before(self, x: Tensor) -> Tensor:
        self.mean += 1
        return x


@pytest.mark.filterwarnings("ignore:examples go through the model one by one")
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("make", [Renorms, Initialises, Averages])
def test_a_forward_pass_writes_nothing(make: Callable[[], nn.Module]) -> None:
    """It is refused by name, or what it writes to is a copy."""
    model = make()
    before, gradients = copy.deepcopy(model.state_dict()), ExampleGradients(model)
    refused = pytest.raises(ValueError, match="what a model keeps of its inputs does not pass the mechanism")
    with nullcontext() if make is Renorms else refused:  # which has copies to write to
        gradients.forward(((INPUTS,), {}))
        gradients.clipped_sum(((INPUTS,), {}), torch.ones(len(INPUTS), 3), CLIP)
    with torch.no_grad():  # in training mode, where a copy does the work
        trained(model, steps=0).model(INPUTS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_count_of_passes_is_refused() -> None:
    run = trained(Counts(), steps=0)
    with pytest.raises(ValueError, match="layer '' \\(Counts\\) keeps 'mean' of a pass"):
        run.train(1)
    assert run.engine.steps == 0


def test_batches_that_are_padded_to_their_longest_are_refused() -> None:
    """An example would show the model how long the others are."""
    words, padded = [torch.ones(length) for length in (9, 3, 3)], partial(pad_sequence, batch_first=True)
    model, made = nn.Linear(1, 3), rf.PrivacyEngine(rf.Gaussian(1.0), CLIP, sampling="full")
    loader = DataLoader(words, batch_size=3, collate_fn=padded)
    *_, loader = made.make_private(model, torch.optim.SGD(model.parameters(), lr=1.0), loader)
    with pytest.raises(ValueError, match=r"rows of shape \[9\] in a batch and \[3\] alone: pad to a length"):
        next(iter(loader))
    assert collated(words, padded, words[:1]).shape == (1, 9)


@pytest.mark.parametrize(
    "share",
    [
        lambda count: (1 + torch.arange(count) % 3) / (1 + torch.arange(count) % 3).sum(),
        lambda count: (1 + (torch.arange(count) == 2)) / count,  # one example alone counts twice
    ],
)
def test_a_loss_that_mixes_examples_is_found_out_in_every_step(share: Callable[[int], Tensor]) -> None:
    """A mean over all words, which are more in some examples than in others."""
    run = trained(Linear(), loss=functional.cross_entropy)
    ((inputs, labels),) = run.loader
    each = functional.cross_entropy(run.model(inputs), labels, reduction="none")
    (each * share(len(inputs))).sum().backward()
    with pytest.raises(ValueError, match="is not the engine's loss of each example by itself"):
        run.optimizer.step()
    assert run.engine.steps == 1


def test_the_same_loss_by_other_operations_is_not_refused() -> None:
    """It rounds otherwise, far more than the smallest gradients are long."""
    run = trained(Linear(), loss=functional.cross_entropy)
    run.model.layer.weight.data.mul_(30)
    ((inputs, _),) = run.loader
    outputs = run.model(inputs)
    (outputs.logsumexp(dim=1) - outputs[:, 0]).mean().backward()
    run.optimizer.step()
    assert run.engine.steps == 2


def test_a_loss_without_a_gradient_is_not_refused() -> None:
    def flat(outputs: Tensor, _: Tensor) -> Tensor:
        return 0 * outputs.mean()

    run = trained(Linear(), steps=0, loss=flat)
    ((inputs, labels),) = run.loader
    flat(run.model(inputs), labels).backward()
    run.optimizer.step()
    assert run.engine.steps == 1


def test_every_statement_says_what_is_assumed_of_loop_and_loss() -> None:
    claim = trained(Linear()).engine.guarantee(1e-5)
    assert any("must depend on that example alone" in sentence for sentence in claim.assumptions)
    assert "must depend on that example alone" in claim.statement


@pytest.mark.parametrize("clip", [rf.Clamp(0.01), rf.Norm(1.0)])
def test_a_mean_in_half_precision_does_not_show_how_many_there_are(clip: rf.Clip) -> None:
    """The rounding of 1/n was in every example's gradient: a coordinate moved by 1.4 to 3.8 c at 1,000."""
    torch.manual_seed(4)
    inputs, sums = torch.randn(1000, 6), []
    weights = torch.randn(3, 6)
    for count in (1000, 999):
        model = nn.Linear(6, 3, bias=False)
        model.weight.data = weights.clone()
        run = Run(
            model,
            inputs=inputs[:count],
            labels=torch.zeros(count, dtype=torch.long),
            batch_size=count,
            mechanism=rf.Gaussian(1e-9),
            clip=clip,
            public_size=1,
        )
        with torch.autocast("cpu", torch.bfloat16):
            run.train(1)
        sums.append(run.engine.run.theta)
    moved = (sums[0] - sums[1]).double()
    assert float(moved.abs().max() if isinstance(clip, rf.Clamp) else moved.norm()) <= 1.01 * clip.largest
