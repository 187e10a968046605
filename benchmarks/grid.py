"""The paper's grid of linear probes, trained and accounted for at once, against one by one, in one run.

    python -m benchmarks.grid [--device cuda] [--features FILE.npz] [--examples N] [--width P] [--every K]

880 settings on 50,000 x 1,280 features on a GPU; a small grid on small data on a CPU. A file holds
arrays features, labels, test_features and test_labels. Parts are timed with the device waited for.

Claim: well under 20 s on an H200, accounts of 62 orders and test accuracy included. The same grid is then run
with L2 clips, whose sums are one matrix product for all settings, and its times are divided by those above.
"""

import argparse
import itertools
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import peak_memory, seconds
from experiments import linear_grid
from experiments.linear_grid import accuracies, train_linear_grid
from ringfence.accounting.divergence_sums import exact_sums
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.training.clipping import Clamp, Norm
from ringfence.training.kernels.clipped_sums import plain_outer_sum
from ringfence.training.linear import LinearRun, LinearSettings, train_linear

CLIPS, RATIOS, BOUNDS = (1e-3, 2e-3, 5e-3, 1e-2), (1e3, 2e3, 1e4, 2e4, 5e4), (4.0, 8.0, 16.0, 32.0, 64.0)
RATES, STEPS = (8.0, 16.0), (10, 20)


def paper_grid() -> list[LinearSettings]:
    """80 Gaussian, 400 rectified and 400 truncated settings, a seed each."""
    settings = []
    for clip, ratio, rate, steps in itertools.product(CLIPS, RATIOS, RATES, STEPS):
        sigma = ratio * clip
        laws = [
            Gaussian(sigma),
            *(law(sigma, bound) for law in (RectifiedGaussian, TruncatedGaussian) for bound in BOUNDS),
        ]
        settings += [
            LinearSettings(law, Clamp(clip), rate, steps, seed=len(settings) + i)
            for i, law in enumerate(laws)
        ]
    return settings


def with_norms(settings: list[LinearSettings], size: int) -> list[LinearSettings]:
    """The same settings with L2 clips that cost the Gaussian the same: C = c sqrt(d)."""
    norms = [Norm(float(setting.clip.largest) * math.sqrt(size)) for setting in settings]
    return [replace(setting, clip=norm) for setting, norm in zip(settings, norms, strict=True)]


def random_data(examples: int, width: int, device: torch.device) -> tuple[Tensor, ...]:
    """Ten clouds of the size that features of a network have, and a fifth more of them to test on."""
    generator = torch.Generator(device).manual_seed(0)
    count = examples + examples // 5
    labels = torch.randint(10, (count,), generator=generator, device=device)
    centres = 0.3 * torch.randn(10, width, generator=generator, device=device)
    features = centres[labels] + torch.randn(count, width, generator=generator, device=device)
    return features[:examples], labels[:examples], features[examples:], labels[examples:]


def data_of(path: str, device: torch.device) -> tuple[Tensor, ...]:
    import numpy as np

    with np.load(path) as arrays:
        features, test = (torch.from_numpy(arrays[name]).float() for name in ("features", "test_features"))
        labels, known = (torch.from_numpy(arrays[name]).long() for name in ("labels", "test_labels"))
    return tuple(part.to(device) for part in (features, labels, test, known))


def timed_parts(device: torch.device) -> tuple[dict[str, float], Callable[[], None]]:
    """Wraps the parts of training so that each adds up its seconds; and how to take that back."""
    spent: dict[str, float] = defaultdict(float)
    places: list[tuple[Any, str, str]] = [
        (linear_grid, "_residuals", "scores"),
        (linear_grid, "_clipped_sums", "outer sums"),
        (linear_grid.GridAccountant, "step", "accounting"),
        (linear_grid.GridAccountant, "__init__", "accounts, once"),
        (linear_grid, "_released", "sampling"),
        (linear_grid.GridTable, "_fill", "(of accounting: filling pages)"),
    ]
    originals = [getattr(place, name) for place, name, _ in places]

    def wrapped(work: Callable[..., Any], part: str) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            kept: list[Any] = []
            spent[part] += seconds(lambda: kept.append(work(*arguments, **named)), device)
            return kept[0]

        return run

    for (place, name, part), original in zip(places, originals, strict=True):
        setattr(place, name, wrapped(original, part))

    def restore() -> None:
        for (place, name, _), original in zip(places, originals, strict=True):
            setattr(place, name, original)

    return spent, restore


def in_parts(
    features: Tensor, labels: Tensor, settings: list[LinearSettings]
) -> tuple[list[LinearRun], dict[str, float]]:
    """Trains the settings once more, and prints and returns what each part took."""
    spent, restore = timed_parts(features.device)
    kept: list[Any] = []
    again = seconds(
        lambda: kept.append(train_linear_grid(features, labels, 10, settings, public_size=len(features))),
        features.device,
    )
    restore()
    for part, took in spent.items():
        print(f"  {part:32s}{took:8.3f} s")
    print(f"  {'training, parts waited for':32s}{again:8.3f} s", flush=True)
    return kept[0], spent


