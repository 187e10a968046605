"""What every mechanism promises, run for each row of cases.py."""

import itertools
import json
import math
import pickle
from collections.abc import Iterator

import pytest
import torch
from mpmath import mpf

import ringfence as rf
from tests import oracle
from tests.mechanisms.cases import CASES, Case, every_case
from tests.mechanisms.recorded import truth
from tests.tensors import float64

# theta, sigma, low, high: centred, inside, at an end, outside, narrow, wide, off-centre
POINTS = [
    (0.0, 1.0, -1.0, 1.0),
    (0.3, 0.8, -1.0, 1.0),
    (1.0, 1.0, -1.0, 1.0),
    (-2.5, 0.7, -1.0, 3.0),
    (6.0, 1.0, -0.5, 1.5),
    (0.2, 1.3, -0.01, 0.02),
    (0.1, 0.5, -6.0, 5.0),
]
FAR = [(40.0, 1.0, -1.0, 1.0), (-30.0, 1.0, -0.001, 0.001), (25.0, 1.0, -20.0, 20.0)]
SHIFTS = [1e-5, 0.05, -0.4, 2.0]
ORDERS = [1.05, 2.0, 30.0]
# every shift with two orders, every order with shifts of all sizes: half of all pairs
SHIFTS_AND_ORDERS = list(itertools.product(SHIFTS, ORDERS))[::2]
MOVES = [0.05, -0.4, 2.0]
MOVES_AND_EPSILONS = list(itertools.product(MOVES, [0.0, 0.02, 0.7, -0.3, 0.1]))[::2]


def questions() -> Iterator[tuple[str, tuple[float, ...], tuple[float, ...]]]:
    """What is asked of the oracle of every law: the function, the point and the other arguments."""
    for point in POINTS + FAR:
        yield "fisher", point, ()
    for point in POINTS + FAR[:1]:
        yield from (("renyi", point, pair) for pair in SHIFTS_AND_ORDERS)
        yield from (("hockey_stick", point, pair) for pair in MOVES_AND_EPSILONS)
    for point in POINTS:
        yield from (("loss_moments", point, (shift,)) for shift in MOVES)


def relative(got: torch.Tensor, exact: mpf) -> float:
    return float(abs(mpf(float(got)) - exact) / abs(exact))


# ------------------------------------------------------------------ closed form = definition


@every_case
@pytest.mark.parametrize("point", POINTS + FAR[:1])
def test_renyi_is_the_integral(case: Case, point: tuple[float, ...]) -> None:
    theta, *parameters = point
    law = case.make(*parameters)
    smallest = 1e-290 if case.has_density else oracle.SMALLEST_DIVERGENCE_OF_ATOMS
    for shift, alpha in SHIFTS_AND_ORDERS:
        (exact,) = truth("renyi", case, point, shift, alpha)
        got = law.renyi_divergence(theta, shift, alpha)
        if exact > smallest:
            assert relative(got, exact) < 1e-12, (shift, alpha)
        else:
            assert 0 <= float(got) < 2 * smallest, (shift, alpha)


@every_case
@pytest.mark.parametrize("point", POINTS + FAR)
def test_fisher_information_is_the_integral(case: Case, point: tuple[float, ...]) -> None:
    theta, *parameters = point
    (exact,) = truth("fisher", case, point)
    got = case.make(*parameters).fisher_information(theta)
    if exact > 1e-290:
        assert relative(got, exact) < 1e-12
    else:
        assert 0 <= float(got) < 1e-280


@every_case
@pytest.mark.parametrize("point", POINTS + FAR[:1])
def test_hockey_stick_is_the_integral(case: Case, point: tuple[float, ...]) -> None:
    theta, *parameters = point
    law = case.make(*parameters)
    for shift, epsilon in MOVES_AND_EPSILONS:
        (exact,) = truth("hockey_stick", case, point, shift, epsilon)
        got = law.hockey_stick(theta, shift, epsilon)
        assert abs(mpf(float(got)) - exact) <= 1e-10 * exact + 1e-300, (shift, epsilon)


