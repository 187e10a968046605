"""``ringfence ledger``: makes a budget for several releases, and says what they cost and what is left."""

import json
import math
from typing import Annotated

import typer
from rich.table import Table

from ringfence.cli.common import AsJson, print_statement, print_table

ledger = typer.Typer(help="Keep a budget for several releases of the same data.", no_args_is_help=True)

Url = Annotated[str, typer.Argument(help="sqlite:///study.db or postgresql://user@server/database.")]


@ledger.command()
def create(
    url: Url,
    epsilon: Annotated[float, typer.Option(help="epsilon of all releases together; inf only adds them up.")],
    delta: Annotated[float, typer.Option(help="delta of all releases together.")] = 1e-6,
    neighbours: Annotated[
        str, typer.Option(help="What is protected: that somebody is 'added', or 'replaced'.")
    ] = "added",
) -> None:
    """Makes a ledger; one that is there stays as it is, and must have this budget.

    Example: ringfence ledger create sqlite:///study.db --epsilon 3 --delta 1e-6

    Then: ringfence release counts people.csv ... --ledger sqlite:///study.db --what "table 1"
    """
    from ringfence.accounting.ledger import Ledger

    made = Ledger(url, epsilon, delta, neighbours=neighbours)  # type: ignore[arg-type]
    print_statement(made.statement)


@ledger.command()
def show(url: Url, as_json: AsJson = False) -> None:
    """The budget, every entry with the epsilon that it has for every dataset, and all of them together.

    Example: ringfence ledger show sqlite:///study.db
    """
    from ringfence.accounting.ledger import Ledger
    from ringfence.numerics.rounding import rounded_up

    with Ledger(url) as opened:
        costs = [(entry.what, entry.cost.epsilon(opened.delta)) for entry in opened.entries]
    if as_json:
        budget = {name: getattr(opened, name) for name in ("epsilon", "delta", "neighbours", "planned")}
        entries = [{"what": what, "epsilon": cost} for what, cost in costs]
        typer.echo(json.dumps({**budget, "spent": opened.guarantee().epsilon, "entries": entries}))
        return
    table = Table("entry", f"epsilon at delta {opened.delta:g}")
    for what, cost in costs:
        table.add_row(what, rounded_up(cost))
    print_table(table)
    print_statement(f"\n{opened.statement}")


@ledger.command()
def remaining(url: Url, as_json: AsJson = False) -> None:
    """The epsilon of the largest single release that still fits the budget, with each kind of noise.

    Example: ringfence ledger remaining postgresql://ana@server/privacy
    """
    from ringfence.accounting.ledger import Ledger
    from ringfence.mechanisms.gaussian import Gaussian
    from ringfence.mechanisms.laplace import Laplace
    from ringfence.numerics.rounding import rounded_up

    opened = Ledger(url)
    left = {law.name: opened.remaining(law) for law in (Gaussian, Laplace)}
    if as_json:
        plain = {name: None if math.isinf(value) else value for name, value in left.items()}
        typer.echo(json.dumps({"epsilon": opened.epsilon, "delta": opened.delta, "remaining": plain}))
        return
    for name, value in left.items():
        down = rounded_up(-value).removeprefix("-")  # so that it fits
        typer.echo(f"epsilon {down} at delta {opened.delta:g} with {name} noise")
