"""An Opacus run as a page: what may be published, and the numbers that only its owner may see."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from torch import Tensor

from ringfence.numerics.rounding import rounded_up
from ringfence.paper.single_examples import distribution_chart
from ringfence.report.chart import Chart
from ringfence.report.content import Report, Section, Table
from ringfence.report.versions import installed_versions

if TYPE_CHECKING:
    from ringfence.opacus.run import OpacusRun

_RANKS = (("smallest", 0.0), ("median", 0.5), ("95 % are at most", 0.95), ("largest", 1.0))


def run_report(run: "OpacusRun", delta: float) -> Report:
    """The report of a watched run. What depends on the data is marked sensitive."""
    claim = run.guarantee(delta)
    promise, *others = claim.statement.split("\n\n")
    assumed = others.pop()  # a run of Opacus always assumes something
    epsilon = rounded_up(claim.epsilon_data_independent)
    sections = [Section("What may be said about the run", (promise, assumed))]
    if run.random_layers is None:
        sections.append(_epsilons(run, delta))
    if run.fisher is not None:
        sections.append(_information(run))
    sections.append(Section("This run and this dataset", tuple(others), sensitive=True))
    return Report(
        "An Opacus run",
        tuple(sections),
        summary=(f"{run.steps} steps satisfy ({epsilon}, {delta:.3g})-differential privacy.",),
        settings=tuple((name, f"{value:g}") for name, value in run.settings.items()),
        versions=(*installed_versions(), ("opacus", version("opacus"))),
    )


def _epsilons(run: "OpacusRun", delta: float) -> Section:
    found = {"proved": run.example_epsilons(delta), "estimated": run.example_epsilons(delta, estimated=True)}
    chart = distribution_chart(
        "example_epsilons",
        "Epsilon of single examples",
        f"Ex-post epsilon of each training example at delta {delta:g}, as proved and, where not all lengths "
        "were measured, as estimated from those measured last. For an example of which none was measured it "
        f"is {rounded_up(run.guarantee(delta).epsilon)}.",
        {name: values.tolist() for name, values in found.items()},
        x_label="epsilon",
    )
    return _section("Each example: epsilon", run.examples.statement, chart, found)


def _information(run: "OpacusRun") -> Section:
    assert run.fisher is not None
    etas = run.fisher_information_loss()
    measured = etas[~etas.isnan()]
    steps, failing = run.fisher.measured, run.fisher.failure_probability
    statement = (
        f"Eta, the Fisher information loss, of each example: an upper bound of that of the {steps} steps "
        "that were measured, as far as the example was in their batches, except with probability "
        f"{failing:g} over random probes. Were no step to depend on earlier releases, no unbiased estimator "
        "of the example's features from these releases would have a variance below 1 / eta^2. In training, "
        "the information is the average of such sums over runs, of which this is one. It is not differential "
        "privacy, is computed from the data and is itself sensitive."
    )
    chart = distribution_chart(
        "example_information",
        "Fisher information loss of single examples",
        f"Eta of each training example over the measured steps. Never measured: {len(etas) - len(measured)} "
        f"of {len(etas)} examples, of which nothing is known.",
        {"measured": measured.tolist()},
        x_label="eta",
        x_log=True,
    )
    return _section("Each example: Fisher information loss", statement, chart, {"eta": measured})


def _section(heading: str, statement: str, chart: Chart, found: dict[str, Tensor]) -> Section:
    rows = tuple(
        (name, *(rounded_up(float(values.quantile(rank, interpolation="higher"))) for _, rank in _RANKS))
        for name, values in found.items()
        if len(values)
    )
    table = Table(heading, ("", *(name for name, _ in _RANKS)), rows, sensitive=True)
    return Section(heading, tuple(statement.split("\n\n")), (chart,), (table,), sensitive=True)
