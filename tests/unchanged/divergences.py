"""Sums of divergences, and accounts of them."""

import math

import torch

from ringfence import PerInstanceAccountant, RectifiedGaussian, TruncatedGaussian
from ringfence.accounting.per_instance.block_sums import block_sums
from ringfence.accounting.per_instance.divergence_sums import exact_sums, exact_sums_of_many
from ringfence.accounting.per_instance.divergence_table import DivergenceTable
from ringfence.accounting.per_instance.grid_accountant import GridAccountant
from ringfence.accounting.per_instance.histogram_sums import HistogramSums
from ringfence.accounting.per_instance.rdp import ceilings, per_instance_rdp
from ringfence.accounting.per_instance.setting import Setting
from ringfence.mechanisms.base import Mechanism
from tests.unchanged.cases import DELTAS, ORDERS, Values, claims, even, laws, over, vector


@over(laws())
def divergence_sums(law: Mechanism) -> Values:
    found: Values = {}
    for name, theta, move in (
        ("inside", even(500, -1, 1), 1e-3),
        ("outside", even(500, -6, 6), 0.1),
        ("large", even(300, -2, 2), 1.5),
        ("float32", even(300, -2, 2).float(), 0.02),
        ("wide", torch.cat((even(300, -3, 3), even(40, -400, 400))), 0.01),
    ):
        table = HistogramSums(Setting.of(law, move), ORDERS)
        found[name] = table.sums(theta)
        found[f"{name} again"] = table.sums(theta[:200])  # at little more cost
        found[f"exact {name}"] = exact_sums(law, theta[:50], torch.tensor(move), ORDERS)
    return found


@over(["near", "far", "exact"])
def divergence_pages(where: str) -> Values:
    releases = [Setting.of(law, move) for law in laws() for move in (1e-3, 0.3)]
    theta = even(10 * 300, -3, 3).reshape(10, 300)
    if where == "exact":
        return {"sums": exact_sums_of_many(releases, theta[:, :7], ORDERS)}
    if where == "far":
        theta[3, 0], theta[4] = 300.0, theta[4] + 2e6
    return {"sums": block_sums(DivergenceTable(ORDERS), releases, theta)}


@over(["one law", "two sigmas", "two moves", "many moves", "no move"])
def per_instance(name: str) -> Values:
    theta = even(600, -2, 2)
    law: Mechanism = RectifiedGaussian(0.5, bound=1.0)
    move = vector(0.01)
    match name:
        case "one law":
            law = TruncatedGaussian(0.5, bound=1.0)
        case "two sigmas":
            law = RectifiedGaussian(torch.where(theta > 0, 0.5, 0.8), bound=1.0)
        case "two moves":
            move = 0.01 * (1 + (theta > 0.3))
        case "many moves":
            move = even(600, 0.0, 0.02)
        case "no move":
            move = vector(0.0)
    both = [per_instance_rdp(law, theta, move, ORDERS, exact=exact) for exact in (False, True)]
    return {
        "sums": [[rdp.forward, rdp.backward, rdp.worst] for rdp in both],
        "ceilings": ceilings(law, theta, move),
    }


@over(laws())
def per_instance_guarantee(law: Mechanism) -> Values:
    account = PerInstanceAccountant(law, 0.01)
    account.step(even(300, -1, 1))
    account.step(even(20, -4, 1), count=3, sensitivity=0.05)
    account.step(even(20, -1, 1), mechanism=RectifiedGaussian(2.0, bound=(-1.0, math.inf)), exact=True)
    return {"claims": [claims(account.guarantee(delta)) for delta in DELTAS]}


@over([7, 300])
def grid_accounts(width: int) -> Values:
    sigma = torch.where(even(width) > 0.5, 0.5, 0.8)
    grid = GridAccountant(
        [*laws(), RectifiedGaussian(sigma, bound=1.0)], [0.01, 0.02, 0.01, 0.03, 0.01, 0.02], [width]
    )
    for start, count in ((0.1, 6), (0.2, 6), (0.7, 4)):
        grid.step(even(count * width, -2, 2, start).reshape(count, width))
    return {"claims": [claims(account.guarantee(1e-5)) for account in grid.accounts()]}
