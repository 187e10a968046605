"""All the attacks, one after the other, from one seed."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from ringfence import checks
from ringfence.audit import planted
from ringfence.audit.canaries import Canaries, audit_engine_canaries, audit_probe_canaries
from ringfence.audit.claims import printed_claims, with_profiles
from ringfence.audit.distinguisher import audit_release, audit_releases
from ringfence.audit.reconstruction import ReconstructionResult, audit_reconstruction, linear_jacobian
from ringfence.audit.releases import Release, random_releases
from ringfence.audit.result import AuditResult
from ringfence.audit.trajectories import audit_training
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.noise import Noise
from ringfence.training.clipping import Clamp
from ringfence.training.engine.engine import PrivacyEngine

Progress = Callable[[str, float], None]

_FEW = 8  # coordinates of a release whose tight profile is quick


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
    confidence: float  # of all lower bounds together

    @property
    def attacks(self) -> tuple[AuditResult, ...]:
        """Every attack on epsilon that must fail."""
        return (*self.releases, *self.tight, *self.training, *self.canaries)

    @property
    def holds(self) -> bool:
        """Every claim stands, and every planted flaw was seen."""
        return self.claims_hold and not any(result.holds for result in self.planted)

    @property
    def claims_hold(self) -> bool:
        """No attack proved a claim wrong."""
        return all(one.holds for one in self.attacks) and all(one.holds for one in self.reconstruction)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "holds": self.holds}


def run_audit(
    settings: int = 1000,
    *,
    trials: int = 1000,
    tight: int = 20,
    probes: int = 5,
    runs: int = 300,
    seed: int = 0,
    confidence: float = 0.99,
    progress: Progress | None = None,
) -> Audit:
    """Attacks random releases, training runs, canaries and reconstructions, and the planted flaws.

    ``settings`` releases get ``trials`` draws each, ``tight`` of them twenty times as many; each of
    ``probes`` linear models is trained ``runs`` times with a record and as often without.

    Guarantee: where every claim is right, one is called wrong with probability at most
    1 - ``confidence``, all attacks together.

    >>> audit = run_audit(10, trials=100, tight=1, probes=1, runs=20)
    >>> audit.holds, len(audit.releases), [result.holds for result in audit.planted]
    (True, 10, [False, False, False])
    """
    for name, value, least in (("settings", settings, 1), ("tight", tight, 0), ("probes", probes, 0)):
        checks.count(name, value, at_least=least)
    started = time.monotonic()
    show = progress or (lambda _name, _share: None)
    generator = torch.Generator().manual_seed(checks.count("seed", seed, at_least=0))
    # a third of what may fail for each kind of attack, split evenly where they are run one by one
    share = (1 - checks.probability("confidence", confidence)) / 3
    each = 1 - share / (probes + 3 * len(_laws()))
    chosen = random_releases(settings, generator)
    few = [release for release in chosen if release.theta.numel() <= _FEW][:tight]
    releases, sharp = (
        audit_releases(
            some,
            trials=draws,
            generator=generator,
            confidence=1 - share,
            claims=claims,
            progress=lambda done, name=name: show(name, done),  # type: ignore[misc]
        )
        for name, some, draws, claims in (
            ("releases", chosen, trials, printed_claims),
            ("tight profiles", few, 20 * trials, with_profiles),
        )
    )
    training = []
    for index in range(probes):
        show("training runs", index / probes)
        training.append(_training(index, runs, seed, each))
    canaries, reconstruction = [], []
    for index, law in enumerate(_laws()):
        show("canaries and reconstruction", index / len(_laws()))
        canaries += _canaries(law, seed, each)
        theta = torch.randn(12, generator=generator, dtype=torch.float64)
        reconstruction.append(
            audit_reconstruction(
                law, theta, linear_jacobian(3, 4, 0), trials=20_000, generator=generator, confidence=each
            )
        )
    return Audit(
        releases=tuple(releases),
        tight=tuple(sharp),
        training=tuple(training),
        canaries=tuple(canaries),
        reconstruction=tuple(reconstruction),
        planted=planted_flaws(generator, confidence),
        seconds=time.monotonic() - started,
        confidence=confidence,
    )


def planted_flaws(generator: torch.Generator, confidence: float) -> tuple[AuditResult, ...]:
    """The audit of three things that are wrong on purpose: none of them holds.

    >>> [result.violated[0] for result in planted_flaws(torch.Generator().manual_seed(0), 0.999)]
    ['one-sided', 'data-independent', 'quadrature']
    """
    flaws: tuple[tuple[str, Release, dict[str, Any]], ...] = (
        (
            "accounting for one side only",
            planted.one_sided_release(),
            {"claims": planted.wrong_one_sided_claims},
        ),
        (
            "a sampler without tail noise",
            planted.tail_release(),
            {"sampler": planted.wrong_sampler_without_tails, "claims": printed_claims},
        ),
        ("quadrature missing the peak", planted.wide_release(), {"claims": planted.wrong_quadrature_claims}),
    )
    results = (
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
        for _, release, wrong in flaws
    )
    return tuple(replace(result, name=flaw[0]) for result, flaw in zip(results, flaws, strict=True))


def _laws() -> tuple[Mechanism, ...]:
    return Gaussian(1.0), RectifiedGaussian(1.0, bound=2.0), TruncatedGaussian(1.0, bound=2.0)


def _training(index: int, runs: int, seed: int, confidence: float) -> AuditResult:
    """One to four steps on a dozen examples, every law in turn; the record is clipped in every coordinate."""
    place = Noise(seed).torch_seed("audit", index)
    generator = torch.Generator().manual_seed(place)
    laws = (*_laws(), StochasticSign(1.0), QuantizedGaussian(1.0, bound=2.0, levels=9))
    clip = 0.2 + 0.6 * float(torch.rand((), generator=generator))
    return audit_training(
        (
            torch.randn(12, 2, generator=generator, dtype=torch.float64),
            torch.randint(2, (12,), generator=generator),
        ),
        (torch.full((1, 2), 12 * clip, dtype=torch.float64), torch.tensor([0])),
        2,
        mechanism=laws[index % len(laws)],
        clip=Clamp(clip),
        learning_rate=1.0,
        steps=int(torch.randint(1, 5, (), generator=generator)),
        public_size=12,
        delta=0.01,
        runs=runs,
        seed=place,
        confidence=confidence,
    )


def _canaries(law: Mechanism, seed: int, confidence: float) -> list[AuditResult]:
    """A probe and a small network, with 200 canaries each."""
    from ringfence.training.linear.probe import LinearProbe  # scikit-learn takes a second to load

    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(100, 256, generator=generator)
    labels = torch.randint(4, (100,), generator=generator)
    canaries = Canaries.random(200, 256, 4, 1.0, generator)
    # 2 m delta is charged against what may fail, so delta has to be far below it
    shared: dict[str, Any] = {"guesses": 100, "delta": 1e-8, "confidence": confidence}
    probe = LinearProbe(law, 0.03, 1.0, steps=3, public_size=200, public_classes=range(4), random_state=seed)
    engine = PrivacyEngine(law, Clamp(0.03), sampling="full", public_size=200, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(256, 8), nn.Tanh(), nn.Linear(8, 4))
    return [
        audit_probe_canaries(probe, features, labels, canaries, **shared),
        audit_engine_canaries(
            engine, model, features, labels, canaries, learning_rate=1.0, epochs=3, batch_size=256, **shared
        ),
    ]
