"""Figure 4: test accuracy against Fisher information loss, for a linear probe and for a small network.

Settings are tried as in a fair search: every law gets the same ones, and the accuracy on a validation part
chooses between them. Accuracies are means over seeds. eta is that of the first seed's run: measuring it takes
most of the time, and on digits it differs by less than 10 % between seeds.

"Gaussian, clamped" is the rectified law's run under the Gaussian's account: clamping a release is free.
What it gains over the Gaussian is the clamp's help to training; what the rectified law gains over it is
the gain of bounded support.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from torch import Tensor

from experiments.comparison import CLAMPED
from experiments.digits import digits
from experiments.information.network import NetworkSettings, images_of, train_network, validation_part
from experiments.sweep.batch import linear_settings
from experiments.sweep.data import SweepData, sweep_data
from experiments.sweep.fair_search import FairSearch
from experiments.sweep.grid_file import read_grid
from experiments.sweep.settings import Grid, SweepSetting, label, own_fields
from ringfence import checks
from ringfence.accounting.fisher import InformationNorm
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import UP
from ringfence.progress import Progress
from ringfence.training.linear.grid import accuracies, train_linear_grid
from ringfence.training.linear.information import information_losses

Model = Literal["linear probe", "network"]


class _Chosen(Protocol):
    @property
    def validation_accuracy(self) -> Any: ...


Row = TypeVar("Row", bound=_Chosen)
_SEARCH = FairSearch(
    settings=16,
    validation=0.2,
    clip=(2e-2, 2e-1),
    noise_multiplier=(5e1, 5e2),
    bound_over_sigma=(0.3, 10.0),
    learning_rate=(0.2, 10.0),
    steps=(3, 6),
)


@dataclass(frozen=True)
class InformationSettings:
    """What Figure 4 tries. ``grid`` has the laws, the seeds, the public constants and the fair search.

    ``examples`` is the number of training examples whose eta is measured for a probe, picked without looking
    at them; None measures all. A ``network`` of None leaves the network out. ``kind`` says which eta is
    measured for a probe. "spectral", the largest over all directions that a record can move in, is the
    definition; "trace", the root of the mean over features, is quicker, and exact for any probe and for a
    network of up to 64 features. The two need not agree: on digits the truncated probe's median eta at equal
    accuracy is 0.89 of the Gaussian's by trace and 1.00 by the definition.
    """

    grid: Grid = field(default_factory=lambda: replace(read_grid("digits"), fair=_SEARCH))
    network: NetworkSettings | None = field(default_factory=NetworkSettings)
    kind: InformationNorm = "spectral"
    examples: int | None = None


@dataclass(frozen=True)
class InformationRow:
    """One setting: accuracies are means over seeds, eta is that of the first seed. Its numbers are sensitive.

    eta is about the features in the units of the file. ``kind`` says whether it is the largest over
    directions ("spectral") or the root of the mean square over features ("trace").
    """

    model: Model
    mechanism: str
    setting: str
    validation_accuracy: float
    test_accuracy: float
    kind: InformationNorm
    max_eta: float
    median_eta: float


def information(
    settings: InformationSettings, progress: Progress | None = None, data: SweepData | None = None
) -> Iterator[InformationRow]:
    """Yields the rows of Figure 4. ``data`` need a validation part; None takes scikit-learn's digits.

    Guarantee: every eta is an upper bound for all steps of its own run, each of which is measured. In the
    network it holds given the batches that were drawn, and, where ``kind`` is an estimate, except with
    probability 1e-6 per run. Which settings stand out depends on private data; that choice is not accounted
    for anywhere.

    >>> search = FairSearch(settings=1, clip=(0.09, 0.1), noise_multiplier=(29, 30), bound_over_sigma=(1, 2),
    ...     learning_rate=(1, 2), steps=(1, 2))
    >>> grid = replace(read_grid("digits"), fair=search, mechanisms=("gaussian", "rectified"))
    >>> [row.mechanism for row in information(InformationSettings(grid, network=None, examples=5))]
    ['Gaussian', 'rectified', 'Gaussian, clamped']
    """
    data = sweep_data(digits(), settings.grid, "fair") if data is None else data
    if settings.network is not None:
        images_of(data.train, settings.network)  # refuses data of another size before anything takes time
    yield from _probe_rows(data, settings, progress)
    if settings.network is not None:
        yield from _network_rows(data, settings.grid, settings.network, progress)


def frontier(rows: Sequence[Row], eta: Callable[[Row], Any]) -> list[Row]:
    """The rows that no other row beats in both: by rising eta, each with a higher validation accuracy.

    >>> def row(accuracy, eta):
    ...     return InformationRow("network", "sign", "", accuracy, accuracy, "trace", eta, eta)
    >>> rows = [row(0.5, 1.0), row(0.4, 2.0), row(0.9, 3.0)]
    >>> [each.max_eta for each in frontier(rows, lambda row: row.max_eta)]
    [1.0, 3.0]
    """
    result: list[Row] = []
    for row in sorted(rows, key=lambda row: (eta(row), -row.validation_accuracy)):
        if not result or row.validation_accuracy > result[-1].validation_accuracy:
            result.append(row)
    return result


def _probe_rows(
    data: SweepData, wanted: InformationSettings, progress: Progress | None
) -> Iterator[InformationRow]:
    grid, kind = wanted.grid, wanted.kind
    settings = grid.settings("fair")
    jobs = [linear_settings(setting, seed) for setting in settings for seed in grid.seeds]
    runs = train_linear_grid(*data.train, data.classes, jobs, public_size=len(data.train[0]))
    chosen, tested = (
        accuracies(runs, *part).reshape(len(settings), -1).mean(dim=1).tolist()
        for part in (validation_part(data), data.test)
    )
    # Settings that hardly learn are not drawn: measuring them would take as long as the rest.
    useful = [i for i in range(len(settings)) if chosen[i] >= max(chosen) / 2]
    picked = data.sample(len(data.train[1]) if wanted.examples is None else wanted.examples)
    for done, i in enumerate(useful):
        for name, eta in _probe_etas(data, settings[i], grid.seeds[0], kind, picked):
            yield InformationRow(
                "linear probe", name, str(settings[i]), chosen[i], tested[i], kind, *_summary(eta)
            )
        if progress is not None:
            progress("fil, linear probe", (done + 1) / len(useful))


def _probe_etas(
    data: SweepData, setting: SweepSetting, seed: int, kind: InformationNorm, picked: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yields an account's name and eta of the picked examples; the rectified law's run has two accounts."""
    training = linear_settings(setting, seed)
    features, labels = data.train
    run = training.train(features, labels, data.classes, public_size=len(features))
    accounts: dict[str, Mechanism] = {label(setting.mechanism): training.mechanism}
    if setting.mechanism == "rectified":
        accounts[CLAMPED] = Gaussian(setting.sigma)
    some, theirs = features[picked], labels[picked]
    for name, law in accounts.items():
        yield (
            name,
            information_losses(law, run.trajectory, some, theirs, training.clip, data.attributes, kind=kind),
        )


