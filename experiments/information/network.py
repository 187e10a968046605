"""The small network of Figure 4, and one training run of it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.sweep.data import SweepData
from ringfence.accounting.fisher import InformationNorm
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clamp
from ringfence.training.engine.engine import PrivacyEngine


@dataclass(frozen=True)
class NetworkSettings:
    """A convolution, tanh, a mean over 2 x 2 pixels and a linear layer, trained on Poisson batches.

    Features are reshaped to ``image`` = (channels, height, width). ``model`` makes another network from
    (image, classes). All laws have the same clip, steps and noise; the bounded laws have a bound of
    ``bound_over_sigma`` sigma. At each noise level each law takes the best of ``learning_rates`` (times
    1 / clip) on the validation part. ``kind`` says which eta is measured: the trace, because the definition's
    takes ten seconds per run here.

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
        """The network before training, with the same weights every time."""
        channels, height, width = self.image
        with torch.random.fork_rng(devices=[]):  # torch's layers only use the global generator
            torch.manual_seed(0)
            if self.model is not None:
                return self.model(self.image, classes)
            left = self.filters * (height // 2) * (width // 2)
            first = nn.Conv2d(channels, self.filters, 3, padding=1)
            return nn.Sequential(first, nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(left, classes))


def train_network(
    data: SweepData,
    settings: NetworkSettings,
    law: Mechanism,
    rate: float,
    seed: int,
    kind: InformationNorm | None = None,
) -> tuple[float, float, Tensor]:
    """Validation accuracy, test accuracy, and eta of every training example (zeros if ``kind`` is None)."""
    images, labels = images_of(data.train, settings)
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
        for part in (validation_part(data), data.test):
            those, right = images_of(part, settings)
            scores.append(float((model(those).argmax(dim=1) == right).double().mean()))
    return scores[0], scores[1], eta


def images_of(part: tuple[Tensor, Tensor], settings: NetworkSettings) -> tuple[Tensor, Tensor]:
    """Features as images, and their labels.

    >>> images_of((torch.zeros(5, 64), torch.zeros(5)), NetworkSettings())[0].shape
    torch.Size([5, 1, 8, 8])
    """
    features, labels = part
    channels, height, width = settings.image
    if features.shape[1] != channels * height * width:
        raise ValueError(
            f"image must have as many pixels as there are features, {features.shape[1]}, got {settings.image}"
        )
    return features.reshape(-1, channels, height, width), labels


def validation_part(data: SweepData) -> tuple[Tensor, Tensor]:
    """The part of the data that settings are chosen by; data without one are refused."""
    if data.validation is None:
        raise ValueError("data must have a validation part to choose by, got None")
    return data.validation
