"""The data-dependent bound of PATE (Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, arXiv
1802.08908), written from the published formulas, for comparisons only.

    python -m benchmarks.pate
    python -m benchmarks.pate --votes FILE.npy [--queries 640 --threshold 200 --threshold-sigma 150]
        [--sigma 40 --delta 1e-5] [--chart FOLDER]

The first compares it with exact divergences of random votes: it must not lie below those from the votes to a
neighbour. The second accounts for the confident aggregation of recorded votes (counts, one row per query), by
PATE's bound and by ours, and exits with an error where ours is not below.

Theorem 6: a mechanism satisfies Rényi differential privacy (mu1, eps1) and (mu2, eps2), and on the votes at
hand it gives another answer than the likeliest with a chance of at most q. For orders below mu1
(as in its authors' code) and where q <= exp((mu2 - 1) eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1))^mu2,

    D <= log((1 - q) A^(order - 1) + q B^(order - 1)) / (order - 1),
    A = (1 - q) / (1 - (q exp(eps2))^(1 - 1 / mu2)),   B = exp(eps1) / q^(1 / (mu1 - 1)).

The paper chooses mu2 = sigma sqrt(log(1 / q)) and mu1 = mu2 + 1 for its noisy maximum, whose eps at an
order is order / sigma^2. A Gaussian parameter ``mu`` per query (sqrt(2) / sigma there) makes that mu2 =
sqrt(2 log(1 / q)) / mu.

A confident query costs the threshold question and, with the chance that there is an answer, the winner: the
sum is the mean of PATE's account over its answers. The authors publish it with Gaussian noise whose deviation
is sigma_ss times its smooth sensitivity, max over d of e^(-beta d) (local sensitivity d voters away).
"""

import argparse
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, median, quantiles

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Dirichlet, Multinomial

import ringfence as rf
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.accounting.decisions import decision_profile, decision_rdp
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import save_chart

# those of the authors' account: halves up to 100, and a hundred more up to 500
AUTHORS_ORDERS = torch.cat(
    (torch.arange(2, 100.5, 0.5), torch.logspace(2, math.log10(500), 100, dtype=torch.float64))
)
FAILURE = 1e-3  # the chance that a published number is too small, which is the default of ours
DRAWS, POINTS = 9, 16
PATE, PATE_PUBLISHED = "PATE 2018", "PATE 2018, published by smooth sensitivity"
RENYI, TIGHT, PUBLISHED = "ringfence, Rényi", "ringfence, tight", f"ringfence, published (median of {DRAWS})"
TODAY, EVERYBODY = "PATE 2018, today's conversion", "data-independent"


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
    rest = torch.log1p(-log_chance.exp())
    log_a = rest - torch.log1p(-torch.exp((log_chance + eps2) * (1 - 1 / second)))
    log_b = eps1 - log_chance / (first - 1)
    # of the sum only what exceeds 1: the smallest divergences keep their digits
    excess = torch.expm1(rest + (orders - 1) * log_a) + torch.exp(log_chance + (orders - 1) * log_b)
    bound = torch.log1p(excess) / (orders - 1)
    return torch.where(inside, torch.minimum(bound, everywhere), everywhere.expand_as(bound))


def pate_epsilon(log_chance: Tensor, mu: float, delta: float) -> float:
    """The epsilon of all queries, by the conversion that everybody else here has too."""
    orders = checked_orders(DEFAULT_ORDERS)
    return float(epsilon_from_rdp(orders, pate_rdp(log_chance, mu, orders).sum(dim=0), delta))


def chance_of_answer(law: rf.ConfidentWinner, counts: Tensor) -> Tensor:
    return torch.special.ndtr((counts.amax(dim=1) - law.threshold) / law.threshold_sigma)


def confident_rdp(law: rf.ConfidentWinner, counts: Tensor, orders: Tensor) -> Tensor:
    """D of every query of the confident aggregation, (queries, orders), the mean over its answers."""
    edge = (counts.amax(dim=1) - law.threshold) / law.threshold_sigma
    threshold = pate_rdp(torch.special.log_ndtr(-edge.abs()), 1 / law.threshold_sigma, orders)
    winner = pate_rdp(log_q(counts, law.sigma), math.sqrt(2) / law.sigma, orders)
    return threshold + chance_of_answer(law, counts).unsqueeze(1) * winner


