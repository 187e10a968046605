"""Attacks on decisions: do the announced winners tell how one voter voted?"""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.winner import ConfidentWinner, GumbelWinner, NoisyWinner
from ringfence.releases.decisions import release_winners
from ringfence.releases.pate import Pate
from tests.audit.result import AuditResult

_DELTAS = (1e-5, 1e-3, 1e-2)  # jobs take at most 0.01
_HALVINGS = 60


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
    delta = _DELTAS[int(torch.randint(len(_DELTAS), (), generator=generator))]
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
