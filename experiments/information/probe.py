"""Figure 4: test accuracy against Fisher information loss, for a linear probe and for a network.

Settings are tried as in a fair search: every mechanism gets the same ones, and the accuracy on a validation
part chooses between them. Accuracies of a probe are means over seeds. Its eta is that of the first seed's
run: measuring it takes most of the time, and on digits it differs by less than 10 % between seeds.
``experiments.comparison`` says what "Gaussian, clamped" is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from pandas import DataFrame
from torch import Tensor

from experiments.comparison import CLAMPED
from experiments.linear_grid import accuracies, train_linear_grid
from experiments.progress import track
from experiments.sweep.data import SweepData, digits, sweep_data
from experiments.sweep.probes import linear_settings
from experiments.sweep.settings import FairSearch, Grid, SweepSetting, label, read_grid
from ringfence import checks
from ringfence.accounting.fisher import InformationNorm
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.training.linear import train_linear
from ringfence.training.linear_information import information_losses

# Of a setting. ``kind`` says whether eta is the largest over directions ("spectral"), the root of the mean
# square over features ("trace"), or the paper's estimate of that ("estimate"). eta of a probe is about the
# features in the units of the file, eta of a network about its input. All of it is sensitive.
COLUMNS = [
    *("model", "mechanism", "setting", "validation_accuracy", "test_accuracy"),
    *("kind", "max_eta", "median_eta"),
]
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
class ProbeSettings:
    """Settings of Figure 4's probe. ``grid`` has mechanisms, seeds, public constants and the fair search.

    ``examples`` is the number of training examples whose eta is measured, picked without looking at them;
    None measures all. ``kind`` says which eta is measured. "spectral", the largest over all directions that
    a record can move in, is the definition; "trace", the root of the mean over features, is quicker. The two
    need not agree: on digits the truncated probe's median eta at equal accuracy is 0.89 of the Gaussian's by
    trace and 1.00 by the definition.
    """

    grid: Grid = field(default_factory=lambda: replace(read_grid("digits"), fair=_SEARCH))
    kind: InformationNorm = "spectral"
    examples: int | None = None


def probe_rows(wanted: ProbeSettings, data: SweepData | None = None) -> DataFrame:
    """The probe's rows of Figure 4. ``data`` need a validation part; None takes scikit-learn's digits.

    Guarantee: every eta is an upper bound for all steps of its own run, each of which is measured. Which
    settings stand out depends on private data; that choice is not accounted for anywhere.
    """
    grid, kind = wanted.grid, wanted.kind
    data = sweep_data(digits(), grid, "fair") if data is None else data
    if data.validation is None:
        raise ValueError("data must have a validation part to choose by, got None")
    settings = grid.settings("fair")
    jobs = [linear_settings(setting, seed) for setting in settings for seed in grid.seeds]
    runs = train_linear_grid(*data.train, data.classes, jobs, public_size=len(data.train[0]))
    chosen, tested = (
        accuracies(runs, *part).reshape(len(settings), -1).mean(dim=1).tolist()
        for part in (data.validation, data.test)
    )
    # Settings that hardly learn are not drawn: measuring them would take as long as the rest.
    useful = [i for i in range(len(settings)) if chosen[i] >= max(chosen) / 2]
    picked = data.sample(len(data.train[1]) if wanted.examples is None else wanted.examples)
    rows = []
    for i in track(useful, "fil, linear probe"):
        for name, eta in _etas(data, settings[i], grid.seeds[0], kind, picked):
            values = checks.finite("eta", eta).cpu().numpy()
            largest, median = float(values.max()), float(np.quantile(values, 0.5, method="higher"))
            rows.append(("linear probe", name, str(settings[i]), chosen[i], tested[i], kind, largest, median))
    return DataFrame(rows, columns=COLUMNS)


def _etas(
    data: SweepData, setting: SweepSetting, seed: int, kind: InformationNorm, picked: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yields an account's name and eta of the picked examples; the rectified run has two accounts."""
    training = linear_settings(setting, seed)
    features, labels = data.train
    run = train_linear(features, labels, data.classes, public_size=len(features), **vars(training))
    accounts: dict[str, Mechanism] = {label(setting.mechanism): training.mechanism}
    if setting.mechanism == "rectified":
        accounts[CLAMPED] = Gaussian(setting.sigma)
    some, theirs = features[picked], labels[picked]
    for name, law in accounts.items():
        yield (
            name,
            information_losses(law, run.trajectory, some, theirs, training.clip, data.attributes, kind=kind),
        )
