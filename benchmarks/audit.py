"""How often audits refute true claims at their exact epsilon, and what they prove in one training run.

    python -m benchmarks.audit [validity|training]

The first is the validity of every bound: thousands of claims that are exactly true, by the Gaussian, Laplace
noise, randomised response and a sampled Gaussian. The second trains the digits CNN once at epsilon = 8 with
ringfence and with Opacus, and audits both from outside.
"""

import math
import sys
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon

SIGNIFICANCE, CLAIMS, DELTA = 0.05, 500, 1e-5  # claims of each kind
RATE, STEPS, CANARIES = 0.5, 20, 5000
SEEDS = range(101, 121)  # the setting above was chosen on others


def sampled_epsilon(rate: float, mu: float, delta: float) -> float:
    """The exact epsilon of one release with Gaussian noise of a record that is sampled with this rate."""

    def excess(epsilon: float) -> float:
        # P = (1 - q) N(0) + q N(mu) against Q = N(0), in either order, on a fine grid
        y = np.linspace(-10, 10 + mu, 200_001)
        q = np.exp(-y * y / 2) / math.sqrt(2 * math.pi)
        p = (1 - rate) * q + rate * np.exp(-((y - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
        sticks = [np.maximum(a - math.exp(epsilon) * b, 0).sum() * (y[1] - y[0]) for a, b in ((p, q), (q, p))]
        return max(sticks) - delta

    low, high = 0.0, gaussian_epsilon(mu, delta)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def validity() -> None:
    """Refuted claims out of those that are exactly true, by door and by law."""
    rng = np.random.default_rng(0)
    lie = 1 / (1 + math.e)

    def sampled(moved: Any, count: int) -> Any:
        return rng.normal(size=count) + np.where(rng.random(count) < 0.3, 1.5 * moved, 0.0)

    laws = {
        "Gaussian": (lambda x, n: rng.normal(size=n) + x, gaussian_epsilon(1.0, 0.01), 0.01),
        "Laplace": (lambda x, n: rng.laplace(size=n) + x, 1.0, 0.0),
        "randomised response": (lambda x, n: (rng.random(n) < np.where(x, 1 - lie, lie)) * 1.0, 1.0, 0.0),
        "sampled Gaussian": (sampled, sampled_epsilon(0.3, 1.5, 0.01), 0.01),
    }
    for name, (law, epsilon, delta) in laws.items():
        fallen = dict.fromkeys(("function", "scores, thresholds", "scores, one run"), 0)
        for seed in range(CLAIMS):
            door: dict[str, Any] = {"claim": (epsilon, delta), "significance": SIGNIFICANCE, "seed": seed}
            fallen["function"] += rf.audit(
                law, 0.0, 1.0, draws=1000, batched=True, floating_point=False, **door
            ).refuted
            coins = rng.random(1000) < 0.5
            drawn = np.where(coins, law(1.0, 1000), law(0.0, 1000))
            for independent in (True, False):
                found = rf.audit_scores(
                    drawn[coins],
                    drawn[~coins],
                    delta=delta,
                    significance=SIGNIFICANCE,
                    independent=independent,
                )
                fallen["scores, thresholds" if independent else "scores, one run"] += found.refutes(epsilon)
        shown = ", ".join(f"{door} {count}" for door, count in fallen.items())
        print(f"{name}: of {CLAIMS} true claims, allowed {SIGNIFICANCE * CLAIMS:.0f}: {shown}", flush=True)


def training() -> None:
    """What one training run of the digits CNN proves, of a claim of 8."""
    from opacus import PrivacyEngine as Opacus
    from opacus.accountants.utils import get_noise_multiplier
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    data = torch.tensor(pixels[:1500] / 16).float().view(-1, 1, 8, 8), torch.tensor(digits[:1500])
    sigma = get_noise_multiplier(
        target_epsilon=8.0, target_delta=DELTA, sample_rate=RATE, steps=STEPS, accountant="prv"
    )

    def network() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, 10)),
        )

    def steps(model: nn.Module, optimizer: Any, loader: Any) -> None:
        for _ in range(int(STEPS * RATE)):
            for inputs, labels in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()

    def parts(model: nn.Module, dataset: Any) -> tuple[Any, Any]:
        loader = DataLoader(dataset, batch_size=math.ceil(RATE * len(dataset)))  # 1 / RATE batches
        return torch.optim.SGD(model.parameters(), lr=1.0), loader

    def with_opacus(model: nn.Module, dataset: Any) -> None:
        optimizer, loader = parts(model, dataset)
        engine = Opacus(accountant="prv")
        steps(
            *engine.make_private(
                module=model,
                optimizer=optimizer,
                data_loader=loader,
                noise_multiplier=sigma,
                max_grad_norm=1.0,
            )
        )
        claims.append(engine.get_epsilon(DELTA))

    def with_ringfence(model: nn.Module, dataset: Any) -> None:
        engine = rf.PrivacyEngine(
            rf.Gaussian(sigma), rf.Norm(1.0), sampling="poisson", public_size=len(dataset)
        )
        steps(*engine.make_private(model, *parts(model, dataset)))
        claims.append(engine.guarantee(DELTA).epsilon)

    warnings.simplefilter("ignore")
    for name, train in (("Opacus", with_opacus), ("ringfence", with_ringfence)):
        claims: list[float] = []
        found = [
            rf.audit_training(network, train, data, delta=DELTA, canaries=CANARIES, seed=seed)
            for seed in SEEDS
        ]
        for what, bounds in (
            ("(epsilon, delta)", [one.epsilon_lower_bound for one in found]),
            ("Gaussian curve", [one.bounds["one run, Gaussian"] for one in found]),
        ):
            shown = ", ".join(f"{bound:.2f}" for bound in bounds)
            print(f"{name}, claim {claims[0]:.2f}, {what}: {shown}; mean {np.mean(bounds):.2f}", flush=True)


if __name__ == "__main__":
    for measured in sys.argv[1:] or ("validity", "training"):
        {"validity": validity, "training": training}[measured]()
