"""What one training run cost each of its examples, mechanism by mechanism, and how that is spread."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.comparison.chosen_settings import like_for_like
from experiments.comparison.comparison import Comparison
from experiments.distribution import distribution_chart
from experiments.sweep.data import SweepData
from experiments.sweep.probes import linear_settings
from experiments.sweep.settings import SweepSetting
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.examples.accountant import ExampleAccountant
from ringfence.accounting.fisher import InformationNorm
from ringfence.numerics.rounding import rounded_up
from ringfence.progress import Progress
from ringfence.report.content import Section, Table
from ringfence.training.linear.grid import accuracies
from ringfence.training.linear.information import information_losses
from ringfence.training.linear.regression import clipped_gradients

EXAMPLES = 1000  # how many examples are shown: the numbers of all would take hours on two cores
_SAID = (
    "Every dataset: differential privacy for every dataset and every single record added or removed, "
    "provided that settings were not chosen by looking at the data; whoever accepts one false alarm in 1,000 "
    "finds at most so many percent of the records. These two numbers alone may be published. Ex-post: for "
    "each single record the privacy loss that was realised on this run is at most epsilon, except with "
    "probability delta. Per-instance: by Rényi sums it is a guarantee only if theta was fixed in advance, "
    "and an estimate in training; by any other proof it holds for every dataset. Ex-post and per-instance "
    "numbers are computed from the data: do not publish them, and do not stop or change the noise because of "
    "them."
)
_KINDS = {"spectral": "the largest over directions", "trace": "the root of the mean square over features"}


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
        epsilons = account.epsilons(delta)
        if progress is not None:
            progress("single examples", (number + 1) / len(settings))
        yield ExamplesOfRun(
            name,
            setting,
            float(accuracies([run], *data.test)[0]),
            run.account.guarantee(delta),
            tuple(
                SingleExampleRow(name, example, float(epsilons[i]), float(etas[i]))
                for i, example in enumerate(picked.tolist())
            ),
        )


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
            f"Eta ({_KINDS[kind]}) of {count:,} training examples over the run. It is 0, and not drawn, "
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
        shown = map(rounded_up, numbers)
        lines.append((run.mechanism, *shown, claim.per_instance.proof, f"{run.test_accuracy:.1%}"))
    title = (
        f"Epsilon of the {runs[0].claim.steps} releases of a run at delta {delta:g}" if runs else "Epsilon"
    )
    return Table(title, columns, tuple(lines), sensitive=True)
