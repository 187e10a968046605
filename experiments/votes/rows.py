"""Figure 5a: yes/no votes of a real assembly. How often is the announced majority wrong, at what cost?

Every participant answered some of 99 statements, and only the sign of each noisy surplus (yes minus no) is
released. The release is the same whichever statement is made about it; what differs is the epsilon.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from ringfence.accounting.decisions.publication import publishable_decision_epsilon
from ringfence.data.assembly.assembly import assembly_ballots
from ringfence.decisions.ballots.cost import decision_account
from ringfence.decisions.votes import wrong_answers
from ringfence.mechanisms.sign import StochasticSign
from ringfence.progress import Progress

# What may be said about one release, from the largest epsilon to the smallest.
DATA_INDEPENDENT, PUBLISHABLE = "data-independent", "publishable"
RENYI, TIGHT = "per-instance, Rényi", "per-instance, tight"


@dataclass(frozen=True)
class VotesSettings:
    """Noise of these standard deviations, in votes; statements are about one voter added or removed.

    A publishable epsilon is itself noisy: the ballots are public, so it is drawn ``draws`` times.
    """

    sigmas: tuple[float, ...] = (5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 57.0, 80.0)
    delta: float = 1e-5
    draws: int = 7


@dataclass(frozen=True)
class VotesRow:
    """One statement about one release; ``low`` and ``high`` are the ends of what was drawn."""

    statement: str
    sigma: float
    error: float  # the mean chance of a wrong answer
    epsilon: float
    low: float
    high: float
    gaussian_epsilon: float

    @property
    def ratio(self) -> float:
        """How many times less this epsilon is than the one that holds for every dataset."""
        return self.gaussian_epsilon / self.epsilon


def votes(settings: VotesSettings, progress: Progress | None = None) -> Iterator[VotesRow]:
    """Yields four statements for every sigma.

    >>> rows = votes(VotesSettings(sigmas=(10.0,), draws=1))
    >>> {row.statement: round(row.epsilon, 2) for row in rows if row.statement != PUBLISHABLE}
    {'data-independent': 4.35, 'per-instance, Rényi': 1.09, 'per-instance, tight': 0.97}
    """
    surplus = assembly_ballots().sum(dim=0).double()
    for done, sigma in enumerate(settings.sigmas):
        law = StochasticSign(sigma)
        chances = wrong_answers(surplus, sigma)
        account = decision_account(
            law,
            surplus,
            neighbours="added",
            at_most=None,
            delta=settings.delta,
            ballots=None,
            chances=chances.tolist(),
            publish=False,
        )
        drawn = [
            publishable_decision_epsilon(
                law, surplus, neighbours="added", delta=settings.delta
            ).per_instance_epsilon
            for _ in range(settings.draws)
        ]
        found = {
            DATA_INDEPENDENT: [account.epsilon],
            PUBLISHABLE: drawn,
            RENYI: [account.guarantee.per_instance.epsilon],
            TIGHT: [account.epsilon_tight],
        }
        for statement, values in found.items():
            yield VotesRow(
                statement,
                sigma,
                float(chances.mean()),
                median(values),
                min(values),
                max(values),
                account.epsilon,
            )
        if progress is not None:
            progress("votes", (done + 1) / len(settings.sigmas))
