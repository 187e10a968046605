"""Fisher information loss: against SVDs, enumerated releases and quadrature of mixtures."""

import itertools
import json
import math
import re

import numpy as np
import pytest
import torch
from mpmath import mpf
from torch import Tensor

import ringfence as rf
from ringfence.accounting import fisher
from ringfence.accounting.fisher import (
    fisher_information_bounds,
    fisher_information_loss,
    poisson_information_factor,
    reconstruction_error_bound,
)
from ringfence.accounting.fisher_account import FisherAccountant
from ringfence.accounting.linear_operator import LinearOperator
from tests import oracle
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# what certifying adds at these sizes, above the 1e-12 allowed for the information itself
TIGHT = 2e-12


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(law: rf.Mechanism, theta: Tensor, jacobian: Tensor) -> float:
    eta = law.fisher_information(theta.double()).sqrt().reshape(-1)
    return float(np.linalg.svd((eta[:, None] * jacobian.double()).numpy(), compute_uv=False)[0])


def holds(bound: Tensor, truth: float, excess: float = TIGHT) -> bool:
    """Not below, but for numpy's rounding, and not much above."""
    return truth * (1 - 1e-14) <= float(bound) <= truth * (1 + excess)


# ------------------------------------------------------------------ one release


@every_case
@pytest.mark.parametrize("shape", [(1, 1), (6, 3), (3, 6), (50, 20)])
def test_is_the_largest_singular_value(case: Case, shape: tuple[int, int]) -> None:
    law, theta, jacobian = case.make(0.7, -1.0, 1.5), draw(shape[0]), draw(*shape, seed=1)
    assert holds(fisher_information_loss(law, theta, jacobian), exact(law, theta, jacobian))
    bounds = fisher_information_bounds(law, theta, jacobian)
    assert holds(bounds.upper, exact(law, theta, jacobian))
    assert float(bounds.lower) <= exact(law, theta, jacobian) * (1 + TIGHT)
    assert float(bounds.gap) < 1e-11
    assert bounds.upper.shape == bounds.lower.shape == ()


def test_erratum_a6_where_the_paper_reports_nothing() -> None:
    """Two signs released at theta = (x, -x), the four outcomes enumerated: the information is 2."""
    sigma = math.sqrt(2 / math.pi)  # makes eta = 1 at theta = 0
    sign = oracle.sign(sigma)

    def release(record: oracle.Number) -> oracle.Law:
        first, second = sign(mpf(record)).atoms, sign(-mpf(record)).atoms
        pairs = itertools.product(first.items(), second.items())
        return oracle.Law({2 * x + y: p * q for (x, p), (y, q) in pairs})

    jacobian = float64([[1.0], [-1.0]])
    loss = fisher_information_loss(rf.StochasticSign(sigma), torch.zeros(2).double(), jacobian)
    assert float(loss) ** 2 == pytest.approx(2, rel=1e-11, abs=0)
    assert float(loss) ** 2 == pytest.approx(float(oracle.fisher(release, 0.0)), rel=1e-11, abs=0)


def test_trace_is_the_root_mean_square_over_attributes() -> None:
    law, theta, jacobian = rf.RectifiedGaussian(1.0, 1.0), draw(30), draw(30, 7, seed=1)
    information = jacobian.mT @ torch.diag(law.fisher_information(theta)) @ jacobian
    loss = fisher_information_loss(law, theta, jacobian, kind="trace")
    assert holds(loss, math.sqrt(float(information.trace()) / 7))
    assert float(loss) < float(fisher_information_loss(law, theta, jacobian))
    batch = fisher_information_loss(law, theta, torch.stack([jacobian, 2 * jacobian]), kind="trace")
    assert batch.tolist() == pytest.approx([float(loss), 2 * float(loss)], rel=1e-12, abs=0)
    # one attribute: the two definitions agree
    one = [fisher_information_loss(law, theta, jacobian[:, :1], kind=kind) for kind in ("spectral", "trace")]
    assert float(one[0]) == pytest.approx(float(one[1]), rel=1e-11, abs=0)


