"""Fisher information loss of several releases: against SVDs of everything stacked, and its sentences."""

import itertools
import json
import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.fisher import FisherAccountant, fisher_information_loss, poisson_information_factor
from ringfence.numerics.operators import LinearOperator, probable_bounds
from ringfence.numerics.singular_values import SingularValueBounds
from tests.accounting.drawing import draw
from tests.accounting.matrices import BAD_JACOBIANS, exact, holds
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_bad_jacobian = pytest.mark.parametrize(
    ("changed", "message"), BAD_JACOBIANS, ids=[message[:40] for _, message in BAD_JACOBIANS]
)


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


def test_a_state_from_before_it_named_its_kind_is_read() -> None:
    account = FisherAccountant(rf.Gaussian(1.0))
    account.step(torch.zeros(2), torch.ones(2, 2))
    old = {name: value for name, value in account.state_dict().items() if name != "kind"}
    assert FisherAccountant.from_state_dict(old).state_dict() == account.state_dict()


def test_a_state_it_does_not_understand_is_refused() -> None:
    account = FisherAccountant(rf.Gaussian(1.0))
    account.step(torch.zeros(2), torch.ones(3, 2, 2))
    good = account.state_dict()
    for changed, message in (
        ({"version": 2}, "version must be 1, got 2"),
        ({"version": None}, "version must be 1, got None"),
        ({"kind": "SampledAccountant"}, "kind must be 'FisherAccountant', got 'SampledAccountant'"),
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
            with pytest.raises(ValueError, match="pure_epsilon must"):
                account.step(theta, given, sampling_rate=0.1, pure_epsilon=epsilon)
        assert account.steps == 0
        account.step(theta, given, sampling_rate=0.1, pure_epsilon=0.7)
        loss = float(account.fisher_information_loss(generator=torch.Generator().manual_seed(4)))
        tight = 1e-11 if given is jacobian else 0.01
        assert one * math.sqrt(factor) * (1 - 1e-14) <= loss <= one * math.sqrt(factor) * (1 + tight)


# ------------------------------------------------------------------ refusals


@every_bad_jacobian
def test_bad_input_is_refused_by_name_and_costs_nothing(changed: dict[str, Tensor], message: str) -> None:
    account = FisherAccountant(rf.Gaussian(1.0))
    with pytest.raises(ValueError, match=message):
        account.step(**{"theta": torch.zeros(2), "jacobian": torch.ones(2, 1), **changed})
    assert account.steps == 0
    assert float(account.fisher_information_loss()) == 0


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match=r"kind must be one of \['spectral', 'trace'\], got 'nuclear'"):
        FisherAccountant(rf.Gaussian(1.0)).fisher_information_loss(kind="nuclear")
    with pytest.raises(ValueError, match="gram_limit must be at least 0, got -1"):
        FisherAccountant(rf.Gaussian(1.0), gram_limit=-1)


def test_steps_share_the_failure_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheap bound asks of every step that it holds, so that each may fail with its share only."""
    account = FisherAccountant(rf.Gaussian(1.0), cheap=True)
    for seed in range(4):
        account.step(torch.zeros(6), LinearOperator.of(draw(6, 5, seed=seed)))
    shares = []

    def probable(*arguments: object, failure_probability: float, **options: object) -> object:
        shares.append(failure_probability)
        return probable_bounds(*arguments, failure_probability=failure_probability, **options)

    monkeypatch.setattr("ringfence.accounting.fisher.probable_bounds", probable)
    generator = torch.Generator().manual_seed(0)
    account.upper_bound(generator=generator, failure_probability=1e-3)
    assert shares == [pytest.approx(1e-3 / 4, rel=1e-12, abs=0)] * 4
    shares.clear()
    assert account.guarantee(generator=generator, failure_probability=1e-3).failure_probability == 1e-3
    assert shares == [1e-3]


def test_the_cheap_bound_is_raised_by_its_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of a sum of n squares: a rounding each, and four more."""
    account = FisherAccountant(rf.Gaussian(1.0), cheap=True)
    for _ in range(4):
        account.step(torch.zeros(6), LinearOperator.of(draw(6, 5)))
    one = SingularValueBounds(float64(1.0), float64(1.0), 1e-9)
    monkeypatch.setattr("ringfence.accounting.fisher.probable_bounds", lambda *_, **__: one)
    assert float(account.upper_bound(generator=torch.Generator())) == 2 * (1 + 8 * 2.0**-52)


def test_one_record_gets_a_number_and_many_a_row() -> None:
    for jacobian, shape in ((draw(6, 5), ()), (draw(1, 6, 5), (1,)), (draw(3, 6, 5), (3,))):
        for cheap in (False, True):
            account = FisherAccountant(rf.Gaussian(1.0), cheap=cheap)
            account.step(torch.zeros(6), jacobian)
            guarantee = account.guarantee()
            assert account.upper_bound().shape == account.fisher_information_loss().shape == shape
            assert guarantee.lower.shape == guarantee.gap.shape == shape


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
