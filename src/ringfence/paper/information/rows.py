"""Figure 4: test accuracy against Fisher information loss, for a linear probe and for a small network.

Settings are tried as in a fair search: the same ones for every law, chosen between by the accuracy on a
part that was kept back. Accuracies are means over seeds. eta is that of the first seed's run: it takes
most of the time, and on digits differs by less than 10 % between seeds.

"Gaussian, clamped" is the rectified law's run under the Gaussian's account: clamping a release is free.
What it gains over the Gaussian is the clamp's help to training; what the rectified law gains over it is
bounded support's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ringfence import checks
from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.data.digits import digits
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import UP
from ringfence.paper.comparison.comparison import CLAMPED
from ringfence.paper.sweep.data import SweepData, sweep_data
from ringfence.paper.sweep.grid_file import read_grid
from ringfence.paper.sweep.settings import LABELS, TAKES, FairSearch, Grid, SweepSetting
from ringfence.training.clipping import Clamp
from ringfence.training.engine.engine import PrivacyEngine
from ringfence.training.linear.grid import accuracies, train_linear_grid
from ringfence.training.linear.information import information_losses

Progress = Callable[[float], None]
Model = Literal["linear probe", "network"]
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
class NetworkSettings:
    """A convolution, tanh, a mean over 2 x 2 and a linear layer, trained on Poisson batches.

    ``image`` is (channels, height, width), what features are reshaped to. ``model`` makes another network of
    (image, classes). Every law has the same clip, steps and noise, the bounded ones a bound of
    ``bound_over_sigma`` sigma; at each noise level each takes the best of ``learning_rates`` (times 1 /
    clip), as the validation part says. ``kind`` is the eta, by trace because the definition's takes ten
    seconds a run here.

    >>> network = NetworkSettings().fresh(classes=10)
    >>> sum(parameter.numel() for parameter in network.parameters())
    690
    """

    image: tuple[int, int, int] = (1, 8, 8)
    filters: int = 4
    model: Callable[[tuple[int, int, int], int], nn.Module] | None = None
    clip: float = 0.02
    noise_multipliers: tuple[float, ...] = (3.0, 8.0, 16.0, 32.0)
    bound_over_sigma: float = 1.5
    learning_rates: tuple[float, ...] = (0.1, 0.3, 1.0)
    steps: int = 12
    batch_size: int = 80
    kind: InformationNorm = "trace"

    def fresh(self, classes: int) -> nn.Module:
        """The network before training: the same weights every time."""
        channels, height, width = self.image
        with torch.random.fork_rng(devices=[]):  # torch's layers only know the global generator
            torch.manual_seed(0)
            if self.model is not None:
                return self.model(self.image, classes)
            left = self.filters * (height // 2) * (width // 2)
            first = nn.Conv2d(channels, self.filters, 3, padding=1)
            return nn.Sequential(first, nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(left, classes))


@dataclass(frozen=True)
class InformationSettings:
    """What Figure 4 tries. ``grid`` has the laws, the seeds, the public constants and the fair search.

    ``examples`` is how many training examples a probe's eta is measured of, picked without looking at
    them; None: all. ``network`` None leaves the network out. ``kind`` is the probe's eta: "spectral", the
    largest over all directions that a record can move in, is the definition; "trace", the root of the
    mean over features, is quicker, and exact for up to 64 features of a network and any of a probe. They
    need not agree: on digits the truncated probe's median eta at equal accuracy is 0.89 of the Gaussian's
    by trace and 1.00 by the definition.
    """

    grid: Grid = field(default_factory=lambda: replace(read_grid("digits"), fair=_SEARCH))
    network: NetworkSettings | None = NetworkSettings()
    kind: InformationNorm = "spectral"
    examples: int | None = None


@dataclass(frozen=True)
class InformationRow:
    """A setting: accuracies are means over seeds, eta is that of the first. Sensitive.

    eta is about the features as they are in the file, in their units. ``kind`` says whether it is the
    largest over directions ("spectral") or the root of the mean square over features ("trace").
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
    """The rows of Figure 4, on scikit-learn's digits where no data are given; they need a validation part.

    Guarantee: every eta is an upper bound of the steps of its own run, all of them measured; in the network
    given the batches that were drawn, and except with probability 1e-6 a run where ``kind`` is an estimate.
    Which settings stand out is chosen by private data and accounted for nowhere.

    >>> search = FairSearch(settings=1, clip=(0.09, 0.1), noise_multiplier=(29, 30), bound_over_sigma=(1, 2),
    ...     learning_rate=(1, 2), steps=(1, 2))
    >>> small = InformationSettings(replace(read_grid("digits"), fair=search), network=None)
    >>> [row.mechanism for row in information(small)]
    ['Gaussian', 'rectified', 'Gaussian, clamped', 'truncated']
    """
    data = sweep_data(digits(), settings.grid, "fair") if data is None else data
    tell = (lambda share: None) if progress is None else progress
    share = 1.0
    if settings.network is not None:
        share = 0.7
        _images(data.train, settings.network)  # refused before anything takes time
    yield from _probe_rows(data, settings, lambda done: tell(share * done))
    if settings.network is not None:
        yield from _network_rows(
            data, settings.grid, settings.network, lambda done: tell(share + (1 - share) * done)
        )


def frontier(rows: Sequence[InformationRow], eta: Callable[[InformationRow], float]) -> list[InformationRow]:
    """The rows that no other beats in both: by rising eta, each with a higher validation accuracy.

    >>> def row(accuracy, eta):
    ...     return InformationRow("network", "sign", "", accuracy, accuracy, "trace", eta, eta)
    >>> rows = [row(0.5, 1.0), row(0.4, 2.0), row(0.9, 3.0)]
    >>> [each.max_eta for each in frontier(rows, lambda row: row.max_eta)]
    [1.0, 3.0]
    """
    result: list[InformationRow] = []
    for row in sorted(rows, key=lambda row: (eta(row), -row.validation_accuracy)):
        if not result or row.validation_accuracy > result[-1].validation_accuracy:
            result.append(row)
    return result


