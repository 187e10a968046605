"""Gradients block by block, the four sums of each example, and their upper bound over all theta."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW, square_is_representable

VARIANTS = ("remove_forward", "remove_backward", "add_forward", "add_backward")

EXACT_BLOCK = 1 << 16  # entries evaluated at a time: their divergences need far more room than they do
_BLOCK = {"cpu": 1 << 18}  # entries converted to float64 at a time: a few MB, which the cache nearly holds
_BLOCK_ELSEWHERE = 1 << 24

# A bound is a function from a block of gradients, (m, d), to the four sums, (4, m, orders), on the CPU.
Bound = Callable[[Tensor], Tensor]


def fits(law: Mechanism, theta: Tensor) -> None:
    """Raises an error unless theta is a vector that the law and the accounts of examples can handle.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> fits(Gaussian(1.0), torch.zeros(2, 2))
    Traceback (most recent call last):
    ValueError: theta must have shape (d,) with d > 0, got [2, 2]
    """
    if theta.dim() != 1 or theta.numel() == 0:
        raise ValueError(f"theta must have shape (d,) with d > 0, got {list(theta.shape)}")
    parameters = law.parameters()
    checks.require(
        "sigma",
        "must be in [1e-140, 1e140] for single examples",
        law.sigma,
        square_is_representable(law.sigma),
    )
    shape = checks.broadcast(("theta", *parameters), (theta, *parameters.values()))
    if shape != theta.shape:
        raise ValueError(f"theta has shape {list(theta.shape)}, but with the parameters {list(shape)}")
    near = (theta.double() / law.sigma.to(theta.device)).abs() <= 1e100
    checks.require("theta", "must be within 1e100 sigma of 0 for single examples", theta, near)


def checked_blocks(gradients: Tensor | Iterable[Tensor], width: int, length: int | None) -> Iterator[Tensor]:
    """The rows of all chunks, checked, in float64 and a limited number at a time.

    They are float64 because sums over many coordinates in float32 would lose digits and could round down.

    >>> [list(block.shape) for block in checked_blocks(torch.zeros(5, 2), width=2, length=4)]
    [[2, 2], [2, 2], [1, 2]]
    """
    if not isinstance(gradients, Iterable):
        raise TypeError(f"gradients must be a tensor or an iterable of tensors, got {gradients!r}")
    one = hasattr(gradients, "shape") or (isinstance(gradients, list | tuple) and not _chunks(gradients))
    for chunk in [gradients] if one else gradients:
        tensor = checks.finite("gradients", chunk)
        if tensor.dim() != 2 or tensor.shape[1] != width:
            raise ValueError(f"gradients must have shape (m, {width}), got {list(tensor.shape)}")
        entries = length or _BLOCK.get(tensor.device.type, _BLOCK_ELSEWHERE)
        for block in tensor.split(at_once(entries, each=width)):
            yield block.double()


def _chunks(gradients: Sequence[object]) -> bool:
    """Whether a list has chunks of rows, and is not one chunk written as a list of rows."""
    return all(hasattr(chunk, "shape") for chunk in gradients)


def exact_bound(law: Mechanism, theta: Tensor, orders: Tensor) -> Bound:
    """The four sums with every entry evaluated at every order.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> sums = exact_bound(Gaussian(1.0), torch.zeros(2).double(), torch.tensor([2.0]).double())
    >>> round(float(sums(torch.ones(1, 2).double())[0]), 6)
    2.0
    """

    def sums(block: Tensor) -> Tensor:
        where = theta.to(block.device)
        columns = []
        for alpha in orders.tolist():
            variants = (
                law.renyi_divergence(where, -block, alpha),
                law.renyi_divergence(where - block, block, alpha),
                law.renyi_divergence(where, block, alpha),
                law.renyi_divergence(where + block, -block, alpha),
            )
            columns.append(torch.stack([values.sum(dim=1) for values in variants]))
        present = (block != 0).any(dim=1).unsqueeze(1)
        result = torch.stack(columns, dim=2)
        return torch.where(present, result * (1 + ROUNDING) + block.shape[1] * UNDERFLOW, result).cpu()

    return sums


class InUnits:
    """Units of sigma, and the upper bound of D over all theta: (alpha / 2) sum_j s_j^2 c_j.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> units = InUnits(Gaussian(2.0), torch.zeros(3).double())
    >>> units.per_sigma.tolist(), units.ceiling.tolist()
    ([0.5, 0.5, 0.5], [1.0, 1.0, 1.0])
    """

    def __init__(self, law: Mechanism, theta: Tensor) -> None:
        sigma = law.sigma.double().cpu().expand(theta.shape)
        ceiling = torch.minimum(law.information_bound().cpu() * sigma * sigma, torch.ones_like(sigma))
        self.per_sigma, self.ceiling = 1 / sigma, ceiling.expand(theta.shape)
        # the relative rounding of a sum of d products in float64, each with a few roundings of its own
        self.rounding = (theta.numel() + 64) * 2.0**-52

    def capped(self, bounds: Tensor, ceilings: Tensor, largest: Tensor, orders: Tensor) -> Tensor:
        """The smaller of ``bounds``, (4, m, orders), and the upper bound over all theta."""
        highest = (0.5 * (1 + ROUNDING + self.rounding)) * ceilings.unsqueeze(1) * orders
        if not bool(torch.isfinite(highest).all()):
            most = float(largest.amax())
            raise FloatingPointError(f"gradients of {most:.3g} sigma are too large to be accounted for")
        lost = (largest > 0).double() * (len(self.ceiling) * UNDERFLOW)
        return torch.minimum(bounds, highest) + lost.unsqueeze(1)
