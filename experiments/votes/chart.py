"""Figure 5a as a chart: wrong answers of a real assembly against epsilon, by what is said of the release."""

from collections.abc import Callable, Sequence

from experiments.votes.rows import DATA_INDEPENDENT, PUBLISHABLE, RENYI, TIGHT, VotesRow, VotesSettings
from ringfence.numerics.rounding import rounded_up
from ringfence.report.chart import Chart, Line, Panel

_NAMES = {
    DATA_INDEPENDENT: "data-independent (Gaussian), may be published",
    PUBLISHABLE: "publishable, its own cost included",
    RENYI: "per-instance by Rényi sums, sensitive",
    TIGHT: "per-instance, tight, sensitive",
}
_DETAILS = (
    "1,921 people and 99 statements of the vTaiwan consultation on UberX. The sign of each noisy surplus is "
    "released, and one voter may have answered everything. The per-instance numbers are sensitive; the "
    "publishable one is noisy (median and range of several draws), has settings that were fitted to these "
    "ballots among others, and is too small with a chance of at most 0.1 %."
)
_LOOKS = {DATA_INDEPENDENT: "Gaussian", RENYI: "sign", TIGHT: "sign"}


def votes_chart(rows: Sequence[VotesRow], settings: VotesSettings) -> Chart:
    """Error against epsilon, and how many times less each statement is than the data-independent one.

    >>> from experiments.votes.rows import votes
    >>> small = VotesSettings(sigmas=(20.0,), draws=1)
    >>> chart = votes_chart(list(votes(small)), small)
    >>> len(chart.panels), chart.panels[1].reference
    (2, 1.0)
    """
    panels = (
        Panel(
            title="Same answers, four statements",
            x_label=f"ε at δ = {settings.delta:g}",
            y_label="chance of a wrong answer",
            lines=tuple(_line(rows, name, lambda row: row.epsilon, lambda row: row.error) for name in _NAMES),
            x_log=True,
            y_log=True,
        ),
        Panel(
            title="How many times less",
            x_label="chance of a wrong answer",
            y_label="data-independent ε over this ε",
            lines=tuple(
                _line(rows, name, lambda row: row.error, lambda row: row.ratio, band=True)
                for name in _NAMES
                if name != DATA_INDEPENDENT
            ),
            x_log=True,
            y_from_zero=True,
            reference=1.0,
            reference_name="data-independent",
        ),
    )
    title = "Yes/no votes of a real assembly"
    return Chart("votes", title, _caption(rows), panels, columns=2, details=_DETAILS)


def _line(
    rows: Sequence[VotesRow],
    statement: str,
    x: Callable[[VotesRow], float],
    y: Callable[[VotesRow], float],
    band: bool = False,
) -> Line:
    own = sorted((row for row in rows if row.statement == statement), key=x)
    drawn = band and statement == PUBLISHABLE
    return Line(
        _NAMES[statement],
        tuple(map(x, own)),
        tuple(map(y, own)),
        low=tuple(row.gaussian_epsilon / row.high for row in own) if drawn else None,
        high=tuple(row.gaussian_epsilon / row.low for row in own) if drawn else None,
        mechanism=_LOOKS.get(statement),
        dashed=statement == RENYI,
    )


def _caption(rows: Sequence[VotesRow]) -> str:
    at = min((row for row in rows if row.statement == TIGHT), key=lambda row: abs(row.error - 0.01))
    here = {row.statement: rounded_up(row.epsilon, 3) for row in rows if row.sigma == at.sigma}
    return (
        f"Where {at.error:.1%} of the answers are wrong, ε is {here[DATA_INDEPENDENT]} for every dataset, "
        f"{here[TIGHT]} for this one ({here[RENYI]} by Rényi sums), and {here[PUBLISHABLE]} if the number "
        "for this one is published at its own cost. Ballots were gathered with Polis, The Computational "
        "Democracy Project, CC BY 4.0."
    )