def test_a_batch_is_one_number_each_and_a_group_is_side_by_side() -> None:
    law, theta, jacobians = rf.TruncatedGaussian(1.0, 1.0), draw(12), draw(5, 12, 3, seed=1)
    batch = fisher_information_loss(law, theta, jacobians)
    singles = [fisher_information_loss(law, theta, one) for one in jacobians]
    assert batch.tolist() == pytest.approx([float(one) for one in singles], rel=1e-12, abs=0)
    together = fisher_information_loss(law, theta, torch.cat([jacobians[0], jacobians[1]], dim=-1))
    assert max(float(batch[0]), float(batch[1])) < float(together)
    assert float(together) < math.hypot(float(batch[0]), float(batch[1]))


def test_theta_in_any_shape_with_its_own_sigma_each() -> None:
    sigma = draw(3, 1, seed=2).abs() + 0.5
    law, theta, jacobian = rf.RectifiedGaussian(sigma, 1.0), draw(3, 4), draw(12, 5, seed=1)
    assert holds(fisher_information_loss(law, theta, jacobian), exact(law, theta, jacobian))


def test_float32_is_taken_as_it_is_and_worked_on_in_float64() -> None:
    law, theta, jacobian = rf.TruncatedGaussian(1.0, 1.0), draw(40).float(), draw(40, 9, seed=1).float()
    loss = fisher_information_loss(law, theta, jacobian)
    assert loss.dtype == torch.float64
    assert holds(loss, exact(law, theta, jacobian))


@every_case
def test_never_above_the_gaussian(case: Case) -> None:
    for seed, sigma in itertools.product(range(5), (0.3, 1.0, 4.0)):
        law, theta, jacobian = case.make(sigma, -50.0, 60.0), draw(8, seed=seed), draw(8, 3, seed=seed + 9)
        gaussian = float(fisher_information_loss(rf.Gaussian(sigma), theta, jacobian))
        assert gaussian == pytest.approx(exact(rf.Gaussian(1.0), theta, jacobian) / sigma, rel=1e-12, abs=0)
        assert float(fisher_information_loss(law, theta, jacobian)) <= gaussian * (1 + 1e-14)


def test_information_lost_to_underflow_is_charged() -> None:
    law, theta = rf.StochasticSign(1.0), float64([50.0])  # the information is 1e-543
    assert float(law.fisher_information(theta)) == 0
    assert 1e-146 < float(fisher_information_loss(law, theta, float64([[1.0]]))) < 1e-144


def test_zero_jacobian_gives_nothing_away() -> None:
    law, theta = rf.TruncatedGaussian(1.0, 1.0), draw(4)
    for kind in ("spectral", "trace"):
        assert float(fisher_information_loss(law, theta, torch.zeros(4, 2), kind=kind)) == 0
    assert float(fisher_information_bounds(law, theta, torch.zeros(4, 2)).gap) == 0


def test_bounds_of_an_operator_hold() -> None:
    law, theta, jacobian = rf.RectifiedGaussian(1.0, 0.5), draw(60), draw(60, 90, seed=1)
    bounds = fisher_information_bounds(
        law, theta, LinearOperator.of(jacobian), generator=torch.Generator().manual_seed(2)
    )
    truth = exact(law, theta, jacobian)
    assert float(bounds.lower) <= truth <= float(bounds.upper)
    assert 0 < float(bounds.gap) <= 0.01
    assert bounds.failure_probability == 1e-6


