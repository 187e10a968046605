"""The settings that a linear probe takes from a target epsilon alone, against the best of a search.

Every gradient is clipped in L2, and every release is Gaussian, so that all of training is mu-GDP. The
rule uses the numbers of examples, features and classes, and mu; all of them are public. Run it as

    python -m benchmarks.default_settings digits breast_cancer FEATURES.npz [--public OTHER.npz]

It prints, for each data set and epsilon, the best mean test accuracy of a search over 144 settings (288 where
there are no public means), that of the rule, and the gap. The search looks at the test split and is charged
nothing for it: no user could do as well.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from ringfence.accounting.conversion import gaussian_delta
from ringfence.data.features import read_features
from ringfence.training.probe import default_settings as settings_of_rule

EPSILONS, DELTA = (0.03, 0.1, 0.3, 1.0, 3.0, 8.0), 1e-5
MOMENTUM = 0.5
CLIPS, STEPS, FACTORS = (0.03, 0.1, 0.3, 1.0), (8, 32, 96), tuple(2.0**k for k in range(-8, 4))  # the search


@dataclass(frozen=True)
class Settings:
    """How a probe is trained on rows of length 1.

    ``share`` of mu^2 goes to a private mean, the rest to ``steps`` releases. ``movement`` is how far the
    weights would go if all clipped gradients of all steps were the same vector of length 1.
    """

    share: float
    clip: float
    steps: int
    movement: float


def default_settings(size: int, features: int, classes: int, mu: float, *, centred: bool) -> Settings:
    """What the library takes. ``centred``: the features were shifted by public means."""
    rule = settings_of_rule(mu, size, features, classes, centred=centred, unit_rows=True)
    return Settings(rule.share, rule.clip.norm, rule.steps, rule.movement)


def searched_settings(size: int, mu: float, *, centred: bool) -> list[Settings]:
    """144 settings, and without public means as many again, with a private mean."""
    grid = product((0.0,) if centred else (0.0, 0.1), CLIPS, STEPS, FACTORS)
    return [
        Settings(share, clip, steps, factor * math.sqrt(1 - share) * mu * size)
        for share, clip, steps, factor in grid
    ]


@dataclass(frozen=True)
class Data:
    """Training rows, perhaps centred by public means, and test rows; not yet of length 1."""

    features: Tensor
    labels: Tensor
    test_features: Tensor
    test_labels: Tensor
    classes: int


def accuracies(data: Data, mu: float, settings: list[Settings], generator: torch.Generator) -> list[float]:
    """Test accuracies of the settings."""
    return right_answers(data, mu, settings, generator, data.test_features, data.test_labels)[0].tolist()


def right_answers(
    data: Data, mu: float, settings: list[Settings], generator: torch.Generator, *asked: Tensor
) -> Tensor:
    """The share of right answers of each setting, for each pair of features and labels that is asked.

    Settings with equal shares and steps are trained side by side.
    """
    result = torch.zeros(len(asked) // 2, len(settings))
    groups: dict[tuple[float, int], list[int]] = {}
    for place, one in enumerate(settings):
        groups.setdefault((one.share, one.steps), []).append(place)
    for (share, _), places in groups.items():
        train, *seen = (rows(part) for part in (data.features, *asked[::2]))
        if share > 0:
            center = private_mean(train, mu * math.sqrt(share), generator)
            train, *seen = (rows(part - center) for part in (train, *seen))
        together = max(1, int(2e9 if train.is_cuda else 2e7) // (len(train) * data.classes))
        for start in range(0, len(places), together):
            some = places[start : start + together]
            weights = trained(
                *(train, data.labels, data.classes, math.sqrt(1 - share) * mu),
                *([settings[place] for place in some], generator),
            )
            for i, (features, labels) in enumerate(zip(seen, asked[1::2], strict=True)):
                for place, own in zip(some, weights, strict=True):
                    result[i, place] = float(((features @ own.T).argmax(dim=1) == labels).float().mean())
    return result


def rows(features: Tensor) -> Tensor:
    """Every row divided by its length: no scale has to be known, and the clip fits all data."""
    return features / torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp(min=1e-30)


def private_mean(features: Tensor, mu: float, generator: torch.Generator) -> Tensor:
    """A mu-GDP mean of rows of length 1, shrunk towards 0 as its noise deserves (James and Stein)."""
    size, width = features.shape
    noise = torch.randn(width, generator=generator, device=features.device) / (mu * size)
    mean = features.mean(dim=0) + noise
    kept = 1 - width / (mu * size) ** 2 / float(mean.square().sum())
    return mean * max(0.0, kept)


def trained(
    features: Tensor,
    labels: Tensor,
    classes: int,
    mu: float,
    settings: list[Settings],
    generator: torch.Generator,
) -> Tensor:
    """The weights (settings, classes, p) after private gradient descent; all settings have the same steps.

    Gradients are in units of the clip. That of an example is its residual times its row of length 1, so its
    norm is that of the residual, and the sum of clipped gradients is a product of matrices.
    """
    (size, width), count, steps = features.shape, len(settings), settings[0].steps
    clip = torch.tensor([one.clip for one in settings], device=features.device)
    movement = torch.tensor([one.movement for one in settings], device=features.device)
    rate = (movement * (1 - MOMENTUM) / steps / size)[:, None, None]
    weights = features.new_zeros(count, classes, width)
    velocity = torch.zeros_like(weights)
    answers = torch.nn.functional.one_hot(labels, classes).to(features)[:, None]
    for _ in range(steps):
        scores = (features @ weights.view(count * classes, width).T).view(size, count, classes)
        residuals = torch.softmax(scores, dim=2) - answers
        norms = torch.linalg.vector_norm(residuals, dim=2, keepdim=True)
        residuals /= torch.maximum(norms, clip[None, :, None])
        total = (residuals.view(size, count * classes).T @ features).view(count, classes, width)
        noise = torch.randn(weights.shape, generator=generator, device=weights.device)
        velocity = MOMENTUM * velocity + total + math.sqrt(steps) / mu * noise
        weights = weights - rate * velocity
    return weights


def largest_mu(holds: Callable[[float], bool]) -> float:
    """The largest mu for which this holds, to 12 digits."""
    low, high = 1e-9, 1e3
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def splits(name: str, public: Path | None, seeds: int, device: str) -> Iterator[tuple[bool, Data]]:
    """For each seed the data of this name: as it is, then shifted by public means (True), if there are any.

    Of a scikit-learn data set one tenth counts as public and two tenths are for the test, others for each
    seed. The public records of breast_cancer give a scale for each feature too.
    """
    if name not in ("digits", "breast_cancer"):
        file = read_features(Path(name))
        parts = (file.train_features, file.train_labels, file.test_features, file.test_labels)
        train, labels, test, answers = (torch.from_numpy(part).to(device) for part in parts)
        classes = int(labels.max()) + 1
        centers = [0.0] if public is None else [0.0, read_features(public).train_features.mean(axis=0)]
        for shifted, center in enumerate(torch.as_tensor(center, device=device) for center in centers):
            data = Data(train - center, labels, test - center, answers, classes)
            yield from [(bool(shifted), data)] * seeds
        return
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    features, labels = torch.from_numpy(x).float().to(device), torch.from_numpy(y).to(device)
    for seed in range(seeds):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(device)
        known, rest, train = order.split((len(y) // 10, len(y) // 5, len(y) - len(y) // 10 - len(y) // 5))
        shifted = features - features[known].mean(dim=0)
        if name == "breast_cancer":
            shifted = shifted / features[known].std(dim=0)
        for is_shifted, seen in ((False, features), (True, shifted)):
            yield is_shifted, Data(seen[train], labels[train], seen[rest], labels[rest], int(y.max()) + 1)


def finalists(datasets: list[Data], mu: float, centred: bool, subset: int) -> list[Settings]:
    """The best eight settings of the search by their mean accuracy, on a subset of the examples if need be.

    A subset is searched at a larger mu, with the same noise in a mean as on all examples.
    """
    size = len(datasets[0].features)
    settings, kept = searched_settings(size, mu, centred=centred), min(size, subset)
    total = torch.zeros(len(settings))
    for seed, data in enumerate(datasets):
        part = replace(data, features=data.features[:kept], labels=data.labels[:kept])
        generator = torch.Generator(data.features.device).manual_seed(seed)
        total += torch.tensor(accuracies(part, mu * size / kept, settings, generator))
    return [settings[place] for place in total.topk(8).indices.tolist()]


def line(name: str, datasets: list[Data], epsilon: float, centred: bool, seeds: int, subset: int) -> str:
    """The best of the search, the rule, and the gap; the finalists and the rule are trained side by side.

    The largest of many noisy means is too large, so the eight finalists get fresh noise, and other splits.
    """
    mu = largest_mu(lambda mu: gaussian_delta(mu, epsilon) <= DELTA)
    first = datasets[0]
    rule = default_settings(*first.features.shape, first.classes, mu, centred=centred)
    settings = [rule, *finalists(datasets[:seeds], mu, centred, subset)]
    total = torch.zeros(len(settings))
    for seed, data in enumerate(datasets[seeds:]):
        generator = torch.Generator(data.features.device).manual_seed(1000 + seed)
        total += 100 * torch.tensor(accuracies(data, mu, settings, generator)) / len(datasets[seeds:])
    best, top = float(total[1:].max()), settings[1 + int(total[1:].argmax())]
    factor = top.movement / (math.sqrt(1 - top.share) * mu * len(first.features))
    means = "means" if centred else "nothing"
    numbers = f"{epsilon:7g} {best:6.1f} {float(total[0]):6.1f} {best - float(total[0]):6.1f}"
    setting = f"share {top.share:g}, clip {top.clip:g}, steps {top.steps}, movement {factor:g} mu n"
    return f"{Path(name).stem[:16]:16} {means:8} {numbers}   {setting}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", help="digits, breast_cancer, or a file of features")
    parser.add_argument("--public", type=Path, help="a file of public features, for their means")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--subset", type=int, default=10**9, help="search on so many examples first")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--again", type=int, default=20, help="seeds of the second round")
    options = parser.parse_args()
    print("data             public   epsilon   best   rule    gap   the best setting")
    for name in options.data:
        data = list(splits(name, options.public, options.seeds + options.again, options.device))
        for centred, epsilon in product((False, True), options.epsilons):
            own = [one for shifted, one in data if shifted == centred]
            if own:
                print(line(name, own, epsilon, centred, options.seeds, options.subset), flush=True)


if __name__ == "__main__":
    main()
