"""Fisher information loss: against SVDs, enumerated releases and quadrature of mixtures; and its account."""

import math
import pickle
import re

import numpy as np
import pytest
import torch
from mpmath import mpf
from torch import Tensor

import ringfence as rf
from ringfence.accounting.fisher import (
    FisherAccountant,
    checked_jacobian,
    fisher_information_loss,
    reconstruction_error_bound,
)
from ringfence.numerics.singular_values import squared_norms
from tests.accounting.drawing import draw
from tests.accounting.matrices import BAD_JACOBIANS, exact, holds
from tests.mechanisms.cases import Case, every_case
from tests.tensors import float64

# ------------------------------------------------------------------ one release


@every_case
@pytest.mark.parametrize("shape", [(1, 1), (6, 3), (3, 6), (50, 20)])
def test_is_the_largest_singular_value(case: Case, shape: tuple[int, int]) -> None:
    law, theta, jacobian = case.make(0.7, -1.0, 1.5), draw(shape[0]), draw(*shape, seed=1)
    loss = fisher_information_loss(law, theta, jacobian)
    assert holds(loss, exact(law, theta, jacobian))
    assert float(loss) <= float(fisher_information_loss(rf.Gaussian(0.7), theta, jacobian)) * (1 + 1e-14)
    for kind in ("spectral", "trace"):  # what moves nothing loses nothing
        assert float(fisher_information_loss(law, theta, 0 * jacobian, kind=kind)) == 0


def test_trace_is_the_root_mean_square_over_attributes() -> None:
    law, theta, jacobian = rf.RectifiedGaussian(1.0, 1.0), draw(30), draw(30, 7, seed=1)
    information = jacobian.mT @ torch.diag(law.fisher_information(theta)) @ jacobian
    loss = fisher_information_loss(law, theta, jacobian, kind="trace")
    assert holds(loss, math.sqrt(float(information.trace()) / 7))
    assert float(loss) < float(fisher_information_loss(law, theta, jacobian))
    batch = fisher_information_loss(law, theta, torch.stack([jacobian, 2 * jacobian]), kind="trace")
    assert batch.tolist() == pytest.approx([float(loss), 2 * float(loss)], rel=1e-12, abs=0)
    weights, matrices, _ = checked_jacobian(law, theta, jacobian)
    assert float(loss) > math.sqrt(
        float(squared_norms(weights, matrices, trace=True)) / 7
    )  # the root is rounded up
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