def test_bounds_of_a_matrix_beyond_the_limit_use_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.accounting.singular_values.DENSE_LIMIT", 10)
    monkeypatch.setattr(fisher, "DENSE_LIMIT", 10)
    law, theta, jacobians = rf.RectifiedGaussian(1.0, 0.5), draw(40), draw(2, 40, 30, seed=1)
    plain = fisher_information_bounds(law, theta, jacobians)
    probable = fisher_information_bounds(law, theta, jacobians, generator=torch.Generator().manual_seed(2))
    assert (plain.failure_probability, probable.failure_probability) == (0.0, 1e-6)
    for index, jacobian in enumerate(jacobians):
        truth = exact(law, theta, jacobian)
        assert float(plain.lower[index]) <= truth <= float(plain.upper[index])
        assert float(probable.lower[index]) <= truth <= float(probable.upper[index])
    assert float(plain.gap.min()) > 0.5
    assert float(probable.gap.max()) <= 0.01
    loss = fisher_information_loss(law, theta, jacobians)
    torch.testing.assert_close(loss, plain.upper, rtol=0, atol=0)


BAD = [
    ({"jacobian": float64([[math.nan], [1.0]])}, r"jacobian must not be NaN, got nan at index \[0, 0\]"),
    ({"jacobian": float64([[1.0], [math.inf]])}, r"jacobian must be finite, got inf at index \[1, 0\]"),
    ({"jacobian": torch.ones(2)}, r"jacobian must be \(d, p\) or \(n, d, p\) and not empty, got shape \[2\]"),
    ({"jacobian": torch.ones(2, 0)}, r"not empty, got shape \[2, 0\]"),
    ({"jacobian": torch.ones(0, 2, 1)}, r"not empty, got shape \[0, 2, 1\]"),
    ({"jacobian": torch.ones(3, 1)}, r"jacobian must have a row for each of theta's 2 coordinates, got 3"),
    ({"theta": float64([0.0, math.nan])}, r"theta must not be NaN, got nan at index \[1\]"),
    ({"theta": torch.zeros(0)}, r"jacobian must have a row for each of theta's 0 coordinates, got 2"),
]


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_refused_by_name(changed: dict[str, Tensor], message: str) -> None:
    law = rf.Gaussian(1.0)
    arguments = {"theta": torch.zeros(2), "jacobian": torch.ones(2, 1), **changed}
    account = FisherAccountant(law)
    for call in (
        lambda: fisher_information_loss(law, **arguments),
        lambda: fisher_information_loss(law, **arguments, kind="trace"),
        lambda: fisher_information_bounds(law, **arguments),
        lambda: account.step(**arguments),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert account.steps == 0
    assert float(account.fisher_information_loss()) == 0


def test_other_refusals() -> None:
    law, theta = rf.Gaussian(1.0), torch.zeros(2)
    with pytest.raises(ValueError, match="kind must be 'spectral' or 'trace', got 'nuclear'"):
        fisher_information_loss(law, theta, torch.ones(2, 1), kind="nuclear")
    with pytest.raises(ValueError, match="kind must be 'spectral' or 'trace', got 'nuclear'"):
        FisherAccountant(law).fisher_information_loss(kind="nuclear")
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got None"):
        fisher_information_bounds(law, theta, LinearOperator.of(torch.ones(2, 1)))
    with pytest.raises(ValueError, match="jacobian must have a row for each of theta's 2 coordinates, got 3"):
        fisher_information_bounds(law, theta, LinearOperator.of(torch.ones(3, 1)))
    with pytest.raises(ValueError, match="gram_limit must be at least 0, got -1"):
        FisherAccountant(law, gram_limit=-1)


# ------------------------------------------------------------------ reconstruction


def test_cramer_rao_is_met_by_the_best_unbiased_estimator() -> None:
    """A Gaussian release of J x: least squares is unbiased, with covariance exactly I^-1."""
    law, jacobian = rf.Gaussian(0.8), draw(30, 4)
    covariance = torch.linalg.inv(jacobian.mT @ jacobian) * 0.8**2
    eta = fisher_information_loss(law, torch.zeros(30), jacobian)
    bound = float(reconstruction_error_bound(eta))
    assert bound <= float(torch.linalg.eigvalsh(covariance)[0])
    assert bound == pytest.approx(float(torch.linalg.eigvalsh(covariance)[0]), rel=1e-10, abs=0)
    assert bound < float(covariance.diagonal().min())
    average = reconstruction_error_bound(
        fisher_information_loss(law, torch.zeros(30), jacobian, kind="trace")
    )
    assert bound < float(average) <= float(covariance.trace()) / 4


def test_reconstruction_error_is_rounded_down_and_refuses() -> None:
    eta = float64([0.0, 1e-200, 0.1, 3.0])
    bound = reconstruction_error_bound(eta)
    assert bound[0] == math.inf
    assert math.isfinite(float(bound[1]))
    for value, got in zip(eta[2:].tolist(), bound[2:].tolist(), strict=True):
        assert mpf(got) <= 1 / mpf(value) ** 2
        assert got == pytest.approx(1 / value**2, rel=1e-14, abs=0)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="fisher_information_loss must"):
            reconstruction_error_bound(bad)


