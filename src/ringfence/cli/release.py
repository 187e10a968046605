"""``ringfence release``: counts, shares, means, sums, quantiles, votes, winners and labels, to publish.

Options have the names of Python's arguments, and go to the library as they are read.
"""

import csv
import json
import re
import tomllib
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.common import AsJson, Out, busy, print_statement
from ringfence.files.atomic import new_folder

if TYPE_CHECKING:
    from ringfence.releases.release import Release

release = typer.Typer(help="Release a table privately, as files to publish.", no_args_is_help=True)

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOST_IN_A_RANGE = 100_000


def split(given: str) -> list[str]:
    """What stands between commas; quotes stand around a text with a comma in it.

    >>> split('north, "south, and islands",')
    ['north', 'south, and islands', '']
    """
    return [text.strip() for text in next(csv.reader([given], skipinitialspace=True), [])]


def read_names(given: str) -> list[str] | None:
    """Names of columns or of other public things, with commas between them; None where there are none.

    >>> read_names("region, age")
    ['region', 'age']
    """
    return [name for name in split(given) if name] or None


def read_domains(given: list[str] | None) -> dict[str, list[Any]] | None:
    """The public values of columns: each argument is NAME=VALUE,VALUE or a TOML or JSON file of lists.

    An empty value stands for a missing one. A file may describe more columns than a table has.

    >>> read_domains(["region=north,south", "smoker=yes,no,"])
    {'region': ['north', 'south'], 'smoker': ['yes', 'no', None]}
    """
    domains: dict[str, list[Any]] = {}
    for one in given or []:
        name, equals, values = one.partition("=")
        new = {name: [value or None for value in split(values)]} if equals else _domain_file(Path(one))
        for column in new:
            if column in domains:
                raise ValueError(f"--domain must give each column once, got {column!r} twice")
        domains |= new
    return domains or None


def read_numbers(given: str) -> Any:
    """One number, or a list of them with commas between them; FIRST:LAST:STEP is a range with both ends.

    >>> read_numbers("0.5"), read_numbers("0,18,65"), read_numbers("0:30:10")
    (0.5, [0, 18, 65], [0, 10, 20, 30])
    """
    try:
        if given.count(":") == 2:
            first, last, step = map(Fraction, given.split(":"))
            many = (last - first) // step + 1
            if many > _MOST_IN_A_RANGE:
                raise ValueError(f"a range must have at most {_MOST_IN_A_RANGE:,} numbers, got {given!r}")
            return [_number(str(float(first + step * place))) for place in range(many)]
        numbers = [_number(value) for value in given.split(",")]
    except (ValueError, ZeroDivisionError) as error:
        if "range must" in str(error):
            raise
        raise ValueError(f"{given!r} must be a number, several (1,2,3) or a range (0:100:5)") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def read_bins(given: list[str] | None) -> dict[str, list[Any]] | None:
    """The public edges of columns of numbers or dates: each argument is NAME=EDGE,EDGE.

    >>> read_bins(["age=0,18,65,inf", "born=1950-01-01,1980-01-01,2010-01-01"])
    {'age': [0.0, 18.0, 65.0, inf], 'born': ['1950-01-01', '1980-01-01', '2010-01-01']}
    """
    bins: dict[str, list[Any]] = {}
    for one in given or []:
        name, _, values = one.partition("=")
        edges: list[Any] = values.split(",")
        try:
            edges = [float(value) for value in edges]
        except ValueError:
            if not all(_DATE.match(value) for value in edges):
                raise ValueError(
                    f"--bins must be NAME=EDGE,EDGE with numbers or dates as edges, got {one!r}"
                ) from None
        if name in bins:
            raise ValueError(f"--bins must give each column once, got {name!r} twice")
        bins[name] = edges
    return bins or None


def _domain_file(path: Path) -> dict[str, list[Any]]:
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"--domain must be NAME=VALUE,VALUE or a .toml or .json file, got {str(path)!r}")
    try:
        read = tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--domain {path}: {error}") from None
    if not isinstance(read, dict) or not all(isinstance(values, list) for values in read.values()):
        raise ValueError(f"--domain {path} must hold a list of values for each column")
    return read