def _probe_rows(data: SweepData, wanted: InformationSettings, progress: Progress) -> Iterator[InformationRow]:
    grid, kind = wanted.grid, wanted.kind
    settings = grid.settings("fair")
    jobs = [setting.training(seed) for setting in settings for seed in grid.seeds]
    runs = train_linear_grid(*data.train, data.classes, jobs, public_size=len(data.train[0]))
    chosen, tested = (
        accuracies(runs, *part).reshape(len(settings), -1).mean(dim=1).tolist()
        for part in (_validation(data), data.test)
    )
    # what hardly learns is in no picture: measuring it would take as long as the rest
    useful = [i for i in range(len(settings)) if chosen[i] >= max(chosen) / 2]
    picked = data.sample(len(data.train[1]) if wanted.examples is None else wanted.examples)
    for done, i in enumerate(useful):
        for name, eta in _probe_etas(data, settings[i], grid.seeds[0], kind, picked):
            yield InformationRow(
                "linear probe", name, str(settings[i]), chosen[i], tested[i], kind, *_summary(eta)
            )
        progress((done + 1) / len(useful))


def _probe_etas(
    data: SweepData, setting: SweepSetting, seed: int, kind: InformationNorm, picked: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """eta of the examples picked, by the account's name: the rectified law's run has two accounts."""
    training = setting.training(seed)
    features, labels = data.train
    run = training.train(features, labels, data.classes, public_size=len(features))
    accounts: dict[str, Mechanism] = {LABELS[setting.mechanism]: training.mechanism}
    if setting.mechanism == "rectified":
        accounts[CLAMPED] = Gaussian(setting.sigma)
    some, theirs = features[picked], labels[picked]
    for name, law in accounts.items():
        yield (
            name,
            information_losses(law, run.trajectory, some, theirs, training.clip, data.attributes, kind=kind),
        )


def _network_rows(
    data: SweepData, grid: Grid, settings: NetworkSettings, progress: Progress
) -> Iterator[InformationRow]:
    pairs = [(noise, name) for noise in settings.noise_multipliers for name in grid.mechanisms]
    for done, (noise, name) in enumerate(pairs):
        sigma = noise * settings.clip
        own = {"bound": settings.bound_over_sigma * sigma, "levels": grid.levels[0]}
        law = Mechanism.by_name(name, sigma=sigma, **{key: own[key] for key in TAKES[name]})
        tried = [
            _mean([_network_run(data, settings, law, rate, seed)[:2] for seed in grid.seeds])
            for rate in settings.learning_rates
        ]
        best = max(range(len(tried)), key=lambda i: tried[i][0])
        rate = settings.learning_rates[best]
        eta = _network_run(data, settings, law, rate, grid.seeds[0], settings.kind)[2]
        shown = f"{LABELS[name]}, clip {settings.clip:g}, noise multiplier {noise:g}, learning rate {rate:g}"
        # moves of a feature in the file are smaller ones of the input
        eta = eta * float(data.attributes.max()) * UP
        yield InformationRow("network", LABELS[name], shown, *tried[best], settings.kind, *_summary(eta))
        progress((done + 1) / len(pairs))


def _network_run(
    data: SweepData,
    settings: NetworkSettings,
    law: Mechanism,
    rate: float,
    seed: int,
    kind: InformationNorm | None = None,
) -> tuple[float, float, Tensor]:
    """Validation and test accuracy, and eta of every training example, zeros if ``kind`` is None."""
    images, labels = _images(data.train, settings)
    model = settings.fresh(data.classes).to(images.device)
    loss = nn.functional.cross_entropy
    engine = PrivacyEngine(
        law,
        Clamp(settings.clip),
        loss=loss,
        fisher_every=int(kind is not None),
        fisher_kind=kind or "trace",
        seed=seed,
    )
    private, optimizer, loader = engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=rate / settings.clip),
        DataLoader(TensorDataset(images, labels), batch_size=settings.batch_size),
    )
    while engine.steps < settings.steps:
        for some, theirs in loader:
            optimizer.zero_grad()
            loss(private(some), theirs).backward()
            optimizer.step()
            if engine.steps >= settings.steps:
                break
    eta = torch.zeros(len(labels)) if kind is None else engine.fisher_information_loss()
    scores = []
    with torch.no_grad():
        for part in (_validation(data), data.test):
            those, right = _images(part, settings)
            scores.append(float((model(those).argmax(dim=1) == right).double().mean()))
    return scores[0], scores[1], eta


def _images(part: tuple[Tensor, Tensor], settings: NetworkSettings) -> tuple[Tensor, Tensor]:
    features, labels = part
    channels, height, width = settings.image
    if features.shape[1] != channels * height * width:
        raise ValueError(
            f"image must have as many pixels as there are features, {features.shape[1]}, got {settings.image}"
        )
    return features.reshape(-1, channels, height, width), labels


def _validation(data: SweepData) -> tuple[Tensor, Tensor]:
    if data.validation is None:
        raise ValueError("data must have a validation part to choose by, got None")
    return data.validation


def _mean(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(one for one, _ in pairs) / len(pairs), sum(two for _, two in pairs) / len(pairs)


def _summary(eta: Tensor) -> tuple[float, float]:
    """The largest and the median, an eta that is there: the higher neighbour."""
    checks.finite("eta", eta)
    values = eta.cpu().numpy()
    return float(values.max()), float(np.quantile(values, 0.5, method="higher"))
