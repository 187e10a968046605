"""The gradients of a layer that is not known: torch.func on this layer alone, one example at a time."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from ringfence.training.per_example.fused.contributions import Contribution, Contributions, Rows

# which dimension of a tensor counts examples: the first, the second, or none, because all examples share the
# tensor; "one row" is shared and has a first dimension of length 1
Layout = Literal["examples", "second", "shared", "one row"]
_NUMBERS = 1 << 24  # how many numbers of gradients are held at once


@dataclass(frozen=True)
class Chunks(Contribution):
    """Gradients that are computed anew, a few examples at a time, whenever they are needed."""

    compute: Callable[[slice], Tensor]
    examples: int
    size: int

    def one(self, i: int) -> Contribution:
        return Rows(self.compute(slice(i, i + 1)))

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        each = (rows.sum(limit, None if weights is None else weights[some]) for some, rows in self._parts())
        total = next(each)
        for part in each:
            total += part
        return total

    def squares(self) -> Tensor:
        return torch.cat([rows.squares() for _, rows in self._parts()])

    def _parts(self) -> Iterator[tuple[slice, Rows]]:
        for start in range(0, self.examples, self.size):
            some = slice(start, min(start + self.size, self.examples))
            yield some, Rows(self.compute(some))


def local_gradients(
    layer: nn.Module,
    names: Collection[str],
    examples: int,
    gradient: Tensor,
    layouts: Iterable[Layout],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    precision: AbstractContextManager[object] | None = None,
) -> Contributions:
    """The gradients of the named parameters of a layer, for each example.

    The layer is computed again, from the inputs that it had and in the ``precision`` that it had. ``layouts``
    is about the tensors among the inputs.

    >>> x = torch.tensor([[-3.0], [-4.0]])
    >>> parts = local_gradients(nn.PReLU(), ["weight"], 2, torch.ones(2, 1), ("examples",), (x,), {})
    >>> parts["weight"].sum(limit=3.5)
    tensor([-6.5000])
    """
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    layout = dict(zip(places, layouts, strict=True))
    if "second" in layout.values():
        raise ValueError("the second dimension counts examples")
    split = {i: leaves[i].detach().unflatten(0, (examples, -1)) for i in places if layout[i] == "examples"}
    slopes = gradient.unflatten(0, (examples, -1))
    own = {name: layer.get_parameter(name).detach() for name in names}

    def one(chosen: dict[str, Tensor], slope: Tensor, rows: dict[int, Tensor]) -> dict[str, Tensor]:
        def call(values: dict[str, Tensor]) -> Tensor:
            again = [rows.get(i, leaf) for i, leaf in enumerate(leaves)]
            output: Tensor = functional_call(layer, values, *tree_unflatten(again, spec))
            return output

        result: dict[str, Tensor] = vjp(call, chosen)[1](slope)[0]
        return result

    def computed(chosen: dict[str, Tensor], some: slice) -> dict[str, Tensor]:
        rows = {i: value[some] for i, value in split.items()}
        with precision or nullcontext():
            found: dict[str, Tensor] = vmap(one, in_dims=(None, 0, 0))(chosen, slopes[some], rows)
        return found

    size = max(1, _NUMBERS // sum(value.numel() for value in own.values()))
    if examples <= size:
        return {name: Rows(value) for name, value in computed(own, slice(None)).items()}
    return {
        name: Chunks(lambda some, name=name: computed({name: own[name]}, some)[name], examples, size)  # type: ignore[misc]
        for name in own
    }