Files = Annotated[
    list[str],
    typer.Argument(help="CSV or parquet files, or patterns of names; or postgresql://..., with --table."),
]
EngineTable = Annotated[
    str | None,
    typer.Option(help="The table, where the data is the URL of an engine (Spark, PostgreSQL, ...)."),
]
By = Annotated[
    str, typer.Option(callback=read_names, help="Columns whose combinations are the cells: region,age.")
]
Domains = Annotated[
    list[str] | None,
    typer.Option(callback=read_domains, help="Public values: region=north,south; or a TOML or JSON file."),
]
Bins = Annotated[
    list[str] | None,
    typer.Option(callback=read_bins, help="Public edges of numbers or dates: age=0,18,65,inf."),
]
Missing = Annotated[
    str, typer.Option(help="Rows without a value: 'refuse', 'drop' (leave out) or 'category' (count apart).")
]
Person = Annotated[str | None, typer.Option(help="The column that says whose row it is.")]
CellsOfOne = Annotated[int, typer.Option(help="In how many cells one person may count.")]
AnswersOfOne = Annotated[int | None, typer.Option(help="How many answers of one person count; else all.")]
Columns = Annotated[
    str, typer.Option(callback=read_names, help="Columns of ballots; all columns if left out.")
]
Ignored = Annotated[
    str,
    typer.Option(callback=lambda given: read_names(given) or [], help="Columns to leave out: group,remarks."),
]
Voter = Annotated[str | None, typer.Option(help="The column that names each person once.")]
Neighbours = Annotated[str, typer.Option(help="What is protected: that somebody is 'added', or 'replaced'.")]
Publish = Annotated[bool, typer.Option(help="Publish what it cost these voters too, with noise.")]
ThresholdSigma = Annotated[
    float | None, typer.Option(help="The noise of that question; twice sigma if left out.")
]
Epsilon = Annotated[float | None, typer.Option(help="epsilon that must hold for every dataset.")]
Delta = Annotated[float, typer.Option(help="delta of every (epsilon, delta).")]
Sigma = Annotated[float | None, typer.Option(help="The noise, instead of an epsilon.")]
DecisionNoise = Annotated[
    str, typer.Option(help="'gaussian', 'gumbel', or 'auto': the one that decides better.")
]
TableNoise = Annotated[
    str, typer.Option(help="'gaussian', 'laplace' (also --delta 0), or 'auto': the smaller one.")
]


def read_ledger(url: str | None) -> Any:
    """The ledger at a URL, which must be there; None where none is asked for."""
    from ringfence.accounting.ledger import Ledger

    return None if url is None else Ledger(url)


LedgerUrl = Annotated[
    str | None,
    typer.Option(callback=read_ledger, help="The budget to charge: a URL of 'ringfence ledger create'."),
]
Private = Annotated[
    Path | None, typer.Option(help="A folder for what must not be published: the account of these people.")
]
Lower = Annotated[str, typer.Option(callback=read_numbers, help="Public limit: smaller values count as it.")]
Upper = Annotated[str, typer.Option(callback=read_numbers, help="Public limit: larger values count as it.")]
Coverage = Annotated[float, typer.Option(help="How often an interval covers the true number.")]
GroupThreshold = Annotated[
    int | None,
    typer.Option(help="Groups with a smaller noisy size are not shown; left out: what noise allows."),
]
What = Annotated[str | None, typer.Option(help="What the ledger calls this release: 'table 1'.")]


