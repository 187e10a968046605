"""Many targets as one: the laws of one kind side by side, so that they are attacked in one pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.audit.targets import Target
from ringfence.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Stack:
    """Targets of one kind of law side by side: one law, one theta, and the owner of each coordinate."""

    places: tuple[int, ...]  # of the targets, in the sequence that they came from
    mechanism: Mechanism
    theta: Tensor
    move: Tensor
    owner: Tensor

    def sums(self, values: Tensor) -> Tensor:
        """Sums over the coordinates of each target: (..., coordinates) to (..., targets)."""
        result = values.new_zeros(*values.shape[:-1], len(self.places))
        return result.index_add_(-1, self.owner, values)


def stacks(targets: Sequence[Target], most: int) -> Iterator[Stack]:
    """Stacks that hold every target once; none has many more than ``most`` coordinates.

    >>> from ringfence import Gaussian
    >>> law = Gaussian(1.0)
    >>> pair = [Target(law, torch.zeros(size, dtype=torch.float64), 0.1, 1e-5) for size in (2, 3)]
    >>> [stack.owner.tolist() for stack in stacks(pair, most=100)]
    [[0, 0, 1, 1, 1]]
    """
    kinds: dict[object, list[int]] = {}
    for place, target in enumerate(targets):
        key = (type(target.mechanism), tuple(target.mechanism.settings().items()))
        kinds.setdefault(key, []).append(place)
    for places in kinds.values():
        some: list[int] = []
        coordinates = 0
        for place in places:
            some.append(place)
            coordinates += targets[place].theta.numel()
            if coordinates >= most:
                yield _stack(targets, some)
                some, coordinates = [], 0
        if some:
            yield _stack(targets, some)


def _stack(targets: Sequence[Target], places: list[int]) -> Stack:
    chosen = [targets[place] for place in places]
    thetas = [checks.finite("theta", target.theta).double().reshape(-1) for target in chosen]
    names = chosen[0].mechanism.parameters()
    columns = {
        name: torch.cat(
            [
                target.mechanism.parameters()[name].double().expand(target.theta.shape).reshape(-1)
                for target in chosen
            ]
        )
        for name in names
    }
    sizes = torch.tensor([theta.numel() for theta in thetas])
    return Stack(
        places=tuple(places),
        mechanism=chosen[0].mechanism.with_parameters(columns),
        theta=torch.cat(thetas),
        move=torch.cat([target.move for target in chosen]),
        owner=torch.arange(len(chosen)).repeat_interleave(sizes),
    )