@every_case
@pytest.mark.parametrize("point", POINTS)
def test_loss_moments_are_the_integrals(case: Case, point: tuple[float, ...]) -> None:
    theta, *parameters = point
    law = case.make(*parameters)
    for shift in MOVES:
        variance, third, fourth = truth("loss_moments", case, point, shift)
        got = law.loss_moments(theta, shift)
        scale = 1e-11 * variance**0.5 * abs(fourth) ** 0.5 + 1e-18
        for value, exact in ((got.variance, variance), (got.third, third), (got.fourth, fourth)):
            assert abs(mpf(float(value)) - exact) <= scale
        assert float(got.extent) ** 2 >= fourth / variance * (1 - 1e-9)


@every_case
def test_a_law_that_is_the_same_everywhere_has_one_divergence(case: Case) -> None:
    law = case.make(0.8, -1.0, 1.0)
    found = law.renyi_divergence(float64([-7.0, 0.0, 0.3, 5.0]), shift=0.25, alpha=3.0)
    exact = law.information_bound() * 3 * 0.25**2 / 2
    assert torch.allclose(found, exact, rtol=1e-14, atol=0) == law.same_everywhere


@every_case
def test_a_curve_is_the_divergence_at_every_order(case: Case) -> None:
    law = case.make(float64([0.8, 1.3, 0.8, 1.0]), -1.0, float64([1.0, 2.0, 1.0, 40.0]))
    theta, orders = float64([0.3, -2.0, 30.0, 0.5]), float64([1.05, 2.0, 30.0, 1024.0])
    for shift in (1e-5, -0.4, float64([0.1, 2.0, -2.0, 1e-3])):
        curve = law.renyi_curve(theta, shift, orders)
        for row, alpha in zip(curve, orders, strict=True):
            each = law.renyi_divergence(theta, shift, alpha)
            assert torch.allclose(row, each, rtol=1e-12, atol=1e-290)
    assert case.make(1.0, -1.0, 1.0).renyi_curve(theta.reshape(2, 2), 0.1, orders).shape == (4, 2, 2)


@every_case
def test_state_names_the_law_and_rebuilds_it(case: Case) -> None:
    law = case.make(0.3, -1.0, float64([2.0, torch.inf]) if case.has_density else 2.0)
    state = json.loads(json.dumps(law.state_dict()))
    again = rf.Mechanism.from_state_dict(state)
    assert type(again) is type(law)
    assert repr(again) == repr(law)
    for name, value in law.parameters().items():
        assert torch.equal(again.parameters()[name], value)
    for broken in ({**state, "law": "Cauchy"}, {**state, "extra": 1}, {"law": state["law"]}):
        with pytest.raises(ValueError, match=r"law must be one of|unknown keys|missing keys"):
            rf.Mechanism.from_state_dict(broken)


@every_case
@pytest.mark.parametrize("width", [0.1, 1.0, 5.0])
def test_information_bound_holds_for_every_theta(case: Case, width: float) -> None:
    law = case.make(0.7, -width, width)
    ceiling = law.information_bound()
    assert float(ceiling) <= 0.7**-2 * (1 + 1e-15)
    theta = torch.linspace(-6, 6, 241, dtype=torch.float64)
    for shift, alpha in itertools.product((1e-3, 0.3, -2.0), (1.1, 4.0, 64.0)):
        worst = law.renyi_divergence(theta, shift, alpha).max()
        assert float(worst) <= float(0.5 * alpha * shift**2 * ceiling) * (1 + 1e-12)


@every_case
@pytest.mark.parametrize("point", POINTS + FAR)
def test_log_prob_is_the_log_of_density_and_mass(case: Case, point: tuple[float, ...]) -> None:
    theta, *parameters = point
    law, family = case.make(*parameters), case.oracle(*parameters)(theta)
    for where, mass in family.atoms.items():
        assert float(law.log_prob(float(where), theta)) == pytest.approx(
            float(oracle.mp.log(mass)), rel=1e-12, abs=1e-14
        )
    if family.density is not None:
        low, high = parameters[1:] if case.uses_bound else (-3.0, 3.0)
        for share in (0.01, 0.4, 0.97):
            value = low + share * (high - low)
            assert float(law.log_prob(value, theta)) == pytest.approx(
                float(oracle.mp.log(family.density(mpf(value)))), rel=1e-12, abs=0
            )


