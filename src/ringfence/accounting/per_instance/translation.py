"""Where the support is far from 0, theta and its ends are measured from the nearer end instead.

A divergence depends on where theta lies between the ends of the support and not on where all three lie.
At theta = 1e13 sigma float64 holds theta + shift only to 1e-3 sigma, and D(theta + shift || theta) and every
table in theta would be evaluated there. The differences between theta and an end are exact.
"""

import torch
from torch import Tensor

from ringfence.mechanisms.base import Mechanism

_NEAR = 256.0  # sigma; nearer to 0 the rounding of theta + shift is below what accounts charge for rounding


def from_nearer_end(law: Mechanism, theta: Tensor) -> tuple[Mechanism, Tensor]:
    """A law and a theta with the same divergences, measured from the nearer end if that is far from 0.

        D(theta, shift; [lower, upper]) = D(theta - a, shift; [lower - a, upper - a])

    A coordinate is moved only where it lies within half its size of that end: such a difference is exact.
    Where coordinates lie near different ends, the law that comes back has its own ends for each coordinate.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> far = TruncatedGaussian(1.0, bound=(1e13, 1e13 + 2))
    >>> from_nearer_end(far, torch.tensor([1e13 + 0.5], dtype=torch.float64))
    (TruncatedGaussian(sigma=1.0, bound=(0.0, 2.0)), tensor([0.5000], dtype=torch.float64))
    """
    parameters = law.parameters()
    if "lower" not in parameters or not theta.numel():
        return law, theta
    # parameters are looked at where they are: on a GPU every question about a number waits for the device
    sigma, lower, upper = (parameters[name].double() for name in ("sigma", "lower", "upper"))
    if not any(bool(((end.abs() > _NEAR * sigma) & torch.isfinite(end)).any()) for end in (lower, upper)):
        return law, theta
    sigma, lower, upper, theta = (value.to(theta.device) for value in (sigma, lower, upper, theta.double()))
    near = _NEAR * sigma
    nearer = torch.where((theta - lower).abs() <= (theta - upper).abs(), lower, upper)
    # only where theta is closer to that end than to 0: then the difference is exact, and a theta near 0,
    # where a quantised law may have a cut, keeps its digits
    closer = (theta - nearer).abs() <= theta.abs() / 2
    anchor = torch.where((nearer.abs() > near) & closer, nearer, 0.0)
    if bool((anchor == anchor.reshape(-1)[0]).all()):
        anchor = anchor.reshape(-1)[0]  # a law with single numbers keeps them
    ends = {"lower": lower - anchor, "upper": upper - anchor}
    return law.with_parameters({**parameters, **ends}), theta - anchor
