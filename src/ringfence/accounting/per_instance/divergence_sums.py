"""Sums over coordinates of the worse-sign divergence, every coordinate evaluated.

    forward[a]  = sum_j max over s = +-c_j of D_a(M(theta_j) || M(theta_j + s))
    backward[a] = sum_j max over s = +-c_j of D_a(M(theta_j + s) || M(theta_j))

``histogram_sums`` and ``block_sums`` bound the same sums from above by tabulated values.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ringfence.accounting.per_instance.setting import Setting, stacked
from ringfence.accounting.per_instance.translation import from_nearer_end
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_TOGETHER = 1 << 22  # coordinates times orders whose divergences are held at once


def exact_sums(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor) -> Tensor:
    """Rows forward and backward, one column per order, every coordinate evaluated in float64.

    Guarantee: rounding and underflow are added, so that the sums are upper bounds.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> orders = torch.tensor([2.0, 8.0], dtype=torch.float64)
    >>> exact_sums(Gaussian(1.0), torch.zeros(3), torch.tensor(1.0), orders).round(decimals=6).tolist()
    [[3.0, 12.0], [3.0, 12.0]]
    """
    mechanism, theta = from_nearer_end(mechanism, theta.double())
    sensitivity = sensitivity.to(theta.device).double()
    columns = []
    for some in orders.split(at_once(_TOGETHER, each=theta.numel())):
        worst = [_worse_sign(mechanism, theta, sensitivity, some, backward) for backward in (False, True)]
        columns.append(torch.stack([values.reshape(len(some), -1).sum(dim=1) for values in worst]).cpu())
    return torch.cat(columns, dim=1) * (1 + ROUNDING) + theta.numel() * UNDERFLOW


def exact_sums_of_many(settings: Sequence[Setting], theta: Tensor, orders: Tensor) -> Tensor:
    """``exact_sums`` of several settings, one row of theta each: (settings, 2, orders) on theta's device.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> settings = [Setting.of(Gaussian(sigma), 1.0) for sigma in (1.0, 2.0)]
    >>> sums = exact_sums_of_many(settings, torch.zeros(2, 3), torch.tensor([2.0], dtype=torch.float64))
    >>> [round(value, 6) for value in sums[:, 0, 0].tolist()]
    [3.0, 0.75]
    """
    theta = theta.flatten(1).double()
    result = theta.new_empty(len(settings), 2, len(orders))
    kinds: dict[Hashable, list[int]] = {}
    for i, setting in enumerate(settings):
        kinds.setdefault(setting.kind, []).append(i)
    for members in kinds.values():
        law = stacked([settings[i].mechanism for i in members], 1)
        size = theta.new_tensor([[settings[i].sensitivity] for i in members])
        worst = both_directions(law, theta[members], size, orders)
        result[members] = worst.sum(dim=3).permute(2, 0, 1)
    return result * (1 + ROUNDING) + theta.shape[1] * UNDERFLOW


def both_directions(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor) -> Tensor:
    """``worse_sign`` forward and backward: (2, orders, shape of theta).

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> order = torch.tensor([2.0], dtype=torch.float64)
    >>> both_directions(Gaussian(1.0), torch.zeros(5), torch.tensor(1.0), order).shape
    torch.Size([2, 1, 5])
    """
    mechanism, theta = from_nearer_end(mechanism, theta)
    return torch.stack(
        [_worse_sign(mechanism, theta, sensitivity, orders, backward) for backward in (False, True)]
    )


def worse_sign(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor, backward: bool
) -> Tensor:
    """max over s = +-c of D(theta || theta + s), or of D(theta + s || theta): one row per order.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> theta, size, order = (torch.tensor(x).double() for x in ([-1.0, 1.0], 0.5, [2.0]))
    >>> worst = worse_sign(StochasticSign(1.0), theta, size, order, backward=False)
    >>> [round(value, 3) for value in worst[0].tolist()]
    [0.127, 0.127]
    """
    mechanism, theta = from_nearer_end(mechanism, theta)
    return _worse_sign(mechanism, theta, sensitivity, orders, backward)


def _worse_sign(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor, backward: bool
) -> Tensor:
    """theta is measured from the nearer end already, because theta + s is rounded."""
    values = [
        mechanism.renyi_curve(theta + s, -s, orders) if backward else mechanism.renyi_curve(theta, s, orders)
        for s in (sensitivity, -sensitivity)
    ]
    return torch.maximum(*values)
