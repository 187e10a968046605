"""Every wrong formula of the paper: as printed it misses the definition, corrected it meets it.

The numbering A1 to A16 is that of docs/errata.md; every number of that page is asserted here.
Definitions are integrals, sums or derivatives in multi-precision (oracle.py), never closed forms.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from mpmath import mp, mpf

import ringfence as rf
from tests import oracle
from tests.oracle import Family, Number, below, between, phi

# The point used throughout unless a test says otherwise.
THETA, SIGMA, BOUND, SHIFT, ALPHA = 0.3, 0.8, 1.0, 0.5, 3.0

FLOAT64 = 1e-12  # what the package is held to
EXACT = 1e-25  # two multi-precision values of one number
DIFFERENCES = 1e-20  # as EXACT, where oracle.fisher differentiates with a step of 1e-12


@pytest.fixture(autouse=True)
def forty_digits() -> Iterator[None]:
    """Differences with a step of 1e-12 cost digits: there must be enough to spare."""
    with mp.workdps(40):
        yield


def off(got: Number | torch.Tensor, truth: Number) -> float:
    """Relative distance from the truth."""
    value = mpf(float(got)) if isinstance(got, torch.Tensor) else mpf(got)
    return float(abs(value / mpf(truth) - 1))


def shown(value: Number | torch.Tensor, digits: str) -> bool:
    """Whether the value rounds to a number as the page prints it."""
    places = len(digits.partition(".")[2])
    got = mpf(float(value)) if isinstance(value, torch.Tensor) else mpf(value)
    return bool(abs(got - mpf(digits)) <= mpf(10) ** -places / 2)


def window(x: Number, sigma: Number = SIGMA, bound: Number = BOUND) -> mpf:
    """The paper's Delta(x) = Phi((a - x) / sigma) - Phi((-a - x) / sigma)."""
    x, sigma, bound = mpf(x), mpf(sigma), mpf(bound)
    return between((-bound - x) / sigma, (bound - x) / sigma)


def four_ways(family: Family, theta: float, size: float, alpha: float) -> dict[str, mpf]:
    """Both directions, both signs; forward is D(M(theta) || M(theta + shift))."""
    return {
        "forward up": oracle.renyi(family, theta, size, alpha),
        "forward down": oracle.renyi(family, theta, -size, alpha),
        "backward up": oracle.renyi(family, mpf(theta) + mpf(size), -size, alpha),
        "backward down": oracle.renyi(family, mpf(theta) - mpf(size), size, alpha),
    }


def checked_four_ways(
    family: Family, law: rf.Mechanism, theta: float, size: float, alpha: float
) -> dict[str, mpf]:
    """By definition, and the law agrees in each of them."""
    truth, got = four_ways(family, theta, size, alpha), computed_four_ways(law, theta, size, alpha)
    for way, value in truth.items():
        assert off(got[way], value) < FLOAT64, way
    return truth


def computed_four_ways(
    law: rf.Mechanism, theta: float | torch.Tensor, size: float, alpha: float
) -> dict[str, torch.Tensor]:
    return {
        "forward up": law.renyi_divergence(theta, size, alpha),
        "forward down": law.renyi_divergence(theta, -size, alpha),
        "backward up": law.renyi_divergence(theta + size, -size, alpha),
        "backward down": law.renyi_divergence(theta - size, size, alpha),
    }


# ------------------------------------------------------------------ A1: rectified information


def rectified_information(theta: Number, sigma: Number, low: Number, high: Number, *, printed: bool) -> mpf:
    """Equation 4; printed and corrected differ in the sign of the Phi terms."""
    sigma = mpf(sigma)
    left, right = (mpf(low) - mpf(theta)) / sigma, (mpf(high) - mpf(theta)) / sigma
    atoms = phi(left) ** 2 / below(left) + phi(-right) ** 2 / below(-right)
    inside = below(-right) - below(-left) if printed else below(right) - below(left)
    return (atoms + inside + left * phi(left) - right * phi(right)) / sigma**2


def test_a1_rectified_information_has_the_wrong_sign() -> None:
    point = (THETA, SIGMA, -BOUND, BOUND)
    truth = oracle.fisher(oracle.rectified(SIGMA, -BOUND, BOUND), THETA)
    printed = rectified_information(*point, printed=True)
    assert shown(truth, "1.487242887781")
    assert shown(printed, "-0.8788")
    assert off(rectified_information(*point, printed=False), truth) < DIFFERENCES
    assert off(rf.RectifiedGaussian(SIGMA, BOUND).fisher_information(THETA), truth) < FLOAT64


@pytest.mark.parametrize("theta", [0.0, 1.0, -2.5, 4.0])
def test_a1_printed_value_is_too_small_by_twice_the_mass_inside(theta: float) -> None:
    family = oracle.rectified(SIGMA, -BOUND, BOUND)
    truth = oracle.fisher(family, theta)
    printed = rectified_information(theta, SIGMA, -BOUND, BOUND, printed=True)
    inside = 1 - sum(family(theta).atoms.values())
    assert printed < 0.9 * truth
    assert off(truth - printed, 2 * inside / mpf(SIGMA) ** 2) < DIFFERENCES


# ------------------------------------------------------------------ A2: truncated Renyi divergence


