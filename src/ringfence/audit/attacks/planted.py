"""Three flaws that have fooled people, wrong on purpose, so that the audit is seen to find them.

Nothing here is used by the package. Each flaw comes with a target at which it shows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp
from ringfence.audit.targets import Target
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.numerics.quadrature import gauss_legendre

_NODES = 64


def wrong_one_sided_claims(targets: Sequence[Target]) -> list[dict[str, float]]:
    """WRONG: the paper's accounting, D(theta || theta + c) alone (docs/errata.md, A7).

    A record may push theta down as well as up, and the other direction costs something else.

    >>> [claim] = wrong_one_sided_claims([one_sided_target()])
    >>> round(claim["one-sided"], 3)  # the exact epsilon is 3.14
    0.519
    """
    orders = checked_orders(DEFAULT_ORDERS)
    claims = []
    for target in targets:
        curve = target.mechanism.renyi_curve(target.theta, target.move, orders)
        claims.append({"one-sided": epsilon_from_rdp(orders, curve.sum(dim=1), target.delta)[0]})
    return claims


def one_sided_target() -> Target:
    """theta one sigma below the support, and a record that moves it by one sigma.

    At theta the lower end is released most of the time, which is common at theta + c too. Seen from
    theta + c, what is released is often inside of the support, which is rare at theta.

    >>> one_sided_target().mechanism
    RectifiedGaussian(sigma=1.0, bound=(-1.0, 1.0))
    """
    return Target(RectifiedGaussian(1.0, bound=1.0), torch.tensor([-2.0], dtype=torch.float64), 1.0, 1e-3)


def wrong_sampler_without_tails(mechanism: Mechanism, theta: Tensor, generator: torch.Generator) -> Tensor:
    """WRONG: the truncated law by inverting Phi, which is 1 to the last bit from 8.3 sigma on.

    Every uniform then gives the same quantile: the noise is gone and a constant is released.

    >>> law, theta = TruncatedGaussian(1.0, bound=1.0), torch.full((3,), -10.0).double()
    >>> wrong_sampler_without_tails(law, theta, torch.Generator().manual_seed(0)).tolist()
    [1.0, 1.0, 1.0]
    """
    sigma, lower, upper = (value.double() for value in mechanism.parameters().values())
    below, above = (torch.special.ndtr((end - theta) / sigma) for end in (lower, upper))
    uniform = torch.rand(theta.shape, generator=generator, dtype=torch.float64)
    quantile = torch.special.ndtri(below + uniform * (above - below))
    return torch.minimum(torch.maximum(theta + sigma * quantile, lower), upper)


def tail_target() -> Target:
    """theta 9 sigma outside of the support, where a record moves it back to 7.

    >>> float(tail_target().theta)
    -10.0
    """
    theta = torch.tensor([-10.0], dtype=torch.float64)
    return Target(TruncatedGaussian(1.0, bound=1.0), theta, 2.0, 1e-5)


def wrong_quadrature_claims(targets: Sequence[Target]) -> list[dict[str, float]]:
    """WRONG: divergences by Gauss-Legendre over the whole support, however wide.

    On a support of a thousand sigma the nodes lie dozens of sigma apart. The peak falls between two
    of them, the nearest carries all the mass that is left of either law, and the laws look the same.

    >>> [claim] = wrong_quadrature_claims([wide_target()])
    >>> claim["quadrature"]
    0.0
    """
    orders = checked_orders(DEFAULT_ORDERS)
    claims = []
    for target in targets:
        lower, upper = (
            end.double() for end in (target.mechanism.parameters()[n] for n in ("lower", "upper"))
        )
        nodes, weights = gauss_legendre(_NODES, target.theta)
        values = (lower + (upper - lower) * nodes).unsqueeze(1)
        move = target.move
        sides = []
        for other in (target.theta + move, target.theta - move):
            ours, theirs = (
                torch.log_softmax(weights.log().unsqueeze(1) + _log_density(target, values, place), dim=0)
                for place in (target.theta, other)
            )
            for p, q in ((ours, theirs), (theirs, ours)):
                powers = orders.view(-1, 1, 1)
                sums = torch.logsumexp(powers * p + (1 - powers) * q, dim=1)
                sides.append((sums / (orders - 1).unsqueeze(1)).sum(dim=1))
        worst = torch.stack(sides).amax(dim=0)
        claims.append({"quadrature": epsilon_from_rdp(orders, worst.clamp(min=0), target.delta)[0]})
    return claims


def wide_target() -> Target:
    """A support of 2,000 sigma with theta between two nodes of a fixed rule.

    >>> wide_target().mechanism
    TruncatedGaussian(sigma=1.0, bound=(-1000.0, 1000.0))
    """
    return Target(TruncatedGaussian(1.0, bound=1000.0), torch.tensor([10.0], dtype=torch.float64), 3.0, 1e-3)


def _log_density(target: Target, values: Tensor, theta: Tensor) -> Tensor:
    return -0.5 * ((values - theta) / target.mechanism.sigma.double()).square()
