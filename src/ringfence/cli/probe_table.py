"""A training run as a table for the terminal."""

from rich.table import Table

from ringfence.accounting.guarantee import RENYI
from ringfence.numerics.rounding import rounded_up
from ringfence.training.linear.file_probe import ProbeRow

_ENDS = {0.0: "the smallest", 1.0: "the largest"}


def probe_table(row: ProbeRow) -> Table:
    """Accuracy, then every epsilon with what it is a statement about, beside the Gaussian's."""
    claim = row.guarantee
    estimate = ", an estimate where steps > 1" if claim.proof_pdp == RENYI else ""
    title = (
        f"{row.settings.mechanism!r}\n{row.examples:,} training examples, {row.features:,} features, "
        f"{len(row.classes)} classes, releases: {claim.steps}, delta {claim.delta:g}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("this law", justify="right")
    table.add_column("Gaussian", justify="right")
    table.add_column("what it is")
    if row.test_accuracy is None:
        table.add_row("accuracy", "", "", "not reported: the file has no test split")
    else:
        table.add_row("accuracy", f"{row.test_accuracy:.2%}", "", "on the test split")
    for name, value, gaussian, what in (
        (
            "epsilon, data-independent",
            claim.epsilon_data_independent,
            row.gaussian_epsilon_data_independent,
            "DP, every dataset",
        ),
        ("epsilon, ex-post", claim.epsilon, claim.gaussian_epsilon, "this dataset and trajectory; sensitive"),
        (
            "epsilon, per-instance",
            claim.epsilon_pdp,
            claim.gaussian_epsilon_pdp,
            f"this dataset; {claim.proof_pdp}{estimate}; sensitive",
        ),
    ):
        table.add_row(name, rounded_up(value), rounded_up(gaussian), what)
    for quantile, epsilon in (row.example_epsilons or {}).items():
        what = _ENDS.get(quantile, f"{quantile:.0%} have at most this")
        table.add_row("epsilon, examples", rounded_up(epsilon), "", f"{what}; ex-post, sensitive")
    return table
