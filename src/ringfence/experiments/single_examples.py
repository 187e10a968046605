"""What one training run cost each of its examples, mechanism by mechanism."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ringfence.data.features import Features
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.truncated import TruncatedGaussian


@dataclass(frozen=True)
class SingleExamplesSettings:
    """The same clip, noise, bound, learning rate and steps for every mechanism."""

    clip: float = 0.05
    noise_multiplier: float = 100.0
    bound: float = 4.0
    learning_rate: float = 4.0
    steps: int = 5
    center: float = 8.0
    scale: float = 8.0
    delta: float = 1e-5
    seed: int = 0

    def mechanisms(self) -> dict[str, Mechanism]:
        sigma = self.noise_multiplier * self.clip
        return {
            "Gaussian": Gaussian(sigma),
            "rectified": RectifiedGaussian(sigma, self.bound),
            "truncated": TruncatedGaussian(sigma, self.bound),
        }


@dataclass(frozen=True)
class SingleExampleRow:
    """One training example under one mechanism: its ex-post epsilon and its eta over the run."""

    mechanism: str
    example: int
    epsilon: float
    eta: float
    test_accuracy: float
    statement: str


def single_examples(
    features: Features, settings: SingleExamplesSettings, progress: Callable[[float], None] | None = None
) -> Iterator[SingleExampleRow]:
    """A run a mechanism, a row an example; the statement is that of the run."""
    from ringfence.training.probe import LinearProbe  # scikit-learn takes a second to load

    laws = settings.mechanisms()
    for number, (name, law) in enumerate(laws.items()):
        probe = LinearProbe(
            law,
            settings.clip,
            settings.learning_rate,
            settings.steps,
            public_center=settings.center,
            public_scale=settings.scale,
            random_state=settings.seed,
        ).fit(features.train_features, features.train_labels)
        accuracy = float(probe.score(features.test_features, features.test_labels))
        epsilons = probe.example_epsilons(settings.delta)
        etas = probe.fisher_information_loss()
        statement = probe.guarantee(settings.delta).statement
        if progress is not None:
            progress((number + 1) / len(laws))
        for example, (epsilon, eta) in enumerate(zip(epsilons.tolist(), etas.tolist(), strict=True)):
            yield SingleExampleRow(name, example, epsilon, eta, accuracy, statement)