@every_case
def test_log_prob_outside_the_support_is_minus_infinity(case: Case) -> None:
    law = case.make(1.0, -1.0, 2.0)
    points = sorted(float(point) for point in law.support.interval or law.support.atoms)
    beyond = float64([point for point in (points[0] - 0.5, points[-1] + 0.5) if math.isfinite(point)])
    assert (law.log_prob(beyond, 0.3) == -torch.inf).all()
    between = [0.9 * one + 0.1 * other for one, other in itertools.pairwise(points)]
    inside = law.log_prob(float64([0.123] if case.has_density else between), 0.3)
    assert bool(torch.isfinite(inside).all()) == case.has_density
    assert case.has_density or bool((inside == -torch.inf).all())


@every_case
@pytest.mark.parametrize("theta", [0.3, -2.5, 7.0])
def test_a_secure_release_inverts_the_law(case: Case, theta: float) -> None:
    """The cells of its points have the masses of the atoms, or of a thin stretch of the density."""
    law = case.make(0.8, -1.0, 1.5)
    where, parameters = float64([theta]), [value.double().reshape(1) for value in law.parameters().values()]
    distribution, points = law.distribution(where, *parameters), law.public_points(*parameters)
    assert (points is None) == case.has_density
    if points is not None:
        numbers = torch.arange(int(points.first), int(points.last) + 1)
        until = distribution.below(points.cut(numbers[:-1]))
        masses = torch.cat((until, float64([1.0]))) - torch.cat((float64([0.0]), until))
        places = points.point(numbers)
        assert sorted(float(atom) for atom in law.support.atoms) == pytest.approx(places.tolist(), abs=1e-12)
        torch.testing.assert_close(masses, law.log_prob(places, where).exp(), rtol=1e-9, atol=1e-14)
    else:
        inside, width = float64([-0.7, 0.2, 1.1]), 1e-5
        mass = distribution.below(inside + width) - distribution.below(inside - width)
        density = law.log_prob(inside, where).exp()
        torch.testing.assert_close(mass / (2 * width), density, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if case.has_density], ids=lambda case: case.name)
def test_a_wide_bound_gives_the_gaussian(case: Case) -> None:
    law, gaussian = case.make(1.0, -60.0, 70.0), rf.Gaussian(1.0)
    theta = torch.tensor([-20.0, 0.0, 15.0], dtype=torch.float64)
    torch.testing.assert_close(law.fisher_information(theta), gaussian.fisher_information(theta))
    torch.testing.assert_close(
        law.renyi_divergence(theta, 0.2, 5.0), gaussian.renyi_divergence(theta, 0.2, 5.0)
    )
    torch.testing.assert_close(law.hockey_stick(theta, 0.2, 0.1), gaussian.hockey_stick(theta, 0.2, 0.1))
    torch.testing.assert_close(law.log_prob(0.4, theta), gaussian.log_prob(0.4, theta))


# ------------------------------------------------------------------ tensors in, tensors out


