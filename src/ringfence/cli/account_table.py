"""An account as a table for the terminal."""

from rich.table import Table

from ringfence.cli.account_row import AccountRow
from ringfence.numerics.rounding import rounded_up


def account_table(row: AccountRow) -> Table:
    """Every number with what it is a statement about, beside the Gaussian's computed the same way."""
    claim = row.guarantee
    title = (
        f"{row.mechanism!r}\n{row.coordinates:,} coordinates, releases: {claim.steps}, delta {claim.delta:g}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("epsilon")
    table.add_column("this law", justify="right")
    table.add_column("Gaussian", justify="right")
    table.add_column("what it is")
    for name, value, gaussian, what in (
        (
            "data-independent",
            claim.epsilon_data_independent,
            row.gaussian_epsilon_profile,
            "DP, every dataset",
        ),
        ("ex-post", claim.epsilon, claim.gaussian_epsilon, "this dataset and trajectory; sensitive"),
        (
            "per-instance",
            claim.epsilon_pdp,
            claim.gaussian_epsilon_pdp,
            f"this dataset, theta fixed; {claim.proof_pdp}; sensitive",
        ),
        ("tight", row.epsilon_profile, row.gaussian_epsilon_profile, f"the same without slack ({row.proof})"),
    ):
        table.add_row(name, rounded_up(value), rounded_up(gaussian), what)
    return table
