"""Flaws that have fooled people, wrong on purpose, each with a target at which the audit must see it."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.noise import Noise
from ringfence.numerics.normal import gauss_legendre
from tests.audit.jobs import audit_job, jobs
from tests.audit.releases import Target, audit_release, printed_claims
from tests.audit.result import AuditResult

_NODES = 64


def wrong_one_sided_claims(target: Target) -> dict[str, float]:
    """WRONG: the paper's accounting, D(theta || theta + c) alone (docs/errata.md, A7).

    A record may push theta down as well as up, and the other direction costs something else.
    """
    orders = checked_orders(DEFAULT_ORDERS)
    curve = target.mechanism.renyi_curve(target.theta, target.move, orders)
    return {"one-sided": float(epsilon_from_rdp(orders, curve.sum(dim=1), target.delta))}


def one_sided_target() -> Target:
    """theta one sigma below the support, and a record that moves it by one sigma.

    At theta the lower end is released most of the time, which is common at theta + c too. Seen from
    theta + c, what is released is often inside of the support, which is rare at theta.
    """
    return Target(RectifiedGaussian(1.0, bound=1.0), torch.tensor([-2.0], dtype=torch.float64), 1.0, 1e-3)


def wrong_sampler_without_tails(mechanism: Mechanism, theta: Tensor, generator: torch.Generator) -> Tensor:
    """WRONG: the truncated law by inverting Phi, which is 1 to the last bit from 8.3 sigma on.

    Every uniform then gives the same quantile: the noise is gone and a constant is released.
    """
    sigma, lower, upper = (value.double() for value in mechanism.parameters().values())
    below, above = (torch.special.ndtr((end - theta) / sigma) for end in (lower, upper))
    uniform = torch.rand(theta.shape, generator=generator, dtype=torch.float64)
    quantile = torch.special.ndtri(below + uniform * (above - below))
    return torch.minimum(torch.maximum(theta + sigma * quantile, lower), upper)


def tail_target() -> Target:
    """theta 9 sigma outside of the support, where a record moves it back to 7."""
    theta = torch.tensor([-10.0], dtype=torch.float64)
    return Target(TruncatedGaussian(1.0, bound=1.0), theta, 2.0, 1e-5)


def wrong_quadrature_claims(target: Target) -> dict[str, float]:
    """WRONG: divergences by Gauss-Legendre over the whole support, however wide.

    On a support of a thousand sigma the nodes lie dozens of sigma apart. The peak falls between two
    of them, the nearest carries all the mass that is left of either law, and the laws look the same.
    """
    orders = checked_orders(DEFAULT_ORDERS)
    lower, upper = (target.mechanism.parameters()[name].double() for name in ("lower", "upper"))
    nodes, weights = gauss_legendre(_NODES, target.theta)
    values = (lower + (upper - lower) * nodes).unsqueeze(1)
    sigma, powers = target.mechanism.sigma.double(), orders.view(-1, 1, 1)

    def masses(theta: Tensor) -> Tensor:
        density = -0.5 * ((values - theta) / sigma).square()
        return torch.log_softmax(weights.log().unsqueeze(1) + density, dim=0)

    sides = []
    for other in (target.theta + target.move, target.theta - target.move):
        ours, theirs = masses(target.theta), masses(other)
        for p, q in ((ours, theirs), (theirs, ours)):
            sums = torch.logsumexp(powers * p + (1 - powers) * q, dim=1)
            sides.append((sums / (orders - 1).unsqueeze(1)).sum(dim=1))
    worst = torch.stack(sides).amax(dim=0)
    return {"quadrature": float(epsilon_from_rdp(orders, worst.clamp(min=0), target.delta))}


def wide_target() -> Target:
    """A support of 2,000 sigma with theta between two nodes of a fixed rule."""
    return Target(TruncatedGaussian(1.0, bound=1000.0), torch.tensor([10.0], dtype=torch.float64), 3.0, 1e-3)


def planted_flaws(generator: torch.Generator, confidence: float) -> tuple[AuditResult, ...]:
    """The audit of four things that are wrong on purpose: none of them may hold."""
    shared: dict[str, Any] = {"trials": 20_000, "generator": generator, "confidence": confidence}
    one_sided = audit_release(one_sided_target(), claims=wrong_one_sided_claims, **shared)
    no_tails = audit_release(
        tail_target(), sampler=wrong_sampler_without_tails, claims=printed_claims, **shared
    )
    peakless = audit_release(wide_target(), claims=wrong_quadrature_claims, **shared)
    noise = Noise(int(torch.randint(2**31, (), generator=generator)))
    half = audit_job(jobs(10_000)[0], noise=noise, confidence=confidence, flawed=0.5)
    return (
        replace(one_sided, name="accounting for one side only"),
        replace(no_tails, name="a sampler without tail noise"),
        replace(peakless, name="quadrature missing the peak"),
        replace(half, name="a table with half of its noise"),
    )
