"""What one training run cost each of its examples, mechanism by mechanism."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ringfence.accounting.examples.accountant import ExampleAccountant
from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.paper.sweep.data import SweepData
from ringfence.paper.sweep.settings import SweepSetting
from ringfence.training.linear.grid import accuracies
from ringfence.training.linear.information import information_losses
from ringfence.training.linear.residuals import clipped_gradients


@dataclass(frozen=True)
class SingleExampleRow:
    """One training example under one mechanism: its ex-post epsilon and its eta over the run. Sensitive."""

    mechanism: str
    example: int  # its place in the training part
    epsilon: float
    eta: float


@dataclass(frozen=True)
class ExamplesOfRun:
    """A training run: its setting, how well it does, what may be said about it, and its examples."""

    mechanism: str
    setting: SweepSetting
    test_accuracy: float
    statement: str
    rows: tuple[SingleExampleRow, ...]


def single_examples(
    data: SweepData,
    settings: Mapping[str, SweepSetting],
    delta: float,
    *,
    examples: int = 1000,
    kind: InformationNorm = "spectral",
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Iterator[ExamplesOfRun]:
    """A run a setting, a row an example.

    All are trained on, ``examples`` of them are measured: the same ones every time, picked without
    looking at them. ``kind`` is the eta, as in ``linear_information``.

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
        training = setting.training(seed)
        run = training.train(features, labels, data.classes, public_size=len(features))
        account = ExampleAccountant(training.mechanism, run.account.orders)
        for step in run.trajectory:
            account.step(step.theta.reshape(-1), clipped_gradients(step.weights, some, theirs, training.clip))
        etas = information_losses(
            training.mechanism, run.trajectory, some, theirs, training.clip, data.attributes, kind=kind
        )
        epsilons = account.epsilons(delta)
        if progress is not None:
            progress((number + 1) / len(settings))
        yield ExamplesOfRun(
            name,
            setting,
            float(accuracies([run], *data.test)[0]),
            run.account.guarantee(delta).statement,
            tuple(
                SingleExampleRow(name, example, float(epsilons[i]), float(etas[i]))
                for i, example in enumerate(picked.tolist())
            ),
        )