def truncated_divergence(
    theta: Number, shift: Number, alpha: Number, *, printed_argument: bool, printed_exponent: bool
) -> mpf:
    """Equation 6 with either, both or none of its two slips put right."""
    theta, shift, alpha = mpf(theta), mpf(shift), mpf(alpha)
    argument = (1 - alpha) * (shift + theta) if printed_argument else theta + (1 - alpha) * shift
    exponent = 1 - alpha if printed_exponent else 1 / (alpha - 1)
    gaussian = alpha * shift**2 / (2 * mpf(SIGMA) ** 2)
    first = mp.log(window(theta + shift) / window(theta))
    return gaussian + first + exponent * mp.log(window(argument) / window(theta))


@pytest.mark.parametrize(
    ("printed_argument", "printed_exponent", "value"),
    [(True, True, "2.7481"), (False, True, "0.7002"), (True, False, "-0.2738")],
    ids=["as printed", "argument put right", "exponent put right"],
)
def test_a2_truncated_divergence_of_the_main_text(
    printed_argument: bool, printed_exponent: bool, value: str
) -> None:
    truth = oracle.renyi(oracle.truncated(SIGMA, -BOUND, BOUND), THETA, SHIFT, ALPHA)
    wrong = truncated_divergence(
        THETA, SHIFT, ALPHA, printed_argument=printed_argument, printed_exponent=printed_exponent
    )
    assert shown(truth, "0.238138")
    assert shown(wrong, value)
    assert off(wrong, truth) > 1.9


def test_a2_corrected_divergence_is_the_integral() -> None:
    family, law = oracle.truncated(SIGMA, -BOUND, BOUND), rf.TruncatedGaussian(SIGMA, BOUND)
    for theta, shift, alpha in [(THETA, SHIFT, ALPHA), (2.0, 0.5, 1.5), (-1.0, -0.3, 8.0)]:
        truth = oracle.renyi(family, theta, shift, alpha)
        right = truncated_divergence(theta, shift, alpha, printed_argument=False, printed_exponent=False)
        assert off(right, truth) < EXACT
        assert off(law.renyi_divergence(theta, shift, alpha), truth) < FLOAT64


def test_a2_printed_divergence_errs_both_ways() -> None:
    """Above the Gaussian's at one point, negative at another: no bound of either kind."""
    gaussian = rf.Gaussian(SIGMA).renyi_divergence(THETA, SHIFT, ALPHA)
    above = truncated_divergence(THETA, SHIFT, ALPHA, printed_argument=True, printed_exponent=True)
    assert shown(gaussian, "0.5859")
    assert above > 4 * float(gaussian)
    negative = truncated_divergence(2.0, 0.5, 1.5, printed_argument=True, printed_exponent=True)
    truth = oracle.renyi(oracle.truncated(SIGMA, -BOUND, BOUND), 2.0, 0.5, 1.5)
    assert shown(negative, "-1.5858")
    assert shown(truth, "0.0468")


# ------------------------------------------------------------------ A3, A4: eta and eta squared


def test_a3_definition_bounds_eta_squared_not_eta() -> None:
    """The paper's own consequence, variance >= 1 / eta^2, fails with the definition as printed."""
    sigma, theta = 2.0, 0.7
    family = oracle.gaussian(sigma)
    information = oracle.fisher(family, theta)
    assert off(information, mpf(1) / 4) < DIFFERENCES
    assert off(rf.Gaussian(sigma).fisher_information(theta), information) < FLOAT64

    law = family(theta)
    assert law.density is not None
    # The release itself estimates theta without bias, with this variance.
    variance = mp.quad(lambda x: (x - mpf(theta)) ** 2 * law.density(x), [-30, 0, 1, 30])
    assert off(variance, 4) < EXACT
    printed, right = information, mp.sqrt(information)
    assert 1 / printed**2 > 3.9 * variance  # "no estimator does better than 16": this one has 4
    assert off(1 / right**2, variance) < DIFFERENCES


def test_a3_eta_scales_with_the_jacobian_only_as_a_root() -> None:
    """Lemma 4.1 says eta = eta^B ||J||, which a bound on the matrix itself cannot give."""
    sigma, slope, data = 2.0, 3.0, 0.1
    family = oracle.gaussian(sigma)
    of_data = oracle.fisher(lambda record: family(mpf(slope) * mpf(record)), data)
    assert off(of_data, mpf(9) / 4) < DIFFERENCES
    eta = float(rf.Gaussian(sigma).fisher_information(slope * data).sqrt())
    assert off(slope * eta, mp.sqrt(of_data)) < FLOAT64
    assert off(slope * eta, of_data) > 0.3


@pytest.mark.parametrize("sigma", [0.5, 2.0, 3.0])
def test_a4_eta_of_the_gaussian_is_one_over_sigma(sigma: float) -> None:
    eta = mp.sqrt(oracle.fisher(oracle.gaussian(sigma), 0.0))
    assert off(eta, 1 / mpf(sigma)) < DIFFERENCES
    assert off(1 / mpf(sigma) ** 2, eta) >= 0.5
    assert off(rf.Gaussian(sigma).fisher_information(0.0).sqrt(), eta) < FLOAT64


# ------------------------------------------------------------------ A5: the Gaussian's divergence


def test_a5_gaussian_divergence_has_a_half() -> None:
    truth = oracle.renyi(oracle.gaussian(1.0), THETA, SHIFT, ALPHA)
    printed = mpf(ALPHA) * mpf(SHIFT) ** 2
    assert printed == mpf("0.75")
    assert shown(truth, "0.375")
    assert off(truth, mpf(ALPHA) * mpf(SHIFT) ** 2 / 2) < EXACT
    assert off(rf.Gaussian(1.0).renyi_divergence(THETA, SHIFT, ALPHA), truth) < FLOAT64


# ------------------------------------------------------------------ A6: information of an example


