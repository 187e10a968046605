"""``ringfence release``: counts, shares, means, sums, quantiles, votes, winners and labels, to publish.

Options have the names of Python's arguments, and go to the library as they are read.
"""

import csv
import inspect
import json
import tomllib
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from fractions import Fraction
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.common import AsJson, Out, busy, give_options, option, print_statement
from ringfence.files.atomic import new_folder
from ringfence.releases.counts import release_counts
from ringfence.releases.decisions import release_votes, release_winners
from ringfence.releases.means import release_means, release_shares, release_sums
from ringfence.releases.pate import release_labels
from ringfence.releases.quantiles import release_quantiles
from ringfence.releases.reader import engine_table
from ringfence.releases.release import Release, check_apart

release = typer.Typer(help="Release a table privately, as files to publish.", no_args_is_help=True)

_MOST_IN_A_RANGE = 100_000


def split(given: str) -> list[str]:
    """The texts between commas; quotes stand around a text with a comma in it.

    >>> split('north, "south, and islands",')
    ['north', 'south, and islands', '']
    """
    return [text.strip() for text in next(csv.reader([given], skipinitialspace=True), [])]


def read_names(given: str | None) -> list[str] | None:
    """Names of columns or of other public things, with commas between them; None where there are none.

    >>> read_names("region, age")
    ['region', 'age']
    """
    return [name for name in split(given or "") if name] or None


def read_domains(given: list[str] | None) -> dict[str, list[Any]] | None:
    """The public values of columns: each argument is NAME=VALUE,VALUE or a TOML or JSON file of lists.

    An empty value stands for a missing one. A file may describe more columns than a table has.

    >>> read_domains(["region=north,south", "smoker=yes,no,"])
    {'region': ['north', 'south'], 'smoker': ['yes', 'no', None]}
    """
    return _of_columns("--domain", given, lambda values: [value or None for value in split(values)])


def read_bins(given: list[str] | None) -> dict[str, list[Any]] | None:
    """The public edges of columns of numbers or dates, like ``read_domains``.

    >>> read_bins(["age=0,18,65,inf", "born=1950-01-01,1980-01-01,2010-01-01"])
    {'age': [0, 18, 65, inf], 'born': ['1950-01-01', '1980-01-01', '2010-01-01']}
    """
    return _of_columns("--bins", given, lambda edges: [_number(edge) for edge in split(edges)])


def _of_columns(
    called: str, given: list[str] | None, read: Callable[[str], list[Any]]
) -> dict[str, list[Any]] | None:
    described: dict[str, list[Any]] = {}
    for one in given or []:
        name, equals, values = one.partition("=")
        new = {name: read(values)} if equals else _described_in(called, Path(one))
        if twice := new.keys() & described:
            raise ValueError(f"{called} must give each column once, got {min(twice)!r} twice")
        described |= new
    return described or None


def _described_in(called: str, path: Path) -> dict[str, list[Any]]:
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"{called} must be NAME=VALUE,VALUE or a .toml or .json file, got {str(path)!r}")
    try:
        read = tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{called} {path}: {error}") from None
    if not isinstance(read, dict) or not all(isinstance(values, list) for values in read.values()):
        raise ValueError(f"{called} {path} must hold a list of values for each column")
    return read


