"""Attacks on whole jobs: is somebody in the table, in the votes, in the means?

A job is run twice, with a person in every cell and without. One person is in one cell only, so that every
cell, question or group is a trial of its own, and one call of the job gives as many trials as there are
cells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.noise import Noise
from ringfence.releases.counts import release_counts
from ringfence.releases.decisions import release_votes, release_winners
from ringfence.releases.means import release_means
from ringfence.releases.release import Release
from tests.audit.lower_bound import epsilon_lower_bound
from tests.audit.result import AuditResult

DELTA = 0.01  # the largest that a job takes: a few hundred trials must tell something
_NOT_SHOWN = -1e9
_MOST_VOTERS = 2000  # each has a ballot of all questions


@dataclass(frozen=True)
class Job:
    """A job on many cells: ``release(there, sigma, noise)`` runs it with the persons in the data or without.

    ``statistics`` are (tests, trials), larger where the person is likelier to be there.
    """

    name: str
    release: Callable[[bool, float, Noise], Release]
    statistics: Callable[[Release], Tensor]


def jobs(trials: int) -> list[Job]:
    """The four jobs, with so many trials each: votes at most 2,000, means only with the extra ``tables``."""
    checks.count("trials", trials, at_least=2)
    cells, one = np.full(trials, 4), np.ones(trials, dtype=np.int64)

    def counts(there: bool, sigma: float, noise: Noise) -> Release:
        return release_counts(cells + there, sigma=sigma, delta=DELTA, seed=noise)

    def suppressed(there: bool, sigma: float, noise: Noise) -> Release:
        return release_counts(cells + there, suppress_below=5, sigma=sigma, delta=DELTA, seed=noise)

    def votes(there: bool, sigma: float, noise: Noise) -> Release:
        ballots = np.eye(min(trials, _MOST_VOTERS), dtype=np.int8) * there
        return release_votes(ballots, neither=0, at_most=1, sigma=sigma, delta=DELTA, seed=noise)

    def winners(there: bool, sigma: float, noise: Noise) -> Release:
        rows = np.stack((2 * one + there, 2 * one, one), axis=1)
        return release_winners(rows, neighbours="added", at_most=1, sigma=sigma, delta=DELTA, seed=noise)

    def confident(there: bool, sigma: float, noise: Noise) -> Release:
        rows = np.stack((2 * one + there, one), axis=1)
        return release_winners(
            rows,
            neighbours="added",
            at_most=1,
            confident_above=2.5,
            sigma=sigma,
            threshold_sigma=sigma,
            delta=DELTA,
            seed=noise,
        )

    def means(there: bool, sigma: float, noise: Noise) -> Release:
        rows = np.stack((np.tile(np.arange(trials), 1 + there), np.ones(trials * (1 + there))), axis=1)
        return release_means(
            rows,
            of=1,
            by=[0],
            domain={0: range(trials)},
            lower=0,
            upper=1,
            suppress_below=0,
            sigma=sigma,
            delta=DELTA,
            seed=noise,
        )

    found = [
        Job("counts", counts, lambda made: _numbers(made, "count").unsqueeze(0)),
        Job("counts, small ones suppressed", suppressed, lambda made: _numbers(made, "count").unsqueeze(0)),
        Job("votes", votes, lambda made: torch.from_numpy(made.values).double().unsqueeze(0)),
        Job("winners", winners, _winners),
        Job("winners, confident ones", confident, _winners),
    ]
    if find_spec("duckdb") is not None:
        found.append(Job("means", means, _sums))
    return found


def audit_jobs(trials: int, *, noise: Noise, confidence: float) -> list[AuditResult]:
    """Attacks every job; ``confidence`` is about all of them together.

    Guarantee: where every claim is right, one or more ``holds`` are False with probability at most
    1 - ``confidence``.
    """
    attacked = jobs(trials)
    each = 1 - (1 - checks.probability("confidence", confidence)) / len(attacked)
    return [audit_job(job, noise=noise.of(job.name), confidence=each) for job in attacked]


def audit_job(job: Job, *, noise: Noise, confidence: float, flawed: float = 1.0) -> AuditResult:
    """Attacks one job. The claims are those of its account: data-independent, by Rényi sums, and tight.

    ``flawed`` is for planted flaws: the noise that is added, as a share of the noise that is claimed.
    """
    honest = job.release(True, 1.0, noise.of("there"))
    account = honest.account
    inside = job.statistics(honest if flawed == 1.0 else job.release(True, flawed, noise.of("there")))
    outside = job.statistics(job.release(False, flawed, noise.of("not there")))
    bound = epsilon_lower_bound(inside, outside, DELTA, confidence)
    claims = {
        "data-independent": account.epsilon,
        "per-instance": min(account.epsilon, account.per_instance.renyi_epsilon),
        "tight": account.per_instance.epsilon,
    }
    return AuditResult(job.name, DELTA, confidence, inside.shape[1], bound, claims)


def _numbers(made: Release, column: str) -> Tensor:
    shown = [_NOT_SHOWN if value is None else value for value in made.columns[column]]
    return torch.tensor(shown, dtype=torch.float64)


def _winners(made: Release) -> Tensor:
    """Whether the first candidate won, whether there is an answer, and whether it is another one."""
    winner = torch.from_numpy(made.values)
    return torch.stack((winner == 0, winner >= 0, winner != 1)).double()


def _sums(made: Release) -> Tensor:
    """The noisy number of people, the mean, and what is left of the sum where it was clamped."""
    people, mean = _numbers(made, "people"), _numbers(made, "mean")
    return torch.stack((people, mean, people * mean))
