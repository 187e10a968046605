"""Single examples: what every account promises, and that each sum is what it is named for."""

import json
import math

import dp_accounting
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.conversion import epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.example_sums import VARIANTS
from ringfence.accounting.examples import ExampleAccountant
from ringfence.accounting.guarantee import EpsilonKind
from ringfence.accounting.privacy_loss import PrivacyLoss
from tests.accounting.gradients import LAWS, ORDERS, draws
from tests.tensors import float64

KINDS: tuple[EpsilonKind, ...] = ("ex_post", "per_instance")
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())


@every_law
def test_steps_add_up(law: rf.Mechanism) -> None:
    theta, gradients = draws(3, 20, 1e-3)
    one, five, counted = (ExampleAccountant(law, [2.0, 64.0]) for _ in range(3))
    one.step(theta, gradients)
    for _ in range(5):
        five.step(theta, gradients)
    counted.step(theta, gradients, count=5)
    assert (five.steps, counted.steps, five.examples) == (5, 5, 3)
    torch.testing.assert_close(five.sums, 5 * one.sums, rtol=1e-14, atol=0)
    torch.testing.assert_close(counted.sums, 5 * one.sums, rtol=1e-14, atol=0)


def test_the_mechanism_may_change() -> None:
    theta, gradients = draws(3, 20, 1e-3)
    account, first, second = (ExampleAccountant(LAWS["truncated"], [2.0, 64.0]) for _ in range(3))
    account.step(theta, gradients)
    account.step(theta, gradients, mechanism=LAWS["sign"])
    first.step(theta, gradients)
    second.step(theta, gradients, mechanism=LAWS["sign"])
    assert torch.equal(account.sums, first.sums + second.sums)


@every_law
def test_never_above_the_gaussian_and_falling_in_delta(law: rf.Mechanism) -> None:
    for scale in (1e-3, 0.1, 3.0):
        theta, gradients = draws(3, 6, scale)
        account, gaussian = ExampleAccountant(law, ORDERS), ExampleAccountant(rf.Gaussian(1.0), ORDERS)
        for each in (account, gaussian):
            each.step(theta, gradients)
        for kind in KINDS:
            epsilons = [account.epsilons(delta, kind) for delta in (1e-9, 1e-5, 1e-2)]
            assert (epsilons[0] >= epsilons[1]).all()
            assert (epsilons[1] >= epsilons[2]).all()
            assert (epsilons[1] <= gaussian.epsilons(1e-5, kind) * (1 + 1e-12)).all()


@every_law
def test_chunks_and_dtypes_do_not_matter(law: rf.Mechanism) -> None:
    theta, gradients = draws(7, 6, 1e-2)
    gradients[2] *= 100  # examples of very different size
    theta, gradients = theta.float(), gradients.float()
    whole, streamed, double = (ExampleAccountant(law, [2.0, 8.0, 64.0]) for _ in range(3))
    whole.step(theta, gradients)
    streamed.step(theta, iter([gradients[:1], gradients[1:5], gradients[5:]]))
    double.step(theta.double(), gradients.double())
    torch.testing.assert_close(streamed.sums, whole.sums, rtol=1e-12, atol=0)
    torch.testing.assert_close(double.sums, whole.sums, rtol=1e-12, atol=0)


def test_the_gaussian_is_exact_and_sums_do_not_round_down() -> None:
    gradients = torch.full((1, 200_000), 1e-3 / 3)  # float32 sums of these are off in the fifth digit
    account = ExampleAccountant(rf.Gaussian(2.0), [2.0, 64.0])
    account.step(torch.zeros(200_000), gradients)
    square = math.fsum([float(gradients[0, 0]) ** 2] * 200_000)
    for variant in account.sums.squeeze(1):
        for value, alpha in zip(variant.tolist(), (2.0, 64.0), strict=True):
            assert 1 <= value / (0.5 * alpha * square / 4) < 1 + 1e-9


