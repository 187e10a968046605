"""Every planted flaw is seen, and where it is none it stands."""

import pytest
import torch

from ringfence import Gaussian, TruncatedGaussian
from ringfence.audit.attacks import planted
from ringfence.audit.attacks.distinguisher import audit_targets
from ringfence.audit.claims import printed_claims, with_profiles
from ringfence.audit.result import AuditResult
from ringfence.audit.targets import Target
from tests.tensors import float64


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def attack(target: Target, **others: object) -> AuditResult:
    return audit_targets([target], trials=20_000, generator=seeded(), confidence=0.999, **others)[0]  # type: ignore[arg-type]


def test_the_one_sided_accounting_is_seen() -> None:
    target = planted.one_sided_target()
    wrong = attack(target, claims=planted.wrong_one_sided_claims)
    assert not wrong.holds
    assert wrong.epsilon_lower > 3 * wrong.claims["one-sided"]
    right = attack(target)
    assert right.holds
    assert right.epsilon_lower == wrong.epsilon_lower


def test_where_the_one_sided_accounting_is_right_it_stands() -> None:
    target = Target(Gaussian(1.0), float64([-2.0]), 1.0, 1e-3)
    assert attack(target, claims=planted.wrong_one_sided_claims).holds


def test_the_sampler_without_tails_is_seen() -> None:
    target = planted.tail_target()
    claims = with_profiles([target])
    wrong = attack(target, sampler=planted.wrong_sampler_without_tails, claims=lambda _: claims)
    assert set(wrong.violated) == {"data-independent", "per-instance", "profile"}
    assert attack(target, claims=lambda _: claims).holds


def test_the_sampler_without_tails_is_right_inside() -> None:
    target = Target(TruncatedGaussian(1.0, bound=1.0), float64([0.3, -2.0]), 1.0, 1e-3)
    assert attack(target, sampler=planted.wrong_sampler_without_tails).holds


def test_the_quadrature_that_misses_the_peak_is_seen() -> None:
    target = planted.wide_target()
    wrong = attack(target, claims=planted.wrong_quadrature_claims)
    assert wrong.violated == ("quadrature",)
    assert wrong.claims["quadrature"] < 0.01 < 4 < wrong.epsilon_lower
    assert attack(target).holds


def test_the_same_quadrature_is_right_on_a_narrow_support() -> None:
    """The flaw is the width: at 4 sigma the rule agrees with the accountant."""
    target = Target(TruncatedGaussian(1.0, bound=2.0), float64([0.5]), 1.0, 1e-3)
    [wrong], [right] = planted.wrong_quadrature_claims([target]), printed_claims([target])
    assert wrong["quadrature"] == pytest.approx(right["per-instance"], rel=1e-6)