def printed_loss(eta: torch.Tensor, jacobian: torch.Tensor) -> float:
    """Algorithm 1: the squared norm of eta^T J."""
    return float((eta @ jacobian).square().sum())


def largest_information(eta: torch.Tensor, jacobian: torch.Tensor) -> float:
    """Proposition 5.1: the norm of J^T diag(eta^2) J."""
    return float(torch.linalg.matrix_norm(eta.unsqueeze(1) * jacobian, 2) ** 2)


def test_a6_algorithm_1_reports_no_information_where_there_is_some() -> None:
    """Two signs released at theta = (x, -x): the four outcomes, enumerated."""
    sigma = math.sqrt(2 / math.pi)  # makes eta = 1 at theta = 0
    sign = oracle.sign(sigma)

    def release(record: Number) -> oracle.Law:
        first, second = sign(mpf(record)).atoms, sign(-mpf(record)).atoms
        pairs = itertools.product(first.items(), second.items())
        return oracle.Law({2 * x + y: p * q for (x, p), (y, q) in pairs})

    truth = oracle.fisher(release, 0.0)
    eta = rf.StochasticSign(sigma).fisher_information(torch.zeros(2).double()).sqrt()
    jacobian = torch.tensor([[1.0], [-1.0]]).double()
    assert eta.tolist() == pytest.approx([1, 1], rel=FLOAT64, abs=0)
    assert printed_loss(eta, jacobian) < FLOAT64
    assert off(largest_information(eta, jacobian), 2) < FLOAT64
    assert off(truth, 2) < FLOAT64  # sigma was rounded to float64


def test_a6_algorithm_1_is_not_the_norm_of_the_proposition() -> None:
    """d = 50, p = 20. The truth is what the release tells along the worst direction."""
    generator = torch.Generator().manual_seed(6)
    theta = torch.randn(50, generator=generator, dtype=torch.float64)
    jacobian = torch.randn(50, 20, generator=generator, dtype=torch.float64)
    law = rf.RectifiedGaussian(1.0, 1.0)
    eta = law.fisher_information(theta).sqrt()
    right = largest_information(eta, jacobian)
    matrix = jacobian.T @ torch.diag(eta**2) @ jacobian
    assert right == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-1]), rel=FLOAT64, abs=0)
    assert printed_loss(eta, jacobian) > 5 * right

    directions = torch.linalg.eigh(matrix).eigenvectors.T
    step = 1e-6
    told = [
        float(law.renyi_divergence(theta, step * (jacobian @ direction), 2.0).sum()) / step**2
        for direction in directions
    ]
    assert max(told) == pytest.approx(right, rel=1e-5, abs=0)


# ------------------------------------------------------------------ A7: only upwards

ONE_SIDED = [
    # family, bound, theta, shift, alpha, worst, understated by: Algorithm 1, the text's maximum
    ("rectified", 0.5, 4.0, 1.0, 1.5, "backward down", 14.61, 14.61),
    ("rectified", 0.5, 4.0, 1.0, 2.0, "backward down", 9.58, 9.58),
    ("rectified", 0.5, -2.0, 0.1, 32.0, "forward down", 10.92, 1.0105),
    ("rectified", 0.5, -2.0, 1.0, 32.0, "forward down", 10.49, 1.364),
    ("truncated", 2.0, 4.0, 1.0, 2.0, "backward down", 1.748, 1.748),
    ("truncated", 2.0, 2.0, 0.1, 1.5, "backward down", 1.061, 1.061),
]


@pytest.mark.parametrize("row", ONE_SIDED, ids=lambda row: "-".join(map(str, row[:5])))
def test_a7_upward_shift_alone_understates(
    row: tuple[str, float, float, float, float, str, float, float],
) -> None:
    name, bound, theta, size, alpha, worst, algorithm, text = row
    family = getattr(oracle, name)(1.0, -bound, bound)
    law = {"rectified": rf.RectifiedGaussian, "truncated": rf.TruncatedGaussian}[name](1.0, bound)
    truth = checked_four_ways(family, law, theta, size, alpha)
    assert max(truth, key=lambda way: truth[way]) == worst
    upward = max(truth["forward up"], truth["backward up"])
    assert float(truth[worst] / truth["forward up"]) == pytest.approx(algorithm, rel=1e-3, abs=0)
    assert float(truth[worst] / upward) == pytest.approx(text, rel=1e-3, abs=0)


def test_a7_proposition_5_1_against_every_sign_pattern() -> None:
    """d = 3: the 8 patterns in both directions, and the sums that give their maximum."""
    thetas, bound, size, alpha = (-2.0, 1.0, 0.5), 0.5, 1.0, 8.0
    family, law = oracle.rectified(1.0, -bound, bound), rf.RectifiedGaussian(1.0, bound)
    each = [four_ways(family, theta, size, alpha) for theta in thetas]
    worst = max(
        sum(ways[f"{direction} {sign}"] for ways, sign in zip(each, signs, strict=True))
        for direction in ("forward", "backward")
        for signs in itertools.product(("up", "down"), repeat=3)
    )
    printed = sum(ways["forward up"] for ways in each)
    assert worst > 1.2 * printed

    got = [computed_four_ways(law, theta, size, alpha) for theta in thetas]
    totals = [
        sum(max(float(ways[f"{direction} {sign}"]) for sign in ("up", "down")) for ways in got)
        for direction in ("forward", "backward")
    ]
    assert off(max(totals), worst) < FLOAT64


# ------------------------------------------------------------------ A8: only one direction