@every_case
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *itertools.product([(), (0,), (3,), (2, 3, 4)], [torch.float64, torch.float32]),
        ((70_000,), torch.float32),  # two blocks
    ],
)
def test_shape_and_dtype_are_those_of_theta(case: Case, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    law, theta = case.make(1.0, -1.0, 1.0), torch.full(shape, 0.4, dtype=dtype)
    results = [
        law.sample(theta, generator=torch.Generator().manual_seed(0)),
        law.log_prob(1.0, theta),
        law.fisher_information(theta),
        law.renyi_divergence(theta, 0.1, 2.0),
        law.hockey_stick(theta, 0.1, 0.1),
    ]
    for result in results:
        assert result.shape == theta.shape
        assert result.dtype == dtype
        assert not result.requires_grad


@every_case
def test_parameters_broadcast(case: Case) -> None:
    sigma = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    low, high = float64([[-1.0], [-4.0]]), float64([[2.0], [5.0]])
    theta = torch.linspace(-2, 2, 6, dtype=torch.float64).reshape(2, 3)
    alpha, shift = float64([2.0, 3.0, 40.0]), float64([[0.1], [-0.3]])
    got = case.make(sigma, low, high).renyi_divergence(theta, shift, alpha)
    for row, column in itertools.product(range(2), range(3)):
        one = case.make(sigma[column], low[row, 0], high[row, 0])
        alone = one.renyi_divergence(theta[row, column], shift[row, 0], alpha[column])
        assert float(got[row, column]) == pytest.approx(float(alone), rel=1e-12, abs=0)


@every_case
@pytest.mark.parametrize("varied", ["theta", "sigma", "bound", "shift", "alpha", "epsilon", "value"])
def test_any_one_argument_may_be_the_tensor(case: Case, varied: str) -> None:
    """The others are numbers: nothing may rely on theta having the full shape."""
    many = float64([1.2, 1.5, 1.9])
    sigma, high = (many if varied == name else 1.3 for name in ("sigma", "bound"))
    theta, shift, alpha, epsilon, value = (
        many if varied == name else default
        for name, default in {"theta": 0.4, "shift": 0.2, "alpha": 3.0, "epsilon": 0.1, "value": 1.0}.items()
    )
    law = case.make(sigma, -1.0, high)
    calls = {
        "renyi": lambda law, pick: law.renyi_divergence(pick(theta), pick(shift), pick(alpha)),
        "hockey": lambda law, pick: law.hockey_stick(pick(theta), pick(shift), pick(epsilon)),
        "information": lambda law, pick: law.fisher_information(pick(theta)),
        "log_prob": lambda law, pick: law.log_prob(pick(value), pick(theta)),
        "sample": lambda law, pick: law.sample(pick(theta), generator=torch.Generator().manual_seed(0)),
    }
    for name, call in calls.items():
        together = call(law, lambda x: x)
        assert together.numel() in (1, 3)
        if name == "sample":
            continue
        for index in range(together.numel()):

            def pick(x: object, index: int = index) -> object:
                return x[index] if isinstance(x, torch.Tensor) else x

            alone = call(case.make(pick(sigma), -1.0, pick(high)), pick)
            torch.testing.assert_close(together.reshape(-1)[index], alone, rtol=1e-12, atol=0)


@every_case
def test_numbers_arrays_and_integers_count_as_float64(case: Case) -> None:
    law = case.make(1, -2, 2)
    expected = law.fisher_information(torch.tensor(1.0, dtype=torch.float64))
    assert law.fisher_information(1) == expected
    assert law.fisher_information(float64(1.0).numpy()) == expected
    assert law.fisher_information([1, 1]).dtype == torch.float64


@every_case
def test_describes_itself_and_survives_a_copy(case: Case) -> None:
    law = case.make(0.5, -2.0, 2.0)
    assert type(law).__name__ in repr(law)
    assert "sigma=0.5" in repr(law)
    copy = pickle.loads(pickle.dumps(law))
    assert copy.fisher_information(0.3) == law.fisher_information(0.3)


# ------------------------------------------------------------------ bad input

BAD = [
    ({"sigma": 0.0}, ValueError, r"sigma must be > 0, got 0\.0"),
    ({"sigma": -1.0}, ValueError, r"sigma must be > 0, got -1\.0"),
    ({"sigma": float("nan")}, ValueError, r"sigma must not be NaN, got nan"),
    ({"sigma": float("inf")}, ValueError, r"sigma must be finite, got inf"),
    ({"sigma": torch.tensor([1.0, 0.0])}, ValueError, r"sigma .* got 0\.0 at index \[1\]"),
    ({"sigma": "1"}, TypeError, r"sigma must be a number or a tensor, got '1'"),
    ({"sigma": torch.ones(2, dtype=torch.float16)}, TypeError, r"sigma must be float32 or float64"),
    ({"low": 1.0, "high": 1.0}, ValueError, r"bound must have lower < upper, got \(1\.0, 1\.0\)"),
    ({"low": 2.0, "high": 1.0}, ValueError, r"bound must have lower < upper, got \(2\.0, 1\.0\)"),
    ({"low": float("nan")}, ValueError, r"bound\[0\] must not be NaN, got nan"),
    (
        {"low": -torch.ones(2), "high": torch.ones(3)},
        ValueError,
        r"shapes do not broadcast: bound\[0\] \[2\], bound\[1\] \[3\]",
    ),
]


@pytest.mark.parametrize(
    ("case", "change", "error", "message"),
    [(case, *bad) for case in CASES for bad in BAD if case.uses_bound or "sigma" in bad[0]],
    ids=lambda value: value.name if isinstance(value, Case) else None,
)
def test_bad_parameters_are_refused_by_name(
    case: Case, change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        case.make(**{"sigma": 1.0, "low": -1.0, "high": 1.0, **change})


@every_case
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_bad_arguments_are_refused_by_name(case: Case, bad: float) -> None:
    law, generator = case.make(1.0, -1.0, 1.0), torch.Generator().manual_seed(0)
    theta = torch.tensor([0.0, bad], dtype=torch.float64)
    word = "NaN" if bad != bad else "finite"
    before = generator.get_state()
    calls = {
        "theta": [
            lambda: law.sample(theta, generator=generator),
            lambda: law.log_prob(0.0, theta),
            lambda: law.fisher_information(theta),
            lambda: law.renyi_divergence(theta, 0.1, 2.0),
            lambda: law.hockey_stick(theta, 0.1, 0.1),
        ],
        "shift": [lambda: law.renyi_divergence(0.0, bad, 2.0), lambda: law.hockey_stick(0.0, bad, 0.1)],
        "alpha": [lambda: law.renyi_divergence(0.0, 0.1, bad)],
        "epsilon": [lambda: law.hockey_stick(0.0, 0.1, bad)],
    }
    for name, attempts in calls.items():
        for attempt in attempts:
            with pytest.raises(ValueError, match=f"{name} must .*{word}.*got {bad}"):
                attempt()
    assert torch.equal(generator.get_state(), before)  # refused before any randomness was drawn
    if bad != bad:
        with pytest.raises(ValueError, match="value must not be NaN, got nan"):
            law.log_prob(bad, 0.0)


@every_case
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.0, -2.0])
def test_orders_up_to_one_are_refused(case: Case, alpha: float) -> None:
    with pytest.raises(ValueError, match=f"alpha must be > 1, got {alpha}"):
        case.make(1.0, -1.0, 1.0).renyi_divergence(0.0, 0.1, alpha)