def authors_epsilon(rdp: Tensor, delta: float) -> tuple[float, float]:
    """Epsilon by the authors' conversion, and its order."""
    epsilons = rdp - math.log(delta) / (AUTHORS_ORDERS - 1)
    best = int(epsilons.argmin())
    return float(epsilons[best]), float(AUTHORS_ORDERS[best])


def local_sensitivities(counts: Tensor, sigma: float, order: float) -> Tensor:
    """How far one voter can move the bound of a noisy maximum, d = 0, 1, ... voters away: (queries, voters).

    A voter moves t, where q = (candidates - 1) Phi(-t), by at most mu. The bound grows with q, up to a q0
    beyond which it is data-independent. The sensitivity is largest where a voter reaches q0 from below, at
    q1 <= q <= q0, and falls to both sides (for q < q1 this is checked). So it is taken at the q nearest to
    that stretch among those that d voters reach, who move votes between the first two candidates.
    """
    mu, everywhere, others = math.sqrt(2) / sigma, order / sigma**2, counts.shape[1] - 1
    orders = torch.tensor([order], dtype=torch.float64)

    def moved(log_chance: Tensor, by: float) -> Tensor:
        t = -torch.special.ndtri(log_chance.exp() / others)
        return (torch.special.log_ndtr(-t - by) + math.log(others)).clamp(max=0)

    def applies(log_chance: float) -> bool:
        bound = pate_rdp(torch.tensor([log_chance], dtype=torch.float64), mu, orders)
        return bool(bound < everywhere * (1 - 1e-12))

    low, high = -700.0, -((order / sigma) ** 2)  # where mu2 is the order
    if applies(high):
        low = high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if applies(middle) else (low, middle)
    q0 = torch.tensor([low], dtype=torch.float64)
    q1 = moved(q0, mu)

    def bound(log_chance: Tensor) -> Tensor:
        return torch.where(log_chance <= q0, pate_rdp(log_chance, mu, orders)[:, 0], everywhere)

    def local(log_chance: Tensor) -> Tensor:
        here = bound(log_chance)
        return torch.maximum(bound(moved(log_chance, -mu)) - here, here - bound(moved(log_chance, mu)))

    surest = log_q(torch.tensor([int(counts[0].sum()), *[0] * others]), sigma)
    if (local(torch.linspace(float(surest), float(q1), 1000, dtype=torch.float64)).diff() < 0).any():
        raise SystemExit(f"at order {order:g} the local sensitivity does not grow with q: nothing is known")

    def shifted(rows: Tensor, allowed: Tensor, by: int) -> Tensor:
        move = by * allowed.double()
        first, second, *rest = rows.unbind(dim=1)
        return torch.stack((first + move, second - move, *rest), dim=1).sort(dim=1, descending=True).values

    towards = away = counts.double().sort(dim=1, descending=True).values
    found = []
    for _ in range(int(counts[0].sum())):
        highest, lowest = (log_q(rows, sigma).clamp(max=0) for rows in (towards, away))
        outside = torch.where(highest < q1, local(highest), local(lowest))
        found.append(torch.where((highest < q1) | (lowest > q0), outside, everywhere - bound(q1)))
        towards = shifted(towards, towards[:, 0] - towards[:, 1] >= 2, -1)
        away = shifted(away, away[:, 1] > 0, 1)
    return torch.stack(found, dim=1)


def authors_price(order: float, beta: float, sigma: float) -> float:
    """Rényi divergence of a number published by smooth sensitivity, as the paper has it (Theorem 23)."""
    width = -math.log1p(-2 * order * beta) / 2 + beta * order
    return order * math.exp(2 * beta) / sigma**2 + width / (order - 1)


def exact_price(order: float, beta: float, sigma: float) -> float:
    """That of two normal laws whose deviations, sigma times a sensitivity, differ by a factor of e^beta.

    Their means differ by at most the smaller sensitivity, because each bounds the same difference.
    """
    found = []
    for ratio in (math.exp(-beta), math.exp(beta)):
        mixed = order * ratio**2 + 1 - order
        if mixed <= 0:
            return math.inf
        shift = order * min(1.0, ratio) ** 2 / (2 * sigma**2 * mixed)
        found.append(math.log(ratio) + math.log(ratio**2 / mixed) / (2 * (order - 1)) + shift)
    return max(found)


