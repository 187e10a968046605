"""Attacks on whole jobs: honest ones stand, and each of them falls with half of its noise."""

import pytest

from ringfence.audit.jobs import audit_job, jobs
from ringfence.noise import Noise

JOBS = jobs(6000)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.name))
def test_no_claim_falls_and_half_of_the_noise_is_seen(job: object) -> None:
    honest, flawed = (
        audit_job(job, noise=Noise(seed=2), confidence=0.999, flawed=share)  # type: ignore[arg-type]
        for share in (1.0, 0.5)
    )
    assert honest.holds
    assert honest.epsilon_lower > 0.1
    assert honest.claims == flawed.claims
    assert "tight" in flawed.violated