@every_law
@pytest.mark.parametrize("exact", [False, True])
def test_an_example_that_never_contributed_costs_nothing(law: rf.Mechanism, exact: bool) -> None:
    account = ExampleAccountant(law, ORDERS)
    account.step(float64([0.5, -9.0]), float64([[0.0, 0.0], [0.0, 1e-200], [1e-3, 0.0]]), exact=exact)
    for kind in KINDS:
        assert account.epsilons(1e-5, kind).tolist()[0] == 0
    # one that did, however little, keeps the term that ends a tail
    assert account.epsilons(1e-5).tolist()[1] > math.log(len(ORDERS) / 1e-5) / 2047


def test_state_round_trips_through_json_exactly() -> None:
    theta, gradients = draws(5, 20, 1e-3)
    account = ExampleAccountant(rf.TruncatedGaussian(1.0, (-1.0, math.inf)), [2.0, 64.0])
    fresh = ExampleAccountant.from_state_dict(json.loads(json.dumps(account.state_dict())))
    assert (fresh.steps, fresh.examples) == (0, 0)
    account.step(theta, gradients)
    again = ExampleAccountant.from_state_dict(json.loads(json.dumps(account.state_dict())))
    assert torch.equal(again.sums, account.sums)
    assert again.state_dict() == account.state_dict()
    for each in (account, again):
        each.step(theta, gradients)
    assert torch.equal(again.sums, account.sums)
    old = {name: value for name, value in account.state_dict().items() if name != "zcdps"}
    assert torch.equal(ExampleAccountant.from_state_dict({**old, "version": 1}).sums, account.sums)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_nobodys_own_epsilon_is_above_what_is_promised_to_everybody(law: rf.Mechanism) -> None:
    """Rényi sums convert to 1.09 where the Gaussian's epsilon is 1; both are proved, the smaller counts."""
    sigma = float(law.sigma)
    everybody = rf.PerInstanceAccountant(law, rf.Sensitivity(norm=0.268 * sigma))
    gradients = torch.eye(4).double() * 0.268 * sigma
    own = ExampleAccountant(law)
    everybody.step(torch.zeros(4).double())
    own.step(torch.zeros(4).double(), gradients)
    promised = everybody.guarantee(1e-5)
    assert promised.epsilon <= 1.0
    epsilons = own.epsilons(1e-5, kind="per_instance")
    assert float(epsilons.max()) <= promised.epsilon * (1 + 1e-9)
    assert torch.equal(own.guarantee(1e-5).per_instance_epsilons, epsilons)
    assert float(own.epsilons(1e-5).max()) > 1  # ex-post bounds another thing, and stays


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "PerInstanceAccountant"}, "kind must be 'ExampleAccountant', got 'PerInstanceAccountant'"),
        ({"version": 7}, "version must be 2, got 7"),
        ({"zcdps": [0.0, math.nan]}, "zcdps must not be NaN"),
        ({"colour": "red"}, r"unknown keys \['colour'\]"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"examples": 0}, "examples must be at least 1, got 0"),
        ({"examples": 2}, "sums must hold 128 bytes, got 64"),
        ({"sums": "not base64!"}, "sums must be base64 text, got 'not base64!'"),
        ({"sums": "!!!!"}, "sums must be base64 text, got '!!!!'"),
        ({"sums": 3}, "sums must be base64 text, got '3'"),
        ({"sums": "/" * 85 + "w=="}, "sums must not be NaN"),
    ],
)
def test_states_that_are_not_understood_are_refused(change: dict[str, object], message: str) -> None:
    account = ExampleAccountant(rf.Gaussian(1.0), [2.0, 64.0])
    account.step(torch.zeros(3), torch.ones(1, 3))
    with pytest.raises(ValueError, match=message):
        ExampleAccountant.from_state_dict({**account.state_dict(), **change})