def _network_rows(
    data: SweepData, grid: Grid, settings: NetworkSettings, progress: Progress | None
) -> Iterator[InformationRow]:
    pairs = [(noise, name) for noise in settings.noise_multipliers for name in grid.mechanisms]
    for done, (noise, name) in enumerate(pairs):
        sigma = noise * settings.clip
        own = {"bound": settings.bound_over_sigma * sigma, "levels": grid.levels[0]}
        law = Mechanism.by_name(name, sigma=sigma, **{key: own[key] for key in own_fields(name)})
        tried = [
            _mean([train_network(data, settings, law, rate, seed)[:2] for seed in grid.seeds])
            for rate in settings.learning_rates
        ]
        best = max(range(len(tried)), key=lambda i: tried[i][0])
        rate = settings.learning_rates[best]
        eta = train_network(data, settings, law, rate, grid.seeds[0], settings.kind)[2]
        shown = f"{label(name)}, clip {settings.clip:g}, noise multiplier {noise:g}, learning rate {rate:g}"
        # A move of a feature in the file moves the network's input by at most this factor.
        eta = eta * float(data.attributes.max()) * UP
        if unmeasured := int(eta.isnan().sum()):
            shown += f", {unmeasured} examples in no batch"
            eta = eta[~eta.isnan()]
        yield InformationRow("network", label(name), shown, *tried[best], settings.kind, *_summary(eta))
        if progress is not None:
            progress("fil, network", (done + 1) / len(pairs))


def _mean(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(one for one, _ in pairs) / len(pairs), sum(two for _, two in pairs) / len(pairs)


def _summary(eta: Tensor) -> tuple[float, float]:
    """The largest and the median eta; the median is one of the values, the higher of two neighbours."""
    checks.finite("eta", eta)
    values = eta.cpu().numpy()
    return float(values.max()), float(np.quantile(values, 0.5, method="higher"))