# ------------------------------------------------------------------ several releases


@every_case
@pytest.mark.parametrize("cheap", [False, True])
def test_n_steps_are_n_times_one_step(case: Case, cheap: bool) -> None:
    law, theta, jacobian = case.make(1.0, -1.0, 2.0), draw(6), draw(6, 3, seed=1)
    one = float(fisher_information_loss(law, theta, jacobian))
    account = FisherAccountant(law, cheap=cheap)
    for _ in range(9):
        account.step(theta, jacobian)
    for number in (account.fisher_information_loss(), account.upper_bound()):
        assert float(number) == pytest.approx(3 * one, rel=1e-11, abs=0)
    trace = float(fisher_information_loss(law, theta, jacobian, kind="trace"))
    assert float(account.fisher_information_loss(kind="trace")) == pytest.approx(3 * trace, rel=1e-11, abs=0)
    assert account.steps == 9


@pytest.mark.parametrize("height", [3, 20])
def test_the_norm_of_the_sum_not_the_sum_of_norms(height: int) -> None:
    """Steps of different laws and sizes, against the SVD of all of them stacked."""
    laws = [rf.TruncatedGaussian(1.0, 1.0), rf.RectifiedGaussian(0.5, 2.0), rf.StochasticSign(2.0)]
    account, rows, norms = FisherAccountant(laws[0]), [], []
    for seed, law in enumerate(laws):
        theta, jacobian = draw(height + seed, seed=seed), draw(height + seed, 8, seed=seed + 10)
        account.step(theta, jacobian, mechanism=None if seed == 0 else law)
        rows.append(law.fisher_information(theta).sqrt()[:, None] * jacobian)
        norms.append(exact(law, theta, jacobian))
    truth = float(np.linalg.svd(torch.cat(rows).numpy(), compute_uv=False)[0])
    assert holds(account.fisher_information_loss(), truth)
    assert holds(account.upper_bound(), math.hypot(*norms))
    assert truth < 0.99 * math.hypot(*norms)
    claim = account.guarantee()
    assert float(claim.lower) <= truth * (1 + 1e-13)
    assert float(claim.gap) < 1e-11
    assert claim.failure_probability == 0


def test_cheap_or_beyond_the_limit_only_the_cheap_number_and_its_gap() -> None:
    law, theta, jacobians = rf.TruncatedGaussian(1.0, 1.0), draw(12), draw(4, 12, 5, seed=1)
    accounts = [FisherAccountant(law, cheap=True), FisherAccountant(law, gram_limit=4), FisherAccountant(law)]
    for account, jacobian in itertools.product(accounts, jacobians):
        account.step(theta, jacobian)
    best = float(accounts[2].fisher_information_loss())
    for account in accounts[:2]:
        assert float(account.fisher_information_loss()) == pytest.approx(
            float(accounts[2].upper_bound()), rel=1e-14, abs=0
        )
        claim = account.guarantee()
        assert float(claim.lower) < best < float(claim.fisher_information_loss)
        assert float(claim.gap) > 0.1


