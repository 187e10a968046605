"""No claim falls to the distinguisher, and every planted flaw does."""

import pytest
import torch

from ringfence import (
    Gaussian,
    PerInstanceAccountant,
    RectifiedGaussian,
    StochasticSign,
    TruncatedGaussian,
    privacy_profile,
)
from ringfence.audit import planted
from ringfence.audit.claims import printed_claims, with_profiles
from ringfence.audit.distinguisher import audit_release, audit_releases
from ringfence.audit.releases import Release, random_releases, stacks
from ringfence.audit.result import AuditResult
from ringfence.mechanisms.base import Mechanism
from tests.tensors import float64


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def attack(release: Release, **others: object) -> AuditResult:
    return audit_releases([release], trials=20_000, generator=seeded(), confidence=0.999, **others)[0]  # type: ignore[arg-type]


def test_no_claim_falls_in_hundreds_of_settings() -> None:
    generator = seeded(7)
    releases = random_releases(250, generator)
    results = audit_releases(
        releases, trials=500, generator=generator, confidence=0.99, claims=printed_claims
    )
    assert [result.violated for result in results if not result.holds] == []
    # the attack is not idle: a good part of the bounds say something
    assert sum(result.epsilon_lower > 0.1 for result in results) > 100
    assert {release.theta.numel() for release in releases} >= {1, 2, 5, 10}
    assert max(release.theta.numel() for release in releases) > 40


def test_batched_claims_are_those_of_the_accountant() -> None:
    releases = random_releases(15, seeded(2))
    for release, claim in zip(releases, printed_claims(releases), strict=True):
        account = PerInstanceAccountant(release.mechanism, release.sensitivity)
        account.step(release.theta)
        guarantee = account.guarantee(release.delta)
        assert claim["per-instance"] == pytest.approx(guarantee.epsilon_pdp, rel=1e-12)
        assert claim["data-independent"] == guarantee.epsilon_data_independent


def test_the_tight_profile_holds_and_is_nearly_reached() -> None:
    release = Release(TruncatedGaussian(1.0, bound=1.0), float64([0.5]), 2.0, 0.01)
    [claim] = with_profiles([release])
    profile = privacy_profile(release.mechanism, release.theta, release.sensitivity)
    assert claim["profile"] == profile.epsilon(0.01)
    [result] = audit_releases([release], trials=200_000, generator=seeded(), confidence=0.99)
    assert result.holds
    assert result.epsilon_lower > 0.8 * claim["profile"]


@pytest.mark.parametrize("law", [RectifiedGaussian(1.0, bound=1.0), StochasticSign(1.0), Gaussian(1.0)])
def test_the_worst_of_both_signs_and_directions_is_attacked(law: Mechanism) -> None:
    """In one dimension the exact epsilon is known: the bound comes near it from below, on either side."""
    for place in (1.5, -1.5):
        theta = float64([place])
        sides = [(theta, 1.0), (theta, -1.0), (theta + 1, -1.0), (theta - 1, 1.0)]

        def delta(epsilon: float, sides: list[tuple[torch.Tensor, float]] = sides) -> float:
            return max(float(law.hockey_stick(at, shift, epsilon)) for at, shift in sides)

        bound = audit_release(
            law, theta, 1.0, 0.05, trials=100_000, generator=seeded(), confidence=0.99, claims=printed_claims
        ).epsilon_lower
        assert delta(bound) > 0.05 > delta(bound + 0.3)


def test_a_wrong_sigma_is_seen() -> None:
    """A sampler with half of the noise that was accounted for."""

    def quieter(mechanism: Mechanism, theta: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return Gaussian(0.5 * mechanism.sigma).sample(theta, generator=generator)

    release = Release(Gaussian(1.0), float64([0.0, 1.0]), 1.0, 0.01)
    assert not attack(release, sampler=quieter).holds
    assert attack(release).holds


def test_the_one_sided_accounting_is_seen() -> None:
    release = planted.one_sided_release()
    wrong = attack(release, claims=planted.wrong_one_sided_claims)
    assert not wrong.holds
    assert wrong.epsilon_lower > 3 * wrong.claims["one-sided"]
    right = attack(release)
    assert right.holds
    assert right.epsilon_lower == wrong.epsilon_lower


def test_where_the_one_sided_accounting_is_right_it_stands() -> None:
    release = Release(Gaussian(1.0), float64([-2.0]), 1.0, 1e-3)
    assert attack(release, claims=planted.wrong_one_sided_claims).holds


def test_the_sampler_without_tails_is_seen() -> None:
    release = planted.tail_release()
    wrong = attack(release, sampler=planted.wrong_sampler_without_tails)
    assert set(wrong.violated) == {"data-independent", "per-instance", "profile"}
    assert attack(release).holds


def test_the_sampler_without_tails_is_right_inside() -> None:
    release = Release(TruncatedGaussian(1.0, bound=1.0), float64([0.3, -2.0]), 1.0, 1e-3)
    assert attack(release, sampler=planted.wrong_sampler_without_tails).holds


def test_the_quadrature_that_misses_the_peak_is_seen() -> None:
    release = planted.wide_release()
    wrong = attack(release, claims=planted.wrong_quadrature_claims)
    assert wrong.violated == ("quadrature",)
    assert wrong.claims["quadrature"] < 0.01 < 4 < wrong.epsilon_lower
    assert attack(release).holds


def test_the_same_quadrature_is_right_on_a_narrow_support() -> None:
    """The flaw is the width: at 4 sigma the rule agrees with the accountant."""
    release = Release(TruncatedGaussian(1.0, bound=2.0), float64([0.5]), 1.0, 1e-3)
    [wrong], [right] = planted.wrong_quadrature_claims([release]), printed_claims([release])
    assert wrong["quadrature"] == pytest.approx(right["per-instance"], rel=1e-6)


def test_stacks_keep_every_release_once() -> None:
    releases = random_releases(40, seeded(5))
    parts = list(stacks(releases, most=60))
    assert sorted(place for part in parts for place in part.places) == list(range(40))
    for part in parts:
        values = part.mechanism.fisher_information(part.theta)
        for total, place in zip(part.sums(values), part.places, strict=True):
            own = releases[place].mechanism.fisher_information(releases[place].theta).sum()
            assert float(total) == pytest.approx(float(own), rel=1e-12)


def test_the_same_seed_gives_the_same_audit() -> None:
    first, again = (
        audit_releases(
            random_releases(10, seeded(1)),
            trials=50,
            generator=seeded(),
            confidence=0.9,
            claims=printed_claims,
        )
        for _ in range(2)
    )
    assert first == again


def test_the_confidence_is_shared_among_settings() -> None:
    releases = random_releases(5, seeded())
    results = audit_releases(
        releases, trials=10, generator=seeded(), confidence=0.95, claims=lambda some: [{} for _ in some]
    )
    assert [round(result.confidence, 12) for result in results] == [0.99] * 5


def test_results_name_what_fell() -> None:
    result = AuditResult("", 0.01, 0.99, 10, 1.0, {"a": 0.9, "b": 1.0}, exceeded=0.02)
    assert result.violated == ("a", "ex-post")
    assert not result.holds
    assert AuditResult("", 0.01, 0.99, 10, 1.0, {"a": float("nan")}).violated == ("a",)
