"""Nothing of a pass is held when it has ended: neither by references nor by cycles, which graphs hide."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.jacobian import CastModel, bytes_per_example
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.isolation import Inputs, Tape
from tests.training.engine.runs import INPUTS, Run, network
from tests.training.per_example.alone import drawn, seeded, words
from tests.training.per_example.test_gradients import BLOCKS
from tests.training.per_example.test_isolation import Several
from tests.training.per_example.test_layers import Repeated

DECIDING = drawn(6, 3, 4)
DECIDING[::2] += 200  # so that examples go in separate passes, and use a layer once or twice
MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "images": (network, INPUTS),
    "copies": (lambda: Repeated(nn.PReLU), drawn(5, 3, 4)),
    "decisions": (Several, DECIDING),
    "sequences": (lambda: nn.Sequential(nn.Embedding(5, 4), *(block() for block in BLOCKS)), words(6, 3)),
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[Tensor]]]:
    """Inputs and outputs of the layers of all passes, while nothing is collected."""
    references: list[weakref.ref[Tensor]] = []
    watch = Tape.watch

    def noted(tape: Tape, output: Tensor, kept: Tensor, parts: Any) -> Tensor:
        output = watch(tape, output, kept, parts)
        references.extend(map(weakref.ref, (output, kept)))
        return output

    monkeypatch.setattr(Tape, "watch", noted)
    gc.collect()
    gc.disable()
    yield references
    gc.enable()


def alive(references: list[weakref.ref[Tensor]]) -> int:
    assert references
    return sum(reference() is not None for reference in references)


def tensors() -> int:
    """The number of tensors that Python knows of."""
    return sum(issubclass(type(each), Tensor) for each in gc.get_objects())


def of(kind: str) -> tuple[ExampleGradients, Inputs]:
    make, x = MODELS[kind]
    return ExampleGradients(seeded(make)), ((x,), {})


@pytest.mark.parametrize("clip", [rf.Clamp(0.1), rf.Norm(0.1)], ids=repr)
@pytest.mark.parametrize("kind", MODELS)
def test_nothing_is_held_after_a_sum(kind: str, clip: rf.Clip, seen: list[weakref.ref[Tensor]]) -> None:
    gradients, inputs = of(kind)
    before = tensors()
    slopes = torch.ones_like(gradients.forward(inputs))
    assert alive(seen)
    total = gradients.clipped_sum(inputs, slopes, clip)
    assert alive(seen) == 0
    assert tensors() == before + 2  # these two, and no copy of the model
    assert torch.equal(gradients.clipped_sum(inputs, slopes, clip), total)  # by passes of its own
    assert alive(seen) == 0


@pytest.mark.parametrize("kind", MODELS)
def test_a_pass_that_is_not_taken_back_ends_with_the_next(kind: str, seen: list[weakref.ref[Tensor]]) -> None:
    gradients, inputs = of(kind)
    gradients.forward(inputs)
    first = list(seen)
    gradients.forward(inputs)
    assert alive(first) == 0
    assert alive(seen)
    del gradients
    assert alive(seen) == 0


def test_nothing_is_held_where_the_backward_pass_fails(seen: list[weakref.ref[Tensor]]) -> None:
    gradients, inputs = of("images")
    slopes = torch.ones_like(gradients.forward(inputs))
    with pytest.raises(RuntimeError):
        gradients.clipped_sum(inputs, slopes[:, :1], rf.Norm(0.1))
    assert alive(seen) == 0


@pytest.mark.parametrize("clip", [rf.Clamp(0.1), rf.Norm(0.1)], ids=repr)
def test_nothing_is_held_after_a_step(clip: rf.Clip, seen: list[weakref.ref[Tensor]]) -> None:
    run = Run(clip=clip, loss=nn.functional.cross_entropy, mechanism=rf.Gaussian(1.0), batch_size=len(INPUTS))
    run.train(2)
    assert alive(seen) == 0
    next(iter(run.loader))
    run.model(INPUTS)
    assert alive(seen)
    run.train(3)
    assert alive(seen) == 0


def test_measuring_the_memory_of_derivatives_holds_nothing() -> None:
    model = CastModel(network(), nn.functional.cross_entropy)
    x, y = INPUTS[:1].double(), torch.zeros(1).long()
    bytes_per_example(model, x, y)
    gc.collect()  # vmap leaves cycles behind; those through a graph, nobody collects
    before = tensors()
    bytes_per_example(model, x, y)
    gc.collect()
    assert tensors() == before
