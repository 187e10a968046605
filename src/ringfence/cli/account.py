"""``ringfence account``: what releases of a theta from a file cost."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.common import (
    AsJson,
    Delta,
    Interval,
    Law,
    Levels,
    Sigma,
    busy,
    numbers,
    print_cost,
    print_statement,
)


def account(
    sigma: Sigma,
    theta: Annotated[
        Path | None, typer.Argument(help="What is released, before noise: a .npy file of floats.")
    ] = None,
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
    noise_bound: Annotated[
        str | None,
        typer.Option(help="B or LOWER,UPPER: the noise itself is bounded, around any theta; without a file."),
    ] = None,
    coordinates: Annotated[int, typer.Option(help="How many numbers a release has; for --noise-bound.")] = 1,
    sampling_rate: Annotated[
        float, typer.Option(help="Each release is of a Poisson sample; for --noise-bound.")
    ] = 1.0,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Account for releases of theta: every epsilon, and the statement that holds.

    Example: ringfence account theta.npy --mechanism rectified --sigma 1 --bound 4 --sensitivity 1e-3

    A person sits in one cell of a table: ringfence account counts.npy --mechanism gaussian --sigma 4
    --sensitivity 1 --at-most 1

    Another library's bounded noise: ringfence account --sigma 1 --noise-bound 8 --norm 1 --coordinates 10000
    --sampling-rate 0.01 --steps 1000
    """
    if noise_bound is not None:
        from ringfence.accounting.moving import bounded_noise_epsilon
        from ringfence.numerics.rounding import rounded_up

        others = (theta, sensitivity, at_most, bound, levels)
        if norm is None or others != (None,) * 5 or mechanism not in ("rectified", "gaussian"):
            raise ValueError(
                "--noise-bound goes with --norm, --coordinates, --sampling-rate, no theta and no other law"
            )
        ends = numbers("--noise-bound", noise_bound, (1, 2), "B or LOWER,UPPER, such as 8 or -8,6")
        interval = (ends[0], ends[1]) if len(ends) == 2 else ends[0]
        run: dict[str, Any] = {"coordinates": coordinates, "steps": steps, "sampling_rate": sampling_rate}
        epsilon = bounded_noise_epsilon(sigma, interval, norm=norm, delta=delta, **run)
        said = (
            f"epsilon = {rounded_up(epsilon)} at delta = {delta:g}, data-independent: one record more or "
            f"fewer moves a release by at most {norm:g} (L2), releases: {steps:,}, numbers in each: "
            f"{coordinates:,}, Poisson rate {sampling_rate:g}, noise N(0, {sigma:g}^2) within {noise_bound} "
            "of the true value. Floating-point noise, sampling that is not Poisson and divisors that depend "
            "on the data are not covered."
        )
        row = {"epsilon": epsilon, "delta": delta, "data_independent": True, "statement": said}
        typer.echo(json.dumps(row) if as_json else said)
        return
    if theta is None or coordinates != 1 or sampling_rate != 1:
        raise ValueError(
            "THETA must be given, or --noise-bound; --coordinates and --sampling-rate go with that "
            "(--noise-bound=inf is the plain Gaussian)"
        )
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
        about = {"mechanism": repr(law), "sensitivity": size.state(), "coordinates": values.numel()}
        data["per_instance"]["statement"] = claim.per_instance.statement
        typer.echo(json.dumps({**about, **data, "statement": claim.statement}))
    else:
        said = f"{values.numel():,} coordinates, releases: {steps}, delta {delta:g}\n{size.statement}"
        print_cost(f"{law!r}\n{said}", data)
        print_statement(f"\n{claim.statement}\n\n{claim.per_instance.statement}")
