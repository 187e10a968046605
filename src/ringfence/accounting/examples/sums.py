"""Gradients block by block, each example's four sums, and what holds of them for every theta."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW, square_is_representable

VARIANTS = ("remove_forward", "remove_backward", "add_forward", "add_backward")

EXACT_BLOCK = 1 << 16  # the divergences of an entry need far more room than the entry
_BLOCK = {"cpu": 1 << 18}  # entries converted to float64 at a time: a few MB, near the cache
_BLOCK_ELSEWHERE = 1 << 24

# A bound takes a block of gradients (m, d) and gives the four sums, (4, m, orders), on the CPU.
Bound = Callable[[Tensor], Tensor]


def fits(law: Mechanism, theta: Tensor) -> None:
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
    """The rows of all chunks, checked, some at a time and in float64.

    float64 because sums over many coordinates in float32 would lose digits, and could round down.
    """
    if not isinstance(gradients, Iterable):
        raise TypeError(f"gradients must be a tensor or an iterable of tensors, got {gradients!r}")
    for chunk in [gradients] if hasattr(gradients, "shape") else gradients:
        tensor = checks.finite("gradients", chunk)
        if tensor.dim() != 2 or tensor.shape[1] != width:
            raise ValueError(f"gradients must have shape (m, {width}), got {list(tensor.shape)}")
        entries = length or _BLOCK.get(tensor.device.type, _BLOCK_ELSEWHERE)
        for block in tensor.split(max(1, entries // max(1, width))):
            yield block.double()


def exact_bound(law: Mechanism, theta: Tensor, orders: Tensor) -> Bound:
    """Every entry at every order."""

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
    """Blocks in units of sigma, and what bounds D whatever theta: (alpha / 2) sum_j s_j^2 c_j."""

    def __init__(self, law: Mechanism, theta: Tensor) -> None:
        sigma = law.sigma.double().cpu().expand(theta.shape)
        ceiling = torch.minimum(law.information_bound().cpu() * sigma * sigma, torch.ones_like(sigma))
        self.per_sigma, self.ceiling = 1 / sigma, ceiling.expand(theta.shape)
        # relative rounding of a sum of d products, each with a few more, in float64
        self.rounding = (theta.numel() + 64) * 2.0**-52

    def capped(self, bounds: Tensor, ceilings: Tensor, largest: Tensor, orders: Tensor) -> Tensor:
        """``bounds`` (4, m, orders) or what holds for every theta, whichever is smaller."""
        highest = (0.5 * (1 + ROUNDING + self.rounding)) * ceilings.unsqueeze(1) * orders
        if not bool(torch.isfinite(highest).all()):
            most = float(largest.amax())
            raise FloatingPointError(f"gradients of {most:.3g} sigma are too large to be accounted for")
        lost = (largest > 0).double() * (len(self.ceiling) * UNDERFLOW)
        return torch.minimum(bounds, highest) + lost.unsqueeze(1)