@pytest.mark.parametrize(("bound", "alpha", "factor"), [(0.5, 1.5, 8.39), (0.5, 2.0, 9.58), (2.0, 2.0, 2.24)])
def test_a8_forward_divergence_understates_even_with_both_signs(
    bound: float, alpha: float, factor: float
) -> None:
    family, law = oracle.rectified(1.0, -bound, bound), rf.RectifiedGaussian(1.0, bound)
    truth = checked_four_ways(family, law, 4.0, 1.0, alpha)
    forward = max(truth["forward up"], truth["forward down"])
    assert float(max(truth.values()) / forward) == pytest.approx(factor, rel=1e-2, abs=0)


def test_a8_definition_2_3_does_not_give_per_instance_dp() -> None:
    """Records in [0, 4], a dataset at -5: Definition 2.3 holds, Definition 2.2 fails badly."""
    theta, size, alpha, delta = -5.0, 4.0, 32.0, 1e-5
    family, law = oracle.rectified(1.0, -1.0, 1.0), rf.RectifiedGaussian(1.0, 1.0)
    with mp.workdps(25):  # no differences here
        forward, backward = (
            oracle.renyi(family, theta, size, alpha),
            oracle.renyi(family, theta + size, -size, alpha),
        )
    assert shown(forward, "0.6931")
    smaller = torch.linspace(0.1, 3.9, 20).double()  # no other record costs more in this direction
    assert (law.renyi_divergence(theta, smaller, alpha) < float(forward)).all()
    epsilon = float(forward) + math.log(1 / delta) / (alpha - 1)
    assert shown(epsilon, "1.0645")
    with mp.workdps(25):
        bounded, truth = (
            oracle.hockey_stick(family, theta, size, epsilon),
            oracle.hockey_stick(family, theta + size, -size, epsilon),
        )
    # The direction that was bounded is fine, the other one is not.
    assert bounded <= delta
    assert shown(truth, "0.4999")
    assert off(law.hockey_stick(theta + size, -size, epsilon), truth) < FLOAT64
    assert shown(backward, "16.83")
    assert off(law.renyi_divergence(theta + size, -size, alpha), backward) < FLOAT64


# ------------------------------------------------------------------ A9: quantised information


def quantised_information(k: int, *, inner_cells: int, squared: bool) -> mpf:
    """The proof's display on [-1, 1] at theta = .3; printed with k inner cells and no square."""
    theta, low, high = mpf(THETA), mpf(-1), mpf(1)
    half = (high - low) / (2 * k)
    first, last = low + half - theta, theta - high + half
    total = phi(first) ** 2 / below(first) + phi(last) ** (2 if squared else 1) / below(last)
    for i in range(1, inner_cells + 1):
        left, right = low + (2 * i - 1) * half - theta, low + (2 * i + 1) * half - theta
        total += (phi(right) - phi(left)) ** 2 / between(left, right)
    return total


def quantised_limit() -> mpf:
    return oracle.fisher(oracle.rectified(1.0, -1.0, 1.0), THETA)


def test_a9_display_has_a_cell_too_many_and_lacks_a_square() -> None:
    k = 16
    truth = oracle.fisher(oracle.quantized(1.0, -1.0, 1.0, k + 1), THETA)
    assert shown(truth, "0.91575")
    assert shown(quantised_information(k, inner_cells=k, squared=False), "1.7732")
    assert shown(quantised_information(k, inner_cells=k, squared=True), "0.9348")
    assert off(quantised_information(k, inner_cells=k - 1, squared=False), truth) > 0.9
    assert off(quantised_information(k, inner_cells=k - 1, squared=True), truth) < DIFFERENCES
    law = rf.QuantizedGaussian(1.0, 1.0, levels=k + 1)
    assert off(law.fisher_information(THETA), truth) < FLOAT64


def test_a9_missing_square_does_not_vanish_in_the_limit() -> None:
    """The paper's next line has the square again; the display itself tends to something else."""
    display = quantised_information(4096, inner_cells=4096, squared=False)
    assert display > 1.9 * quantised_limit()


def test_a9_k_bits_mean_k_plus_one_levels() -> None:
    """The alphabet a, a + (b - a) / k, ..., b; k bits would number 2^k levels."""
    k = 4
    truth = oracle.fisher(oracle.quantized(1.0, -1.0, 1.0, k + 1), THETA)
    assert len(rf.QuantizedGaussian(1.0, 1.0, levels=k + 1).support.atoms) == k + 1
    for levels, same in [(k + 1, True), (2**k, False), (k, False)]:
        got = rf.QuantizedGaussian(1.0, 1.0, levels=levels).fisher_information(THETA)
        assert (off(got, truth) < FLOAT64) == same
        assert same or off(got, truth) > 0.01


def test_a9_derivative_named_p_k_is_that_of_p_k_plus_1() -> None:
    k = 16
    family = oracle.quantized(1.0, -1.0, 1.0, k + 1)
    masses = [lambda theta, i=i: list(family(theta).atoms.values())[i] for i in (k - 1, k)]
    of_p_k, of_the_last = (mp.diff(mass, mpf(THETA)) for mass in masses)
    printed = phi(mpf(THETA) - 1 + mpf(1) / k)
    assert off(printed, of_the_last) < EXACT
    assert off(printed, of_p_k) > 5


