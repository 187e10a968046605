"""A number that may be published: too small rarely enough, and its cost paid."""

import math
from collections.abc import Iterator

import pytest
import torch

import ringfence as rf
from ringfence.accounting.divergence_sums import both_directions
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.publication import PublishableEpsilon, noise_for, upper_bound
from ringfence.accounting.sensitivity import ceilings
from ringfence.accounting.steepness import largest_share
from ringfence.mechanisms.secure import SecureRelease
from tests.tensors import double_by_default, float64, seeded_releases

SETTINGS = {"delta": 1e-5, "publishing_zcdp": 1e-4, "failure_probability": 1e-2}


@pytest.fixture
def stream() -> Iterator[None]:
    """Noise from a seed."""
    with seeded_releases():
        yield


def publish(thetas: object, **changes: object) -> PublishableEpsilon:
    law = rf.RectifiedGaussian(1.0, bound=1.0)
    return rf.publishable_epsilon(law, thetas, 1e-3, **{**SETTINGS, **changes})


def _sum_behind(number: PublishableEpsilon) -> float:
    """The divergence the ex-post number was made of: one order, so it can be read back."""
    total = number.ex_post_epsilon - float(torch.log(float64(1 / number.delta))) / (number.order - 1)
    return total - number.order * number.publishing_zcdp


@pytest.mark.usefixtures("stream")
def test_above_the_private_number_as_often_as_promised() -> None:
    noise = SecureRelease(rf.Gaussian(0.1))
    for failure, tries, least, most in ((0.5, 200, 75, 125), (0.1, 400, 22, 58), (1e-6, 50, 0, 0)):
        below = sum(upper_bound(noise, 0.7, failure) < 0.7 for _ in range(tries))
        assert least <= below <= most


@pytest.mark.usefixtures("stream")
def test_the_number_is_about_the_sum_over_coordinates_and_steps() -> None:
    theta, order = torch.full((50,), 1.5, dtype=torch.float64), 200.0
    exact = rf.per_instance_rdp(rf.RectifiedGaussian(1.0, 1.0), theta, 1e-3, [order])
    private = 2 * float(exact.worst)
    # so much noise is affordable that hardly any is needed
    number = publish([theta] * 2, order=order, publishing_zcdp=0.3, failure_probability=1e-9)
    assert private <= _sum_behind(number) <= 1.01 * private


def released(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """What is handed to the noise, and its deviation, each time a number is published."""
    seen, draw = [], SecureRelease.draw

    def spied(self: SecureRelease, theta: float) -> torch.Tensor:
        seen.append((theta, float(self.law.sigma)))
        return draw(self, theta)

    monkeypatch.setattr(SecureRelease, "draw", spied)
    return seen


@pytest.mark.parametrize(
    ("law", "move", "alpha", "theta", "least"),
    [
        (rf.TruncatedGaussian(1.0, 0.01), 1e-3, 30.0, 137.2, 0.95),  # paid 24 times too much
        (rf.TruncatedGaussian(1.0, 0.001), 1e-3, 30.0, 1372.0, 0.95),  # 2,400 times
        (rf.TruncatedGaussian(1.0, 1e6), 1e-3, 30.0, 1e6 - 0.992, 0.93),
        (rf.RectifiedGaussian(1.0, 1e6), 1e-2, 30.0, 1e6 + 1.157, 0.95),
        (rf.RectifiedGaussian(1.0, 1.0), 1.0, 16.0, -32.080, 0.7),  # alpha c = 16
        (rf.StochasticSign(1.0), 0.5, 64.0, 62.974, 0.95),
        (rf.QuantizedGaussian(1.0, 1.0, levels=5), 0.5, 16.0, 15.231, 0.95),
        (rf.QuantizedGaussian(1.0, 1e6, levels=3), 1e-3, 30.0, 5e5 - 1.215, 0.05),  # too wide for nodes
        (rf.RectifiedGaussian(1.0, 1.0), 1e-3, 200.0, -2.102, 0.95),
        (rf.Gaussian(1.0), 1e-3, 30.0, 0.0, 0.0),
    ],
    ids=lambda value: repr(value) if isinstance(value, rf.Mechanism) else "",
)
def test_a_neighbour_pays_no_more_than_was_said(
    monkeypatch: pytest.MonkeyPatch, law: rf.Mechanism, move: float, alpha: float, theta: float, least: float
) -> None:
    """Every coordinate where the divergence is steepest, and a record that pushes all of them one way.

    Gaussian noise under a change of m costs m^2 / (2 deviation^2) of zCDP, hardly less than was said.
    """
    seen, cost = released(monkeypatch), 1e-3
    count = 3 if move < 0.1 else 1  # an epsilon of more than 126 is refused
    for push in (0.0, 1.0):
        thetas = torch.full((count,), theta + push * move, dtype=torch.float64)
        given = {"delta": 1e-5, "publishing_zcdp": cost, "failure_probability": 1e-2, "order": alpha}
        rf.publishable_epsilon(law, [thetas] * count, move, **given)
    (here, deviation), (there, same) = seen
    assert deviation == same  # it must not depend on the data
    assert least * cost <= (here - there) ** 2 / (2 * deviation**2) <= cost


def test_the_noise_is_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """No seed of torch's repeats it, and its bytes do."""
    theta = torch.full((5000,), 2.5, dtype=torch.float64)
    numbers = []
    for _ in range(2):
        torch.manual_seed(0)
        numbers.append(publish(theta).ex_post_epsilon)
    assert numbers[0] != numbers[1]
    same = set()
    for _ in range(2):
        with seeded_releases(3):
            same.add(publish(theta).ex_post_epsilon)
    assert len(same) == 1


def test_the_public_grid_reaches_every_share() -> None:
    """It ends some deviations out; a share beyond would come out too small."""
    assert float(noise_for(1e-30, 1.0).draw(1.0)) == pytest.approx(1.0, rel=1e-10)


def test_the_order_does_not_depend_on_the_data() -> None:
    near, far = (torch.full((5000,), value, dtype=torch.float64) for value in (0.0, 30.0))
    assert publish(near).order == publish(far).order


def test_the_statement_says_that_it_may_be_published_and_how_sure_it_is() -> None:
    text = publish(torch.zeros(5000, dtype=torch.float64)).statement
    assert "The releases and this number together satisfy" in text
    assert "Except with probability 0.01 over the noise in this number" in text
    assert text.endswith("These numbers were released with noise and may be published.")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"publishing_zcdp": 0.0}, ValueError, "publishing_zcdp must be > 0"),
        ({"failure_probability": 0.0}, ValueError, "failure_probability must be in"),
        ({"delta": 1.0}, ValueError, "delta must be in"),
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
        **SETTINGS,
        **changes,
    }
    with pytest.raises(error, match=message):
        rf.publishable_epsilon(**arguments)


