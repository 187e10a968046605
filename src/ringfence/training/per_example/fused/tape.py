"""The tape of one pass keeps what each layer was given until the gradient of the layer's output is known."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha

from ringfence.training.per_example.fused.contributions import Contribution

# the name of a parameter, which of its rows, and what their gradients are made of
Part = tuple[str, slice, Contribution]
ALL = slice(None)
# watch(output, kept, parts): see Tape.watch; tensors that parts is given are (n, positions, width), and the
# names are those of the layer
Watch = Callable[[Tensor, tuple[Tensor, ...], Callable[..., Iterable[Part]]], Tensor]


class Tape:
    """Watches the outputs of the layers of one pass over ``examples`` examples.

    ``receive`` is called with the contributions of each layer, in the order of the backward pass. Until it is
    set they are dropped. ``uses`` counts how often the pass used each parameter, and ``level`` is that of the
    vmap that the pass runs under. ``asked`` says whether the model's code asked something of an example, and
    ``helped`` whether it did anything that vmap needs help with.
    """

    def __init__(self, examples: int, device: torch.device) -> None:
        self.examples = examples
        self.receive: Callable[[Iterable[Part]], None] = lambda parts: None
        self.uses: Counter[str] = Counter()
        self.level = 0
        self.asked = self.helped = False
        # outputs that depend on nothing that needs a gradient hang from this
        self._start = torch.zeros((), device=device, requires_grad=True)

    def watch(
        self,
        output: Tensor,
        kept: tuple[Tensor, ...],
        parts: Callable[..., Iterable[Part]],
        *,
        split: bool = False,
    ) -> Tensor:
        """Returns the output to go on with; ``parts(gradient, *kept)`` is called in the backward pass.

        ``kept`` are the tensors that ``parts`` needs; changing them in place afterwards is refused. With
        ``split``, output and gradient are (n, k, ...) instead of (n k, ...).
        """
        shape = (self.examples, -1, *output.shape[1:]) if split else output.shape
        if not torch.is_grad_enabled():  # nobody will go back
            return output.view(shape) if split else output
        versions, held = [tensor._version for tensor in kept], list(kept)

        def arrived(gradient: Tensor) -> None:
            if [tensor._version for tensor in held] != versions:
                raise RuntimeError("the input of a layer was changed in place after the layer had used it")
            given = tuple(held)
            held.clear()  # as autograd frees what it saved
            self.receive(parts(gradient.unflatten(0, shape[:2]) if split else gradient, *given))

        if not output.requires_grad or output._is_view():  # what is done in place to a view passes its hooks
            output = _Begin.apply(output, self._start)  # type: ignore[no-untyped-call]
        output.register_hook(arrived)
        return output.view(shape) if split else output


class _Begin(torch.autograd.Function):
    """The identity, whose output is no view and has a gradient, also where nothing before it needs one."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, start: Tensor) -> Tensor:
        return output.data  # not a view: layers that work in place may follow

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        return gradients[0] if ctx.needs_input_grad[0] else None, None


def in_autocast(x: Tensor) -> Tensor:
    """The input of a matrix product as autocast would take it, so that what is kept is what autocast keeps.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     in_autocast(torch.ones(1)).dtype
    torch.bfloat16
    """
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(device))


@contextmanager
def without_gradients(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Makes parameters need no gradient for a while, so that none is computed or stored.

    >>> layer = nn.Linear(2, 2)
    >>> with without_gradients(layer.parameters()):
    ...     layer(torch.ones(1, 2)).requires_grad
    False
    """
    changed = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in changed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in changed:
            parameter.requires_grad_()


@contextmanager
def step_by_step() -> Iterator[None]:
    """Transformers of torch call their layers one by one, also where they have a shortcut past them."""
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)
