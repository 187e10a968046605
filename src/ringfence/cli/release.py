"""``ringfence release``: counts and means of a table of people, with noise, as files to publish."""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import AsJson
from ringfence.cli.terminal import busy

if TYPE_CHECKING:
    from ringfence.decisions.result import DecisionRelease

release = typer.Typer(
    help="Release a table privately: files to publish, and a private account.", no_args_is_help=True
)

Files = Annotated[
    list[str], typer.Argument(help="CSV or parquet files, or patterns of names; they may exceed memory.")
]
By = Annotated[str, typer.Option(help="Columns whose combinations are the cells: region,age.")]
Domains = Annotated[
    list[str] | None,
    typer.Option("--domain", help="Public values: region=north,south; or a TOML or JSON file of lists."),
]
Bins = Annotated[list[str] | None, typer.Option(help="Public edges of a column of numbers: age=0,18,65,inf.")]
Person = Annotated[str | None, typer.Option(help="The column that says whose row it is.")]
PersonAtMost = Annotated[int, typer.Option("--at-most", help="In how many cells one person may count.")]
Epsilon = Annotated[float | None, typer.Option(help="epsilon that must hold for every dataset.")]
ReleaseDelta = Annotated[float, typer.Option("--delta", help="delta of every (epsilon, delta).")]
Multiplier = Annotated[float | None, typer.Option("--sigma", help="The noise, instead of an epsilon.")]
Folder = Annotated[Path, typer.Option("--out", help="Folder for the files; made if missing.")]


@release.command("counts")
def counts(
    files: Files,
    by: By = "",
    epsilon: Epsilon = None,
    delta: ReleaseDelta = 1e-6,
    sigma: Multiplier = None,
    suppress: Annotated[int | None, typer.Option(help="Counts below this are not shown.")] = None,
    domain: Domains = None,
    bins: Bins = None,
    person: Person = None,
    at_most: PersonAtMost = 1,
    aggregated: Annotated[
        str | None, typer.Option("--counts", help="A column of counts that were aggregated already.")
    ] = None,
    out: Folder = Path("release"),
    as_json: AsJson = False,
) -> None:
    """How many people are in each cell; small counts are not shown.

    Example: ringfence release counts people.csv --by region,age --domain region=north,south
    --bins age=0,18,65,inf --suppress 10 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.decisions.counts import release_counts

    with busy("Releasing", quiet=as_json):
        made = release_counts(
            files,
            by=_names(by),
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            suppress_below=suppress,
            domain=read_domains(domain or []),
            bins=read_bins(bins or []),
            person=person,
            at_most=at_most,
            counts=aggregated,
        )
        paths = made.save(out)
    show(made, paths, as_json)


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
    suppress: Annotated[
        int | None, typer.Option(help="Groups of fewer people are not shown; by default what noise allows.")
    ] = None,
    domain: Domains = None,
    bins: Bins = None,
    person: Person = None,
    at_most: PersonAtMost = 1,
    coverage: Annotated[float, typer.Option(help="How often an interval covers its mean.")] = 0.95,
    out: Folder = Path("release"),
    as_json: AsJson = False,
) -> None:
    """Means of a column by group, each with an interval.

    Example: ringfence release means people.csv --of income --by region --domain region=north,south
    --lower 0 --upper 100000 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.decisions.means import release_means

    with busy("Releasing", quiet=as_json):
        made = release_means(
            files,
            of,
            by=_names(by),
            lower=lower,
            upper=upper,
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            suppress_below=suppress,
            domain=read_domains(domain or []),
            bins=read_bins(bins or []),
            person=person,
            at_most=at_most,
            coverage=coverage,
        )
        paths = made.save(out)
    show(made, paths, as_json)


def show(made: "DecisionRelease", paths: list[Path], as_json: bool) -> None:
    """Prints what may be published, and the names of the files; private numbers are in one of them only."""
    if as_json:
        plain = {
            "statement": made.statement.public,
            "epsilon": made.account.epsilon,
            "delta": made.account.delta,
            "columns": {name: list(values) for name, values in made.columns.items()},
            "errors": {name: list(values) for name, values in made.error_columns.items()},
            "files": [str(path) for path in paths],
        }
        typer.echo(json.dumps(plain))
        return
    typer.echo(f"{made}\n")
    for path in paths:
        typer.echo(f"{path}{'  (private)' if path.name == 'account.json' else ''}")


def read_domains(given: list[str]) -> dict[str, list[Any]]:
    """The public values of columns: each argument is NAME=VALUE,VALUE or a TOML or JSON file of lists.

    An empty value stands for a missing one.

    >>> read_domains(["region=north,south", "smoker=yes,no,"])
    {'region': ['north', 'south'], 'smoker': ['yes', 'no', None]}
    """
    domains: dict[str, list[Any]] = {}
    for one in given:
        name, equals, values = one.partition("=")
        new = {name: [value or None for value in values.split(",")]} if equals else _domain_file(Path(one))
        for column in new:
            if column in domains:
                raise ValueError(f"--domain must give each column once, got {column!r} twice")
        domains |= new
    return domains


def read_bins(given: list[str]) -> dict[str, list[float]]:
    """The public edges of columns of numbers: each argument is NAME=EDGE,EDGE.

    >>> read_bins(["age=0,18,65,inf"])
    {'age': [0.0, 18.0, 65.0, inf]}
    """
    bins: dict[str, list[float]] = {}
    for one in given:
        name, _, values = one.partition("=")
        try:
            edges = [float(value) for value in values.split(",")]
        except ValueError:
            raise ValueError(f"--bins must be NAME=EDGE,EDGE with numbers as edges, got {one!r}") from None
        if name in bins:
            raise ValueError(f"--bins must give each column once, got {name!r} twice")
        bins[name] = edges
    return bins


def _domain_file(path: Path) -> dict[str, list[Any]]:
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"--domain must be NAME=VALUE,VALUE or a .toml or .json file, got {str(path)!r}")
    try:
        read = tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"--domain {path}: {error}") from None
    if not isinstance(read, dict) or not all(isinstance(values, list) for values in read.values()):
        raise ValueError(f"--domain {path} must hold a list of values for each column")
    return read


def _names(by: str) -> list[str]:
    return [name.strip() for name in by.split(",") if name.strip()]