@every_case
def test_what_float32_cannot_hold_is_refused(case: Case) -> None:
    theta = torch.zeros(2)
    with pytest.raises(ValueError, match=r"alpha \(as torch.float32\) must be > 1"):
        case.make(1.0, -1.0, 1.0).renyi_divergence(theta, 0.1, 1 + 1e-12)
    with pytest.raises(ValueError, match=r"sigma \(as torch.float32\) must be > 0"):
        case.make(1e-60, -1.0, 1.0).fisher_information(theta)
    if case.uses_bound:
        with pytest.raises(ValueError, match="bound must have lower < upper"):
            case.make(1.0, 1.0, 1 + 1e-12).fisher_information(theta)


@every_case
def test_wrong_types_and_shapes_are_refused(case: Case) -> None:
    law, generator = case.make(torch.ones(3), -1.0, 1.0), torch.Generator()
    with pytest.raises(ValueError, match=r"do not broadcast: theta \[2\], sigma \[3\]"):
        law.fisher_information(torch.zeros(2))
    with pytest.raises(TypeError, match=r"theta must be float32 or float64, got torch\.float16"):
        law.fisher_information(torch.zeros(3, dtype=torch.float16))
    with pytest.raises(TypeError, match="theta must be a number or a tensor, got 'x'"):
        law.fisher_information("x")
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got 7"):
        law.sample(torch.zeros(3), generator=7)
    with pytest.raises(TypeError, match="generator"):
        law.sample(torch.zeros(3))
    with pytest.raises(ValueError, match="shapes do not broadcast"):
        law.sample(torch.zeros(2), generator=generator)


def test_shapes_that_do_not_fit_are_listed_by_name() -> None:
    law, theta, two = rf.RectifiedGaussian(1.0, 2.0), torch.zeros(3), torch.ones(2)
    own = r"theta \[3\], sigma \[\], lower \[\], upper \[\]"
    calls = {
        rf"value \[2\], {own}": lambda: law.log_prob(two, theta),
        rf"{own}, shift \[2\], alpha \[\]": lambda: law.renyi_divergence(theta, two, 2.0),
        rf"{own}, shift \[2\]$": lambda: law.renyi_curve(theta, two, 2.0),
        rf"{own}, shift \[\], epsilon \[2\]": lambda: law.hockey_stick(theta, 1.0, two),
        rf"{own}, shift \[2\]": lambda: law.loss_moments(theta, two),
    }
    for message, call in calls.items():
        with pytest.raises(ValueError, match=message):
            call()
