"""A number that may be published: too small rarely enough, and its cost paid."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.publication import _largest_slope, _worst
from tests.mechanisms.cases import CASES, Case
from tests.tensors import double_by_default, float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
SETTINGS = {"delta": 1e-5, "publishing_zcdp": 1e-4, "failure_probability": 1e-2}


def publish(seed: int, thetas: object, **changes: object) -> rf.PublishableEpsilon:
    law = rf.RectifiedGaussian(1.0, bound=1.0)
    generator = torch.Generator().manual_seed(seed)
    return rf.publishable_epsilon(law, thetas, 1e-3, generator=generator, **{**SETTINGS, **changes})


def test_above_the_private_number_as_often_as_promised() -> None:
    theta = torch.full((50,), 2.5, dtype=torch.float64)
    order = 200.0
    exact = rf.per_instance_rdp(rf.RectifiedGaussian(1.0, 1.0), theta, 1e-3, [order], exact=True)
    private = 2 * float(exact.worst)
    below = 0
    for seed in range(80):
        # a failure probability of one half puts the published number above about half the time
        number = publish(seed, [theta] * 2, order=order, failure_probability=0.5)
        total = _sum_behind(number)
        below += total - number.order * number.publishing_zcdp < private
    assert 25 < below < 55
    for seed in range(20):
        number = publish(seed, [theta] * 2, order=order, failure_probability=1e-4)
        assert _sum_behind(number) - number.order * number.publishing_zcdp >= private


def _sum_behind(number: rf.PublishableEpsilon) -> float:
    """The divergence the ex-post number was made of: one order, so it can be read back."""
    return number.epsilon - float(torch.log(float64(1 / number.delta))) / (number.order - 1)


@every_case
def test_the_slope_covers_every_theta(case: Case) -> None:
    law, move, alpha = case.make(1.0, -1.0, 1.0), float64(0.01), 30.0
    theta = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    values = _worst(law, theta, move, alpha)
    steepest = float(torch.diff(values).abs().max()) / (16 / 4000)
    assert steepest <= _largest_slope(law, move, alpha)
    if law.exponential_family:  # alpha c^2 / 2 sup |I'|
        assert _largest_slope(law, move, alpha) <= 1.02 * 0.2957 * alpha * 1e-4 / 2


def test_a_neighbour_moves_the_sum_by_no_more_than_the_noise_is_for() -> None:
    law, move, alpha = rf.RectifiedGaussian(1.0, 1.0), float64(1e-2), 20.0
    generator = torch.Generator().manual_seed(0)
    theta = 2 * torch.randn(200, generator=generator, dtype=torch.float64)
    change = 200 * 1e-2 * _largest_slope(law, move, alpha)
    here = float(_worst(law, theta, move, alpha).sum())
    for push in (1.0, -1.0, torch.sign(theta), -torch.sign(theta)):
        assert abs(float(_worst(law, theta + 1e-2 * push, move, alpha).sum()) - here) <= change


def test_the_noise_is_what_its_cost_needs() -> None:
    """Every coordinate where the divergence is steepest, and a record that pushes all of them the same way.

    A Gaussian for a change of m costs m^2 / (2 deviation^2) of zCDP. The deviation is read off two draws.
    """
    law, move, alpha = rf.RectifiedGaussian(1.0, 1.0), float64(1e-3), 200.0
    grid = torch.linspace(-4, 4, 8001, dtype=torch.float64)
    steepest = grid[torch.diff(_worst(law, grid, move, alpha)).abs().argmax()]
    theta = steepest.expand(500)
    change = abs(float((_worst(law, theta + move, move, alpha) - _worst(law, theta, move, alpha)).sum()))
    sums, noises = [], []
    for seed in (0, 1):
        sums.append(_sum_behind(publish(seed, theta, order=alpha)))
        noises.append(
            float(torch.randn((), generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
        )
    deviation = (sums[1] - sums[0]) / (noises[1] - noises[0])
    cost = (change / deviation) ** 2 / 2
    assert 0.9 * SETTINGS["publishing_zcdp"] < cost <= SETTINGS["publishing_zcdp"]


def test_its_own_cost_is_included() -> None:
    theta = torch.full((5000,), 2.5, dtype=torch.float64)
    cheap, dear = (publish(3, theta, publishing_zcdp=cost) for cost in (1e-6, 1e-2))
    assert cheap.epsilon_data_independent < dear.epsilon_data_independent
    assert dear.epsilon_pdp > cheap.epsilon_pdp
    account = rf.PerInstanceAccountant(rf.RectifiedGaussian(1.0, 1.0), 1e-3)
    account.step(theta)
    assert dear.epsilon_data_independent > account.guarantee(1e-5).epsilon_data_independent


def test_the_order_does_not_depend_on_the_data() -> None:
    near, far = (torch.full((5000,), value, dtype=torch.float64) for value in (0.0, 30.0))
    assert publish(0, near).order == publish(0, far).order


def test_the_statement_says_that_it_may_be_published_and_how_sure_it_is() -> None:
    text = publish(0, torch.zeros(5000, dtype=torch.float64)).statement
    assert "The releases and this number together satisfy" in text
    assert "Except with probability 0.01 over the noise in this number" in text
    assert text.endswith("These numbers were released with noise and may be published.")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"publishing_zcdp": 0.0}, ValueError, "publishing_zcdp must be > 0"),
        ({"failure_probability": 0.0}, ValueError, "failure_probability must be in"),
        ({"delta": 1.0}, ValueError, "delta must be in"),
        ({"generator": None}, TypeError, "generator must be a torch.Generator"),
        ({"thetas": []}, ValueError, "thetas must hold at least one step"),
        ({"mechanism": rf.Gaussian(torch.ones(2))}, ValueError, "must be single numbers"),
    ],
)
def test_bad_input_is_refused_by_name(
    changes: dict[str, object], error: type[Exception], message: str
) -> None:
    arguments = {
        "mechanism": rf.RectifiedGaussian(1.0, 1.0),
        "thetas": torch.zeros(2),
        "sensitivity": 1e-3,
        "generator": torch.Generator(),
        **SETTINGS,
        **changes,
    }
    with pytest.raises(error, match=message):
        rf.publishable_epsilon(**arguments)


def test_the_worst_is_over_both_signs_and_both_directions() -> None:
    law, theta, s, alpha = rf.RectifiedGaussian(1.0, 1.0), torch.linspace(-4, 4, 81).double(), 0.7, 6.0
    four = torch.stack(
        [
            law.renyi_divergence(theta, s, alpha),
            law.renyi_divergence(theta, -s, alpha),
            law.renyi_divergence(theta + s, -s, alpha),
            law.renyi_divergence(theta - s, s, alpha),
        ]
    )
    worst = _worst(law, theta, torch.tensor(s).double(), alpha)
    torch.testing.assert_close(worst, four.amax(dim=0), rtol=1e-6, atol=0)
    assert len(four.argmax(dim=0).unique()) == 4  # each of them somewhere


def test_the_slope_is_the_derivative_and_a_margin() -> None:
    """For an exponential family and a small move D is alpha c^2 / 2 times the information."""
    law, move, alpha = rf.TruncatedGaussian(1.0, 1.0), float64(1e-3), 2.0
    theta = torch.linspace(-8, 8, 160_001, dtype=torch.float64)
    slope = float(torch.diff(_worst(law, theta, move, alpha)).abs().max()) / (16 / 160_000)
    assert _largest_slope(law, move, alpha) == pytest.approx(1.02 * slope, rel=5e-5, abs=0)


def test_nothing_passes_through_float32() -> None:
    """It was: the epsilon that was published came out up to 2e-8 too low."""
    theta = torch.full((50,), 0.7, dtype=torch.float64)
    numbers = [publish(seed, theta) for seed in range(5)]
    with double_by_default():
        assert [publish(seed, theta) for seed in range(5)] == numbers
