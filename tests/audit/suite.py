"""All attacks on what ringfence claims, one after the other, from one seed: ``python -m tests.audit``."""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import ringfence as rf
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.training.clipping import Clamp
from ringfence.training.engine.engine import PrivacyEngine
from tests.audit.decisions import audit_polls
from tests.audit.jobs import audit_jobs
from tests.audit.planted import planted_flaws
from tests.audit.reconstruction import ReconstructionResult, audit_reconstruction, linear_jacobian
from tests.audit.releases import audit_releases, example, random_targets, with_profiles
from tests.audit.result import AuditResult
from tests.audit.trajectories import audit_training

_FEW = 8  # coordinates of a target whose tight profile is quick


@dataclass(frozen=True)
class Audit:
    """What every attack found: claims that must hold, and planted flaws that must be seen."""

    attacks: dict[str, list[AuditResult]]  # by kind
    reconstruction: list[ReconstructionResult]
    planted: tuple[AuditResult, ...]

    @property
    def holds(self) -> bool:
        """Whether every claim stands and every planted flaw was seen."""
        found = [*self.attacks.values(), self.reconstruction]
        return all(one.holds for results in found for one in results) and not any(
            one.holds for one in self.planted
        )

    def lines(self) -> list[str]:
        """A line per attack and claim, with bounds as shares of the claim, and per planted flaw."""
        lines = []
        for attack, results in self.attacks.items():
            for claim in dict.fromkeys(name for result in results for name in result.claims):
                own = [result for result in results if claim in result.claims]
                shares = [one.epsilon_lower / one.claims[claim] for one in own if one.claims[claim] > 0]
                lines.append(_line(f"{attack}: {claim}", shares, sum(claim in one.violated for one in own)))
            watched = [result for result in results if result.exceeded is not None]
            if watched:  # how often the realised loss was above its epsilon, against delta
                shares = [(result.exceeded or 0.0) / result.delta for result in watched]
                broken = sum("ex-post" in result.violated for result in watched)
                lines.append(_line(f"{attack}: ex-post, share of delta", shares, broken))
        for found in self.reconstruction:
            name = f"reconstruction: 1/eta² of variance, {found.name.split('(')[0]}"
            lines.append(_line(name, [found.claim / found.variance], int(not found.holds)))
        for flaw in self.planted:
            claim = f"claimed {min(flaw.claims.values()):.3g}, proved {flaw.epsilon_lower:.3g}"
            lines.append(f"planted: {flaw.name}: {claim}: {'NOT SEEN' if flaw.holds else 'seen'}")
        return lines


def _line(name: str, shares: list[float], broken: int) -> str:
    closest = max(shares, default=0.0)
    # above, but not by more than the error of measuring it
    stands = f"{broken} WRONG" if broken else "within error" if closest > 1 else "holds"
    middle = median(shares) if shares else 0.0
    return f"{name}: {len(shares):,} settings, closest {closest:.1%}, median {middle:.1%}: {stands}"


def run_audit(
    settings: int, *, trials: int, tight: int, probes: int, runs: int, seed: int = 0, confidence: float = 0.99
) -> Audit:
    """Attacks ``settings`` random releases, ``tight`` of them with 20 times as many draws, and all else.

    Guarantee: where every claim is right, a claim falls with probability at most 1 - ``confidence``, all
    attacks together.
    """
    generator = torch.Generator().manual_seed(seed)
    laws = [example(law, 1.0, 2.0) for law in Mechanism.known().values()]
    dense = [law for law in laws if law.support.interval is not None]
    # each kind of attack may fail with a quarter of the probability; attacks run one by one share it evenly
    share = (1 - confidence) / 4
    each = 1 - share / (probes + 2 * len(dense))
    chosen = random_targets(settings, generator)
    few = [target for target in chosen if target.theta.numel() <= _FEW][:tight]
    shared: dict[str, Any] = {"generator": generator, "confidence": 1 - share}
    theta = torch.randn(12, generator=generator, dtype=torch.float64)
    attacks = {
        "one release": lambda: audit_releases(chosen, trials=trials, **shared),
        "one release, more draws": lambda: audit_releases(
            few, trials=20 * trials, claims=with_profiles, **shared
        ),
        "training run": lambda: [
            _training(laws[index % len(laws)], index, runs, seed, each) for index in range(probes)
        ],
        "canaries in one run": lambda: [_canaries(law, seed, each) for law in dense],
        "up to five decisions, exactly": lambda: audit_polls(-(-settings // 10), generator=generator),
        "one job": lambda: audit_jobs(10 * trials, noise=Noise(seed).of("jobs"), confidence=1 - share),
    }
    found = {}
    for name, attack in attacks.items():
        started = time.monotonic()
        found[name] = attack()
        print(f"{name}: {len(found[name])} attacks in {time.monotonic() - started:.0f} s", flush=True)
    reconstruction = [
        audit_reconstruction(
            law, theta, linear_jacobian(3, 4, 0), trials=20_000, generator=generator, confidence=each
        )
        for law in dense
    ]
    return Audit(found, reconstruction, planted_flaws(generator, confidence))


def _training(law: Mechanism, index: int, runs: int, seed: int, confidence: float) -> AuditResult:
    """One to four steps on a dozen examples; the record is clipped in every coordinate."""
    place = Noise(seed).torch_seed("audit", index)
    generator = torch.Generator().manual_seed(place)
    clip = 0.2 + 0.6 * float(torch.rand((), generator=generator))
    return audit_training(
        (
            torch.randn(12, 2, generator=generator, dtype=torch.float64),
            torch.randint(2, (12,), generator=generator),
        ),
        (torch.full((1, 2), 12 * clip, dtype=torch.float64), torch.tensor([0])),
        2,
        mechanism=law,
        clip=Clamp(clip),
        learning_rate=1.0,
        steps=int(torch.randint(1, 5, (), generator=generator)),
        public_size=12,
        delta=0.01,
        runs=runs,
        seed=place,
        confidence=confidence,
    )


def _canaries(law: Mechanism, seed: int, confidence: float) -> AuditResult:
    """A small network, trained for three steps with 1,000 canaries."""
    generator = torch.Generator().manual_seed(seed)
    data = torch.randn(100, 64, generator=generator), torch.randint(4, (100,), generator=generator)
    engine = PrivacyEngine(law, Clamp(0.5), sampling="full", public_size=600, seed=seed)

    def train(model: nn.Module, dataset: Dataset[Any]) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        private, stepping, loader = engine.make_private(model, optimizer, DataLoader(dataset, batch_size=300))
        for _ in range(3):
            for inputs, labels in loader:
                nn.functional.cross_entropy(private(inputs), labels).backward()
                stepping.step()

    # m delta is charged against the probability of failure, so delta has to be far below it
    found = rf.audit_training(
        lambda: nn.Linear(64, 4), train, data, delta=1e-8, significance=1 - confidence, seed=seed
    )
    claims = {"data-independent": engine.guarantee(1e-8).epsilon}
    return AuditResult(f"{found.what}, {law!r}", 1e-8, confidence, 1, found.epsilon_lower_bound, claims)