def spent_and_sensitivities(
    law: rf.ConfidentWinner, counts: Tensor, order: float
) -> tuple[float, Callable[[float], float]]:
    """The Rényi sum of all queries, and its smooth sensitivity as a function of beta.

    As in the authors' code the chance of an answer counts as fixed.
    """
    orders = torch.tensor([order], dtype=torch.float64)
    tops = torch.arange(int(counts[0].sum()) + 1)
    edge = -((tops - law.threshold) / law.threshold_sigma).abs().double()
    threshold = pate_rdp(torch.special.log_ndtr(edge), 1 / law.threshold_sigma, orders)
    if threshold.min() < threshold.max():
        raise SystemExit("the threshold question has a local sensitivity, which is not computed here")
    rows, repeats = counts.sort(dim=1, descending=True).values.unique(dim=0, return_counts=True)
    sums = (repeats * chance_of_answer(law, rows)) @ local_sensitivities(rows, law.sigma, order)
    away = torch.arange(len(sums), dtype=torch.float64)
    spent = float(confident_rdp(law, counts, orders).sum())
    return spent, lambda beta: float((sums * torch.exp(-beta * away)).max())


def authors_release(law: rf.ConfidentWinner, counts: Tensor, order: float) -> tuple[float, float, float]:
    """What the authors publish: the Rényi sum with the price of publishing it, its deviation, the exact sum.

    beta and sigma_ss minimise the sum and two deviations. That looks at the votes, as the authors say, so
    neither may be published. The exact sum has the exact price at the same settings.
    """
    spent, smooth = spent_and_sensitivities(law, counts, order)
    best = (math.inf, math.inf, math.inf, math.inf)
    for share in torch.arange(0.3, 0.495, 0.01).tolist():
        beta = share / order
        sigma = (order * math.exp(2 * beta) / smooth(beta)) ** (1 / 3)
        total, deviation = spent + authors_price(order, beta, sigma), smooth(beta) * sigma
        best = min(best, (total + 2 * deviation, total, deviation, spent + exact_price(order, beta, sigma)))
    return best[1:]


def authors_upper_bound(law: rf.ConfidentWinner, counts: Tensor, delta: float) -> float:
    """Epsilon of the same release as an upper bound: priced exactly, with a margin, by today's conversion.

    Order, beta and sigma_ss are the best ones for these votes, which is more than anybody could know.
    """
    margin, found = NormalDist().inv_cdf(1 - FAILURE), []
    for order in (4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24):
        spent, smooth = spent_and_sensitivities(law, counts, order)
        sums = [
            spent + exact_price(order, share / order, sigma) + margin * smooth(share / order) * sigma
            for share in torch.arange(0.02, 0.495, 0.02).tolist()
            for sigma in torch.logspace(0, 3, 61).tolist()
        ]
        orders, rdp = torch.tensor([[order], [min(sums)]], dtype=torch.float64)
        found.append(float(epsilon_from_rdp(orders, rdp, delta)))
    return min(found)


def check_local_sensitivities() -> None:
    """Values of the authors' code at counts [10, 0, 0], sigma 0.5, order 1.5."""
    expected = torch.tensor(
        [3.13503646e-17, 1.60178280e-08, 5.90681786e-03, *[5.99981308] * 7], dtype=torch.float64
    )
    found = local_sensitivities(torch.tensor([[10, 0, 0]]), 0.5, 1.5)[0]
    if not torch.allclose(found, expected, rtol=1e-8, atol=0):
        raise SystemExit(f"local sensitivities must be {expected.tolist()}, got {found.tolist()}")


def compare_random_votes() -> None:
    torch.manual_seed(0)
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
        f"and at least {forward.min():.2f} times; of the divergence from the neighbour to the votes it is at "
        f"least {backward.min():.2f}, and below it in {int((backward < 1).sum())} cases"
    )
    if forward.min() < 1:
        raise SystemExit("the bound lies below what it bounds")