def test_a9_telescoped_sum_mixes_two_lengths() -> None:
    """With k - 1 cells the inner sum ends at k - 2; with k cells the last index is 2k - 1."""
    k = 16
    start, width = mpf(-1) - mpf(THETA), mpf(2)
    at = [start + (2 * i - 1) * width / (2 * k) for i in range(k + 2)]

    def cells(count: int) -> mpf:
        return sum(-at[i] * (phi(at[i + 1]) - phi(at[i])) for i in range(1, count + 1))

    def telescoped(inner: int, last: int) -> mpf:
        middle = sum(width / k * phi(at[i + 1]) for i in range(1, inner + 1))
        return at[1] * phi(at[1]) + middle - at[last] * phi(at[last + 1])

    printed = telescoped(k - 1, k - 1)
    assert off(telescoped(k - 2, k - 1), cells(k - 1)) < EXACT
    assert off(telescoped(k - 1, k), cells(k)) < EXACT
    assert off(printed, cells(k)) > 0.05
    assert off(printed, cells(k - 1)) > 0.05


def test_a9_limit_is_right_and_contradicts_equation_4() -> None:
    limit = quantised_limit()
    assert shown(limit, "0.926221")
    final_line = rectified_information(THETA, 1.0, -1.0, 1.0, printed=False)
    assert off(final_line, limit) < DIFFERENCES
    assert shown(rectified_information(THETA, 1.0, -1.0, 1.0, printed=True), "-0.3963")
    assert off(rf.RectifiedGaussian(1.0, 1.0).fisher_information(THETA), limit) < FLOAT64


def test_a9_convergence_is_of_order_one_over_k() -> None:
    """The outer cells reach half a step inwards, which loses a multiple of the step."""
    limit = quantised_limit()
    low, high = mpf(-1) - mpf(THETA), mpf(1) - mpf(THETA)
    lost = phi(low) * (phi(low) / below(low) + low) ** 2
    lost += phi(high) * (phi(high) / below(-high) - high) ** 2
    constant = lost * (high - low) / 2
    assert shown(constant, "0.147")
    scaled = []
    for k in (256, 512, 1024):
        law = rf.QuantizedGaussian(1.0, 1.0, levels=k + 1)
        scaled.append(k * (limit - mpf(float(law.fisher_information(THETA)))))
    assert off(scaled[-1], constant) < 3e-3
    assert scaled[0] > scaled[1] > scaled[2] > constant
    assert off(2 * scaled[-1] - scaled[-2], constant) < 1e-4  # the next term is of order 1 / k^2


# ------------------------------------------------------------------ A10: concavity

X, C = mpf("0.7"), mpf("0.9")


def concavity_remainder(x: mpf, c: mpf) -> mpf:
    """r_x(c + x), which the proof wants non-negative."""
    y = x + c
    squares = (mp.exp(-x * x) - mp.exp(-y * y)) ** 2
    cross = (mp.exp(-x * x) * x - mp.exp(-y * y) * y) * (mp.erf(x) - mp.erf(y))
    return squares + mp.sqrt(mp.pi) * cross


def concave_factor(x: mpf, c: mpf, root: mpf) -> mpf:
    """q(c) of f'(c) = exp(-(x + c)^2) q(c); the display has 1 for ``root``."""
    y = x + c
    fall = mp.exp(-x * x) - mp.exp(-y * y)
    tilt = mp.exp(-x * x) * x - mp.exp(-y * y) * y
    return root * (2 * y * y - 1) * (mp.erf(x) - mp.erf(y)) + 4 * fall * y - 2 * tilt


def test_a10_displayed_derivative_lost_the_root_of_pi() -> None:
    truth = mp.diff(lambda c: concavity_remainder(X, c), C)
    scale = mp.exp(-((X + C) ** 2))
    printed = scale * concave_factor(X, C, mpf(1))
    assert shown(truth, "0.04914")
    assert shown(printed, "0.1226")
    assert off(scale * concave_factor(X, C, mp.sqrt(mp.pi)), truth) < EXACT


@pytest.mark.parametrize("x", ["0.1", "0.7", "2"])
def test_a10_derivative_is_negative_in_the_limit(x: str) -> None:
    """Printed: sign +1. The lemma that is invoked asks for -1, which is what holds."""
    with mp.workdps(150):  # the derivative itself vanishes like exp(-(x + c)^2)
        for c in (6, 9, 14):
            assert mp.diff(lambda c: concavity_remainder(mpf(x), c), mpf(c)) < 0


def test_a10_zero_is_the_infimum_not_the_supremum() -> None:
    def limit(x: Number) -> mpf:
        return mp.exp(-(mpf(x) ** 2)) - mp.sqrt(mp.pi) * mpf(x) * mp.erfc(mpf(x))

    values = [limit(x) for x in (0, 0.5, 1, 2, 4, 6)]
    assert values[0] == 1
    assert all(left > right > 0 for left, right in itertools.pairwise(values))
    assert values[-1] < 1e-16
    # times exp(-x^2) it is what the remainder tends to
    assert off(mp.exp(-X * X) * limit(X), concavity_remainder(X, mpf(20))) < EXACT


def test_a10_second_derivatives_and_the_lemma_are_right() -> None:
    y, root = X + C, mp.sqrt(mp.pi)
    second = mp.diff(lambda c: concave_factor(X, c, root), C, 2)
    gap = mp.erf(X) - mp.erf(y)
    assert off(4 * root * gap - 8 * y * mp.exp(-y * y), second) < EXACT
    logarithm = mp.diff(lambda x: mp.log(mp.erf(x + C) - mp.erf(x)), X, 2)
    assert off(-4 * concavity_remainder(X, C) / (mp.pi * gap**2), logarithm) < EXACT
    # concave: 1 + (log Delta)'' is the truncated law's information, and stays below 1
    information = 1 + mp.diff(lambda theta: mp.log(window(theta, 1, 1)), mpf(THETA), 2)
    assert information < 1
    assert off(rf.TruncatedGaussian(1.0, 1.0).fisher_information(THETA), information) < FLOAT64


