"""Profiles at a fixed theta: above the exact one, close to it, never worse than the Gaussian's."""

import math

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.accounting import profile as privacy_loss
from ringfence.accounting.conversion import DEFAULT_ORDERS, gaussian_delta, gaussian_epsilon
from ringfence.accounting.decisions import decision_profile
from ringfence.accounting.profile import PrivacyProfile, Pushes, _composed, composed_delta, single_epsilons
from tests.accounting.drawing import draw
from tests.accounting.exact_profile import Array, ExactProfile, enumerated_delta
from tests.mechanisms.cases import Case, every_case
from tests.tensors import float64

LAWS = {"truncated": rf.TruncatedGaussian, "rectified": rf.RectifiedGaussian}
# bound, law, and the exact epsilon of the worst of six sign patterns at d = 10,240, ten steps, c = 1e-3
TABLE = [
    (0.1, "truncated", 0.05369),
    (0.1, "rectified", 0.98663),
    (0.5, "truncated", 0.30640),
    (0.5, "rectified", 1.0919),
    (2.0, "truncated", 0.9591),
    (2.0, "rectified", 1.1880),
]


def patterns(theta: Array, size: float) -> list[Array]:
    """Up, down, towards the centre, away from it, alternating, at random."""
    coins = np.where(np.random.default_rng(0).random(len(theta)) < 0.5, -1.0, 1.0)
    alternating = np.where(np.arange(len(theta)) % 2 == 0, 1.0, -1.0)
    signs = [np.ones_like(theta), -np.ones_like(theta), -np.sign(theta), np.sign(theta), alternating, coins]
    return [size * sign for sign in signs]


@pytest.mark.parametrize(("bound", "law", "published"), TABLE)
def test_the_six_cases_are_within_a_percent_of_exact(bound: float, law: str, published: float) -> None:
    """128 coordinates eight hundred times cost what 10,240 cost ten times, and are summed faster."""
    theta = 0.5 * bound * torch.special.ndtri((torch.arange(128, dtype=torch.float64) + 0.5) / 128)
    profile = rf.privacy_profile(LAWS[law](1.0, bound), theta, sensitivity=1e-3, steps=800)
    got = profile.epsilon(delta=1e-5)
    array, worst = theta.numpy(), 0.0
    for shift in patterns(array, 1e-3):
        for start, move in ((array, shift), (array + shift, -shift)):
            exact = ExactProfile(law, start, move, bound, 800, near=published)
            worst = max(worst, exact.epsilon(1e-5))
    assert worst <= got <= 1.01 * worst
    assert got == pytest.approx(published, rel=0.025)  # quantiles for a draw of theta
    assert profile.proofs["central limit"](got) <= 1e-5  # it is this proof that says so


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("count", "size", "steps"), [(200, 2e-2, 7), (40, 0.05, 10)])
def test_sound_for_every_pattern_and_both_directions(law: str, count: int, size: float, steps: int) -> None:
    theta, bound = draw(count, seed=1), 1.0
    profile = rf.privacy_profile(LAWS[law](1.0, bound), theta, sensitivity=size, steps=steps)
    deltas = {epsilon: profile.delta(epsilon) for epsilon in (0.3, 1.0, 2.0)}
    array = theta.numpy()
    for shift in patterns(array, size):
        for start, move in ((array, shift), (array + shift, -shift)):
            exact = ExactProfile(law, start, move, bound, steps, near=1.0)
            for epsilon, delta in deltas.items():
                assert delta >= exact.delta(epsilon) * (1 - 1e-9)


def test_sound_where_the_direction_matters() -> None:
    """Outside the bound the loss varies more under the neighbour: forward alone would be 2 % too small."""
    theta, c, steps = torch.full((100,), 2.5, dtype=torch.float64), 0.02, 358
    proof = rf.privacy_profile(rf.RectifiedGaussian(1.0, 1.0), theta, c, steps).proofs["central limit"]
    start, shift = theta.numpy() - c, np.full(100, c)
    for epsilon in (6.0, 8.0):
        exact = ExactProfile("rectified", start, shift, 1.0, steps, near=epsilon).delta(epsilon)
        assert exact <= proof(epsilon) <= 1.4 * exact


