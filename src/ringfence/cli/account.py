"""``ringfence account``: what releases of a theta from a file cost."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.common import (
    AsJson,
    Delta,
    Interval,
    Law,
    Levels,
    Sigma,
    busy,
    print_cost,
    print_statement,
)


def account(
    theta: Annotated[Path, typer.Argument(help="What is released, before noise: a .npy file of floats.")],
    sigma: Sigma,
    sensitivity: Annotated[
        float | None, typer.Option(help="The most that one record can move a coordinate.")
    ] = None,
    at_most: Annotated[
        int | None, typer.Option(help="How many coordinates one record can move: 1 for the cells of a table.")
    ] = None,
    norm: Annotated[float | None, typer.Option(help="The L2 norm of the whole move.")] = None,
    mechanism: Law = "rectified",
    bound: Interval = None,
    levels: Levels = None,
    steps: Annotated[int, typer.Option(help="How many times theta is released.")] = 1,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Account for releases of theta: every epsilon, and the statement that holds.

    Example: ringfence account theta.npy --mechanism rectified --sigma 1 --bound 4 --sensitivity 1e-3

    A person sits in one cell of a table: ringfence account counts.npy --mechanism gaussian --sigma 4
    --sensitivity 1 --at-most 1
    """
    from ringfence.accounting.profile import fixed_theta_guarantee
    from ringfence.accounting.sensitivity import Sensitivity
    from ringfence.data.features import read_theta
    from ringfence.mechanisms.base import Mechanism

    law = Mechanism.by_name(mechanism, sigma=sigma, bound=bound, levels=levels)
    if sensitivity is None and norm is None:
        raise ValueError("--sensitivity or --norm must be given: it bounds how far one record can move theta")
    if sensitivity is not None:
        Sensitivity.of(sensitivity)  # an error that names the option
    size = Sensitivity(sensitivity, at_most, norm)
    values = read_theta(theta)
    with busy("Accounting", quiet=as_json):
        claim = fixed_theta_guarantee(law, values, size, steps, delta)
    data = claim.as_dict()
    if as_json:
        row = {"mechanism": repr(law), "sensitivity": size.state(), "coordinates": values.numel()}
        data["per_instance"]["statement"] = claim.per_instance.statement
        typer.echo(json.dumps({**row, **data, "statement": claim.statement}))
    else:
        about = f"{values.numel():,} coordinates, releases: {steps}, delta {delta:g}\n{size.statement}"
        print_cost(f"{law!r}\n{about}", data)
        print_statement(f"\n{claim.statement}\n\n{claim.per_instance.statement}")
