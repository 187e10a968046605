"""The data-dependent bound of PATE (Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, arXiv
1802.08908), written from the published formulas, for comparisons only.

    python -m benchmarks.pate

compares it with exact divergences of random votes: it must not lie below those from the votes to a neighbour.

Theorem 6: a mechanism satisfies Rényi differential privacy (mu1, eps1) and (mu2, eps2), and on the votes at
hand it gives another answer than the likeliest with a chance of at most q. For orders below mu1
(as in its authors' code) and where q <= exp((mu2 - 1) eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1))^mu2,

    D <= log((1 - q) A^(order - 1) + q B^(order - 1)) / (order - 1),
    A = (1 - q) / (1 - (q exp(eps2))^(1 - 1 / mu2)),   B = exp(eps1) / q^(1 / (mu1 - 1)).

The paper chooses mu2 = sigma sqrt(log(1 / q)) and mu1 = mu2 + 1 for its noisy maximum, whose eps at an
order is order / sigma^2. A Gaussian parameter ``mu`` per query (sqrt(2) / sigma there) makes that mu2 =
sqrt(2 log(1 / q)) / mu.
"""

import math

import torch
from torch import Tensor
from torch.distributions import Dirichlet, Multinomial

import ringfence as rf
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp
from ringfence.accounting.decisions import decision_rdp


def log_q(counts: Tensor, sigma: float) -> Tensor:
    """Proposition 7: a bound on the log chance that the winner is not the candidate with most votes."""
    ordered = counts.double().sort(dim=-1, descending=True).values
    gaps = (ordered[..., :1] - ordered[..., 1:]) / (sigma * math.sqrt(2))
    return torch.logsumexp(torch.special.log_ndtr(-gaps), dim=-1)


def pate_rdp(log_chance: Tensor, mu: float, orders: Tensor) -> Tensor:
    """D of every query, (queries, orders): Theorem 6 where it applies, else what holds for all votes."""
    log_chance = log_chance.double().unsqueeze(1).clamp(max=-1e-300)
    everywhere = orders * mu * mu / 2
    second = (-2 * log_chance).sqrt() / mu
    first = second + 1
    eps1, eps2 = first * mu * mu / 2, second * mu * mu / 2
    inside = (orders < first) & (second > 1) & (-log_chance > eps2)
    limit = (second - 1) * eps2 - second * (torch.log1p(1 / (first - 1)) + torch.log1p(1 / (second - 1)))
    inside &= log_chance <= limit
    rest = torch.log(-torch.expm1(log_chance))  # log(1 - q)
    log_a = rest - torch.log(-torch.expm1((log_chance + eps2) * (1 - 1 / second)))
    log_b = eps1 - log_chance / (first - 1)
    both = torch.logaddexp(rest + (orders - 1) * log_a, log_chance + (orders - 1) * log_b)
    return torch.where(inside, torch.minimum(both / (orders - 1), everywhere), everywhere.expand_as(both))


def pate_epsilon(log_chance: Tensor, mu: float, delta: float) -> float:
    """The epsilon of all queries, by the conversion that everybody else here has too."""
    orders = checked_orders(DEFAULT_ORDERS)
    return epsilon_from_rdp(orders, pate_rdp(log_chance, mu, orders).sum(dim=0), delta)[0]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    orders = checked_orders([1.5, 2, 4, 8, 16, 32, 64])
    ratios = []
    for sigma in (5.0, 12.0, 30.0, 60.0):
        for shares in Dirichlet(torch.full((10,), 0.2)).sample((60,)):
            counts = Multinomial(250, shares).sample().unsqueeze(0)
            bound = pate_rdp(log_q(counts, sigma), math.sqrt(2) / sigma, orders)[0]
            exact = decision_rdp(rf.NoisyWinner(sigma), counts, neighbours="replaced", orders=orders)
            seen = exact.forward > 1e-9  # less is lost in what our account adds for rounding
            ratios.append(torch.stack((bound / exact.forward, bound / exact.backward))[:, seen])
    forward, backward = torch.cat(ratios, dim=1)
    print(
        f"{len(forward):,} divergences; the bound: {forward.median():.2f} times the exact one at the median "
        f"and at least {forward.min():.2f} times; of the divergence from the neighbour to the votes it "
        f"is at least {backward.min():.2f}"
    )
    if forward.min() < 1:
        raise SystemExit("the bound lies below what it bounds")


if __name__ == "__main__":
    main()