# ------------------------------------------------------------------ A11: monotonicity


def slope_of_log_window(x: Number) -> mpf:
    """The proof's g."""
    x = mpf(x)
    return (-phi(BOUND - x) + phi(-BOUND - x)) / window(x, 1, BOUND)


def test_a11_derivative_is_missing_on_the_last_logarithm() -> None:
    theta, x, alpha = mpf(THETA), mpf(SHIFT), mpf(ALPHA)
    family = oracle.truncated(1.0, -BOUND, BOUND)
    truth = mp.diff(lambda shift: oracle.renyi(family, THETA, shift, ALPHA), x)
    start = alpha * x + slope_of_log_window(theta + x)
    printed = start + mp.log(window(theta + (1 - alpha) * x, 1, BOUND)) / (alpha - 1)
    assert shown(truth, "0.4244")
    assert shown(printed, "0.6475")
    assert off(start - slope_of_log_window(theta + (1 - alpha) * x), truth) < DIFFERENCES
    law, step = rf.TruncatedGaussian(1.0, BOUND), 1e-4
    up, down = (law.renyi_divergence(THETA, SHIFT + s, ALPHA) for s in (step, -step))
    assert float(up - down) / (2 * step) == pytest.approx(float(truth), rel=1e-7, abs=0)


@pytest.mark.parametrize("theta", [0.0, 0.3, -2.0])
def test_a11_divergence_grows_with_the_size_of_the_shift(theta: float) -> None:
    """Printed: an increasing function of x. Left of zero it falls."""
    family, law = oracle.truncated(1.0, -BOUND, BOUND), rf.TruncatedGaussian(1.0, BOUND)
    shifts = [-2.0, -1.0, -0.5, -0.1]
    truth = [oracle.renyi(family, theta, shift, ALPHA) for shift in shifts]
    assert all(left > 1.5 * right for left, right in itertools.pairwise(truth))
    for shift, value in zip(shifts, truth, strict=True):
        assert off(law.renyi_divergence(theta, shift, ALPHA), value) < FLOAT64


# ------------------------------------------------------------------ A12: far from the support


def test_a12_truncated_law_far_away_is_not_uniform() -> None:
    """It crowds at the near end, like an exponential of rate (theta - a) / sigma^2."""
    theta = 30.0
    family = oracle.truncated(1.0, -1.0, 1.0)
    density = family(theta).density
    assert density is not None
    near_the_end = mp.quad(density, [mpf("0.9"), mpf("0.95"), 1])
    ratio = density(mpf(1)) / density(mpf(-1))
    assert shown(near_the_end, "0.945")  # uniform: 0.05
    assert off(ratio, mp.exp(60)) < EXACT  # uniform: 1
    assert ratio > 1e26
    assert off(1 - mp.exp(-mpf(29) / 10), near_the_end) < 1e-3

    law = rf.TruncatedGaussian(1.0, 1.0)
    draws = law.sample(torch.full((20_000,), theta).double(), generator=torch.Generator().manual_seed(12))
    assert float((draws > 0.9).double().mean()) == pytest.approx(float(near_the_end), abs=0.008)
    for where in (-1.0, 0.9, 1.0):
        assert off(law.log_prob(where, theta).exp(), density(mpf(where))) < FLOAT64


def test_a12_the_conclusion_stands() -> None:
    """Little is told about theta all the same: the shape of the crowd hardly depends on it."""
    truth = oracle.fisher(oracle.truncated(1.0, -1.0, 1.0), 30.0)
    assert shown(truth, "0.0012")
    assert off(rf.TruncatedGaussian(1.0, 1.0).fisher_information(30.0), truth) < FLOAT64


# ------------------------------------------------------------------ A13: bias and amplification


def test_a13_amplification_grows_with_the_bias() -> None:
    """sigma = .4, a = 1, alpha = 2, c = 1/900; the share of the Gaussian's cost that is left."""
    sigma, bound, alpha, size = 0.4, 1.0, 2.0, 1 / 900
    centres = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    family, law = oracle.rectified(sigma, -bound, bound), rf.RectifiedGaussian(sigma, bound)
    gaussian = oracle.renyi(oracle.gaussian(sigma), 0.0, size, alpha)
    left = []
    for centre in centres:
        truth = oracle.renyi(family, centre, size, alpha)
        assert off(law.renyi_divergence(centre, size, alpha), truth) < FLOAT64
        left.append(float(truth / gaussian))
    assert left == pytest.approx([0.9989, 0.9973, 0.9900, 0.9685, 0.9174, 0.8187], abs=6e-5)
    assert all(centred > biased for centred, biased in itertools.pairwise(left))


@pytest.mark.parametrize("bound", [0.1, 0.4, 1.0, 1.5])
def test_a13_holds_for_every_support_and_for_the_worst_case(bound: float) -> None:
    law = rf.RectifiedGaussian(0.4, bound)
    centres = torch.linspace(0, 2, 21).double()
    ways = computed_four_ways(law, centres, 1 / 900, 2.0).values()
    assert (torch.stack(list(ways)).amax(dim=0).diff() < 0).all()
    assert (law.fisher_information(centres).diff() < 0).all()