def read_numbers(given: str) -> Any:
    """One number, or a list of them with commas between them; FIRST:LAST:STEP is a range with both ends.

    >>> read_numbers("0.5"), read_numbers("0,18,65"), read_numbers("0:30:10")
    (0.5, [0, 18, 65], [0, 10, 20, 30])
    """
    numbers: list[Any] = split(given)
    try:
        if given.count(":") == 2:
            first, last, step = map(Fraction, given.split(":"))
            many = min((last - first) // step + 1, _MOST_IN_A_RANGE)  # more than any job takes
            numbers = [float(first + step * place) for place in range(many)]
        numbers = [_whole(float(number)) for number in numbers]
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{given!r} must be a number, several (1,2,3) or a range (0:100:5)") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _number(text: str) -> float | str:
    try:
        return _whole(float(text))
    except ValueError:
        return text  # a date


def _whole(number: float) -> float:
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def read_ledger(url: str | None) -> Any:
    """The ledger at a URL, which must be there; None where none is asked for."""
    from ringfence.accounting.ledger import Ledger

    return None if url is None else Ledger(url)


_Text, _Whole, _Real = str | None, int | None, float | None
_GROUPS = "Groups with a smaller noisy size are not shown; left out: what noise allows."
# By the name of the argument of a job that an option goes to. Where it is required or has a default, the job
# says so.
_OPTIONS: dict[str, Any] = {
    "questions": option(
        _Text, "Columns of answers, with commas between them: smokes,cycles.", read=read_names
    ),
    "answers": option(_Text, "Public answers, of questions without a --domain: 0,1.", read=read_names),
    "of": option(_Text, "The columns whose values are released.", read=read_names),
    "by": option(_Text, "Columns whose combinations are the cells: region,age.", read=read_names),
    "lower": option(_Text, "Public limit: smaller values count as it.", read=read_numbers),
    "upper": option(_Text, "Public limit: larger values count as it.", read=read_numbers),
    "quantiles": option(_Text, "Levels between 0 and 1: 0.25,0.5,0.75.", read=read_numbers),
    "yes": option(_Text, "What means yes: 1, or several: 1,2.", read=read_names),
    "no": option(_Text, "What means no: 0.", read=read_names),
    "neither": option(_Text, "What is no answer: 8,9.", read=read_names),
    "queries": option(_Text, "Columns of ballots; all columns if left out.", read=read_names),
    "query": option(_Text, "The column that names the query of a row of counts."),
    "epsilon": option(_Real, "epsilon that must hold for every dataset."),
    "delta": option(float, "delta of every (epsilon, delta)."),
    "sigma": option(_Real, "The noise, instead of an epsilon."),
    "noise": option(str, "'gaussian', 'laplace' (also --delta 0), or 'auto': the smaller one."),
    "suppress_below": option(_Whole, _GROUPS),
    "domain": option(
        list[str] | None, "Public values: region=north,south; or a TOML or JSON file.", read=read_domains
    ),
    "bins": option(list[str] | None, "Public edges of numbers or dates: age=0,18,65,inf.", read=read_bins),
    "missing": option(str, "Rows without a value: 'refuse', 'drop' (leave out) or 'category' (count apart)."),
    "person": option(_Text, "The column that says whose row it is."),
    "at_most": option(_Whole, "In how many cells one person may count."),
    "counts": option(_Text, "A column of counts that were aggregated already."),
    "margins": option(bool, "Add totals that agree with the counts, which become 0 or more."),
    "coverage": option(float, "How often an interval covers the true number."),
    "confident_above": option(_Real, "No answer where the largest noisy count is below this."),
    "threshold": option(_Real, "No answer where the largest noisy count is below this."),
    "threshold_sigma": option(_Real, "The noise of that question; twice sigma if left out."),
    "neighbours": option(_Text, "What is protected: that somebody is 'added', or 'replaced'."),
    "ignore": option(
        _Text, "Columns to leave out: group,remarks.", read=lambda given: read_names(given) or []
    ),
    "publish_epsilon": option(bool, "Publish what it cost these voters too, with noise."),
    "ledger": option(_Text, "The budget to charge: a URL of 'ringfence ledger create'.", read=read_ledger),
    "what": option(_Text, "What the ledger calls this release: 'table 1'."),
}
_FILES = "CSV or parquet files, or patterns of names; or postgresql://..., with --table."
_LAST = {  # of every command
    "table": (option(_Text, "The table, where the data is the URL of an engine (Spark, ...)."), None),
    "out": (Out, Path("release")),
    "private": (
        option(Path | None, "A folder for what must not be published: the account of these people."),
        None,
    ),
    "as_json": (AsJson, False),
}


def command(job: Callable[..., Release], says: str, files: str = _FILES, **own: Any) -> None:
    """Adds the command of a job: those arguments of the job that ``own`` or else ``_OPTIONS`` describe."""

    def run(ctx: typer.Context, files: Annotated[list[str], typer.Argument(help=files)], **_: Any) -> None:
        carry_out(job, **ctx.params)  # as they were read: typer would turn dicts into lists

    _, *arguments = inspect.signature(job).parameters.values()  # the first one is the data
    kept = {}
    for one in arguments:
        found, default = own.get(one.name, _OPTIONS.get(one.name)), one.default
        if found is not None:
            read = found.__metadata__[0].callback
            if read and default is not Parameter.empty:  # it is text, before it is read
                default = str(default) if default else None
            kept[one.name] = (found, default)
    last = {name: one for name, one in _LAST.items() if own.get(name, one) is not None}
    run.__doc__ = says
    release.command(job.__name__.removeprefix("release_"))(give_options(run, kept | last))


_DECIDES: dict[str, Any] = {
    "noise": option(str, "'gaussian', 'gumbel', or 'auto': the one that decides better."),
    "at_most": option(_Whole, "How many answers of one person count; else all."),
}

command(
    release_counts,
    """How many people are in each cell; small counts are not shown.

    Example: ringfence release counts people.csv --by region,age --domain region=north,south
    --bins age=0,18,65,inf --suppress-below 10 --epsilon 1 --delta 1e-6 --out release
    """,
    suppress_below=option(_Whole, "Noisy counts below this are not shown."),
)
command(
    release_shares,
    """Which share of those who answered gave each answer, for many questions at once, with intervals.

    Example: ringfence release shares survey.csv --questions smokes,cycles --answers 0,1 --epsilon 1
    --delta 1e-6 --out release
    """,
)
command(
    release_means,
    """Means of columns by group, each with an interval.

    Example: ringfence release means people.csv --of income --by region --domain region=north,south
    --lower 0 --upper 100000 --epsilon 1 --delta 1e-6 --out release
    """,
)
command(
    release_sums,
    """Sums of columns by group, each with an interval.

    Example: ringfence release sums people.csv --of hours --by region --domain region=north,south
    --lower 0 --upper 60 --epsilon 1 --delta 1e-6 --out release
    """,
)
command(
    release_quantiles,
    """Medians or other quantiles of a column by group, each with an interval.

    Example: ringfence release quantiles people.csv --of income --candidates 0:100000:500 --by region
    --domain region=north,south --epsilon 1 --delta 1e-6 --out release
    """,
    of=option(_Text, "The column whose quantiles are released."),
    candidates=option(_Text, "Public values to choose from: 0:100000:500, or 1,2,5.", read=read_numbers),
)
command(
    release_votes,
    """What the majority answered to yes/no questions: one row per person, 1 is yes, -1 is no, or yes and no.

    Example: ringfence release votes ballots.csv --yes 1 --no 0 --person id --ignore group --at-most 20
    --epsilon 1 --delta 1e-6 --out release
    """,
    **_DECIDES,
)
command(
    release_winners,
    """Which candidate won each query: from counts (a row per query), ballots (a row per person) or votes.

    Example: ringfence release winners votes.csv --by district --domain district=east,west --of party
    --candidates green,blue --person id --at-most 1 --epsilon 1 --delta 1e-6 --out release
    """,
    by=option(_Text, "Where each row is a vote: the columns of the query.", read=read_names),
    of=option(_Text, "Where each row is a vote: its candidate's column."),
    candidates=option(
        _Text,
        "Public candidates, where rows are ballots or votes: cat,dog,fox. Else rows are counts.",
        read=read_names,
    ),
    **_DECIDES,
)
command(
    release_labels,
    """Which class the teachers of PATE give each query: from counts of votes, or from predictions.

    Example: ringfence release labels votes.npy --sigma 40 --threshold 200 --threshold-sigma 150
    --delta 1e-5 --out release
    """,
    files="A .npy file, or CSV or parquet files, of counts: a row per query.",
    table=None,  # it is in files alone
    classes=option(
        _Text,
        "Public classes, where rows are teachers' predictions: cat,dog,fox. Else rows are counts.",
        read=read_names,
    ),
)


def read_data(files: list[str], table: str | None) -> Any:
    """The names of files as they are, or the table of the engine whose URL stands in their place.

    >>> read_data(["people.csv"], None)
    ['people.csv']
    """
    is_url = len(files) == 1 and "://" in files[0]
    if is_url != (table is not None):
        given = "a URL" if is_url else "names of files"  # a URL may hold a password
        raise ValueError(f"--table must be given with the URL of one engine, got {table!r} with {given}")
    if table is None:
        return files
    return engine_table(files[0], table)


def carry_out(
    job: Callable[..., Release],
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
