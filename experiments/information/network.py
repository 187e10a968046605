"""One network of Figure 4: trained from scratch on images by the engine, tested, and its eta measured.

Information adds up over steps, so eta^2 of a run of T steps is at most the sum of the steps' eta^2. A step
whose Poisson batch stays unknown is a mixture: with probability q the example is in the batch, else the
release does not depend on it. Fisher information is convex, so the step has at most q times the information
that it has, on average over the other examples of the batch, when the example is surely in it. That average
is replaced by the one batch that was drawn, and the sum over steps by T times the mean over measured ones:

    eta^2 of the run = q T mean over measured steps of eta^2 of the step as if the example were in its batch.

Each measured eta^2 is an upper bound; the two replacements are estimates. The information of a coordinate is
taken at the theta of the batch that was drawn, also for an example that was not in it: theta would move by at
most the clip. For the Gaussian, whose information does not depend on theta, that changes nothing.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from experiments import features
from experiments.networks import small_cnn, wide_resnet_16_4
from experiments.sweep.data import SweepData, digits, parts
from experiments.sweep.settings import (
    FairSearch,
    Job,
    SweepSetting,
    digest,
    job_seed,
    label,
    searched_setting,
)
from ringfence import checks
from ringfence.accounting.fisher import InformationNorm
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clip
from ringfence.training.engine.engine import PrivacyEngine
from ringfence.training.engine.run import StepReport
from ringfence.training.information import example_information
from ringfence.training.linear import data_digest

# What is compared: a mechanism and a kind of clip. Ranges of either kind are as wide as those of the other.
_METHODS = (("gaussian", "clamp"), ("rectified", "clamp"), ("truncated", "clamp"), ("gaussian", "norm"))
METHODS = tuple(label(name) + ("" if kind == "clamp" else ", L2 clip") for name, kind in _METHODS)
MODELS: dict[str, Callable[[int, int, int], nn.Module]] = {  # of classes, channels and the side of images
    "wrn-16-4": lambda classes, channels, size: wide_resnet_16_4(classes, channels),
    "small": small_cnn,
}
_CENTER, _SCALE = 0.5, 0.25  # public constants: pixels, from 0 to 1, are shifted and divided by them
_BLOCK = 1000  # how many examples are measured at once
Moment = tuple[dict[str, Tensor], Tensor]  # parameters, and the sum of clipped gradients at them
_FAILURE = 1e-6  # with which an upper bound of a run may fail, over the probes

_SEARCH = FairSearch(
    clip=(0.1, 1.0),
    noise_multiplier=(1.0, 10.0),
    bound_over_sigma=(0.3, 10.0),
    learning_rate=(2e-3, 5e-2),
    clips=("clamp", "norm"),
    norm=(0.5, 5.0),
    norm_noise_multiplier=(0.05, 0.5),
    norm_learning_rate=(2e-2, 0.5),
)


@dataclass(frozen=True)
class NetworkSettings:
    """How networks are trained and measured. ``search`` has the ranges, and the part kept back to choose by.

    A learning rate of the search is divided by the clip: SGD with momentum takes it times the released sum
    over ``batch_size``, and it falls to 0 along a cosine. ``epochs`` are tried as a further dimension of the
    search. The first of ``seeds`` is that of the search; settings on a frontier are trained with the others
    as well. eta of ``examples`` training examples, picked by number alone, is measured at ``moments`` evenly
    spaced steps; the trace, and the paper's estimate of it, by ``probes`` random directions. Runs with a
    validation accuracy below ``least_accuracy`` are not measured, whatever their mechanism.
    """

    search: FairSearch = _SEARCH
    epochs: tuple[int, ...] = (10, 20)
    seeds: tuple[int, ...] = (0, 1, 2)
    model: str = "wrn-16-4"
    batch_size: int = 200
    momentum: float = 0.9
    examples: int = 1000
    moments: int = 2
    probes: int = 50
    least_accuracy: float = 0.5
    delta: float = 1e-5

    def rounds(self, count: int, steps_per_epoch: int) -> list[tuple[SweepSetting, ...]]:
        """The first ``count`` rounds: one setting per method in each, all at the same place of their ranges.

        They do not depend on how many follow.

        Guarantee: in whole rounds, every method has had the same number of settings.
        """
        # a factor of 2 of this dimension for each number of epochs, so that all are as likely
        search = replace(self.search, settings=count, steps=(1.0, 2.0 ** len(self.epochs)))
        points = {kind: search.points(kind) for _, kind in _METHODS}

        def setting(name: str, kind: str, number: int) -> SweepSetting:
            point = points[kind][number]
            epochs = self.epochs[min(int(math.log2(point["steps"])), len(self.epochs) - 1)]
            return replace(searched_setting(name, kind, point), steps=epochs * steps_per_epoch)

        return [tuple(setting(*method, number) for method in _METHODS) for number in range(count)]

    def identity(self) -> str:
        """A digest of what rows must share to be compared; not of how many rounds and seeds there are."""
        return digest(asdict(replace(self, search=replace(self.search, settings=1), seeds=self.seeds[:1])))


def read_images(path: Path, search: FairSearch) -> SweepData:
    """Reads images as ``experiments.features`` does, train and test; part is kept back as ``search`` says.

    Guarantee: the only number taken from the private images is how many of them are trained on; it counts as
    public, as does the number of classes.
    """
    splits = features.read_images(path).splits
    if "test" not in splits:
        raise ValueError(f"{path} must hold training and test images, got no test images")
    shapes = [np.shape(images) for images, _ in splits.values()]
    if len(shapes[0]) < 3 or shapes[0][1:] != shapes[1][1:]:
        raise ValueError(f"{path} must hold arrays of images of one size, got {shapes[0]} and {shapes[1]}")
    (x, y), (x_test, y_test) = (
        (images[..., None] if images.ndim == 3 else images, labels) for images, labels in splits.values()
    )
    return _image_data(x, y, x_test, y_test, search)


def digit_images(search: FairSearch) -> SweepData:
    """Scikit-learn's digits as images of bytes, (n, 8, 8, 1)."""
    file = digits()
    x, x_test = (
        np.rint(values * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
        for values in (file.train_features, np.asarray(file.test_features))
    )
    return _image_data(x, file.train_labels, x_test, np.asarray(file.test_labels), search)


def _image_data(x: Any, y: Any, x_test: Any, y_test: Any, search: FairSearch) -> SweepData:
    stay, back = parts(len(x), search)
    images, labels, *test = map(torch.from_numpy, (x, y, x_test, y_test))
    return SweepData(
        classes=1 + int(max(y.max(), y_test.max())),
        attributes=torch.full((1,), 1 / (255 * _SCALE), dtype=torch.float64),
        train=(images[stay], labels[stay]),
        validation=(images[back], labels[back]),
        test=(test[0], test[1]),
        fingerprint=data_digest(images, labels, *test).hex(),
    )


def pixels(images: Tensor) -> Tensor:
    """Bytes (n, height, width, channels) as a network takes them, in the layout convolutions like best."""
    return (images.permute(0, 3, 1, 2).float() / 255 - _CENTER) / _SCALE


class GatheredImages(Dataset[Any]):
    """Images that lie on the device as bytes; a batch is gathered there, all at once."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self._images, self._labels = images, labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> list[Tensor]:
        return [part[0] for part in self.__getitems__([index])]

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The batch with these indices, whole: no list of examples."""
        chosen = torch.tensor(indices, dtype=torch.int64)
        if self._images.is_cuda:
            chosen = chosen.pin_memory().to(self._images.device, non_blocking=True)
        return pixels(self._images[chosen]), self._labels[chosen]


def collate(batch: Any) -> Any:
    """Leaves a batch of ``GatheredImages`` as it is; a list of single examples is put together."""
    return default_collate(batch) if isinstance(batch, list) else batch


def fresh_model(name: str, data: SweepData, seed: int) -> nn.Module:
    """A network before training, on the device of the data; its weights depend on the seed alone."""
    height, _, channels = data.train[0].shape[1:]
    with torch.random.fork_rng(devices=[]):  # torch's layers only use the global generator
        torch.manual_seed(seed)
        model = MODELS[name](data.classes, channels, height)
    return model.to(data.train[0].device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def steps_per_epoch(data: SweepData, settings: NetworkSettings) -> int:
    """Number of Poisson batches in an epoch."""
    return math.ceil(len(data.train[1]) / settings.batch_size)


def train_and_measure(data: SweepData, settings: NetworkSettings, job: Job) -> dict[str, Any]:
    """The accuracies, etas and seconds of one job; etas are missing where the network did not learn.

    Guarantee: that of ``PrivacyEngine`` for each run, and that of ``run_etas``. All jobs read the same data:
    if all of them are published their costs add up, and choosing one by its accuracy is not accounted for.
    """
    setting, seed = job
    assert data.validation is not None  # images always keep a part back
    start = time.perf_counter()
    model = fresh_model(settings.model, data, seed)
    moments = _train(data, settings, job, model)
    half = data.train[0].is_cuda
    accuracies = [accuracy(model, part, half) for part in (data.validation, data.test)]
    trained = time.perf_counter()
    etas: dict[str, Any] = {}
    if accuracies[0] >= settings.least_accuracy:
        picked = data.sample(settings.examples)
        try:
            etas = run_etas(
                *(model.eval(), setting.law, setting.gradient_clip, moments),
                *(pixels(data.train[0][picked]).contiguous(), data.train[1][picked]),
                sampling_rate=settings.batch_size / len(data.train[1]),
                steps=setting.steps,
                probes=settings.probes,
                generator=torch.Generator(data.train[0].device).manual_seed(job_seed(job, "probes")),
            )
        except ValueError as error:  # such as rounding that leaves nothing: the accuracies still count
            etas = {"error": f"not measured: {error}"}
    return {
        "validation_accuracy": accuracies[0],
        "test_accuracy": accuracies[1],
        **etas,
        "training_seconds": trained - start,
        "measuring_seconds": time.perf_counter() - trained,
    }


def _train(data: SweepData, settings: NetworkSettings, job: Job, model: nn.Module) -> list[Moment]:
    """Trains the model; returns what it was at the measured steps, which are the middles of equal parts."""
    setting, _ = job
    wanted = {int((i + 0.5) * setting.steps / settings.moments) + 1 for i in range(settings.moments)}
    moments: list[Moment] = []

    def look(report: StepReport) -> None:
        if report.steps in wanted and engine.run.theta is not None:
            weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            moments.append((weights, engine.run.theta.clone()))

    rate = setting.learning_rate / setting.clip
    engine = PrivacyEngine(
        setting.law,
        setting.gradient_clip,
        on_step=look,
        cuda_graphs=data.train[0].is_cuda,
        seed=job_seed(job, "engine"),
    )
    private, optimizer, loader = engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=rate, momentum=settings.momentum),
        DataLoader(GatheredImages(*data.train), batch_size=settings.batch_size, collate_fn=collate),
    )
    while engine.steps < setting.steps:
        for images, labels in loader:
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * engine.steps / setting.steps)) / 2
            optimizer.zero_grad()
            with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
                loss = nn.functional.cross_entropy(private(images), labels)
            loss.backward()
            optimizer.step()
    return moments


