"""Models that ``fully_shard`` was applied to: each process holds a part of every parameter and sum."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Partial, distribute_tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.subsampling import Account
from ringfence.noise import Place
from ringfence.training import distributed

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


class Sharded:
    """Each process holds its part of every parameter (FSDP2), and the same part of the sum of a step.

    All of the model is gathered for each pass forward and each pass back, on every process, and its clipped
    sum is as large as the model until it is reduced. In between, parameters, the sum, its noise, what is
    released and the state of the optimizer take their share of memory on each process. A unit goes through
    the model on one process, so its norm is known there.

    Guarantee: together the processes release what one would: every coordinate of the sum is on one process,
    which draws its noise, from a key of its own. A release is charged as one of the whole sum.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._layers = [layer for layer in model.modules() if isinstance(layer, FSDPModule)]
        self._reshard()
        self.trained: dict[str, Any] = {n: p for n, p in model.named_parameters() if p.requires_grad}
        processes = distributed.world_size()
        for name, p in model.named_parameters():
            if isinstance(p, DTensor) and (
                (p.device_mesh.ndim, p.device_mesh.size()) != (1, processes) or not p.placements[0].is_shard()
            ):
                raise ValueError(
                    f"parameter {name!r} must be sharded by fully_shard over all {processes} processes, got "
                    f"{p.placements[0]} on {p.device_mesh}"
                )
            if p.requires_grad and not isinstance(p, DTensor):
                raise ValueError(
                    f"parameter {name!r} is not sharded and others are: apply fully_shard to the model itself"
                )
        for layer in self._layers:  # the outermost one would stay gathered after an evaluation, and age
            layer.set_reshard_after_forward(True, recurse=False)
        self.settings: dict[str, Any] = {"shards": processes}
        self.place: tuple[Place, ...] = ("shard", distributed.rank())
        with self.gathered():
            for name, p in model.named_parameters():
                held = self.trained.get(name, p)
                if isinstance(p, DTensor) or p.device != held.device:
                    raise ValueError(
                        f"parameter {name!r} must lie on {p.device} as a shard of fully_shard, got "
                        f"{type(held).__name__} on {held.device}: offloading is not supported"
                    )

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """As long as this lasts, the model is an ordinary one: all parameters, and no hooks of FSDP."""
        self._reshard()
        for layer in self._layers:
            layer.unshard()
        kept = [_made_plain(layer) for layer in self._layers]
        try:
            yield
        finally:
            for layer, (kind, own, hooks) in zip(self._layers, kept, strict=True):
                layer.__class__ = kind
                vars(layer).update(own)
                for name, before in hooks.items():
                    vars(layer)[name].clear()
                    vars(layer)[name].update(before)
            self._reshard()

    def _reshard(self) -> None:
        """Frees what is gathered: it may be older than the last step."""
        for layer in self._layers:
            layer.reshard()

    def begin(self) -> None:
        """Gives every process the first one's numbers of what is not sharded."""
        for value in self.model.state_dict().values():
            if not isinstance(value, DTensor):
                distributed.from_first(value)

    def summed(self, total: Tensor) -> Tensor:
        """Returns the sum over all processes of this process's part of every parameter, in their order."""
        shards, parameters = [], self.trained.values()
        for p, own in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
            spread = DTensor.from_local(own.view(p.shape), p.device_mesh, [Partial()], run_check=False)
            shards.append(spread.redistribute(placements=p.placements).to_local().flatten())
        return torch.cat(shards)

    def charge(self, account: Account, theta: Tensor) -> None:
        """Charges the release of the whole sum, of which ``theta`` is this process's part."""
        if isinstance(account, PerInstanceAccountant):
            whole = torch.cat([each.full_tensor().flatten() for _, each in self.parts(theta)])
        else:  # the others look at the shape alone
            whole = theta.new_zeros(()).expand(sum(p.numel() for p in self.trained.values()))
        account.charge(whole)

    def released(self, values: Tensor) -> Tensor:
        """Returns what is released of this process's part: what it drew."""
        return values

    def parts(self, released: Tensor) -> Iterator[tuple[nn.Parameter, DTensor]]:
        """Yields every trained parameter with the numbers that are its own, sharded as the parameter is."""
        held = [p.to_local() for p in self.trained.values()]
        parts = released.split([each.numel() for each in held])
        for p, each, own in zip(self.trained.values(), held, parts, strict=True):
            how: dict[str, Any] = {"shape": p.shape, "stride": p.stride(), "run_check": False}
            yield p, DTensor.from_local(own.view(each.shape), p.device_mesh, p.placements, **how)

    def state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Returns the states of model and optimizer as one process would have them, on the first one."""

        def completed(value: Any) -> Any:
            if not isinstance(value, DTensor):
                return value
            whole = value.full_tensor()
            return whole.cpu() if distributed.rank() == 0 else whole.new_empty(0)

        self._reshard()
        states = {"model": dict(self.model.state_dict()), "optimizer": optimizer.state_dict()}
        return {name: tree_map(completed, each) for name, each in states.items()}

    def load(self, state: dict[str, Any], optimizer: Optimizer) -> None:
        """Takes from these states what this process holds."""
        self._reshard()
        held = self.model.state_dict()
        self.model.load_state_dict({name: _part(value, held[name]) for name, value in state["model"].items()})
        saved = state["optimizer"]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        states = {
            number: {name: _part(value, parameters[number]) for name, value in own.items()}
            for number, own in saved["state"].items()
        }
        optimizer.load_state_dict({**saved, "state": states})


def is_sharded(model: nn.Module) -> bool:
    """Returns whether processes hold parts of the model's parameters.

    >>> is_sharded(nn.Linear(2, 1))
    False
    """
    if any(isinstance(layer, FullyShardedDataParallel) for layer in model.modules()):
        raise ValueError("model must not have layers in FullyShardedDataParallel: use fully_shard")
    layers = any(isinstance(layer, FSDPModule) for layer in model.modules())
    return layers or any(isinstance(p, DTensor) for p in model.parameters())


def _part(value: Any, held: Tensor) -> Any:
    """Returns what this process holds of a tensor that lies as ``held`` does; every process has read it."""
    if not isinstance(held, DTensor) or not isinstance(value, Tensor) or value.shape != held.shape:
        return value
    return distribute_tensor(value.to(held.device), held.device_mesh, held.placements, src_data_rank=None)


def _made_plain(layer: Any) -> tuple[type, dict[str, Any], dict[str, dict[int, Any]]]:
    """Makes a gathered layer what it was before ``fully_shard``; returns what that takes from it."""
    kind = type(layer)
    layer.__class__ = next(each for each in kind.__mro__ if not issubclass(each, FSDPModule))
    names = [name for name in vars(layer) if name.startswith("__composable_api_state_key")]
    own = {name: vars(layer).pop(name) for name in names}
    hooks = {name: dict(vars(layer)[name]) for name in _HOOKS}
    for name, before in hooks.items():
        for key, hook in before.items():
            if (getattr(hook, "__module__", None) or "").startswith("torch.distributed.fsdp"):
                del vars(layer)[name][key]
    return kind, own, hooks