def check_one(setting: LinearSettings, run: LinearRun, single: LinearRun) -> tuple[float, float, float]:
    """How far the weights are off, and by how much the account lies above the exact sums, least and most."""
    apart = float((run.weights - single.weights).norm() / single.weights.norm())
    exact = torch.zeros(2, len(run.account.orders), dtype=torch.float64)
    size = torch.tensor(setting.clip.sensitivity, dtype=torch.float64)
    for step in single.trajectory:
        exact += exact_sums(setting.mechanism, step.theta, size, run.account.orders)
    above = torch.stack((run.account.forward, run.account.backward)) / exact - 1
    return apart, float(above.min()), float(above.max())


def check_kernel(features: Tensor) -> None:
    """One clip a column, against float64."""
    generator = torch.Generator(features.device).manual_seed(1)
    some = features[:3001]
    residuals = torch.rand(len(some), 170, generator=generator, device=features.device) - 0.5
    clips = torch.logspace(-4, 0, 170, device=features.device)
    got = linear_grid.clipped_outer_sum(residuals, some, clips)
    error = (got - plain_outer_sum(residuals.double(), some.double(), clips.double())).abs().amax(dim=1)
    again = torch.equal(got, linear_grid.clipped_outer_sum(residuals, some, clips))
    print(f"outer sum: largest error / clip {float((error / clips).max()):.1e}, the same twice: {again}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--features", help="an npz file")
    parser.add_argument("--examples", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--every", type=int, help="takes one setting in so many")
    parser.add_argument("--checks", type=int, default=6, help="settings compared with train_linear")
    given = parser.parse_args()
    device = torch.device(given.device)
    small = device.type == "cpu"
    data = (
        data_of(given.features, device)
        if given.features
        else random_data(
            given.examples or (2_000 if small else 50_000), given.width or (64 if small else 1280), device
        )
    )
    features, labels, test, known = data
    settings = paper_grid()[:: given.every or (20 if small else 1)]
    print(
        f"{len(settings)} settings, {sum(s.steps for s in settings):,} steps, features {list(features.shape)}"
    )

    check_kernel(features)
    train_linear_grid(features[:256], labels[:256], 10, settings[:3], public_size=256)  # compiles
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    start = time.perf_counter()
    runs = train_linear_grid(features, labels, 10, settings, public_size=len(features))
    found = accuracies(runs, test, known)
    whole = time.perf_counter() - start
    print(f"all of it: {whole:.2f} s; peak memory {peak_memory(device):,.0f} MiB", flush=True)

    kept, clamping = in_parts(features, labels, settings)
    print(f"  {'evaluation':32s}{seconds(lambda: accuracies(runs, test, known), device):8.3f} s")
    same = all(
        torch.equal(one.weights, other.weights) and torch.equal(one.account.forward, other.account.forward)
        for one, other in zip(runs, kept, strict=True)
    )
    print(f"the same twice: {same}; accuracy from {float(found.min()):.3f} to {float(found.max()):.3f}")

    norms = with_norms(settings, runs[0].weights.numel())
    train_linear_grid(features[:256], labels[:256], 10, norms[:3], public_size=256)
    start = time.perf_counter()
    shorter = accuracies(
        train_linear_grid(features, labels, 10, norms, public_size=len(features)), test, known
    )
    took = time.perf_counter() - start
    print(f"L2 clips, all of it: {took:.2f} s, accuracy up to {float(shorter.max()):.3f}")
    _, multiplying = in_parts(features, labels, norms)
    own = {name: (multiplying[name], clamping[name]) for name in ("outer sums", "accounting")}
    for part, (here, there) in {"all of it": (took, whole), **own}.items():
        print(f"L2 clips over clamps, {part}: {here / there:.3f}", flush=True)

    chosen = random.Random(0).sample(range(len(settings)), min(given.checks, len(settings)))
    took, steps = 0.0, 0
    for i in chosen:
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        # ends with its account on the CPU, so it is done
        single = train_linear(features, labels, 10, **vars(settings[i]), public_size=len(features))
        _ = single.account
        took += time.perf_counter() - start
        steps += settings[i].steps
        apart, least, most = check_one(settings[i], runs[i], single)
        print(
            f"  setting {i:3d} {settings[i].mechanism!r}: weights apart {apart:.1e}, "
            f"account above exact by {least:.1e} to {most:.1e}",
            flush=True,
        )
    scaled = took / steps * sum(setting.steps for setting in settings)
    print(f"one by one {scaled:.1f} s (from {len(chosen)} settings): {scaled / whole:.1f} times as long")


if __name__ == "__main__":
    main()
