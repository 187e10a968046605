"""All the attacks, one after the other, from one seed."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from ringfence import checks
from ringfence.audit import planted
from ringfence.audit.canaries import Canaries, audit_engine_canaries, audit_probe_canaries
from ringfence.audit.claims import printed_claims
from ringfence.audit.distinguisher import audit_release, audit_releases
from ringfence.audit.reconstruction import ReconstructionResult, audit_reconstruction, linear_jacobian
from ringfence.audit.releases import Release, random_releases
from ringfence.audit.result import AuditResult
from ringfence.audit.trajectories import audit_training
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.training.clipping import Clamp
from ringfence.training.engine import PrivacyEngine

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Audit:
    """What every attack found: claims that must hold, and planted flaws that must be seen."""

    releases: tuple[AuditResult, ...]
    tight: tuple[AuditResult, ...]  # fewer, with more draws, against the tight profile too
    training: tuple[AuditResult, ...]
    canaries: tuple[AuditResult, ...]
    reconstruction: tuple[ReconstructionResult, ...]
    planted: tuple[AuditResult, ...]
    seconds: float

    @property
    def attacks(self) -> tuple[AuditResult, ...]:
        """Every attack on epsilon that must fail."""
        return (*self.releases, *self.tight, *self.training, *self.canaries)

    @property
    def holds(self) -> bool:
        """Every claim stands, and every planted flaw was seen."""
        stands = [result.holds for result in self.attacks] + [result.holds for result in self.reconstruction]
        return all(stands) and not any(result.holds for result in self.planted)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "holds": self.holds}


def run_audit(
    settings: int = 1000,
    *,
    trials: int = 1000,
    tight: int = 20,
    runs: int = 300,
    seed: int = 0,
    confidence: float = 0.99,
    progress: Progress | None = None,
) -> Audit:
    """Attacks random releases, training runs, canaries and reconstructions, and the planted flaws.

    ``settings`` releases get ``trials`` draws each, ``tight`` of them twenty times as many; ``runs`` are
    the training runs with and without a record. ``confidence`` is about the releases together, and
    about each of the other attacks.

    >>> audit = run_audit(10, trials=100, tight=1, runs=20)
    >>> audit.holds, len(audit.releases), [result.holds for result in audit.planted]
    (True, 10, [False, False, False])
    """
    checks.count("settings", settings, at_least=1)
    started = time.monotonic()
    show = progress or (lambda _name, _share: None)
    generator = torch.Generator().manual_seed(checks.count("seed", seed, at_least=0))
    chosen = random_releases(settings, generator)
    shared: dict[str, Any] = {"generator": generator, "confidence": confidence}
    releases = audit_releases(
        chosen, trials=trials, claims=printed_claims, progress=lambda share: show("releases", share), **shared
    )
    few = [release for release in chosen if release.theta.numel() <= 8][
        : checks.count("tight", tight, at_least=0)
    ]
    sharp = audit_releases(few, trials=20 * trials, progress=lambda share: show("tight", share), **shared)
    training, canaries, reconstruction = [], [], []
    for index, law in enumerate(_laws()):
        show("training", index / 3)
        training.append(_training(law, runs, seed, confidence))
        canaries += _canaries(law, seed, confidence)
        theta = torch.randn(12, generator=generator, dtype=torch.float64)
        reconstruction.append(
            audit_reconstruction(law, theta, linear_jacobian(3, 4, 0), trials=20_000, **shared)
        )
    return Audit(
        releases=tuple(releases),
        tight=tuple(sharp),
        training=tuple(training),
        canaries=tuple(canaries),
        reconstruction=tuple(reconstruction),
        planted=planted_flaws(generator, confidence),
        seconds=time.monotonic() - started,
    )


def planted_flaws(generator: torch.Generator, confidence: float) -> tuple[AuditResult, ...]:
    """The audit of three things that are wrong on purpose: none of them holds.

    >>> [result.violated[0] for result in planted_flaws(torch.Generator().manual_seed(0), 0.999)]
    ['one-sided', 'data-independent', 'quadrature']
    """
    flaws: tuple[tuple[Release, dict[str, Any]], ...] = (
        (planted.one_sided_release(), {"claims": planted.wrong_one_sided_claims}),
        (planted.tail_release(), {"sampler": planted.wrong_sampler_without_tails, "claims": printed_claims}),
        (planted.wide_release(), {"claims": planted.wrong_quadrature_claims}),
    )
    return tuple(
        audit_release(
            release.mechanism,
            release.theta,
            release.sensitivity,
            release.delta,
            trials=20_000,
            generator=generator,
            confidence=confidence,
            **wrong,
        )
        for release, wrong in flaws
    )


def _laws() -> tuple[Mechanism, ...]:
    return Gaussian(1.0), RectifiedGaussian(1.0, bound=2.0), TruncatedGaussian(1.0, bound=2.0)


def _training(law: Mechanism, runs: int, seed: int, confidence: float) -> AuditResult:
    """Three steps on a dozen examples; the record is clipped in every coordinate."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (12,), generator=generator)
    return audit_training(
        (features, labels),
        (torch.full((1, 2), 6.0, dtype=torch.float64), torch.tensor([0])),
        2,
        mechanism=law,
        clip=Clamp(0.5),
        learning_rate=1.0,
        steps=3,
        public_size=12,
        delta=0.01,
        runs=runs,
        seed=seed,
        confidence=confidence,
    )


def _canaries(law: Mechanism, seed: int, confidence: float) -> list[AuditResult]:
    """A probe and a small network, with 200 canaries each."""
    from ringfence.training.probe import LinearProbe  # scikit-learn takes a second to load

    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(100, 256, generator=generator)
    labels = torch.randint(4, (100,), generator=generator)
    canaries = Canaries.random(200, 256, 4, 1.0, generator)
    shared: dict[str, Any] = {"guesses": 100, "delta": 1e-5, "confidence": confidence}
    probe = LinearProbe(law, 0.02, 1.0, steps=3, public_size=200, public_classes=range(4), random_state=seed)
    engine = PrivacyEngine(law, Clamp(0.02), sampling="full", public_size=200, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(256, 8), nn.Tanh(), nn.Linear(8, 4))
    return [
        audit_probe_canaries(probe, features, labels, canaries, **shared),
        audit_engine_canaries(
            engine, model, features, labels, canaries, learning_rate=1.0, epochs=3, batch_size=256, **shared
        ),
    ]
