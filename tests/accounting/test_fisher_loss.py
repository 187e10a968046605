"""Fisher information loss: against SVDs, enumerated releases and quadrature of mixtures."""

import itertools
import math

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

import ringfence as rf
from ringfence.accounting import fisher
from ringfence.accounting.fisher import (
    checked_jacobian,
    fisher_information_bounds,
    fisher_information_loss,
    poisson_information_factor,
    reconstruction_error_bound,
)
from ringfence.numerics.operators import LinearOperator, probable_bounds
from ringfence.numerics.singular_values import squared_frobenius
from tests import oracle
from tests.accounting.drawing import draw
from tests.accounting.matrices import BAD_JACOBIANS, TIGHT, exact, holds
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_bad_jacobian = pytest.mark.parametrize(
    ("changed", "message"), BAD_JACOBIANS, ids=[message[:40] for _, message in BAD_JACOBIANS]
)


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
    weights, matrices, _ = checked_jacobian(law, theta, jacobian)
    assert float(loss) > math.sqrt(float(squared_frobenius(weights, matrices)) / 7)  # the root is rounded up
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
    for kind in ("spectral", "trace"):  # one matrix gives one number, not a list of one
        assert fisher_information_loss(law, theta, jacobians[0], kind=kind).shape == ()


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
    monkeypatch.setattr("ringfence.numerics.singular_values.DENSE_LIMIT", 10)
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


def test_records_share_the_failure_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ends hold at once but for what is stated, so that each may fail with its share only."""
    monkeypatch.setattr("ringfence.numerics.singular_values.DENSE_LIMIT", 4)
    monkeypatch.setattr(fisher, "DENSE_LIMIT", 4)
    shares = []

    def probable(*arguments: object, failure_probability: float, **options: object) -> object:
        shares.append(failure_probability)
        return probable_bounds(*arguments, failure_probability=failure_probability, **options)

    monkeypatch.setattr(fisher, "probable_bounds", probable)
    bounds = fisher_information_bounds(
        rf.Gaussian(1.0),
        torch.zeros(6),
        draw(3, 6, 5),
        generator=torch.Generator().manual_seed(0),
        failure_probability=1e-3,
    )
    assert shares == [pytest.approx(1e-3 / 3, rel=1e-12, abs=0)] * 3
    assert bounds.failure_probability == 1e-3


@every_bad_jacobian
def test_bad_input_is_refused_by_name(changed: dict[str, Tensor], message: str) -> None:
    law = rf.Gaussian(1.0)
    arguments = {"theta": torch.zeros(2), "jacobian": torch.ones(2, 1), **changed}
    for call in (
        lambda: fisher_information_loss(law, **arguments),
        lambda: fisher_information_loss(law, **arguments, kind="trace"),
        lambda: fisher_information_bounds(law, **arguments),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_other_refusals() -> None:
    law, theta = rf.Gaussian(1.0), torch.zeros(2)
    with pytest.raises(ValueError, match=r"kind must be one of \['spectral', 'trace'\], got 'nuclear'"):
        fisher_information_loss(law, theta, torch.ones(2, 1), kind="nuclear")
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got None"):
        fisher_information_bounds(law, theta, LinearOperator.of(torch.ones(2, 1)))
    with pytest.raises(ValueError, match="jacobian must have a row for each of theta's 2 coordinates, got 3"):
        fisher_information_bounds(law, theta, LinearOperator.of(torch.ones(3, 1)))


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
    with mp.workdps(15):  # a percent is enough
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


def test_the_reconstruction_error_is_rounded_down() -> None:
    assert float(reconstruction_error_bound(1.0)) == 1 - 2.0**-50


@pytest.mark.parametrize("sigma", [1e-200, 1e200])
def test_a_sigma_whose_square_floats_do_not_hold_is_refused(sigma: float) -> None:
    """The information of 1e200 was 0, and so was the loss; that of 1e-200 gave NaN."""
    with pytest.raises(ValueError, match="sigma must be in"):
        rf.fisher_information_loss(rf.Gaussian(sigma), torch.zeros(2), torch.eye(2))
    with pytest.raises(ValueError, match="sigma must be in"):
        rf.ExampleAccountant(rf.Gaussian(sigma)).step(torch.zeros(2), torch.ones(1, 2))


def test_a_short_side_needs_no_chance_even_with_a_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fisher, "DENSE_LIMIT", 3)
    for jacobian in (torch.ones(3, 9), torch.ones(9, 3)):
        theta, generator = torch.zeros(len(jacobian)), torch.Generator().manual_seed(0)
        bounds = fisher.fisher_information_bounds(rf.Gaussian(1.0), theta, jacobian, generator=generator)
        assert bounds.failure_probability == 0.0


def test_only_the_largest_entry_has_to_be_representable() -> None:
    """The sign at 36 sigma has an eta of 1e-141, whose product with a jacobian of 1e-15 has no square."""
    loss = fisher_information_loss(
        rf.StochasticSign(1.0), float64([0.0, 36.0]), 1e-15 * torch.ones(2, 1).double()
    )
    assert float(loss) == pytest.approx(1e-15 * math.sqrt(2 / math.pi), rel=1e-9)