@release.command("counts")
def release_counts(
    ctx: typer.Context,
    files: Files,
    by: By = "",
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    sigma: Sigma = None,
    noise: TableNoise = "auto",
    suppress_below: Annotated[int | None, typer.Option(help="Noisy counts below this are not shown.")] = None,
    domain: Domains = None,
    bins: Bins = None,
    missing: Missing = "refuse",
    table: EngineTable = None,
    person: Person = None,
    at_most: CellsOfOne = 1,
    counts: Annotated[
        str | None, typer.Option(help="A column of counts that were aggregated already.")
    ] = None,
    margins: Annotated[
        bool, typer.Option(help="Add totals that agree with the counts, which become 0 or more.")
    ] = False,
    coverage: Coverage = 0.95,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """How many people are in each cell; small counts are not shown.

    Example: ringfence release counts people.csv --by region,age --domain region=north,south
    --bins age=0,18,65,inf --suppress-below 10 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases import counts as jobs

    carry_out(jobs.release_counts, **ctx.params)


@release.command("votes")
def release_votes(
    ctx: typer.Context,
    files: Files,
    questions: Columns = "",
    yes: Annotated[str, typer.Option(callback=read_names, help="What means yes: 1, or several: 1,2.")] = "",
    no: Annotated[str, typer.Option(callback=read_names, help="What means no: 0.")] = "",
    neither: Annotated[str, typer.Option(callback=read_names, help="What is no answer: 8,9.")] = "",
    table: EngineTable = None,
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    sigma: Sigma = None,
    noise: DecisionNoise = "auto",
    at_most: AnswersOfOne = None,
    person: Voter = None,
    ignore: Ignored = "",
    neighbours: Neighbours = "added",
    publish_epsilon: Publish = False,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """What the majority answered to yes/no questions: one row per person, 1 is yes, -1 is no, or yes and no.

    Example: ringfence release votes ballots.csv --yes 1 --no 0 --person id --ignore group --at-most 20
    --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases import votes as jobs

    carry_out(jobs.release_votes, **ctx.params)


@release.command("winners")
def release_winners(
    ctx: typer.Context,
    files: Files,
    candidates: Annotated[
        str,
        typer.Option(
            callback=read_names,
            help="Public candidates, where rows are ballots or votes: cat,dog,fox. Else rows are counts.",
        ),
    ] = "",
    by: Annotated[
        str, typer.Option(callback=read_names, help="Where each row is a vote: the columns of the query.")
    ] = "",
    of: Annotated[str | None, typer.Option(help="Where each row is a vote: its candidate's column.")] = None,
    domain: Domains = None,
    bins: Bins = None,
    missing: Missing = "refuse",
    table: EngineTable = None,
    queries: Columns = "",
    query: Annotated[
        str | None, typer.Option(help="The column that names the query of a row of counts.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    sigma: Sigma = None,
    noise: DecisionNoise = "auto",
    confident_above: Annotated[
        float | None, typer.Option(help="No answer where the largest noisy count is below this.")
    ] = None,
    threshold_sigma: ThresholdSigma = None,
    at_most: AnswersOfOne = None,
    person: Voter = None,
    ignore: Ignored = "",
    neighbours: Neighbours = "replaced",
    publish_epsilon: Publish = False,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """Which candidate won each query: from counts (a row per query), ballots (a row per person) or votes.

    Example: ringfence release winners votes.csv --by district --domain district=east,west --of party
    --candidates green,blue --person id --at-most 1 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases import winners as jobs

    carry_out(jobs.release_winners, **ctx.params)


@release.command("labels")
def release_labels(
    ctx: typer.Context,
    files: Annotated[
        list[str], typer.Argument(help="A .npy file, or CSV or parquet files, of counts: a row per query.")
    ],
    classes: Annotated[
        str,
        typer.Option(
            callback=read_names,
            help="Public classes, where rows are teachers' predictions: cat,dog,fox. Else rows are counts.",
        ),
    ] = "",
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    sigma: Sigma = None,
    threshold: Annotated[
        float | None, typer.Option(help="No answer where the largest noisy count is below this.")
    ] = None,
    threshold_sigma: ThresholdSigma = None,
    publish_epsilon: Publish = False,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """Which class the teachers of PATE give each query: from counts of votes, or from predictions.

    Example: ringfence release labels votes.npy --sigma 40 --threshold 200 --threshold-sigma 150
    --delta 1e-5 --out release
    """
    from ringfence.releases import pate as jobs

    carry_out(jobs.release_labels, **ctx.params)


@release.command("means")
def release_means(
    ctx: typer.Context,
    files: Files,
    of: Annotated[str, typer.Option(callback=read_names, help="The columns whose means are released.")],
    lower: Lower,
    upper: Upper,
    by: By = "",
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    sigma: Sigma = None,
    noise: TableNoise = "auto",
    suppress_below: GroupThreshold = None,
    domain: Domains = None,
    bins: Bins = None,
    missing: Missing = "refuse",
    table: EngineTable = None,
    person: Person = None,
    at_most: CellsOfOne = 1,
    coverage: Coverage = 0.95,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """Means of a column by group, each with an interval.

    Example: ringfence release means people.csv --of income --by region --domain region=north,south
    --lower 0 --upper 100000 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases import means as jobs

    carry_out(jobs.release_means, **ctx.params)


@release.command("sums")
def release_sums(
    ctx: typer.Context,
    files: Files,
    of: Annotated[str, typer.Option(callback=read_names, help="The columns whose sums are released.")],
    lower: Lower,
    upper: Upper,
    by: By = "",
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    sigma: Sigma = None,
    noise: TableNoise = "auto",
    domain: Domains = None,
    bins: Bins = None,
    missing: Missing = "refuse",
    table: EngineTable = None,
    person: Person = None,
    at_most: CellsOfOne = 1,
    coverage: Coverage = 0.95,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """Sums of columns by group, each with an interval.

    Example: ringfence release sums people.csv --of hours --by region --domain region=north,south
    --lower 0 --upper 60 --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases import means as jobs

    carry_out(jobs.release_sums, **ctx.params)


@release.command("shares")
def release_shares(
    ctx: typer.Context,
    files: Files,
    questions: Annotated[str, typer.Option(callback=read_names, help="Columns of answers: smokes,cycles.")],
    by: By = "",
    answers: Annotated[
        str, typer.Option(callback=read_names, help="Public answers, of questions without a --domain: 0,1.")
    ] = "",
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    sigma: Sigma = None,
    noise: TableNoise = "auto",
    suppress_below: GroupThreshold = None,
    domain: Domains = None,
    bins: Bins = None,
    missing: Missing = "refuse",
    table: EngineTable = None,
    person: Person = None,
    at_most: CellsOfOne = 1,
    coverage: Coverage = 0.95,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """Which share of those who answered gave each answer, for many questions at once, with intervals.

    Example: ringfence release shares survey.csv --questions smokes,cycles --answers 0,1 --epsilon 1
    --delta 1e-6 --out release
    """
    from ringfence.releases import shares as jobs

    carry_out(jobs.release_shares, **ctx.params)


@release.command("quantiles")
def release_quantiles(
    ctx: typer.Context,
    files: Files,
    of: Annotated[str, typer.Option(help="The column whose quantiles are released.")],
    candidates: Annotated[
        str, typer.Option(callback=read_numbers, help="Public values to choose from: 0:100000:500, or 1,2,5.")
    ],
    by: By = "",
    quantiles: Annotated[
        str, typer.Option(callback=read_numbers, help="Levels between 0 and 1: 0.25,0.5,0.75.")
    ] = "0.5",
    epsilon: Epsilon = None,
    delta: Delta = 1e-6,
    domain: Domains = None,
    bins: Bins = None,
    missing: Missing = "refuse",
    table: EngineTable = None,
    person: Person = None,
    at_most: CellsOfOne = 1,
    coverage: Coverage = 0.95,
    ledger: LedgerUrl = None,
    what: What = None,
    out: Out = Path("release"),
    private: Private = None,
    as_json: AsJson = False,
) -> None:
    """Medians or other quantiles of a column by group, each with an interval.

    Example: ringfence release quantiles people.csv --of income --candidates 0:100000:500 --by region
    --domain region=north,south --epsilon 1 --delta 1e-6 --out release
    """
    from ringfence.releases import quantiles as jobs

    carry_out(jobs.release_quantiles, **ctx.params)


def read_data(files: list[str], table: str | None) -> Any:
    """The names of files as they are, or the table of the engine whose URL stands in their place.

    >>> read_data(["people.csv"], None)
    ['people.csv']
    """
    is_url = len(files) == 1 and "://" in files[0]
    if is_url != (table is not None):
        raise ValueError(f"--table must be given with the URL of one engine, got {table!r} and {files}")
    if table is None:
        return files
    from ringfence.releases.reader import engine_table

    return engine_table(files[0], table)


def carry_out(
    job: "Callable[..., Release]",
    files: Any,
    out: Path,
    as_json: bool,
    private: Path | None = None,
    table: str | None = None,
    **options: Any,
) -> None:
    """Makes a release, saves it, and prints what may be published.

    What the owner of the data alone may know is said on the error stream, marked as private.

    A folder that holds something, or that another process is about to write, is refused before anything is
    released.
    """
    from ringfence.releases.release import check_apart

    check_apart(out, private)
    files = read_data(files, table)
    quiet = busy("Releasing", quiet=as_json)
    hidden = nullcontext() if private is None else new_folder(private)
    with quiet, warnings.catch_warnings(record=True) as warned, new_folder(out) as beside, hidden as apart:
        made = job(files, **options)
        paths = [
            (private if private and path.name == "account.json" else out) / path.name
            for path in made.save(beside, private=apart)
        ]
    for warning in warned:
        typer.echo(f"ringfence: warning: {warning.message}", err=True)
    for sentence in made.private:
        typer.echo(f"private, not to be published: {sentence}", err=True)
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