@pytest.mark.parametrize(
    ("theta", "gradients", "message"),
    [
        (torch.zeros(3, 1), torch.ones(2, 3), r"theta must have shape \(d,\) with d > 0, got \[3, 1\]"),
        (torch.zeros(0), torch.ones(2, 0), r"theta must have shape \(d,\) with d > 0, got \[0\]"),
        (float64([0.0, math.nan, 0.0]), torch.ones(2, 3), "theta must not be NaN"),
        (torch.zeros(3), torch.ones(2, 4), r"gradients must have shape \(m, 3\), got \[2, 4\]"),
        (torch.zeros(3), torch.ones(3), r"gradients must have shape \(m, 3\), got \[3\]"),
        (torch.zeros(3), [torch.ones(1, 3), torch.ones(1, 2)], r"gradients must have shape \(m, 3\)"),
        (torch.zeros(3), float64([[0.0, math.nan, 0.0]] * 2), r"gradients must not be NaN, got nan at .* 1"),
        (torch.zeros(3), float64([[0.0, math.inf, 0.0]] * 2), "gradients must be finite, got inf"),
        (torch.zeros(3), torch.ones(5, 3), "gradients must hold 2 examples as before, got 5"),
        (torch.zeros(3), [torch.ones(1, 3)], "gradients must hold 2 examples as before, got 1"),
        (torch.zeros(3), [], "gradients must hold at least one example, got none"),
    ],
)
def test_bad_input_is_refused_by_name_and_changes_nothing(
    theta: Tensor, gradients: Tensor | list[Tensor], message: str
) -> None:
    account = ExampleAccountant(LAWS["truncated"], [2.0, 64.0])
    account.step(torch.zeros(3), torch.ones(2, 3))
    before = account.state_dict()
    with pytest.raises(ValueError, match=message):
        account.step(theta, gradients)
    assert account.state_dict() == before


