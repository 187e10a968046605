"""Attacks on whole jobs: honest ones stand, and each of them falls with half of its noise."""

from dataclasses import replace

import pytest

from ringfence.noise import Noise
from ringfence.releases.release import Release
from tests.audit.jobs import Job, audit_job, jobs

JOBS = jobs(24_000)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.name))
def test_no_claim_falls_and_half_of_the_noise_is_seen(job: Job) -> None:
    made: dict[tuple[bool, float], Release] = {}

    def release(there: bool, sigma: float, noise: Noise) -> Release:
        """Each release once: both audits need the honest one, for its account."""
        if (there, sigma) not in made:
            made[there, sigma] = job.release(there, sigma, noise)
        return made[there, sigma]

    once = replace(job, release=release)
    honest, flawed = (
        audit_job(once, noise=Noise(seed=2), confidence=0.999, flawed=share) for share in (1.0, 0.5)
    )
    assert honest.holds
    assert honest.epsilon_lower > 0.1
    assert honest.claims == flawed.claims
    assert "tight" in flawed.violated
