"""All the attacks, one after the other, from one seed."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from ringfence import checks
from ringfence.audit.attacks import planted
from ringfence.audit.attacks.canaries import Canaries, audit_engine_canaries, audit_probe_canaries
from ringfence.audit.attacks.decisions import audit_decisions, random_decisions
from ringfence.audit.attacks.distinguisher import audit_release, audit_targets
from ringfence.audit.attacks.jobs import audit_job, audit_jobs, jobs
from ringfence.audit.attacks.reconstruction import ReconstructionResult, audit_reconstruction, linear_jacobian
from ringfence.audit.attacks.trajectories import audit_training
from ringfence.audit.claims import printed_claims, with_profiles
from ringfence.audit.result import AuditResult
from ringfence.audit.targets import Target, example, random_targets
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.progress import Progress
from ringfence.training.clipping import Clamp
from ringfence.training.engine.engine import PrivacyEngine

_FEW = 8  # coordinates of a target whose tight profile is quick


@dataclass(frozen=True)
class Audit:
    """What every attack found: claims that must hold, and planted flaws that must be seen."""

    releases: tuple[AuditResult, ...]
    tight: tuple[AuditResult, ...]  # fewer releases, with more draws, against the tight profile too
    training: tuple[AuditResult, ...]
    canaries: tuple[AuditResult, ...]
    reconstruction: tuple[ReconstructionResult, ...]
    planted: tuple[AuditResult, ...]
    seconds: float
    confidence: float  # of all lower bounds together
    decisions: tuple[AuditResult, ...] = ()
    jobs: tuple[AuditResult, ...] = ()

    @property
    def attacks(self) -> tuple[AuditResult, ...]:
        """Every attack on epsilon that must fail."""
        return (*self.releases, *self.tight, *self.training, *self.canaries, *self.decisions, *self.jobs)

    @property
    def holds(self) -> bool:
        """Whether every claim stands and every planted flaw was seen."""
        return self.claims_hold and not any(result.holds for result in self.planted)

    @property
    def claims_hold(self) -> bool:
        """Whether no attack proved a claim wrong."""
        return all(one.holds for one in self.attacks) and all(one.holds for one in self.reconstruction)

    def as_dict(self) -> dict[str, Any]:
        """The audit as plain data."""
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
    """Attacks releases, decisions, jobs, training runs, canaries, reconstructions, and the planted flaws.

    ``settings`` releases, of every law in turn, and a tenth as many decisions get ``trials`` draws each,
    ``tight`` of the releases twenty times as many. Each of ``probes`` linear models is trained ``runs`` times
    with a record and as often without. Canaries and reconstructions attack the laws with a density. The jobs
    (``release_counts`` and the others) are attacked in ten times ``trials`` cells.

    Guarantee: where every claim is right, one is called wrong with probability at most
    1 - ``confidence``, all attacks together.

    ``run_audit(10, trials=100, tight=0, probes=0).holds`` takes some seconds. Arguments are checked before:

    >>> run_audit(settings=0)
    Traceback (most recent call last):
    ValueError: settings must be at least 1, got 0
    """
    for name, value, least in (("settings", settings, 1), ("tight", tight, 0), ("probes", probes, 0)):
        checks.count(name, value, at_least=least)
    started = time.monotonic()
    show = progress or (lambda _name, _share: None)
    generator = torch.Generator().manual_seed(checks.count("seed", seed, at_least=0))
    laws = [example(law, 1.0, 2.0) for law in Mechanism.known().values()]
    dense = [law for law in laws if law.support.interval is not None]
    # each kind of attack may fail with a fifth of the probability; attacks run one by one share it evenly
    share = (1 - checks.probability("confidence", confidence)) / 5
    each = 1 - share / (probes + 3 * len(dense))
    chosen = random_targets(settings, generator)
    few = [target for target in chosen if target.theta.numel() <= _FEW][:tight]
    releases, sharp = (
        audit_targets(
            some,
            trials=draws,
            generator=generator,
            confidence=1 - share,
            claims=claims,
            part=part,
            progress=progress,
        )
        for part, some, draws, claims in (
            ("releases", chosen, trials, printed_claims),
            ("tight profiles", few, 20 * trials, with_profiles),
        )
    )
    training = []
    for index in range(probes):
        show("training runs", index / probes)
        training.append(_training(laws[index % len(laws)], index, runs, seed, each))
    canaries, reconstruction = [], []
    for index, law in enumerate(dense):
        show("canaries and reconstruction", index / len(dense))
        canaries += _canaries(law, seed, each)
        theta = torch.randn(12, generator=generator, dtype=torch.float64)
        reconstruction.append(
            audit_reconstruction(
                law, theta, linear_jacobian(3, 4, 0), trials=20_000, generator=generator, confidence=each
            )
        )
    show("decisions", 0.0)
    decisions = audit_decisions(
        random_decisions(-(-settings // 10), generator),
        trials=trials,
        generator=generator,
        confidence=1 - share,
    )
    show("jobs", 0.0)
    found = audit_jobs(10 * trials, noise=Noise(seed).of("jobs"), confidence=1 - share)
    return Audit(
        releases=tuple(releases),
        tight=tuple(sharp),
        training=tuple(training),
        canaries=tuple(canaries),
        reconstruction=tuple(reconstruction),
        planted=planted_flaws(generator, confidence),
        seconds=time.monotonic() - started,
        confidence=confidence,
        decisions=tuple(decisions),
        jobs=tuple(found),
    )


def planted_flaws(generator: torch.Generator, confidence: float) -> tuple[AuditResult, ...]:
    """The audit of four things that are wrong on purpose: none of them holds.

    >>> [result.violated[0] for result in planted_flaws(torch.Generator().manual_seed(0), 0.999)]
    ['one-sided', 'data-independent', 'quadrature', 'data-independent']
    """
    flaws: tuple[tuple[str, Target, dict[str, Any]], ...] = (
        (
            "accounting for one side only",
            planted.one_sided_target(),
            {"claims": planted.wrong_one_sided_claims},
        ),
        (
            "a sampler without tail noise",
            planted.tail_target(),
            {"sampler": planted.wrong_sampler_without_tails, "claims": printed_claims},
        ),
        ("quadrature missing the peak", planted.wide_target(), {"claims": planted.wrong_quadrature_claims}),
    )
    results = (
        audit_release(
            target.mechanism,
            target.theta,
            target.sensitivity,
            target.delta,
            trials=20_000,
            generator=generator,
            confidence=confidence,
            **wrong,
        )
        for _, target, wrong in flaws
    )
    named = [replace(result, name=flaw[0]) for result, flaw in zip(results, flaws, strict=True)]
    noise = Noise(int(torch.randint(2**31, (), generator=generator)))
    half = audit_job(jobs(10_000)[0], noise=noise, confidence=confidence, flawed=0.5)
    return (*named, replace(half, name="a table with half of its noise"))


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


def _canaries(law: Mechanism, seed: int, confidence: float) -> list[AuditResult]:
    """A probe and a small network, with 200 canaries each."""
    from ringfence.training.probe import LinearProbe  # scikit-learn takes a second to load

    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(100, 256, generator=generator)
    labels = torch.randint(4, (100,), generator=generator)
    canaries = Canaries.random(200, 256, 4, 1.0, generator)
    # 2 m delta is charged against the probability of failure, so delta has to be far below it
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
