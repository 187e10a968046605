"""One process or many that train together: sums over all of them, and how a model lies on them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed
from torch import Tensor, nn
from torch.optim import Optimizer

from ringfence.accounting.subsampling import Account
from ringfence.noise import Place


def rank() -> int:
    """Returns the rank of this process, which is 0 where there is only one.

    >>> rank(), world_size()
    (0, 1)
    """
    return torch.distributed.get_rank() if _several() else 0


def world_size() -> int:
    """Returns the number of processes that train together."""
    return torch.distributed.get_world_size() if _several() else 1


def summed(values: Tensor) -> Tensor:
    """Returns the sum over all processes, the same numbers on each; ``values`` may be overwritten with it."""
    if _several():
        values = values.contiguous()  # gloo would write beyond the memory of an expanded tensor
        torch.distributed.all_reduce(values)
    return values


def from_first(values: Tensor) -> Tensor:
    """Returns what the first process holds, on every process; ``values`` is overwritten with it."""
    if _several():
        whole = values.contiguous()  # as in ``summed``
        torch.distributed.broadcast(whole, src=0)
        values.copy_(whole)
    return values


def text_from_first(text: str) -> str:
    """Returns the string that the first process holds, on every process."""
    values = [text]
    if _several():
        torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def wait() -> None:
    """Returns when every process has called it."""
    if _several():
        torch.distributed.barrier()


def _several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class Whole:
    """Every process holds all parameters of the model, the whole sum of a step, and what is released of it.

    Its counterpart for models that ``fully_shard`` was applied to is ``sharding.Sharded``.

    >>> held = Whole(nn.Linear(2, 1))
    >>> [(list(p.shape), value.tolist()) for p, value in held.parts(torch.ones(3))]
    [([1, 2], [[1.0, 1.0]]), ([1], [1.0])]
    """

    settings: dict[str, Any] = {}  # noqa: RUF012, which a file that is loaded must share
    place: tuple[Place, ...] = ()  # of this process's noise

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def gathered(self) -> AbstractContextManager[None]:
        """As long as this lasts, this process has all parameters of the model as plain tensors."""
        return nullcontext()

    def begin(self) -> None:
        """Gives every process the numbers of the first one."""
        for value in self.model.state_dict().values():
            from_first(value)

    def summed(self, total: Tensor) -> Tensor:
        """Returns the sum over all processes, as far as this one holds it."""
        return summed(total)

    def charge(self, account: Account, theta: Tensor) -> None:
        """Charges the release of the sum of a step."""
        account.charge(theta)

    def released(self, values: Tensor) -> Tensor:
        """Returns what is released: what the first process drew."""
        return from_first(values)

    def parts(self, released: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Yields every trained parameter with the numbers that are its own."""
        parameters = self.trained.values()
        for parameter, own in zip(parameters, released.split([p.numel() for p in parameters]), strict=True):
            yield parameter, own.view(parameter.shape)

    def state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Returns the states of model and optimizer as one process would have them, on the first one."""
        return {"model": dict(self.model.state_dict()), "optimizer": optimizer.state_dict()}

    def load(self, state: dict[str, Any], optimizer: Optimizer) -> None:
        """Takes from these states what this process holds."""
        self.model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
