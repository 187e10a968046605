"""One network of Figure 4, trained from scratch by the engine, tested, and its eta measured."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from experiments.information.full_size.images import gathering_loader, pixels
from experiments.information.full_size.information import Moment, run_etas
from experiments.information.full_size.settings import FullSizeSettings, clip_of
from experiments.information.network import NetworkSettings, validation_part
from experiments.sweep.data import SweepData
from experiments.sweep.settings import Job, digest
from ringfence.training.engine.engine import PrivacyEngine
from ringfence.training.engine.run import StepReport
from ringfence.training.networks import tanh_cnn, wide_resnet_16_4

Image = tuple[int, int, int]
MODELS: dict[str, Callable[[Image, int], nn.Module]] = {
    "wrn-16-4": lambda image, classes: wide_resnet_16_4(classes, image[0]),
    "tanh-cnn": lambda image, classes: tanh_cnn(classes, image[0], image[1]),
    "small": lambda image, classes: NetworkSettings(image=image).fresh(classes),
}


def fresh_model(name: str, data: SweepData, seed: int) -> nn.Module:
    """A network before training, on the device of the data; its weights depend on the seed alone.

    >>> images = torch.zeros(1, 8, 8, 3, dtype=torch.uint8)
    >>> data = SweepData(10, torch.ones(1), (images, torch.zeros(1)), None, (images, torch.zeros(1)), "")
    >>> fresh_model("small", data, 0)(pixels(images)).shape
    torch.Size([1, 10])
    """
    if name not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}")
    height, width, channels = data.train[0].shape[1:]
    with torch.random.fork_rng(devices=[]):  # torch's layers only use the global generator
        torch.manual_seed(seed)
        model = MODELS[name]((channels, height, width), data.classes)
    return model.to(data.train[0].device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def steps_per_epoch(data: SweepData, settings: FullSizeSettings) -> int:
    """How many Poisson batches an epoch has."""
    return math.ceil(len(data.train[1]) / settings.batch_size)


def train_and_measure(
    data: SweepData, settings: FullSizeSettings, job: Job, pause: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The accuracies, etas and seconds of one job; etas are missing where the network did not learn.

    ``pause`` is called in every step and between measurements, and may raise an error to stop.

    Guarantee: that of ``PrivacyEngine`` for each run, and that of ``run_etas``. All jobs read the same data:
    if all of them are published their costs add up, and choosing one by its accuracy is not accounted for.
    """
    setting, seed = job
    start = time.perf_counter()
    model = fresh_model(settings.model, data, seed)
    moments = _train(data, settings, job, model, pause)
    accuracies = [accuracy(model, part) for part in (validation_part(data), data.test)]
    trained = time.perf_counter()
    etas: dict[str, Any] = {}
    if accuracies[0] >= settings.least_accuracy:
        picked = data.sample(settings.examples)
        generator = torch.Generator(data.train[0].device)
        try:
            measured = run_etas(
                *(model.eval(), setting.law, clip_of(setting), moments),
                *(pixels(data.train[0][picked]).contiguous(), data.train[1][picked]),
                sampling_rate=settings.batch_size / len(data.train[1]),
                steps=setting.steps,
                probes=settings.probes,
                generator=generator.manual_seed(_number(job, "probes")),
                pause=pause,
            )
            etas = asdict(measured)
        except ValueError as error:  # such as rounding that leaves nothing: the accuracies still count
            etas = {"error": f"not measured: {error}"}
    return {
        "validation_accuracy": accuracies[0],
        "test_accuracy": accuracies[1],
        **etas,
        "training_seconds": trained - start,
        "measuring_seconds": time.perf_counter() - trained,
    }


def accuracy(model: nn.Module, part: tuple[Tensor, Tensor]) -> float:
    """The share of images that the model names rightly."""
    images, labels = part
    right = torch.zeros((), dtype=torch.int64, device=labels.device)
    with torch.no_grad(), _half_precision(images):
        for some, theirs in zip(images.split(1000), labels.split(1000), strict=True):
            right += (model(pixels(some)).argmax(dim=1) == theirs).sum()
    return int(right) / len(labels)


def _train(
    data: SweepData, settings: FullSizeSettings, job: Job, model: nn.Module, pause: Callable[[], None]
) -> list[Moment]:
    """Trains the model; returns what it was at the measured steps, which are the middles of equal parts."""
    setting, _ = job
    wanted = {int((i + 0.5) * setting.steps / settings.moments) + 1 for i in range(settings.moments)}
    moments: list[Moment] = []

    def look(report: StepReport) -> None:
        if report.steps in wanted and engine.run.theta is not None:
            weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            moments.append(Moment(weights, engine.run.theta.clone()))

    rate = setting.learning_rate / setting.clip
    engine = PrivacyEngine(
        setting.law,
        clip_of(setting),
        on_step=look,
        cuda_graphs=data.train[0].is_cuda,
        seed=_number(job, "engine"),
    )
    private, optimizer, loader = engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=rate, momentum=settings.momentum),
        gathering_loader(data.train, settings.batch_size),
    )
    with _searched_convolutions():
        while engine.steps < setting.steps:
            for images, labels in loader:
                pause()
                for group in optimizer.param_groups:
                    group["lr"] = rate * (1 + math.cos(math.pi * engine.steps / setting.steps)) / 2
                optimizer.zero_grad()
                with _half_precision(images):
                    loss = nn.functional.cross_entropy(private(images), labels)
                loss.backward()
                optimizer.step()
    return moments


@contextmanager
def _searched_convolutions() -> Iterator[None]:
    """Inside, cudnn searches for the fastest convolutions, which pays where every pass has the same shape."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _half_precision(images: Tensor) -> torch.autocast:
    return torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda)


def _number(job: Job, use: str) -> int:
    """A seed of one's own for every job and use."""
    return int(digest([job[0].key, job[1], use])[:15], 16)
