"""Figure 5: yes/no votes of a real assembly. How often is the announced majority wrong, at what cost?

Every participant answered some of 99 statements, and only the sign of each noisy surplus (yes minus no) is
released. The release is the same whichever statement is made about it; what differs is the epsilon.
"""

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from pandas import DataFrame

from experiments.assembly.ballots import assembly_ballots
from experiments.drawing import Drawn, curve
from experiments.progress import track
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.mechanisms.sign import StochasticSign
from ringfence.numerics.rounding import rounded_up
from ringfence.releases.decisions import account_of
from ringfence.report.chart import Chart, Panel

SIGMAS = (5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 57.0, 80.0)  # of the noise, in votes
DELTA = 1e-5
DRAWS = 7  # a publishable epsilon is itself noisy: the ballots are public, so it is drawn several times

# What may be said about one release, from the largest epsilon to the smallest.
DATA_INDEPENDENT, PUBLISHABLE = "data-independent", "publishable"
RENYI, TIGHT = "per-instance, Rényi", "per-instance, tight"
_NAMES = {
    DATA_INDEPENDENT: "data-independent, may be published",
    PUBLISHABLE: "publishable, its own cost included",
    RENYI: "per-instance by Rényi sums, sensitive",
    TIGHT: "per-instance, tight, sensitive",
}
_LOOKS = {DATA_INDEPENDENT: "Gaussian", RENYI: "sign", TIGHT: "sign"}


def votes(sigmas: Sequence[float] = SIGMAS, draws: int = DRAWS) -> DataFrame:
    """Four statements for every sigma, about one voter added or removed.

    ``error`` is the mean chance of a wrong answer; ``low`` and ``high`` are the ends of what was drawn.
    """
    surplus = assembly_ballots().sum(dim=0).double()
    rows = []
    for sigma in track(sigmas, "votes"):
        law = StochasticSign(sigma)
        account = account_of(law, surplus, neighbours="added", at_most=None, delta=DELTA)
        drawn = [
            publishable_decision_epsilon(law, surplus, neighbours="added", delta=DELTA).per_instance_epsilon
            for _ in range(draws)
        ]
        found = {
            DATA_INDEPENDENT: [account.epsilon],
            PUBLISHABLE: drawn,
            RENYI: [account.per_instance.renyi_epsilon],
            TIGHT: [account.per_instance.epsilon],
        }
        error = mean(account.details["chances_of_error"])
        rows += [
            {
                "statement": statement,
                "sigma": sigma,
                "error": error,
                "epsilon": median(values),
                "low": min(values),
                "high": max(values),
                "data_independent_epsilon": account.epsilon,
            }
            for statement, values in found.items()
        ]
    return DataFrame(rows)


def draw_votes() -> Drawn:
    """Error against epsilon, and how many times less each statement is than the data-independent one."""
    rows = votes()
    return Drawn(votes_chart(rows), rows)


def votes_chart(rows: DataFrame) -> Chart:
    """The chart of the rows."""
    lines, ratios = [], []
    for statement, name in _NAMES.items():
        own = rows[rows.statement == statement]
        look: dict[str, Any] = {"mechanism": _LOOKS.get(statement), "dashed": statement == RENYI}
        lines.append(curve(name, own.sort_values("epsilon"), "epsilon", "error", **look))
        own = own.sort_values("error").assign(ratio=own.data_independent_epsilon / own.epsilon)
        if statement == PUBLISHABLE:
            look["low"] = tuple(own.data_independent_epsilon / own.high)
            look["high"] = tuple(own.data_independent_epsilon / own.low)
        if statement != DATA_INDEPENDENT:
            ratios.append(curve(name, own, "error", "ratio", **look))
    panels = (
        Panel(
            title="Same answers, four statements",
            x_label=f"ε at δ = {DELTA:g}",
            y_label="chance of a wrong answer",
            lines=tuple(lines),
            x_log=True,
            y_log=True,
        ),
        Panel(
            title="How many times less",
            x_label="chance of a wrong answer",
            y_label="data-independent ε over this ε",
            lines=tuple(ratios),
            x_log=True,
            y_from_zero=True,
            reference=1.0,
            reference_name="data-independent",
        ),
    )
    error = min(rows.error, key=lambda error: abs(error - 0.01))
    at = rows[rows.error == error].set_index("statement")
    here = {statement: rounded_up(epsilon, 3) for statement, epsilon in at.epsilon.items()}
    caption = (
        f"Where {error:.1%} of the answers are wrong, ε is {here[DATA_INDEPENDENT]} for every dataset, "
        f"{here[TIGHT]} for this one ({here[RENYI]} by Rényi sums), and {here[PUBLISHABLE]} if the number "
        "for this one is published at its own cost. Ballots were gathered with Polis, The Computational "
        "Democracy Project, CC BY 4.0."
    )
    details = (
        "1,921 people and 99 statements of the vTaiwan consultation on UberX. The sign of each noisy surplus "
        "is released, and one voter may have answered everything. The per-instance numbers are sensitive; "
        "the publishable one is noisy (median and range of several draws), has settings that were fitted to "
        "these ballots among others, and is too small with a chance of at most 0.1 %."
    )
    return Chart("votes", "Yes/no votes of a real assembly", caption, panels, columns=2, details=details)
