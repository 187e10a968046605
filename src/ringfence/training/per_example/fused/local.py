"""The gradients of a layer that is not known: torch.func on this layer alone, one example at a time."""

from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.per_example.fused.contributions import Contribution, Rows


def local_gradients(
    layer: nn.Module, examples: int, gradient: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Contribution]:
    """The gradients of the layer's own parameters, by name, for each example; children's are left out.

    The layer is computed again, from the inputs that it had.
    """
    own = {name: value.detach() for name, value in layer.named_parameters(recurse=False)}
    leaves = {id(value): value for value in _tensors((args, kwargs))}

    def one(gradient: Tensor, rows: dict[int, Tensor]) -> dict[str, Tensor]:
        def call(values: dict[str, Tensor]) -> Tensor:
            again = tree_map(lambda value: rows[id(value)] if isinstance(value, Tensor) else value, given)
            output: Tensor = functional_call(layer, values, *again)
            return output

        result: dict[str, Tensor] = vjp(call, own)[1](gradient)[0]
        return result

    given = (args, kwargs)
    split = {key: value.detach().unflatten(0, (examples, -1)) for key, value in leaves.items()}
    each = vmap(one)(gradient.unflatten(0, (examples, -1)), split)
    return {name: Rows(value) for name, value in each.items()}


def _tensors(tree: Any) -> list[Tensor]:
    return [value for value in tree_leaves(tree) if isinstance(value, Tensor)]