def test_nothing_passes_through_float32() -> None:
    """It was: the epsilon that was published came out up to 2e-8 too low."""
    theta = torch.full((50,), 0.7, dtype=torch.float64)

    def number(seed: int) -> PublishableEpsilon:
        with seeded_releases(seed):
            return publish(theta)

    numbers = [number(seed) for seed in range(2)]
    with double_by_default():
        assert [number(seed) for seed in range(2)] == numbers


@pytest.mark.usefixtures("stream")
def test_a_few_coordinates_are_published_as_their_largest_sum() -> None:
    law, theta, order = rf.RectifiedGaussian(1.0, 1.0), torch.linspace(-4, 4, 50, dtype=torch.float64), 200.0
    given = {"delta": 1e-5, "publishing_zcdp": 0.3, "failure_probability": 1e-9, "order": order}
    size = rf.Sensitivity(1e-3, at_most=3)
    private = 2 * float(rf.per_instance_rdp(law, theta, size, [order]).worst)
    number = rf.publishable_epsilon(law, [theta] * 2, size, **given)
    assert private <= _sum_behind(number) <= 1.01 * private
    account = rf.PerInstanceAccountant(law, size)
    account.step(theta, count=2)
    assert number.epsilon >= account.guarantee(1e-5).epsilon


def test_a_norm_is_refused_by_name_unless_each_implies_it() -> None:
    theta = torch.zeros(4, dtype=torch.float64)
    for size in (rf.Sensitivity(norm=1e-3), rf.Sensitivity(1e-3, norm=1.5e-3)):
        with pytest.raises(ValueError, match="sensitivity must not be bounded by norm to publish from it"):
            rf.publishable_epsilon(rf.RectifiedGaussian(1.0, 1.0), theta, size, **SETTINGS)
    size = rf.Sensitivity(1e-3, norm=2e-3)
    assert rf.publishable_epsilon(rf.RectifiedGaussian(1.0, 1.0), theta, size, **SETTINGS).epsilon > 0


def test_an_upper_bound_is_raised_by_the_quantile_and_by_half_a_step_of_the_grid() -> None:
    class Still(SecureRelease):
        def draw(self, theta: float) -> torch.Tensor:  # type: ignore[override]
            return float64(theta)

    noise = Still(rf.Gaussian(2.0))
    quantile = -float(torch.special.ndtri(float64(1e-3)))
    assert upper_bound(noise, 0.7, 1e-3) == pytest.approx(0.7 + 2 * (quantile + 2.0**-11), rel=1e-12)


def test_the_share_and_its_change_are_raised_by_their_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change by that of both neighbours."""
    seen, law, alpha = released(monkeypatch), rf.RectifiedGaussian(1.0, bound=1.0), 30.0
    theta, move = torch.linspace(1.0, 2.0, 50, dtype=torch.float64), float64(1e-3)
    publish([theta, theta], order=alpha)
    ((share, deviation),) = seen
    largest = alpha * ceilings(law, theta, rf.Sensitivity(1e-3))[1]
    exact = float(both_directions(law, theta, move, float64([alpha])).amax(dim=(0, 1)).sum()) / largest
    assert share / exact - 1 == pytest.approx(1e-11, rel=0.02)
    change = deviation * math.sqrt(2 * SETTINGS["publishing_zcdp"])
    assert change - largest_share(law, 1e-3, alpha) == pytest.approx(2e-11, rel=0.02, abs=0)


@pytest.mark.usefixtures("stream")
def test_the_promise_is_that_of_the_releases_and_of_publishing() -> None:
    law, far = rf.RectifiedGaussian(1.0, bound=1.0), torch.full((5000,), 30.0, dtype=torch.float64)
    gaussian, bounded = (end + 1e-4 for end in ceilings(law, far, rf.Sensitivity(1e-3)))
    useful, useless = (publish(far, order=order) for order in (300.0, 1.1))
    for number in (useful, useless):
        assert number.epsilon == PrivacyLoss.of_zcdp(gaussian, bounded).epsilon(1e-5)
    assert useful.per_instance_epsilon < useful.epsilon  # order by order
    assert useless.per_instance_epsilon == useless.epsilon < useless.ex_post_epsilon