def test_a13_the_reverse_happens_only_for_a_large_order_and_shift() -> None:
    """alpha c / sigma = 32, far from mean estimation: there the cost does grow with |theta|."""
    family, law = oracle.rectified(1.0, -1.0, 1.0), rf.RectifiedGaussian(1.0, 1.0)
    for theta, value in [(0.0, "1.88"), (1.0, "2.70"), (2.0, "3.54"), (4.0, "5.19")]:
        truth = oracle.renyi(family, theta, 1.0, 32.0)
        assert shown(truth, value)
        assert off(law.renyi_divergence(theta, 1.0, 32.0), truth) < FLOAT64


# ------------------------------------------------------------------ A14: sensitivity of the mean


def test_a14_adding_a_record_moves_the_mean_by_up_to_two_over_n_plus_one() -> None:
    n = 900
    generator = torch.Generator().manual_seed(14)
    records = (1 + torch.randn(n, generator=generator, dtype=torch.float64)).clamp(-1, 1)
    for record in (-1.0, 0.25, 1.0):
        moved = torch.cat((records, torch.tensor([record]).double())).mean() - records.mean()
        assert float(moved) == pytest.approx(float(record - records.mean()) / (n + 1), rel=1e-9, abs=0)

    together = torch.ones(n).double()
    moved = torch.cat((together, torch.tensor([-1.0]).double())).mean() - together.mean()
    worst = abs(float(moved))
    assert worst == pytest.approx(2 / (n + 1), rel=FLOAT64, abs=0)
    assert shown(worst, "0.00222")
    assert shown(1 / n, "0.00111")

    law = rf.Gaussian(0.4)
    ratio = law.renyi_divergence(1.0, -worst, 2.0) / law.renyi_divergence(1.0, -1 / n, 2.0)
    assert shown(ratio, "3.99")


def test_a14_a_fixed_divisor_restores_one_over_n() -> None:
    n = 900
    for start in (-1.0, 0.3, 1.0):
        together = torch.full((n,), start).double()
        moves = [abs(float((together.sum() + z) / n - together.sum() / n)) for z in (-1, 0.2, 1)]
        assert max(moves) == pytest.approx(1 / n, rel=1e-9, abs=0)


# ------------------------------------------------------------------ A15: several dimensions


def truncated_density(theta: Number, x: Number) -> mpf:
    density = oracle.truncated(SIGMA, -BOUND, BOUND)(theta).density
    assert density is not None
    return density(mpf(x))


def joint(first: Number, second: Number) -> mpf:
    """Two independent coordinates at one outcome, as a function of (theta_1, theta_2)."""
    return truncated_density(first, 0.2) * truncated_density(second, -0.5)


def test_a15_gradient_and_hessian_are_those_of_the_logarithm() -> None:
    """Printed for p: no factor of the other coordinates, nothing off the diagonal."""
    at = (mpf(THETA), mpf("-0.4"))
    printed = mp.diff(lambda theta: truncated_density(theta, 0.2), at[0])
    assert off(printed, mp.diff(joint, at, (1, 0))) > 0.1
    assert abs(mp.diff(joint, at, (1, 1))) > 0.01

    def logarithm(first: Number, second: Number) -> mpf:
        return mp.log(joint(first, second))

    alone = mp.diff(lambda theta: mp.log(truncated_density(theta, 0.2)), at[0])
    assert off(mp.diff(logarithm, at, (1, 0)), alone) < DIFFERENCES
    assert abs(mp.diff(logarithm, at, (1, 1))) < DIFFERENCES


def test_a15_information_is_minus_the_mean_second_derivative_of_the_logarithm() -> None:
    theta = mpf(THETA)

    def second(function: Callable[[mpf], mpf], x: mpf) -> mpf:
        return mp.diff(lambda t: function(truncated_density(t, x)), theta, 2)

    def identity(value: mpf) -> mpf:
        return value

    truth = oracle.fisher(oracle.truncated(SIGMA, -BOUND, BOUND), THETA)
    mp.dps = 32  # the derivatives below choose their own steps
    ends = [-1, 0, 1]
    of_log = mp.quad(lambda x: truncated_density(theta, x) * second(mp.log, x), ends)
    assert shown(truth, "0.6393")
    assert off(-of_log, truth) < DIFFERENCES  # printed without the minus: a negative information
    assert off(rf.TruncatedGaussian(SIGMA, BOUND).fisher_information(THETA), truth) < FLOAT64
    # Of p itself: the integral is 0 since the mass is 1, the mean is something else again.
    assert abs(mp.quad(lambda x: second(identity, x), ends)) < EXACT
    of_p = mp.quad(lambda x: truncated_density(theta, x) * second(identity, x), ends)
    assert shown(-of_p, "0.0710")


def test_a15_sign_of_the_quadratic_term() -> None:
    """theta = f(D) curved: -(log p)'' = -f'^2 (log p)_2 - f'' (log p)_1 at any outcome."""
    data, x = mpf("0.6"), 0.2
    inner = mp.sin  # any smooth function of one record
    slope, curvature, theta = mp.cos(data), -mp.sin(data), mp.sin(data)
    truth = -mp.diff(lambda d: mp.log(truncated_density(inner(d), x)), data, 2)
    first, second = (mp.diff(lambda t: mp.log(truncated_density(t, x)), theta, order) for order in (1, 2))
    printed = slope**2 * second - curvature * first
    assert off(printed, truth) > 0.5
    assert off(-(slope**2) * second - curvature * first, truth) < DIFFERENCES


# ------------------------------------------------------------------ A16: slips of notation