def measured(law: rf.ConfidentWinner, counts: Tensor, delta: float) -> dict[str, float]:
    """Every account of these votes: Rényi sums, sensitive epsilons, and those that may be published."""
    account = rf.DecisionAccountant(law, neighbours="replaced")
    account.step(counts)
    claim = account.guarantee(delta)
    rdp = confident_rdp(law, counts, AUTHORS_ORDERS).sum(dim=0)
    theirs, order = authors_epsilon(rdp, delta)
    total, deviation, exact = authors_release(law, counts, order)
    converted = -math.log(delta) / (order - 1)
    drawn = [
        publishable_decision_epsilon(
            law, counts, neighbours="replaced", delta=delta, failure_probability=FAILURE
        ).per_instance_epsilon
        for _ in range(DRAWS)
    ]
    fifth, *_, last = quantiles(drawn, n=20, method="inclusive")
    one = torch.tensor([order], dtype=torch.float64)
    exactly = decision_rdp(law, counts, neighbours="replaced", orders=one)
    return {
        f"Rényi sum at order {order:g}, PATE 2018": float(confident_rdp(law, counts, one).sum()),
        "  exactly, from these votes to a neighbour": float(exactly.forward),
        "  exactly, from a neighbour to these votes": float(exactly.backward),
        PATE: theirs,
        TODAY: float(epsilon_from_rdp(AUTHORS_ORDERS, rdp, delta)),
        "ringfence, ex-post (queries may depend on answers)": claim.per_instance.ex_post_epsilon,
        RENYI: claim.per_instance.renyi_epsilon,
        TIGHT: decision_profile(law, counts, neighbours="replaced").epsilon(delta),
        PATE_PUBLISHED: total + converted,
        "  where the noise has the deviation": deviation,
        "  at the same settings, priced exactly": exact + converted,
        f"PATE 2018, published, an upper bound but for {FAILURE:g}": authors_upper_bound(law, counts, delta),
        PUBLISHED: median(drawn),
        "  5 % of the draws are below": fifth,
        "  95 % of the draws are below": last,
        EVERYBODY: claim.epsilon,
    }


def chart(law: rf.ConfidentWinner, counts: Tensor, delta: float, found: dict[str, float]) -> Chart:
    """Epsilon after each query."""
    account = rf.DecisionAccountant(law, neighbours="replaced")
    theirs = confident_rdp(law, counts, AUTHORS_ORDERS).cumsum(dim=0)
    ends = [len(counts) * point // POINTS for point in range(1, POINTS + 1)]
    curves: dict[str, list[float]] = {EVERYBODY: [], PATE: [], RENYI: [], TIGHT: []}
    for start, end in pairwise([0, *ends]):
        account.step(counts[start:end])
        claim = account.guarantee(delta)
        curves[EVERYBODY].append(claim.epsilon)
        curves[PATE].append(authors_epsilon(theirs[end - 1], delta)[0])
        curves[RENYI].append(claim.per_instance.renyi_epsilon)
        profile = decision_profile(law, counts[:end], neighbours="replaced")
        curves[TIGHT].append(profile.epsilon(delta))
    x = tuple(float(end) for end in ends)
    lines = [
        Line(
            name if name == EVERYBODY else f"{name}, sensitive",
            x,
            tuple(y),
            mechanism="Gaussian" if name == EVERYBODY else None,
            dashed=name == RENYI,
        )
        for name, y in curves.items()
    ]
    points = [Line(name, x[-1:], (found[name],), points=True) for name in (PATE_PUBLISHED, PUBLISHED)]
    title, caption = "PATE, query by query", "Epsilon after each query, on the same votes."
    panel = Panel("", "queries", f"ε at δ = {delta:g}", (*lines, *points), y_from_zero=True)
    return Chart("pate", title, caption, (panel,), columns=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--votes", type=Path)
    parser.add_argument("--queries", type=int, default=640)
    parser.add_argument("--threshold", type=float, default=200.0)
    parser.add_argument("--threshold-sigma", type=float, default=150.0)
    parser.add_argument("--sigma", type=float, default=40.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--chart", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    check_local_sensitivities()
    if arguments.votes is None:
        compare_random_votes()
        return
    law = rf.ConfidentWinner(arguments.sigma, arguments.threshold, arguments.threshold_sigma)
    counts = torch.from_numpy(np.load(arguments.votes)[: arguments.queries]).double()
    answers = float(chance_of_answer(law, counts).sum())
    print(f"{len(counts):,} queries, {answers:.1f} answers expected, {law}, delta {arguments.delta:g}")
    found = measured(law, counts, arguments.delta)
    for name, epsilon in found.items():
        print(f"{name:52} {epsilon:.4f}")
    if arguments.chart:
        print(*save_chart(chart(law, counts, arguments.delta, found), arguments.chart), sep="\n")
    if not found[TIGHT] <= found[RENYI] < min(found[PATE], found[TODAY]):
        raise SystemExit("the per-instance numbers are not below PATE's")
    if not found[PUBLISHED] < found[PATE_PUBLISHED]:
        raise SystemExit("the publishable number is not below what PATE publishes")


if __name__ == "__main__":
    main()