def test_a_batch_keeps_one_sum_for_each_record() -> None:
    law, theta, first, second = rf.RectifiedGaussian(1.0, 1.0), draw(9), draw(4, 9, 3), draw(4, 9, 3, seed=1)
    together = FisherAccountant(law)
    together.step(theta, first)
    together.step(theta, second)
    for index in range(4):
        alone = FisherAccountant(law)
        alone.step(theta, first[index])
        alone.step(theta, second[index])
        for mine, ours in (
            (alone.fisher_information_loss(), together.fisher_information_loss()),
            (alone.upper_bound(), together.upper_bound()),
            (alone.guarantee().lower, together.guarantee().lower),
        ):
            assert float(ours[index]) == pytest.approx(float(mine), rel=1e-12, abs=0)


def test_operators_are_applied_again() -> None:
    law, thetas, jacobians = rf.RectifiedGaussian(1.0, 1.0), draw(3, 20), draw(3, 20, 15, seed=1)
    dense, free, mixed = (FisherAccountant(law) for _ in range(3))
    for step, (theta, jacobian) in enumerate(zip(thetas, jacobians, strict=True)):
        dense.step(theta, jacobian)
        free.step(theta, LinearOperator.of(jacobian))
        mixed.step(theta, jacobian if step == 0 else LinearOperator.of(jacobian))
    truth = float(dense.fisher_information_loss())
    generator = torch.Generator().manual_seed(3)
    best = float(free.fisher_information_loss(generator=generator))
    assert truth <= best <= 1.01 * truth
    cheap = float(free.upper_bound(generator=generator))
    assert best < float(dense.upper_bound()) <= cheap <= 1.01 * float(dense.upper_bound())
    assert truth <= float(mixed.fisher_information_loss(generator=generator)) <= cheap * 1.01
    claim = free.guarantee(generator=generator)
    assert float(claim.lower) <= truth <= float(claim.fisher_information_loss)
    assert 0 < float(claim.gap) <= 0.01
    assert claim.failure_probability == 1e-6
    assert "except with probability 1e-06" in claim.statement
    assert float(mixed.guarantee(generator=generator).lower) <= truth
    for call in (free.fisher_information_loss, free.upper_bound, free.guarantee):
        with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got None"):
            call()
    with pytest.raises(ValueError, match="kind 'trace' is not known of steps given as LinearOperator"):
        free.fisher_information_loss(kind="trace")
    with pytest.raises(ValueError, match="an account that holds 3 LinearOperator has no state_dict"):
        free.state_dict()


def test_other_records_are_refused_and_leave_the_account_alone() -> None:
    account = FisherAccountant(rf.Gaussian(1.0))
    account.step(torch.zeros(3), torch.ones(3, 2))
    before = account.state_dict()
    for other in (torch.ones(3, 4), torch.ones(1, 3, 2), LinearOperator.of(torch.ones(3, 5))):
        with pytest.raises(ValueError, match=r"same records and attributes .* \(None, 2\), got"):
            account.step(torch.zeros(3), other)
    assert account.state_dict() == before


def test_before_the_first_step_nothing_is_known() -> None:
    claim = FisherAccountant(rf.Gaussian(1.0)).guarantee()
    assert float(claim.fisher_information_loss) == float(claim.lower) == float(claim.gap) == 0
    assert float(claim.reconstruction_error) == math.inf


