"""What one training run cost each of its examples, law by law, and how that is spread."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.comparison import CLAMPED, Comparison
from experiments.sweep.batch import linear_settings
from experiments.sweep.data import SweepData
from experiments.sweep.settings import SweepSetting
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.examples.accountant import ExampleAccountant
from ringfence.accounting.fisher import InformationNorm
from ringfence.numerics.rounding import rounded_up
from ringfence.progress import Progress
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.content import Section, Table
from ringfence.training.linear.grid import accuracies
from ringfence.training.linear.information import information_losses
from ringfence.training.linear.regression import clipped_gradients

EXAMPLES = 1000  # how many examples are shown: the numbers of all would take hours on two cores
_BINS = 30
_SAID = (
    "Every dataset: differential privacy for every dataset and every single record added or removed, "
    "provided that settings were not chosen by looking at the data; an attack with one false alarm in 1,000 "
    "finds at most the percentage of records that is shown. These two numbers alone may be published. "
    "Ex-post: for each single record the privacy loss that was realised on this run is at most epsilon, "
    "except with probability delta. Per-instance: by Rényi sums it is a guarantee only if theta was fixed in "
    "advance, and an estimate in training; by any other proof it holds for every dataset. Ex-post and "
    "per-instance numbers are computed from the data: do not publish them, and do not stop or change the "
    "noise because of them."
)
_NORMS = {"spectral": "the largest over directions", "trace": "the root of the mean square over features"}


@dataclass(frozen=True)
class SingleExampleRow:
    """One training example under one mechanism: its ex-post epsilon and its eta over the run.

    Both numbers are sensitive: they are computed from private data.
    """

    mechanism: str
    example: int  # its index in the training part
    epsilon: float
    eta: float


@dataclass(frozen=True)
class ExamplesOfRun:
    """A training run: its setting, its test accuracy, what is claimed of it, and its examples."""

    mechanism: str
    setting: SweepSetting
    test_accuracy: float
    claim: Guarantee
    rows: tuple[SingleExampleRow, ...]


def single_examples(
    data: SweepData,
    settings: Mapping[str, SweepSetting],
    delta: float,
    *,
    examples: int = EXAMPLES,
    kind: InformationNorm = "spectral",
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[ExamplesOfRun]:
    """Yields one run per setting, with one row per measured example.

    Every run trains on all examples and measures ``examples`` of them: always the same ones, picked
    without looking at them. ``kind`` says which eta is measured, as in ``information_losses``.

    >>> import torch
    >>> both = torch.tensor([[1.0], [-1.0]] * 50), torch.tensor([1, 0] * 50)
    >>> data = SweepData(2, torch.ones(1), both, None, both, "")
    >>> setting = SweepSetting("gaussian", 0.1, 30.0, learning_rate=1.0, steps=3)
    >>> [run] = single_examples(data, {"Gaussian": setting}, delta=1e-5, examples=2)
    >>> run.mechanism, run.test_accuracy, [row.epsilon > 0 for row in run.rows]
    ('Gaussian', 1.0, [True, True])
    """
    picked = data.sample(examples)
    features, labels = data.train
    some, theirs = features[picked], labels[picked]
    for number, (name, setting) in enumerate(settings.items()):
        training = linear_settings(setting, seed)
        run = training.train(features, labels, data.classes, public_size=len(features))
        account = ExampleAccountant(training.mechanism, run.account.orders)
        for step in run.trajectory:
            account.step(step.theta.reshape(-1), clipped_gradients(step.weights, some, theirs, training.clip))
        etas = information_losses(
            training.mechanism, run.trajectory, some, theirs, training.clip, data.attributes, kind=kind
        )
        numbers = zip(picked.tolist(), account.epsilons(delta).tolist(), etas.tolist(), strict=True)
        if progress is not None:
            progress("single examples", (number + 1) / len(settings))
        yield ExamplesOfRun(
            name,
            setting,
            float(accuracies([run], *data.test)[0]),
            run.account.guarantee(delta),
            tuple(SingleExampleRow(name, *values) for values in numbers),
        )


def like_for_like(comparison: Comparison, share: float = 0.85) -> tuple[float, dict[str, SweepSetting]]:
    """A target accuracy, and for every law the same setting, with which they are compared there.

    Each law has chosen a setting at the target: that of its smallest epsilon. Of these choices the one with
    the widest bound, relative to sigma, is used for all laws, because all of them can learn with it; clip,
    noise, bound, learning rate and steps are then the same, and only the laws differ. The target is the
    largest one up to ``share`` of the highest accuracy that every law reaches: at the very end of a frontier
    a single setting would stand for a whole law. (0, {}) where the laws have no target in common.
    """
    laws = [one for one in comparison.candidates if one.law != CLAMPED]  # its runs are the rectified law's
    common = [target for target in comparison.targets if all(one.at(target) for one in laws)]
    if not common:
        return 0.0, {}
    target = max((one for one in common if one <= share * common[-1]), default=common[0])
    own = {one.law: point.setting for one in laws if (point := one.at(target))}
    base = max(own.values(), key=lambda setting: (setting.bound or 0.0) / setting.sigma)
    return target, {
        name: replace(
            base,
            mechanism=setting.mechanism,
            bound=None if setting.bound is None else base.bound,
            levels=setting.levels,
        )
        for name, setting in own.items()
    }


def single_examples_section(
    data: SweepData, delta: float, fair: Comparison, kind: InformationNorm, progress: Progress | None = None
) -> tuple[Section, list[SingleExampleRow]]:
    """What a run cost single examples, with the same setting for every law; and the rows of the charts."""
    target, chosen = like_for_like(fair)
    runs = list(single_examples(data, chosen, delta, kind=kind, progress=progress))
    accuracy = ", ".join(f"{run.mechanism} {run.test_accuracy:.1%}" for run in runs)
    how = (
        f"Every law with the same clip, noise, bound, learning rate and steps: {runs[-1].setting}, a choice "
        f"of the fair search for an accuracy of {target:.0%}. Test accuracy: {accuracy}."
    )
    count = min(EXAMPLES, len(data.train[1]))
    gone = ", ".join(f"{run.mechanism} {sum(row.eta == 0 for row in run.rows):,}" for run in runs)
    charts = (
        distribution_chart(
            "example_epsilons",
            "Epsilon of single examples",
            f"Ex-post epsilon of {count:,} training examples at delta {delta:g}.",
            {run.mechanism: [row.epsilon for row in run.rows] for run in runs},
            x_label="epsilon",
            details=how,
        ),
        distribution_chart(
            "example_information",
            "Fisher information loss of single examples",
            f"Eta ({_NORMS[kind]}) of {count:,} training examples over the run. It is 0, and not drawn, "
            f"where the clip flattens every coordinate of a gradient: {gone}.",
            {run.mechanism: [row.eta for row in run.rows if row.eta > 0] for run in runs},
            x_label="eta",
            x_log=True,
            details=how,
        ),
    )
    section = Section(
        "Single examples, and what may be said",
        (_SAID,),
        charts,
        (_claims(runs, delta),),
        sensitive=True,
        lead="What one run cost each of its examples, with the same setting for every law.",
        folded=True,
    )
    return section, [row for run in runs for row in run.rows]


def _claims(runs: Sequence[ExamplesOfRun], delta: float) -> Table:
    columns = ("law", "every dataset", "found, %", "ex-post", "per-instance", "its proof", "test accuracy")
    lines = []
    for run in runs:
        claim = run.claim
        numbers = (
            claim.epsilon,
            min(100.0, 100 * claim.true_positive_rate(1e-3)),
            claim.per_instance.ex_post_epsilon,
            claim.per_instance.epsilon,
        )
        lines.append(
            (run.mechanism, *map(rounded_up, numbers), claim.per_instance.proof, f"{run.test_accuracy:.1%}")
        )
    title = f"Epsilon of the {runs[0].claim.steps} releases of a run at delta {delta:g}"
    return Table(title, columns, tuple(lines), sensitive=True)


def distribution_chart(
    name: str,
    title: str,
    caption: str,
    values: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    x_log: bool = False,
    details: str = "",
) -> Chart:
    """Draws the outline of one histogram for each name in ``values``, all over the same bins.

    >>> chart = distribution_chart("h", "", "", {"sign": [1.0, 1.0, 2.0]}, x_label="epsilon")
    >>> chart.panels[0].lines[0].x[:3], max(chart.panels[0].lines[0].y), chart.sensitive
    ((1.0, 1.0, 1.0333333333333334), 2.0, True)
    """
    placed = {who: np.log(numbers) if x_log else np.asarray(numbers) for who, numbers in values.items()}
    edges = np.histogram_bin_edges(np.concatenate(list(placed.values())), _BINS)
    x = np.repeat(np.exp(edges) if x_log else edges, 2)
    lines = tuple(
        Line(
            who,
            tuple(x.tolist()),
            (0.0, *np.repeat(np.histogram(own, edges)[0], 2).astype(float).tolist(), 0.0),
        )
        for who, own in placed.items()
    )
    panel = Panel(title, x_label, "examples", lines, x_log=x_log, y_from_zero=True)
    return Chart(name, title, caption, (panel,), sensitive=True, details=details)