@pytest.mark.parametrize(
    ("changed", "message"), BAD_JACOBIANS, ids=[message[:40] for _, message in BAD_JACOBIANS]
)
def test_bad_input_is_refused_by_name_and_costs_nothing(changed: dict[str, Tensor], message: str) -> None:
    law, account = rf.Gaussian(1.0), FisherAccountant(rf.Gaussian(1.0))
    arguments = {"theta": torch.zeros(2), "jacobian": torch.ones(2, 1), **changed}
    for call in (
        lambda: fisher_information_loss(law, **arguments),
        lambda: fisher_information_loss(law, **arguments, kind="trace"),
        lambda: account.step(**arguments),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert account.steps == 0
    assert float(account.fisher_information_loss()) == 0


def test_other_refusals() -> None:
    law, theta = rf.Gaussian(1.0), torch.zeros(2)
    kinds = r"kind must be one of \['spectral', 'trace'\], got 'nuclear'"
    with pytest.raises(ValueError, match=kinds):
        fisher_information_loss(law, theta, torch.ones(2, 1), kind="nuclear")
    with pytest.raises(ValueError, match=kinds):
        FisherAccountant(law).fisher_information_loss(kind="nuclear")


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
    assert float(reconstruction_error_bound(1.0)) == 1 - 2.0**-50
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


@pytest.mark.parametrize("sigma", [1e-200, 1e200])
def test_a_sigma_whose_square_floats_do_not_hold_is_refused(sigma: float) -> None:
    """The information of 1e200 was 0, and so was the loss; that of 1e-200 gave NaN."""
    with pytest.raises(ValueError, match="sigma must be in"):
        rf.fisher_information_loss(rf.Gaussian(sigma), torch.zeros(2), torch.eye(2))
    with pytest.raises(ValueError, match="sigma must be in"):
        rf.ExampleAccountant(rf.Gaussian(sigma)).step(torch.zeros(2), torch.ones(1, 2))


def test_only_the_largest_entry_has_to_be_representable() -> None:
    """The sign at 36 sigma has an eta of 1e-141, whose product with a jacobian of 1e-15 has no square."""
    loss = fisher_information_loss(
        rf.StochasticSign(1.0), float64([0.0, 36.0]), 1e-15 * torch.ones(2, 1).double()
    )
    assert float(loss) == pytest.approx(1e-15 * math.sqrt(2 / math.pi), rel=1e-9)


# ------------------------------------------------------------------ several releases


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
    assert holds(account.guarantee().fisher_information_loss, truth)
    assert truth < 0.99 * math.hypot(*norms)


@pytest.mark.parametrize("records", [1, 4])
def test_a_batch_keeps_one_sum_for_each_record(records: int) -> None:
    law, theta, jacobians = rf.RectifiedGaussian(1.0, 1.0), draw(9), draw(2, records, 9, 3)
    together, *alone = (FisherAccountant(law) for _ in range(records + 1))
    for step in jacobians:
        together.step(theta, step)
        for one, jacobian in zip(alone, step, strict=True):
            one.step(theta, jacobian)
    for name in ("fisher_information_loss", "reconstruction_error"):
        ours, mine = getattr(together.guarantee(), name), [getattr(one.guarantee(), name) for one in alone]
        assert ours.shape == (records,)
        assert all(one.shape == () for one in mine)
        assert ours.tolist() == pytest.approx([float(one) for one in mine], rel=1e-12, abs=1e-12)
    trace = together.fisher_information_loss(kind="trace")
    assert trace.tolist() == [float(one.fisher_information_loss(kind="trace")) for one in alone]


def test_other_records_are_refused_and_leave_the_account_alone() -> None:
    account = FisherAccountant(rf.Gaussian(1.0))
    account.step(torch.zeros(3), torch.ones(3, 2))
    before = account.fisher_information_loss()
    for other in (torch.ones(3, 4), torch.ones(1, 3, 2)):
        with pytest.raises(ValueError, match=r"same records and attributes .* \(None, 2\), got"):
            account.step(torch.zeros(3), other)
    assert (account.steps, account.fisher_information_loss()) == (1, before)


def test_an_account_is_kept_by_pickle() -> None:
    account = FisherAccountant(rf.RectifiedGaussian(1.0, 1.0))
    account.step(draw(9), draw(2, 9, 3))
    again = pickle.loads(pickle.dumps(account))
    for own in (account, again):
        own.step(draw(9), draw(2, 9, 3))
    assert torch.equal(again.fisher_information_loss(), account.fisher_information_loss())
    with pytest.raises(AttributeError, match="state_dict is gone: pickle keeps an account"):
        account.state_dict()


def test_before_the_first_step_nothing_is_known() -> None:
    account = FisherAccountant(rf.Gaussian(1.0))
    claim = account.guarantee()
    assert float(claim.fisher_information_loss) == 0
    assert float(account.fisher_information_loss(kind="trace")) == 0
    assert float(claim.reconstruction_error) == math.inf


def test_the_statement_says_what_is_proved_and_what_is_not() -> None:
    law, theta, jacobians = rf.TruncatedGaussian(1.0, 1.0), draw(9), draw(3, 9, 2, seed=1)
    account = FisherAccountant(law)
    account.step(theta, jacobians)
    assert account.guarantee().statement.startswith("Over 1 release the Fisher information loss")
    account.step(theta, jacobians)
    claim = account.guarantee()
    worst = float(claim.fisher_information_loss.max())
    assert float(claim.reconstruction_error.min()) == pytest.approx(worst**-2, rel=1e-12, abs=0)
    printed = re.search(
        r"Over 2 releases .* worst of 3 records is at most (\S+): .* below (\S+) in", claim.statement
    )
    assert printed is not None
    upper, error = map(float, printed.groups())
    assert worst <= upper <= worst * 1.001
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
