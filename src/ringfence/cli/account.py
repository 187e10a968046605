"""``ringfence account``: what releases of a theta from a file cost."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ringfence.cli.common import (
    AsJson,
    AtMost,
    Delta,
    EachMove,
    Interval,
    Law,
    Levels,
    LongestMove,
    Sigma,
    busy,
    law_beside_gaussian,
    one_record_moves,
    print_statement,
    print_table,
)

if TYPE_CHECKING:
    from ringfence.accounting.guarantee import Guarantee


def account(
    theta: Annotated[Path, typer.Argument(help="What is released, before noise: a .npy file of floats.")],
    sigma: Sigma,
    sensitivity: EachMove = None,
    at_most: AtMost = None,
    norm: LongestMove = None,
    mechanism: Law = "rectified",
    bound: Interval = None,
    levels: Levels = None,
    steps: Annotated[int, typer.Option(help="How many times theta is released.")] = 1,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """What releases of theta cost, and what may be said about them.

    Example: ringfence account theta.npy --mechanism rectified --sigma 1 --bound 4 --sensitivity 1e-3

    A person sits in one cell of a table: ringfence account counts.npy --mechanism gaussian --sigma 4
    --sensitivity 1 --at-most 1
    """
    from ringfence.accounting.profile import fixed_theta_guarantee
    from ringfence.data.features import read_theta
    from ringfence.mechanisms.base import Mechanism

    law = Mechanism.by_name(mechanism, sigma=sigma, bound=bound, levels=levels)
    size = one_record_moves(sensitivity, at_most, norm)
    values = read_theta(theta)
    with busy("Accounting", quiet=as_json):
        claim = fixed_theta_guarantee(law, values, size, steps, delta)
    if as_json:
        about = {"mechanism": repr(law), "sensitivity": size.state(), "coordinates": values.numel()}
        data = {**about, **claim.as_dict(), "statement": claim.statement}
        data["per_instance"]["statement"] = claim.per_instance.statement
        typer.echo(json.dumps(data))
    else:
        title = (
            f"{law!r}\n{values.numel():,} coordinates, releases: {steps}, delta {delta:g}\n{size.statement}"
        )
        print_table(account_table(title, claim))
        print_statement(f"\n{claim.statement}\n\n{claim.per_instance.statement}")


def account_table(title: str, claim: "Guarantee") -> Table:
    """Every epsilon with what it is a statement about, beside the Gaussian's computed in the same way.

    >>> import ringfence as rf
    >>> from torch import zeros
    >>> from ringfence.accounting.profile import fixed_theta_guarantee
    >>> claim = fixed_theta_guarantee(rf.StochasticSign(1.0), zeros(3), 1e-2, steps=1, delta=1e-5)
    >>> account_table("A sign", claim).row_count
    4
    """
    from ringfence.numerics.rounding import rounded_up

    own = claim.per_instance
    table = law_beside_gaussian(title, "epsilon")
    for name, value, gaussian, what in (
        ("epsilon", claim.epsilon, own.gaussian_epsilon, "DP, every dataset"),
        (
            *("per-instance", own.epsilon, own.gaussian_epsilon),
            f"this dataset, theta fixed; {own.proof}; sensitive",
        ),
        (
            *("by Rényi sums", own.renyi_epsilon, own.gaussian_renyi_epsilon),
            "the same, as in the paper; sensitive",
        ),
        (
            *("ex-post", own.ex_post_epsilon, own.gaussian_ex_post_epsilon),
            "this dataset and trajectory; sensitive",
        ),
    ):
        table.add_row(name, rounded_up(value), rounded_up(gaussian), what)
    return table
