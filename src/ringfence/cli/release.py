"""``ringfence release``: counts, votes, winners and means of tables, with noise, as files to publish."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import AsJson, Out
from ringfence.cli.public_values import read_bins, read_domains, read_names
from ringfence.cli.terminal import busy, print_statement
from ringfence.files.atomic import new_folder

if TYPE_CHECKING:
    from ringfence.releases.release import Release

release = typer.Typer(
    help="Release a table privately: files to publish, and a private account.", no_args_is_help=True
)

Files = Annotated[
    list[str], typer.Argument(help="CSV or parquet files, or patterns of names; ballots must fit in memory.")
]
By = Annotated[str, typer.Option(help="Columns whose combinations are the cells: region,age.")]
Domains = Annotated[
    list[str] | None,
    typer.Option("--domain", help="Public values: region=north,south; or a TOML or JSON file of lists."),
]
Bins = Annotated[list[str] | None, typer.Option(help="Public edges of a column of numbers: age=0,18,65,inf.")]
Person = Annotated[str | None, typer.Option(help="The column that says whose row it is.")]
PersonAtMost = Annotated[int, typer.Option("--at-most", help="In how many cells one person may count.")]
VotesOf = Annotated[
    int | None, typer.Option("--at-most", help="How many answers of one person count; all if left out.")
]
Ignored = Annotated[str, typer.Option("--ignore", help="Columns to leave out: group,remarks.")]
Voter = Annotated[str | None, typer.Option("--person", help="The column that names each person once.")]
VoteNeighbours = Annotated[
    str, typer.Option("--neighbours", help="What is protected: that somebody is 'added', or 'replaced'.")
]
Publish = Annotated[bool, typer.Option(help="Publish what it cost these voters too, with noise.")]
Epsilon = Annotated[float | None, typer.Option(help="epsilon that must hold for every dataset.")]
ReleaseDelta = Annotated[float, typer.Option("--delta", help="delta of every (epsilon, delta).")]
Multiplier = Annotated[float | None, typer.Option("--sigma", help="The noise, instead of an epsilon.")]


@release.command("counts")
def counts(
    files: Files,
    by: By = "",
    epsilon: Epsilon = None,
    delta: ReleaseDelta = 1e-6,
    sigma: Multiplier = None,
    suppress_below: Annotated[int | None, typer.Option(help="Noisy counts below this are not shown.")] = None,
    domain: Domains = None,
    bins: Bins = None,
    person: Person = None,
    at_most: PersonAtMost = 1,
    aggregated: Annotated[
        str | None, typer.Option("--counts", help="A column of counts that were aggregated already.")
    ] = None,
    out: Out = Path("release"),
    as_json: AsJson = False,
) -> None:
    """How many people are in each cell; small counts are not shown.

    Example: ringfence release counts people.csv --by region,age --domain region=north,south
    --bins age=0,18,65,inf --suppress-below 10 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases.counts import release_counts

    carry_out(
        release_counts,
        out,
        as_json,
        files,
        by=read_names(by),
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        suppress_below=suppress_below,
        domain=read_domains(domain or []),
        bins=read_bins(bins or []),
        person=person,
        at_most=at_most,
        counts=aggregated,
    )


