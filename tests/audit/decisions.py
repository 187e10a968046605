"""Attacks on decisions: do the announced winners tell how one voter voted?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp
from ringfence.auditing.bounds import epsilon_lower_bound
from ringfence.mechanisms import pieces
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.winner import ConfidentWinner, GumbelWinner, NoisyWinner
from ringfence.releases.decisions import release_winners
from ringfence.releases.pate import Pate
from tests.audit.result import AuditResult

_DELTAS = (1e-5, 1e-3, 1e-2, 0.1)
_HALVINGS = 60


@dataclass(frozen=True)
class DecisionTarget:
    """One decision about a row of counts, which a voter moves by ``move``."""

    decision: Decision
    counts: Tensor
    move: Tensor
    delta: float

    @property
    def name(self) -> str:
        """The law and its size, for the tables of an audit."""
        return f"{self.decision!r}, {len(self.counts)} candidates"

    @property
    def claims(self) -> dict[str, float]:
        """The epsilons at delta of the worse direction: exact, and from the divergences of the law."""
        ends = ((self.counts, self.move), (self.counts + self.move, -self.move))
        log_p, rho = (
            torch.stack(parts, dim=1)
            for parts in zip(*(self.decision.pair(*end) for end in ends), strict=True)
        )
        low, high = 0.0, float(rho.amax())
        if float(pieces.hockey_stick(log_p, rho, torch.zeros(()).double()).amax()) <= self.delta:
            high = 0.0
        for _ in range(_HALVINGS):
            middle = torch.tensor(0.5 * (low + high), dtype=torch.float64)
            beyond = float(pieces.hockey_stick(log_p, rho, middle).amax()) > self.delta
            low, high = (float(middle), high) if beyond else (low, float(middle))
        orders = checked_orders(DEFAULT_ORDERS)
        divergence = pieces.renyi(log_p.unsqueeze(2), rho.unsqueeze(2), orders).amax(dim=0)
        return {"exact": high, "Rényi": float(epsilon_from_rdp(orders, divergence, self.delta))}


def random_decisions(count: int, generator: torch.Generator) -> list[DecisionTarget]:
    """Noisy, confident and Gumbel winners in turn: 2 to 12 candidates, one voter replaced."""
    return [_random(index, generator) for index in range(checks.count("count", count, at_least=0))]


def _random(index: int, generator: torch.Generator) -> DecisionTarget:
    def between(low: float, high: float) -> float:
        return low * math.exp(float(torch.rand((), generator=generator)) * math.log(high / low))

    sigma = between(0.25, 4.0)
    candidates = int(between(2.0, 12.99))
    spread = between(0.2, 4.0) * sigma
    counts = (spread * torch.randn(candidates, generator=generator, dtype=torch.float64)).round()
    down, up = torch.randperm(candidates, generator=generator)[:2].tolist()
    move = torch.zeros_like(counts)
    move[down], move[up] = -1.0, 1.0
    delta = _DELTAS[int(torch.randint(len(_DELTAS), (), generator=generator))]
    decision: Decision = NoisyWinner(sigma)
    if index % 3 == 2:
        decision = GumbelWinner(sigma)
    if index % 3 == 1:
        threshold = float(counts.amax()) + between(0.2, 2.0) * sigma
        decision = ConfidentWinner(sigma, threshold=threshold, threshold_sigma=between(0.25, 4.0))
    return DecisionTarget(decision, counts, move, delta)


def audit_decisions(
    targets: Sequence[DecisionTarget], *, trials: int, generator: torch.Generator, confidence: float
) -> list[AuditResult]:
    """Attacks each decision with likelihood ratios; ``confidence`` is about all of them together.

    The outcomes are drawn by the law's own sampler, at the counts and at the moved counts. The statistic is
    log P/Q of the outcome, the best one there is, and its negative, in both directions.

    Guarantee: where every claim is right, one or more ``holds`` are False with probability at most
    1 - ``confidence``.
    """
    checks.count("trials", trials, at_least=2)
    each = 1 - (1 - checks.probability("confidence", confidence)) / max(1, len(targets))
    results = []
    for target in targets:
        loss = target.decision.pair(target.counts, target.move)[1]
        inside, outside = (
            loss[target.decision.sample(counts.expand(trials, -1), generator=generator)]
            for counts in (target.counts, target.counts + target.move)
        )
        bound = epsilon_lower_bound(inside, outside, target.delta, each)
        results.append(AuditResult(target.name, target.delta, each, trials, bound, target.claims))
    return results


def audit_polls(count: int, *, generator: torch.Generator, noise: float = 1.0) -> list[AuditResult]:
    """Attacks the claims of up to five queries together: labels of ``Pate`` with and without a threshold, and
    winners with Gumbel noise, in turn.

    All outcomes of all queries are enumerated, for some votes of one voter and others in their place. So the
    bounds are exact, and hold with certainty: no epsilon below is true. ``noise`` is for planted flaws: what
    is drawn as a share of what is claimed.
    """
    return [_poll(index, generator, noise) for index in range(checks.count("count", count, at_least=0))]


def _poll(index: int, generator: torch.Generator, noise: float) -> AuditResult:
    queries, candidates, voters = (
        int(torch.randint(*ends, (), generator=generator)) for ends in ((1, 6), (2, 5), (3, 30))
    )
    sigma = 0.5 + 4 * float(torch.rand((), generator=generator))
    delta = _DELTAS[int(torch.randint(3, (), generator=generator))]  # jobs take at most 0.01
    favourites = torch.rand(queries, 1, candidates, generator=generator).pow(4).expand(-1, voters, -1)
    ballots = torch.multinomial(favourites.flatten(0, 1), 1, generator=generator).view(queries, voters)
    counts = torch.nn.functional.one_hot(ballots, candidates).sum(dim=1).double()
    law: Decision
    if index % 3 == 2:
        law = GumbelWinner.of_deviation(noise * sigma)
        claim = release_winners(counts.numpy(), sigma=sigma, noise="gumbel", delta=delta).account.guarantee
    else:
        limit = float(counts.amax(dim=1).median()) if index % 3 else None
        pate = Pate(sigma, limit, delta=delta, adaptive=False)
        pate.label(counts.numpy())
        claim = pate.guarantee()
        law = NoisyWinner(noise * sigma)
        if limit is not None:
            law = ConfidentWinner(noise * sigma, threshold=limit, threshold_sigma=2 * noise * sigma)
    here, bound = _outcomes(law, counts), 0.0
    for voter in range(voters):
        other = torch.randint(candidates, (queries,), generator=generator)
        hot = torch.nn.functional.one_hot(torch.stack((ballots[:, voter], other)), candidates)
        there = _outcomes(law, counts - hot[0] + hot[1])
        bound = max(bound, *(_exact_epsilon(*pair, delta) for pair in ((here, there), (there, here))))
    claims = {
        "data-independent": claim.epsilon,
        "Rényi": claim.per_instance.renyi_epsilon,
        "tight": claim.per_instance.epsilon,
    }
    name = f"{law!r}, {queries} queries, {candidates} candidates, {voters} voters"
    return AuditResult(name, delta, 1.0, voters, bound * (1 - 1e-9), claims)


def _outcomes(law: Decision, counts: Tensor) -> Tensor:
    """The log masses of all outcomes of all queries together."""
    lowest = -1 if isinstance(law, ConfidentWinner) else 0
    outcomes = torch.arange(lowest, counts.shape[1]).unsqueeze(1)
    together = torch.zeros(1, dtype=torch.float64)
    for own in law.log_prob(outcomes, counts).unbind(1):
        together = (together.unsqueeze(1) + own).flatten()
    return together


def _exact_epsilon(log_p: Tensor, log_q: Tensor, delta: float) -> float:
    """The smallest epsilon at which the hockey stick is at most delta, from below."""
    low, high = 0.0, max(0.0, float((log_p - log_q).amax()))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        beyond = float((log_p.exp() - (log_q + middle).exp()).clamp(min=0).sum()) > delta
        low, high = (middle, high) if beyond else (low, middle)
    return low