def test_other_bad_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="orders must hold at least one order, got none"):
        ExampleAccountant(LAWS["sign"], [])
    with pytest.raises(ValueError, match=r"orders must be > 1, got 0\.5"):
        ExampleAccountant(LAWS["sign"], [2.0, 0.5])
    account = ExampleAccountant(LAWS["sign"], [2.0])
    for delta in (0.0, 1.0, -1e-5, math.nan):
        with pytest.raises(ValueError, match="delta must"):
            account.epsilons(delta)
    with pytest.raises(ValueError, match=r"kind must be one of \['ex_post', 'per_instance'\], got 'rdp'"):
        account.epsilons(1e-5, kind="rdp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        account.step(torch.zeros(3), torch.ones(2, 3), count=0)
    with pytest.raises(TypeError, match=r"gradients must be float32 or float64, got torch\.float16"):
        account.step(torch.zeros(3), torch.ones(2, 3, dtype=torch.float16))
    with pytest.raises(ValueError, match=r"theta has shape \[3\], but with the parameters \[2, 3\]"):
        account.step(torch.zeros(3), torch.ones(2, 3), mechanism=rf.Gaussian(torch.ones(2, 3)))
    with pytest.raises(FloatingPointError, match=r"gradients of 1e\+200 sigma are too large"):
        account.step(torch.zeros(3), float64([[1.0, 0.0, 0.0], [1e200, 1e199, 0.0]]))
    assert account.epsilons(1e-5).shape == (0,)
    assert (account.steps, account.examples) == (0, 0)


def test_each_sum_is_the_variant_it_is_named_for() -> None:
    law, theta, gradient = LAWS["truncated"], float64([1.5]), float64([[0.004]])
    account = ExampleAccountant(law, [256.0])
    account.step(theta, gradient)
    truth = {
        "remove_forward": law.renyi_divergence(theta, -gradient, 256.0),
        "remove_backward": law.renyi_divergence(theta - gradient, gradient, 256.0),
        "add_forward": law.renyi_divergence(theta, gradient, 256.0),
        "add_backward": law.renyi_divergence(theta + gradient, -gradient, 256.0),
    }
    assert tuple(truth) == VARIANTS
    values = [float(value) for value in truth.values()]
    assert max(values) / min(values) > 1.2  # they differ by far more than the bound is loose
    assert account.sums.flatten().tolist() == pytest.approx(values, rel=1e-2, abs=0)
    assert float(account.worst) == float(account.sums.amax())


def test_exact_means_every_entry() -> None:
    """The sums by the law itself, to the last digit, where the table is above by its margins."""
    law, theta, gradient = rf.RectifiedGaussian(1.0, 1.0), float64([0.3, 2.0]), 0.2
    gradients, orders = float64([[gradient, gradient]]), [2.0, 8.0]
    exact, tabled = (rf.ExampleAccountant(law, orders) for _ in range(2))
    exact.step(theta, gradients, exact=True)
    tabled.step(theta, gradients)
    worst = max(
        float(law.renyi_divergence(theta + start * gradient, move * gradient, 8.0).sum())
        for start, move in ((0, -1), (-1, 1), (0, 1), (1, -1))
    )
    largest = [float(account.sums[..., 1].max()) for account in (exact, tabled)]
    assert largest[0] == pytest.approx(worst, rel=1e-10, abs=0)
    assert largest[1] > worst * (1 + 1e-4)


def test_epsilons_are_those_of_the_scalar_conversions() -> None:
    theta, gradients = draws(40, 30, 0.3)
    gradients *= torch.logspace(-6, 1, 40, dtype=torch.float64).unsqueeze(1)
    account = ExampleAccountant(LAWS["truncated"], [1.005, 1.1, 2.0, 8.0, 64.0, 2048.0])
    account.step(theta, gradients)
    for delta in (1e-8, 1e-5, 0.3):
        ex_post, pdp = account.epsilons(delta), account.epsilons(delta, kind="per_instance")
        most = PrivacyLoss.of_zcdp(*account._zcdps.tolist()).epsilon(delta)
        for i, curve in enumerate(account.worst):
            truth = float(ex_post_epsilon(account.orders, curve, delta))
            assert float(ex_post[i]) == pytest.approx(truth, rel=1e-12, abs=0)
            truth = float(epsilon_from_rdp(account.orders, curve, delta))
            assert float(pdp[i]) == pytest.approx(min(truth, most), rel=1e-10, abs=0)
            direct = dp_accounting.rdp.compute_epsilon(account.orders.tolist(), curve.tolist(), delta)[0]
            assert float(pdp[i]) == pytest.approx(min(direct, most), rel=1e-10, abs=0)


def test_the_statement_says_what_is_proved_and_what_is_not() -> None:
    account = ExampleAccountant(LAWS["truncated"], [2.0, 64.0])
    account.step(torch.zeros(3), torch.ones(2, 3))
    assert "the release about that record" in account.statement
    assert "is a guarantee for the one release it is about" in account.statement
    account.step(torch.zeros(3), torch.ones(2, 3))
    statement = account.statement
    for phrase in (
        "this dataset and this trajectory",
        "one record that is in the data",
        "leaving that record out and with having it twice",
        "the realised privacy loss of the 2 releases",
        "for each example by itself, not for all of them at once",
        "an estimate and not a guarantee",
        "Neither is differential privacy",
        "nothing about records that are not in the data",
        "itself sensitive: do not publish it",
        "do not stop, go on, leave out examples or change the noise because of it",
    ):
        assert phrase in statement
    assert repr(account) == (
        "ExampleAccountant(TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0)), examples=2, steps=2)"
    )


def test_a_guarantee_is_both_kinds_of_epsilon_and_the_statement() -> None:
    account = ExampleAccountant(rf.RectifiedGaussian(1.0, 2.0))
    account.step(torch.zeros(4), 0.1 * torch.ones(3, 4), count=2)
    claim = account.guarantee(1e-5)
    assert torch.equal(claim.epsilons, account.epsilons(1e-5))
    assert torch.equal(claim.per_instance_epsilons, account.epsilons(1e-5, kind="per_instance"))
    assert (claim.delta, claim.steps, claim.statement) == (1e-5, 2, account.statement)