def rectified_divergence(theta: Number, shift: Number, alpha: Number) -> mpf:
    """Equation 5, which is right with sigma the standard deviation."""
    theta, sigma, bound, shift, alpha = map(mpf, (theta, SIGMA, BOUND, shift, alpha))
    middle = mp.exp((alpha**2 - alpha) * shift**2 / (2 * sigma**2))
    total = middle * window(theta + (1 - alpha) * shift)
    for end in (-bound - theta, theta - bound):
        moved = end - shift if end == -bound - theta else end + shift
        total += below(end / sigma) ** alpha * below(moved / sigma) ** (1 - alpha)
    return mp.log(total) / (alpha - 1)


def test_a16_lemma_4_4_writes_sigma_where_the_variance_belongs() -> None:
    """N^R(theta, sigma, B) read by Definition 3.1 is a law of variance sigma."""
    truth = oracle.renyi(oracle.rectified(SIGMA, -BOUND, BOUND), THETA, SHIFT, ALPHA)
    literal = oracle.renyi(oracle.rectified(mp.sqrt(mpf(SIGMA)), -BOUND, BOUND), THETA, SHIFT, ALPHA)
    assert shown(truth, "0.5526")
    assert shown(literal, "0.4374")
    assert off(rectified_divergence(THETA, SHIFT, ALPHA), truth) < EXACT
    law = rf.RectifiedGaussian(SIGMA, BOUND)
    assert off(law.renyi_divergence(THETA, SHIFT, ALPHA), truth) < FLOAT64


def test_a16_truncated_section_maximises_over_the_rectified_law() -> None:
    """The two maxima over 0 < x <= c differ; both are at x = c."""
    sizes = [0.1, 0.3, SHIFT]
    rectified, truncated = (
        [oracle.renyi(family(SIGMA, -BOUND, BOUND), THETA, size, ALPHA) for size in sizes]
        for family in (oracle.rectified, oracle.truncated)
    )
    assert max(rectified) == rectified[-1]
    assert max(truncated) == truncated[-1]
    assert max(rectified) > 2.3 * max(truncated)
    law = rf.TruncatedGaussian(SIGMA, BOUND)
    assert off(law.renyi_divergence(THETA, SHIFT, ALPHA), max(truncated)) < FLOAT64


def test_a16_mixture_lacks_a_law() -> None:
    """(1 - q) mu_0 + q c e_1 has mass 1 - q + 2 q c on [-1, 1]; with mu_(c e_1) it has mass 1."""
    q, c = mpf("0.25"), mpf("0.1")
    start, moved = (oracle.truncated(1.0, -1.0, 1.0)(theta).density for theta in (0, c))
    assert start is not None
    assert moved is not None
    printed = mp.quad(lambda x: (1 - q) * start(x) + q * c, [-1, 0, 1])
    right = mp.quad(lambda x: (1 - q) * start(x) + q * moved(x), [-1, 0, 1])
    assert off(printed, "0.8") < EXACT
    assert off(right, 1) < EXACT


# ------------------------------------------------------------------ what is right


def test_right_rectified_density_on_its_support_only() -> None:
    """The product of powers in Definition 3.1 is an empty product, 1, outside [a, b]."""

    def printed(x: float) -> mpf:
        inside, at_low, at_high = -BOUND < x < BOUND, x == -BOUND, x == BOUND
        factors = (
            (phi((mpf(x) - mpf(THETA)) / mpf(SIGMA)) / mpf(SIGMA), inside),
            (below((-1 - mpf(THETA)) / mpf(SIGMA)), at_low),
            (below((mpf(THETA) - 1) / mpf(SIGMA)), at_high),
        )
        return mp.fprod(base ** int(power) for base, power in factors)

    law = rf.RectifiedGaussian(SIGMA, BOUND)
    for x in (-1.0, -0.2, 0.9, 1.0):
        assert off(law.log_prob(x, THETA).exp(), printed(x)) < FLOAT64
    assert printed(1.5) == 1
    assert float(law.log_prob(1.5, THETA).exp()) == 0


def test_right_truncated_information() -> None:
    """Equation 3."""
    left, right = ((mpf(end) - mpf(THETA)) / mpf(SIGMA) for end in (-BOUND, BOUND))
    mass = below(right) - below(left)
    mean = (phi(right) - phi(left)) / mass
    printed = (1 - mean**2 + (left * phi(left) - right * phi(right)) / mass) / mpf(SIGMA) ** 2
    truth = oracle.fisher(oracle.truncated(SIGMA, -BOUND, BOUND), THETA)
    assert off(printed, truth) < DIFFERENCES
    assert off(rf.TruncatedGaussian(SIGMA, BOUND).fisher_information(THETA), truth) < FLOAT64


def test_right_rectified_divergence() -> None:
    """Equation 5, at several points and shifts of either sign."""
    family, law = oracle.rectified(SIGMA, -BOUND, BOUND), rf.RectifiedGaussian(SIGMA, BOUND)
    for theta, shift, alpha in [(THETA, SHIFT, ALPHA), (1.5, -0.4, 2.0), (-1.0, 0.2, 7.5)]:
        truth = oracle.renyi(family, theta, shift, alpha)
        assert off(rectified_divergence(theta, shift, alpha), truth) < EXACT
        assert off(law.renyi_divergence(theta, shift, alpha), truth) < FLOAT64


def test_right_sign_information() -> None:
    t = mpf(THETA) / mpf(SIGMA)
    printed = phi(t) / (mpf(SIGMA) * mp.sqrt(below(t) * below(-t)))
    truth = oracle.fisher(oracle.sign(SIGMA), THETA)
    assert off(printed**2, truth) < DIFFERENCES
    assert off(rf.StochasticSign(SIGMA).fisher_information(THETA), truth) < FLOAT64