def accuracy(model: nn.Module, part: tuple[Tensor, Tensor], half: bool) -> float:
    """The share of images and labels that the model gets right, in half precision or not."""
    images, labels = part
    right = torch.zeros((), dtype=torch.int64, device=labels.device)
    with torch.no_grad(), torch.autocast(images.device.type, torch.bfloat16, enabled=half):
        for some, theirs in zip(images.split(1000), labels.split(1000), strict=True):
            right += (model(pixels(some)).argmax(dim=1) == theirs).sum()
    return int(right) / len(labels)


def run_etas(
    model: nn.Module,
    law: Mechanism,
    clip: Clip,
    moments: Sequence[Moment],
    inputs: Tensor,
    targets: Tensor,
    *,
    sampling_rate: float,
    steps: int,
    probes: int,
    generator: torch.Generator,
) -> dict[str, float]:
    """The largest and the median eta over examples: by the definition, by the trace, and as the paper does.

    The model is left with the weights of a moment.

    Guarantee: at every measured step, the spectral number and the trace are upper bounds given that the
    example was in the batch, all of them except with probability 1e-6 over the probes, on the
    premise of ``example_information``. Their scaling to the run is an estimate, and so is the paper's
    number, which is the trace as the mean over ``probes`` random directions, without a margin.
    """
    total = torch.zeros(3, len(inputs), dtype=torch.float64, device=inputs.device)
    asked: tuple[tuple[InformationNorm, int | None], ...] = (("spectral", None), ("trace", probes))
    blocks = torch.arange(len(inputs), device=inputs.device).split(_BLOCK)
    # on a GPU a third of the memory that is free, as others may use it too
    memory = torch.cuda.mem_get_info(inputs.device)[0] // 3 if inputs.is_cuda else 1 << 30
    for (weights, theta), block in product(moments, blocks):
        model.load_state_dict(weights)
        spectral, trace = (
            example_information(
                *(model, exact_cross_entropy, inputs[block], targets[block]),
                clip=clip,
                mechanism=law,
                theta=theta,
                kind=kind,
                failure_probability=_FAILURE / (2 * len(moments) * len(blocks)),
                probes=number,
                generator=generator,
                tolerance=0.1,
                memory=memory,
            )
            for kind, number in asked
        )
        assert trace.estimate is not None
        total[:, block] += torch.stack((spectral.upper, trace.upper, trace.estimate)).to(total)
    numbers: dict[str, float] = {}
    scaled = checks.not_negative("eta^2", total * (sampling_rate * steps / len(moments)))
    for kind, values in zip(("spectral", "trace", "estimate"), scaled.sqrt().cpu().numpy(), strict=True):
        numbers[f"{kind}_max"] = float(values.max())
        numbers[f"{kind}_median"] = float(np.quantile(values, 0.5, method="higher"))
    return numbers


def exact_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy, as log(1 + sum over other classes j of exp(z_j - z_y)).

    torch's own has the gradient softmax - 1 at the right class y, of which rounding leaves little where the
    network is sure of y. Its derivatives are then too rough to be bounded.
    """
    right = torch.arange(outputs.shape[1], device=outputs.device) == targets[:, None]
    ahead = outputs - torch.where(right, outputs, 0.0).sum(1, keepdim=True)
    others = torch.where(right, -torch.inf, ahead).logsumexp(1)
    return nn.functional.softplus(others, threshold=40).mean()