@release.command("votes")
def votes(
    files: Files,
    questions: Annotated[str, typer.Option(help="Columns of answers; all columns if left out.")] = "",
    epsilon: Epsilon = None,
    delta: ReleaseDelta = 1e-6,
    sigma: Multiplier = None,
    at_most: VotesOf = None,
    person: Voter = None,
    ignore: Ignored = "",
    neighbours: VoteNeighbours = "added",
    publish_epsilon: Publish = False,
    out: Out = Path("release"),
    as_json: AsJson = False,
) -> None:
    """What the majority answered to yes/no questions: one row per person, 1 is yes, -1 is no.

    Example: ringfence release votes ballots.csv --person id --ignore group --at-most 20
    --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases.votes import release_votes

    carry_out(
        release_votes,
        out,
        as_json,
        files,
        read_names(questions) or None,
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        at_most=at_most,
        person=person,
        ignore=read_names(ignore),
        neighbours=neighbours,  # it is checked there
        publish_epsilon=publish_epsilon,
    )


@release.command("winners")
def winners(
    files: Files,
    candidates: Annotated[
        str,
        typer.Option(help="Public candidates, where rows are ballots: cat,dog,fox. Else rows are counts."),
    ] = "",
    queries: Annotated[str, typer.Option(help="Columns of ballots; all columns if left out.")] = "",
    query: Annotated[
        str | None, typer.Option(help="The column that names the query of a row of counts.")
    ] = None,
    epsilon: Epsilon = None,
    delta: ReleaseDelta = 1e-6,
    sigma: Multiplier = None,
    confident_above: Annotated[
        float | None, typer.Option(help="No answer where the largest noisy count is below this.")
    ] = None,
    threshold_sigma: Annotated[
        float | None, typer.Option(help="The noise of that question; twice sigma if left out.")
    ] = None,
    at_most: VotesOf = None,
    person: Voter = None,
    ignore: Ignored = "",
    neighbours: VoteNeighbours = "replaced",
    publish_epsilon: Publish = False,
    out: Out = Path("release"),
    as_json: AsJson = False,
) -> None:
    """Which candidate won each query: from counts (a row per query) or ballots (a row per person).

    Example: ringfence release winners ballots.csv --candidates cat,dog,fox --person id
    --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases.winners import release_winners

    carry_out(
        release_winners,
        out,
        as_json,
        files,
        read_names(queries) or None,
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        candidates=read_names(candidates) or None,
        confident_above=confident_above,
        threshold_sigma=threshold_sigma,
        neighbours=neighbours,  # it is checked there
        publish_epsilon=publish_epsilon,
        at_most=at_most,
        person=person,
        query=query,
        ignore=read_names(ignore),
    )


@release.command("means")
def means(
    files: Files,
    of: Annotated[str, typer.Option(help="The column whose mean is released.")],
    lower: Annotated[float, typer.Option(help="Public limit: smaller values count as this.")],
    upper: Annotated[float, typer.Option(help="Public limit: larger values count as this.")],
    by: By = "",
    epsilon: Epsilon = None,
    delta: ReleaseDelta = 1e-6,
    sigma: Multiplier = None,
    suppress_below: Annotated[
        int | None,
        typer.Option(help="Groups with a smaller noisy size are not shown; left out: what noise allows."),
    ] = None,
    domain: Domains = None,
    bins: Bins = None,
    person: Person = None,
    at_most: PersonAtMost = 1,
    coverage: Annotated[float, typer.Option(help="How often an interval covers its mean.")] = 0.95,
    out: Out = Path("release"),
    as_json: AsJson = False,
) -> None:
    """Means of a column by group, each with an interval.

    Example: ringfence release means people.csv --of income --by region --domain region=north,south
    --lower 0 --upper 100000 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases.means import release_means

    carry_out(
        release_means,
        out,
        as_json,
        files,
        of,
        by=read_names(by),
        lower=lower,
        upper=upper,
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        suppress_below=suppress_below,
        domain=read_domains(domain or []),
        bins=read_bins(bins or []),
        person=person,
        at_most=at_most,
        coverage=coverage,
    )


def carry_out(
    job: "Callable[..., Release]", folder: Path, as_json: bool, *arguments: Any, **options: Any
) -> None:
    """Makes a release, saves it, and prints what may be published; private numbers are in one file only.

    A folder that holds something, or that another process is about to write, is refused before anything is
    released: the account in it is the only record of what a release cost.
    """
    with busy("Releasing", quiet=as_json), new_folder(folder) as beside:
        made = job(*arguments, **options)
        paths = [folder / path.name for path in made.save(beside)]
    if as_json:
        plain: dict[str, Any] = {
            "statement": made.statement.public,
            "epsilon": made.account.epsilon,
            "delta": made.account.delta,
            "columns": {name: list(values) for name, values in made.columns.items()},
            "files": [str(path) for path in paths],
        }
        if not made.errors_are_sensitive:
            plain["errors"] = {name: list(values) for name, values in made.error_columns.items()}
        typer.echo(json.dumps(plain))
        return
    print_statement(f"{made}\n")
    for path in paths:
        typer.echo(f"{path}{'  (private)' if path.name == 'account.json' else ''}")