def test_the_statement_says_what_is_proved_and_what_is_not() -> None:
    law, theta, jacobians = rf.TruncatedGaussian(1.0, 1.0), draw(9), draw(3, 9, 2, seed=1)
    account = FisherAccountant(law)
    account.step(theta, jacobians)
    account.step(theta, jacobians)
    claim = account.guarantee()
    worst = float(claim.fisher_information_loss.max())
    assert float(claim.reconstruction_error.min()) == pytest.approx(worst**-2, rel=1e-12, abs=0)
    printed = re.search(
        r"Over 2 releases .* worst of 3 records is at most (\S+) "
        r"\(computed to within (\S+) %\): .* below (\S+) in",
        claim.statement,
    )
    assert printed is not None
    upper, gap, error = map(float, printed.groups())
    assert worst <= upper <= worst * 1.001
    assert gap == pytest.approx(
        100 * float(claim.gap[claim.fisher_information_loss.argmax()]), rel=1e-3, abs=0
    )
    assert worst**-2 * 0.999 <= error <= float(claim.reconstruction_error.min())
    for clause in (
        "unbiased",
        "this dataset, if no step depends on earlier outputs",
        "average of such sums over runs",
        "prior knowledge",
        "not differential privacy",
        "do not publish",
    ):
        assert clause in claim.statement
    assert "probability" not in claim.statement


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("cheap", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_state_round_trips_through_json_exactly(cheap: bool, batch: bool) -> None:
    law, theta = rf.QuantizedGaussian(1 / 3, 1.1, levels=5), draw(7)
    account = FisherAccountant(law, cheap=cheap, gram_limit=100)
    jacobians = draw(2, 3, 7, 4, seed=1) if batch else draw(2, 7, 4, seed=1)
    account.step(theta, jacobians[0])
    state = json.loads(json.dumps(account.state_dict()))
    again = FisherAccountant.from_state_dict(state)
    assert again.state_dict() == account.state_dict() == state
    for one in (account, again):
        one.step(theta, jacobians[1])
    for name in ("fisher_information_loss", "upper_bound"):
        assert torch.equal(getattr(again, name)(), getattr(account, name)())
    assert torch.equal(again.guarantee().lower, account.guarantee().lower)


def test_state_before_the_first_step() -> None:
    account = FisherAccountant.from_state_dict(FisherAccountant(rf.Gaussian(2.0)).state_dict())
    account.step(torch.zeros(1), torch.ones(1, 1))
    assert float(account.fisher_information_loss()) == pytest.approx(0.5, rel=1e-12, abs=0)


def test_a_state_it_does_not_understand_is_refused() -> None:
    account = FisherAccountant(rf.Gaussian(1.0))
    account.step(torch.zeros(2), torch.ones(3, 2, 2))
    good = account.state_dict()
    for changed, message in (
        ({"version": 2}, "version must be 1, got 2"),
        ({"version": None}, "version must be 1, got None"),
        ({"extra": 1}, r"unknown keys \['extra'\]"),
        ({"squares": [1.0, math.nan, 1.0]}, "squares must not be NaN"),
        ({"trace": [1.0, -1.0, 1.0]}, "trace must be >= 0, got -1.0"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"squares": [1.0]}, r"squares must have shape \[3\], got \[1\]"),
        ({"trace": [1.0]}, r"trace must have shape \[3\], got \[1\]"),
        ({"gram": [[[1.0]]]}, r"gram must have shape \[3, 2, 2\], got \[1, 1, 1\]"),
        ({"gram_error": [1.0, 1.0]}, r"gram_error must have shape \[3\], got \[2\]"),
        ({"gram": None}, "gram must"),
        ({"records": [0, 2]}, r"records\[0\] must be at least 1, got 0"),
        ({"records": [3, "2"]}, r"records\[1\] must be an integer, got '2'"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            FisherAccountant.from_state_dict({**good, **changed})
    with pytest.raises(TypeError, match="state must be a dict, got list"):
        FisherAccountant.from_state_dict([])
    with pytest.raises(ValueError, match=r"missing keys \['trace'\]"):
        FisherAccountant.from_state_dict({key: value for key, value in good.items() if key != "trace"})


# ------------------------------------------------------------------ Poisson sampling

MIXTURES = [
    # family, theta without the record, its contribution, pure epsilon by the rule of the docstring
    (oracle.truncated(1.0, -1.0, 1.0), rf.TruncatedGaussian(1.0, 1.0), (-1.0, 1.0)),
    (oracle.truncated(0.5, -1.0, 2.0), rf.TruncatedGaussian(0.5, (-1.0, 2.0)), (-1.0, 2.0)),
    (oracle.rectified(1.0, -1.0, 1.0), rf.RectifiedGaussian(1.0, 1.0), (-1.0, 1.0)),
    (oracle.sign(1.0), rf.StochasticSign(1.0), (-1.0, 1.0)),
    (oracle.quantized(1.0, -1.0, 1.0, 5), rf.QuantizedGaussian(1.0, 1.0, levels=5), (-1.0, 1.0)),
]


def mixture(family: oracle.Family, rate: float, without: float) -> oracle.Family:
    """The release when the record enters with probability ``rate``, as a function of theta with it."""
    q, absent = mpf(rate), family(without)

    def law(theta: oracle.Number) -> oracle.Law:
        present = family(theta)
        atoms = {x: (1 - q) * absent.atoms[x] + q * mass for x, mass in present.atoms.items()}
        if present.density is None:
            return oracle.Law(atoms)
        return oracle.Law(
            atoms,
            lambda x: (1 - q) * absent.density(x) + q * present.density(x),
            present.low,
            present.high,
            present.scale,
        )

    return law


@pytest.mark.parametrize("index", range(len(MIXTURES)))
@pytest.mark.parametrize(("without", "shift"), [(0.3, 0.5), (-0.4, 1.5), (0.9, -0.7)])
def test_poisson_factor_holds_for_the_mixture(index: int, without: float, shift: float) -> None:
    family, law, ends = MIXTURES[index]
    present = without + shift
    epsilon = max(float(law.log_prob(end, present) - law.log_prob(end, without)) for end in ends)
    whole = oracle.fisher(family, present)
    for rate in (0.02, 0.4):
        sampled = oracle.fisher(mixture(family, rate, without), present)
        factor = poisson_information_factor(rate, epsilon)
        assert sampled <= factor * whole
        assert factor < poisson_information_factor(rate, math.inf)
        # below its premise the factor would be wrong somewhere: it is not slack by orders
        assert sampled > 0.1 * factor * whole


def test_a_gaussian_has_no_finite_epsilon_and_the_factor_fails_for_one() -> None:
    """Why ``pure_epsilon`` must hold almost surely: a far record is as good as revealed."""
    family, rate = oracle.gaussian(1.0), 0.1
    sampled = oracle.fisher(mixture(family, rate, 0.0), 8.0)
    assert poisson_information_factor(rate, 1.0) < 0.3 * sampled
    assert 0.99 * rate < sampled <= poisson_information_factor(rate, math.inf)


def test_the_factor_between_its_ends() -> None:
    assert poisson_information_factor(1.0, 0.0) == 1
    values = [poisson_information_factor(0.2, epsilon) for epsilon in (0.0, 0.5, 2.0, 50.0, math.inf)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(0.04, rel=1e-14, abs=0)
    assert values[-1] == pytest.approx(0.2, rel=1e-14, abs=0)
    assert mpf(values[0]) >= mpf(0.2) ** 2  # rounded up


def test_sampled_steps_need_their_premise() -> None:
    law, theta, jacobian = rf.TruncatedGaussian(1.0, 1.0), draw(5), draw(5, 2, seed=1)
    one = float(fisher_information_loss(law, theta, jacobian))
    factor = poisson_information_factor(0.1, 0.7)
    for given in (jacobian, LinearOperator.of(jacobian)):
        account = FisherAccountant(law)
        with pytest.raises(ValueError, match=r"pure_epsilon must be given when sampling_rate is 0\.1"):
            account.step(theta, given, sampling_rate=0.1)
        for rate in (0.0, -0.1, 1.1, math.nan):
            with pytest.raises(ValueError, match="sampling_rate must"):
                account.step(theta, given, sampling_rate=rate, pure_epsilon=1.0)
        for epsilon in (-0.1, math.nan):
            with pytest.raises(ValueError, match="pure_epsilon must be >= 0, got"):
                account.step(theta, given, sampling_rate=0.1, pure_epsilon=epsilon)
        assert account.steps == 0
        account.step(theta, given, sampling_rate=0.1, pure_epsilon=0.7)
        loss = float(account.fisher_information_loss(generator=torch.Generator().manual_seed(4)))
        tight = 1e-11 if given is jacobian else 0.01
        assert one * math.sqrt(factor) * (1 - 1e-14) <= loss <= one * math.sqrt(factor) * (1 + tight)