@every_case
@pytest.mark.parametrize(("count", "size", "steps"), [(1, 0.4, 2), (40, 0.04, 5)])
def test_never_worse_than_the_gaussian(case: Case, count: int, size: float, steps: int) -> None:
    law, theta = case.make(1.0, -1.0, 1.0), draw(count, scale=1.5)
    profile = rf.privacy_profile(law, theta, sensitivity=size, steps=steps)
    gaussian = gaussian_epsilon(size * (count * steps) ** 0.5, 1e-5)
    small, large = (profile.epsilon(delta) for delta in (1e-5, 1e-3))
    assert large <= small <= gaussian * (1 + 1e-6)
    deltas = [profile.delta(epsilon) for epsilon in (0.0, 0.1, 1.0)]
    assert deltas == sorted(deltas, reverse=True)


def test_tensors_of_parameters_and_of_sensitivities() -> None:
    theta = draw(200)
    law = rf.TruncatedGaussian(float64([1.0, 2.0]).repeat(100), bound=float64([1.0, 3.0]).repeat(100))
    sensitivity = float64([1e-2, 2e-2]).repeat(100)
    together = rf.privacy_profile(law, theta, sensitivity).epsilon(1e-5)
    apart = [
        rf.privacy_profile(rf.TruncatedGaussian(s, b), theta[i::2], c).epsilon(1e-5)
        for i, (s, b, c) in enumerate([(1.0, 1.0, 1e-2), (2.0, 3.0, 2e-2)])
    ]
    assert max(apart) < together < sum(apart)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"theta": float("nan")}, "theta must not be NaN"),
        ({"sensitivity": -1.0}, "sensitivity must be >= 0, got -1.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_by_name(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rf.privacy_profile(rf.Gaussian(1.0), **{"theta": 0.0, "sensitivity": 1.0, "steps": 1, **arguments})


def test_bad_questions_are_refused_by_name() -> None:
    profile = rf.privacy_profile(rf.Gaussian(1.0), 0.0, 1.0)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got 1.0"):
        profile.epsilon(1.0)
    with pytest.raises(ValueError, match=r"epsilon must be >= 0, got -0\.1"):
        profile.delta(-0.1)


def test_no_sensitivity_costs_nothing() -> None:
    profile = rf.privacy_profile(rf.RectifiedGaussian(1.0, 2.0), float64([0.0, 1.0]), 0.0)
    assert profile.epsilon(1e-9) == 0
    assert profile.delta(0.0) == 0


@pytest.mark.parametrize(("count", "served"), [(32, True), (33, False)])
def test_hockey_sticks_of_up_to_32_coordinates_are_composed(
    count: int, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy_loss, "_composed", lambda _: lambda epsilon: 0.0)
    profile = rf.privacy_profile(rf.TruncatedGaussian(1.0, bound=2.0), torch.zeros(count), 1e-3)
    assert ("backward induction" in profile.proofs) is served
    few = composed_delta(rf.Gaussian(1.0), torch.arange(4064.0 + count), ONE, 1, at_most=1)
    assert (few is not None) is served  # of distinct coordinates, of which few move, 4096


def test_a_loss_too_small_for_a_logarithm_has_a_profile() -> None:
    """dp-accounting raised a math domain error."""
    profile = rf.privacy_profile(rf.StochasticSign(1.0), 8.0, 0.0067)
    assert 0 < profile.delta(1.0) < 1e-10


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_proof_from_renyi_sums_is_the_conversion_at_its_best_order(epsilon: float) -> None:
    """exp((a - 1) (D - epsilon)) (1 - 1 / a)^a / (a - 1) (Canonne, Kamath, Steinke 2020), three releases."""
    law, theta = rf.StochasticSign(0.8), torch.tensor([0.1, -2.0], dtype=torch.float64)
    got = rf.privacy_profile(law, theta, 0.4, steps=3).proofs["Rényi"](epsilon)
    orders = DEFAULT_ORDERS[::2]
    sums = 3 * rf.per_instance_rdp(law, theta, 0.4, orders).worst
    deltas = [
        math.exp(min(600.0, (a - 1) * (rdp - epsilon))) * (1 - 1 / a) ** a / (a - 1)
        for a, rdp in zip(orders, sums.tolist(), strict=True)
    ]
    assert got == pytest.approx(min(deltas) * (1 + 1e-11), rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("smallest", "found"), [(0.0, 0.0), (2.0**399, 2.0**399), (1.01 * 2.0**399, math.inf)]
)
def test_an_epsilon_beyond_2_to_the_399_is_not_looked_for(smallest: float, found: float) -> None:
    epsilon = privacy_loss._smallest_epsilon(lambda epsilon: float(epsilon < smallest), 0.5)
    assert epsilon == pytest.approx(found, rel=1e-6, abs=0)


@pytest.mark.parametrize("sigma", [0.04, 1e-4, 1e-50])
@pytest.mark.parametrize("theta", [[0.0, 0.0], [0.0, 0.1]], ids=["the same twice", "apart"])
def test_losses_that_cannot_be_composed_cost_what_the_gaussian_does(sigma: float, theta: list[float]) -> None:
    """Floats do not hold e^loss there."""
    mu = 2**0.5 / sigma
    for law in (rf.Gaussian(sigma), rf.TruncatedGaussian(sigma, 1.0)):
        profile = rf.privacy_profile(law, float64(theta), 1.0)
        assert mu * mu / 2 < profile.epsilon(1e-5) <= (mu * mu / 2 + 5 * mu) * (1 + 1e-7)
    few = rf.privacy_profile(rf.Gaussian(sigma), float64(theta), rf.Sensitivity(each=1.0, at_most=1), steps=2)
    assert few.epsilon(1e-5) <= (mu * mu / 2 + 5 * mu) * (1 + 1e-7)


def test_moments_beyond_float64_are_refused_by_name() -> None:
    with pytest.raises(FloatingPointError, match="products of the moments of the loss"):
        rf.privacy_profile(rf.Gaussian(1e-60), float64([0.0, 0.0]), 1.0)


def test_proofs_go_by_their_names() -> None:
    proofs = rf.privacy_profile(rf.RectifiedGaussian(1.0, 1.0), float64([0.5]), 0.1).proofs
    assert list(proofs) == ["Gaussian", "Rényi", "central limit", "backward induction"]


def test_fewer_moves_have_their_own_proofs() -> None:
    law, theta = rf.RectifiedGaussian(1.0, 1.0), torch.linspace(-3, 3, 40, dtype=torch.float64)
    plain = rf.privacy_profile(law, theta, 0.2)
    most = plain.epsilon(1e-5)
    names = {
        rf.Sensitivity(0.2): set(plain.proofs),
        rf.Sensitivity(0.2, at_most=40, norm=9.0): set(plain.proofs),
        rf.Sensitivity(0.2, at_most=3): {"Gaussian", "Rényi", "backward induction"},
        rf.Sensitivity(norm=0.5): {"Gaussian", "Rényi"},
        rf.Sensitivity(0.2, norm=1.1): {"Gaussian", "Rényi", "central limit"},
    }
    for size, expected in names.items():
        profile = rf.privacy_profile(law, theta, size)
        assert set(profile.proofs) == expected
        usual = size.binding(theta.shape).longest_square(law.sigma, theta.shape)
        gaussian = gaussian_epsilon(math.sqrt(usual), 1e-5)
        assert profile.epsilon(1e-5) <= min(most, gaussian * (1 + 1e-6))


def test_a_table_costs_what_its_worst_cell_does() -> None:
    """240 cells, sigma 4, delta 1e-6: 1.06 instead of the 25.3 of all cells together."""
    counts = torch.arange(240, dtype=torch.float64)
    table = rf.privacy_profile(rf.Gaussian(4.0), counts, rf.Sensitivity(1.0, at_most=1)).epsilon(1e-6)
    assert table == pytest.approx(1.0607, abs=1e-4)
    assert rf.privacy_profile(rf.Gaussian(4.0), counts, 1.0).epsilon(1e-6) == pytest.approx(25.3, abs=0.05)
    law, few = rf.RectifiedGaussian(4.0, (18.0, 1e4)), counts[[0, 4, 8]]
    together = rf.privacy_profile(law, few, rf.Sensitivity(1.0, at_most=1))
    cells = [rf.privacy_profile(law, cell, 1.0) for cell in few]
    for epsilon in (0.0, 0.5, 1.0):
        deltas = [cell.delta(epsilon) for cell in cells]
        assert together.delta(epsilon) == pytest.approx(max(deltas), rel=1e-6, abs=0)
        assert min(deltas) < 0.9 * max(deltas)


@pytest.mark.parametrize(
    "law", [rf.StochasticSign(1.0), rf.RectifiedGaussian(1.0, 1.0)], ids=lambda law: law.name
)
def test_as_many_moves_are_charged_as_there_are(law: rf.Mechanism) -> None:
    """Of nine equal coordinates three move, twice: six moves, none of which is left out."""
    theta = torch.full((9,), 0.5, dtype=torch.float64)
    three = rf.privacy_profile(law, theta, rf.Sensitivity(0.4, at_most=3), steps=2)
    alone = rf.privacy_profile(law, theta[:3], 0.4, steps=2)
    for epsilon in (0.0, 0.5, 1.0):  # of equal coordinates it does not matter which ones move
        assert alone.delta(epsilon) * (1 - 1e-6) <= three.delta(epsilon) <= 1.02 * alone.delta(epsilon)
    assert three.proof(1e-3) == "backward induction"


def test_a_proof_is_never_asked_about_an_infinite_epsilon() -> None:
    def finite(epsilon: float) -> float:
        assert math.isfinite(epsilon)
        return math.exp(-epsilon)

    some = PrivacyProfile({"first": finite, "nothing": lambda epsilon: 1.0})
    assert some.epsilon(1e-3) == pytest.approx(math.log(1e3), rel=1e-7)
    assert some.proof(1e-3) == "first"
    none = PrivacyProfile({"first": lambda epsilon: finite(epsilon) + 0.1, "nothing": lambda epsilon: 1.0})
    assert none.epsilon(1e-3) == math.inf


def test_a_majority_of_one_vote_almost_without_noise_has_an_epsilon() -> None:
    """The vote turns yes, which is sure but for e^-500007, into a coin flip."""
    profile = decision_profile(rf.StochasticSign(1e-3), [2.0, 1.0], neighbours="added")
    assert 500_007.13 < profile.epsilon(1e-5) < 500_100


SIGN = rf.StochasticSign(1.0)
EPSILONS = (0.0, 0.5, 1.0, 2.0)
ONE = float64(1.0)


@pytest.mark.parametrize(
    ("thetas", "moves"),
    [
        ([0.2, -0.5], [0.6, 0.6]),
        ([0.2, 0.2, 0.2], [0.6, 0.6, 0.6]),  # one coordinate repeated
        ([0.2, 0.2, -0.5], [0.6, 0.3, 0.6]),  # the same theta, moved by less
        ([1.5, 1.5, 1.5, -1.5], [0.4, 0.4, 0.4, 0.4]),
    ],
)
def test_hockey_sticks_composed_against_all_outcomes_and_all_patterns(
    thetas: list[float], moves: list[float]
) -> None:
    """The sign law as if only its hockey sticks were known."""

    def masses(where: float) -> list[float]:
        return [float(SIGN.log_prob(outcome, where).exp()) for outcome in (-1.0, 1.0)]

    releases = [
        (Pushes(SIGN, float64([theta]), float64([move])), 1)
        for theta, move in zip(thetas, moves, strict=True)
    ]
    composed = _composed(releases)
    assert composed is not None
    for epsilon in EPSILONS:
        exact = enumerated_delta(masses, thetas, moves, epsilon)
        assert exact <= composed(epsilon) <= 1.2 * exact + 1e-5


@every_case
def test_one_release_is_exact(case: Case) -> None:
    """The hockey stick of the worse sign and direction, whatever lies beside it without moving."""
    law, theta, c = case.make(0.8, -1.0, 1.5), 0.4, 0.7
    alone = composed_delta(law, float64([theta]), float64([c]), steps=1)
    beside = composed_delta(law, float64([theta, 0.1]), float64([c, 0.0]), steps=1)
    for epsilon in (0.0, 0.3, 1.5):
        exact = max(
            float(law.hockey_stick(start, shift, epsilon))
            for start, shift in ((theta, c), (theta, -c), (theta + c, -c), (theta - c, c))
        )
        # the rounding of one release is charged, and no more
        assert alone(epsilon) == beside(epsilon) == pytest.approx(exact * (1 + 1e-11), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize(("count", "steps"), [(1, 3), (3, 1), (1, 100)])
def test_gaussians_compose_to_a_gaussian(count: int, steps: int) -> None:
    """More than 64 releases take the larger curve at once, which costs a Gaussian nothing."""
    theta, move = torch.zeros(count).double(), 1.0 / (count * steps) ** 0.5
    composed = composed_delta(rf.Gaussian(1.0), theta, float64(move), steps)
    for epsilon in EPSILONS:
        exact = gaussian_delta(1.0, epsilon)
        assert exact * (1 - 1e-9) <= composed(epsilon) <= 1.01 * exact


@pytest.mark.parametrize("shift", [300.0, 3000.0, 10_000.0])
def test_a_shift_of_very_many_sigma_is_charged_for_its_rounding(shift: float) -> None:
    """Log densities are as large as its square, of which rounding takes 2^-52 and less."""
    law = rf.QuantizedGaussian(1.0, bound=1.0, levels=3)
    delta = float(Pushes(law, float64([0.0]), float64([shift])).curves(0.1, backward=False).max())
    curve = float(law.hockey_stick(0.0, shift, 0.1))
    assert 0.1 < curve < delta < 1
    assert delta >= curve * (1 + shift * shift * 2.0**-52)
    assert delta <= curve * (1 + shift * shift * 2.0**-50 + 1e-10)


@pytest.mark.parametrize(
    "law",
    [
        rf.RectifiedGaussian(4.0, (18.0, 1e4)),
        rf.TruncatedGaussian(4.0, (18.0, 60.0)),
        rf.StochasticSign(4.0),
        rf.Gaussian(4.0),
    ],
    ids=lambda law: law.name,
)
def test_single_epsilons_hold_and_no_less_would(law: rf.Mechanism) -> None:
    theta = torch.tensor([1.0, 10.0, 17.0], dtype=torch.float64)  # of a sign at 17 the move down is worse
    epsilon = single_epsilons(law, theta, 1.0, 1e-5)

    def delta(at: torch.Tensor) -> torch.Tensor:
        return torch.stack(
            [law.hockey_stick(theta, s, at) for s in (1.0, -1.0)]
            + [law.hockey_stick(theta + s, -s, at) for s in (1.0, -1.0)]
        ).amax(dim=0)

    assert bool((delta(epsilon) <= 1e-5 * (1 + 1e-9)).all())
    assert bool((delta(epsilon * 0.99999) > 1e-5).all())


def test_parameters_may_differ_by_coordinate() -> None:
    sigma = torch.tensor([2.0, 8.0], dtype=torch.float64)
    both = single_epsilons(rf.StochasticSign(sigma), torch.ones(2, dtype=torch.float64), 1.0, 1e-5)
    each = [
        single_epsilons(rf.StochasticSign(float(s)), torch.ones(1, dtype=torch.float64), 1.0, 1e-5)
        for s in sigma
    ]
    assert both.tolist() == pytest.approx([float(one) for one in each], rel=1e-9)


def test_a_delta_that_covers_every_difference_costs_nothing_and_roundings_are_charged() -> None:
    law, theta = rf.StochasticSign(4.0), torch.tensor([3.0], dtype=torch.float64)
    largest = max(
        float(law.hockey_stick(start, move, 0.0)) for start, move in ((3, 1), (3, -1), (4, -1), (2, 1))
    )
    assert float(single_epsilons(law, theta, 1.0, largest * (1 + 1.1e-11))) == 0.0
    assert float(single_epsilons(law, theta, 1.0, largest * (1 + 0.9e-11))) > 0.0
    assert torch.equal(single_epsilons(law, theta, 1.0, 1e-3), single_epsilons(law, theta, -1.0, 1e-3))
