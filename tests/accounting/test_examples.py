"""Single examples: bounds of their sums, and what an account of them promises."""

import math

import dp_accounting
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting import examples
from ringfence.accounting.conversion import DEFAULT_ORDERS, epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.equivalent_information import equivalent_information, half_octave_information
from ringfence.accounting.examples import (
    VARIANTS,
    ExampleAccountant,
    ExampleSums,
    PolynomialSums,
    TabulatedSums,
    _fit_above,
    hat_moments,
    informations,
    upper_polynomials,
)
from ringfence.accounting.guarantee import EpsilonKind
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW
from tests.accounting.drawing import draw
from tests.accounting.evaluation import EvaluatedSums
from tests.tensors import float64

ORDERS = [1.1, 2.0, 5.0, 32.0, 256.0, 2048.0]
LAWS = {
    "gaussian": rf.Gaussian(1.0),
    "truncated": rf.TruncatedGaussian(1.0, 2.0),
    "rectified": rf.RectifiedGaussian(1.0, 2.0),
    "sign": rf.StochasticSign(1.0),
    "quantized": rf.QuantizedGaussian(1.0, 2.0, levels=5),
}


def draws(rows: int, columns: int, scale: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """theta ~ N(0, 1), gradients uniform within +-scale; the first two rows all at its ends."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(columns, generator=generator, dtype=torch.float64)
    gradients = scale * (2 * torch.rand(rows, columns, generator=generator, dtype=torch.float64) - 1)
    gradients[0] = scale * gradients[0].sign()
    gradients[1] = scale * theta.sign()  # removing it moves every coordinate towards the centre
    return theta, gradients


def both(law: rf.Mechanism, theta: Tensor, gradients: Tensor, orders: object = ORDERS) -> list[Tensor]:
    """The bound and the exact sums, the latter without the margin for their rounding."""
    account = ExampleAccountant(law, orders)  # type: ignore[arg-type]
    account.step(theta, gradients)
    exact, _ = EvaluatedSums(law, theta, account.orders).charge(gradients)
    return [account.sums, exact / (1 + 1e-11)]


KINDS: tuple[EpsilonKind, ...] = ("ex_post", "per_instance")
# one of each kind of sums
every_kind = pytest.mark.parametrize(
    "law", [LAWS[name] for name in ("gaussian", "truncated", "sign")], ids=repr
)
# centred, wide, narrow, off-centre with another sigma, one-sided
TRUNCATED = [
    (1.0, (-2.0, 2.0)),
    (1.0, (-5.0, 5.0)),
    (1.0, (-0.1, 0.1)),
    (0.5, (-0.2, 1.5)),
    (2.0, (-1.0, math.inf)),
]


@pytest.mark.parametrize(("sigma", "bound"), TRUNCATED)
def test_truncated_is_within_one_percent_and_never_below(sigma: float, bound: tuple[float, float]) -> None:
    theta, gradients = draws(2, 30, 1e-3)
    law = rf.TruncatedGaussian(sigma, bound)
    for spread, orders in ((0.7, DEFAULT_ORDERS[::6]), (3.0, ORDERS)):
        bounds, exact = both(law, spread * sigma * theta, sigma * gradients, orders)
        assert (bounds >= exact).all()
        assert (bounds <= 1.01 * exact).all()


@pytest.mark.parametrize(("sigma", "bound"), TRUNCATED)
def test_the_polynomials_are_above_the_information(sigma: float, bound: tuple[float, float]) -> None:
    law = rf.TruncatedGaussian(sigma, bound)
    theta = sigma * torch.cat((torch.linspace(-9, 9, 73), float64([-300.0, 1e4]))).double()
    coefficients, condition = upper_polynomials(law, theta)
    y = torch.linspace(-2.05, 2.05, 501, dtype=torch.float64).unsqueeze(1)
    polynomial = sum(coefficients[k] * y**k for k in range(len(coefficients)))
    information = law.fisher_information(theta + sigma * y) * sigma**2
    assert (polynomial >= information).all()
    assert (polynomial <= 1.01 * information).all()
    assert condition < 50


def test_hat_moments_are_those_of_the_triangular_law() -> None:
    from numpy.polynomial.legendre import leggauss

    nodes, weights = (float64(part) for part in leggauss(12))
    for alpha in (1.3, 2.0, 7.5):
        for variant, corners in (("add_forward", (1 - alpha, 0.0, 1.0)), ("add_backward", (0.0, 1.0, alpha))):
            low, mode, high = corners
            rising, falling = (low + (nodes + 1) / 2 * (mode - low), mode + (nodes + 1) / 2 * (high - mode))
            up = (rising - low) / (mode - low) * 2 / (high - low) * weights * (mode - low) / 2
            down = (high - falling) / (high - mode) * 2 / (high - low) * weights * (high - mode) / 2
            truth = [float((up * rising**k).sum() + (down * falling**k).sum()) for k in range(8)]
            got = hat_moments(float64([alpha]), variant).squeeze(1)
            assert got.tolist() == pytest.approx(truth, rel=1e-12, abs=1e-13)
            mirrored = hat_moments(float64([alpha]), variant.replace("add", "remove")).squeeze(1)
            assert mirrored.tolist() == pytest.approx([(-1) ** k * value for k, value in enumerate(truth)])


def test_orders_out_of_reach_get_what_holds_for_every_theta() -> None:
    law, gradients = rf.TruncatedGaussian(1.0, 2.0), float64([[0.5, 0.01], [0.01, -0.01]])
    theta = float64([1.0, -3.0])
    bounds, exact = both(law, theta, gradients, [4.0, 5.0, 64.0, 256.0])
    assert (bounds >= exact).all()
    ceiling = 0.5 * gradients.square().sum(dim=1) * law.information_bound()
    assert bounds[0, 0, 1:].tolist() == pytest.approx((ceiling[0] * float64([5.0, 64.0, 256.0])).tolist())
    assert (bounds[:, 0, 0] <= 1.01 * exact[:, 0, 0]).all()
    # an example with small entries keeps its own reach, whatever the others are
    assert (bounds[:, 1, :3] <= 1.01 * exact[:, 1, :3]).all()


def test_a_rough_information_is_refused() -> None:
    class Rough(rf.Gaussian):
        same_everywhere = False

        def _fisher_information(self, theta: Tensor, sigma: Tensor) -> Tensor:  # type: ignore[override]
            return torch.where(theta > 0.3, 1.0, 1e-6)

    with pytest.raises(FloatingPointError, match="not smooth enough"):
        ExampleAccountant(Rough(1.0)).step(torch.zeros(2), torch.ones(1, 2))


def test_parameters_may_differ_by_coordinate() -> None:
    theta, gradients = draws(3, 40, 1e-3)
    sigma, bound = torch.linspace(0.5, 2.0, 40).double(), torch.linspace(0.3, 4.0, 40).double()
    bounds, exact = both(rf.TruncatedGaussian(sigma, bound), theta, gradients * sigma)
    assert (bounds >= exact).all()
    assert (bounds <= 1.01 * exact).all()


def test_rounding_is_charged_as_far_as_the_polynomials_amplify_it(monkeypatch: pytest.MonkeyPatch) -> None:
    law, theta, orders = rf.TruncatedGaussian(1.0, 1.0), float64([0.3, -0.2]), float64([2.0, 8.0])
    block = float64([[1e-3, 2e-3]])
    plain, _ = PolynomialSums(law, theta, orders).charge(block)
    coefficients, condition = upper_polynomials(law, theta)
    more = 1e9
    monkeypatch.setattr(examples, "upper_polynomials", lambda *_: (coefficients, more))
    raised, _ = PolynomialSums(law, theta, orders).charge(block)
    each = (2 + 64) * 2.0**-52
    torch.testing.assert_close(raised, plain * (1 + (more - condition) * each), rtol=1e-9, atol=0)


def test_the_condition_is_what_the_terms_add_up_to_against_their_sum() -> None:
    theta = float64([0.0, 0.7, -3.0])
    coefficients, condition = upper_polynomials(rf.TruncatedGaussian(1.0, 1.0), theta)
    degrees = torch.arange(8).double()
    y = torch.linspace(-2.05, 2.05, 2001).double().unsqueeze(1)
    least = ((y**degrees) @ coefficients).amin(dim=0)
    terms = (coefficients.abs() * 2.05 ** degrees.unsqueeze(1)).sum(dim=0)
    assert float((terms / least).max()) <= condition <= 1.5 * float((terms / least).max())


@pytest.mark.parametrize("curvature", [0.0, 0.1])
def test_the_fit_is_raised_by_what_may_happen_between_two_points(curvature: float) -> None:
    """I at most its chord + h^2 M / 4, M itself; the fit at least its chord - h^2 max|Q''| / 8."""
    y = torch.linspace(-1, 1, 541).double() * (2.05 + 1 / 16)
    information = (0.5 + curvature * y**2).unsqueeze(0)
    fitted, lowest = _fit_above(information, rf.TruncatedGaussian(1.0, 1.0))
    square = float(y[1] - y[0]) ** 2
    around = torch.stack([information[0, i - 1 : i + 2].max() for i in range(1, 540)])
    most = information[0, 1:-1] + square / 4 * around / (1 - square / 4)
    factor = float((most / (information[0, 1:-1] - square / 8 * 2 * curvature)).max())
    assert factor > 1 + 1e-5
    expected = [factor * 0.5, 0.0, factor * curvature, *[0.0] * 5]
    assert fitted[0].tolist() == pytest.approx(expected, rel=0, abs=1e-8)
    assert float(fitted[0, 0]) == pytest.approx(expected[0], rel=1e-8, abs=0)
    assert float(lowest) == pytest.approx(factor * (0.5 - square / 4 * curvature), rel=1e-7, abs=0)


TABULATED = {
    **{name: LAWS[name] for name in ("rectified", "sign", "quantized")},
    "narrow": rf.RectifiedGaussian(0.5, (-0.05, 0.1)),
}


@pytest.mark.parametrize("law", TABULATED.values(), ids=TABULATED.keys())
@pytest.mark.parametrize(("scale", "above"), [(1e-3, 1.03), (1e-2, 1.25)])
def test_tabulated_laws_are_never_below(law: rf.Mechanism, scale: float, above: float) -> None:
    sigma = float(law.sigma)
    theta, gradients = draws(4, 40, scale * sigma)
    theta = theta * sigma
    orders = [1.5, 4.0, 16.0, 64.0, 256.0, 2048.0]
    bounds, exact = both(law, theta, gradients, orders)
    assert (bounds >= exact).all()
    # how loose where alpha s is 0.06 and 0.6; signs that cancel in the exact sums do not in the bound
    worst = [sums[..., orders.index(64.0)].amax(dim=0) for sums in (bounds, exact)]
    assert (worst[0] <= above * worst[1]).all()


@pytest.mark.parametrize("law", TABULATED.values(), ids=TABULATED.keys())
def test_every_shift_of_a_half_octave_is_charged_enough(law: rf.Mechanism) -> None:
    orders, sigma = float64([1.2, 2.0, 7.0, 90.0, 2048.0]), float(law.sigma)
    generator = torch.Generator().manual_seed(3)
    theta = sigma * float64([0.01, 1.77, -1.5, 7.9])
    release = TabulatedSums(law, theta, orders, informations(orders))
    for number in (-28, -7, 2):
        own = release._charges(number).T.unsqueeze(0)
        up_to = release._charges(number, and_below=True).T.unsqueeze(0)
        fractions = torch.cat((torch.rand(7, generator=generator), torch.tensor([1.0, 1e-3]))).double()
        for charges, shares in ((own, 0.5 ** (fractions / 2)), (up_to, fractions)):
            shift = (shares * 2.0 ** (number / 2)).view(-1, 1, 1)
            moves = [move * shift.squeeze(1) * sigma for move in (1, -1)]
            forward = [law.renyi_curve(theta, move, orders) for move in moves]
            backward = [law.renyi_curve(theta + move, -move, orders) for move in moves]
            truth = torch.stack(forward + backward).amax(dim=0).transpose(0, 1) / shift**2
            bound = torch.minimum(charges, 0.5 * orders.unsqueeze(1))  # the Gaussian's is proved
            assert (bound * (1 + 1e-11) + 1e-280 >= truth).all(), number


def test_tables_for_few_settings_and_the_gaussian_beyond() -> None:
    theta, gradients = draws(2, 80, 1e-3)
    few = torch.tensor([1.0, 2.0]).repeat(40).double()
    bounds, exact = both(rf.RectifiedGaussian(1.0, few), theta, gradients, [2.0, 64.0])
    assert (bounds >= exact).all()
    assert (bounds <= 1.02 * exact).all()
    many = torch.linspace(1, 2, 80).double()
    bounds, exact = both(rf.RectifiedGaussian(1.0, many), theta, gradients, [2.0, 64.0])
    assert (bounds >= exact).all()
    gaussian = 0.5 * gradients.square().sum(dim=1, keepdim=True) * float64([2.0, 64.0])
    assert bounds[2].flatten().tolist() == pytest.approx(gaussian.flatten().tolist())


def test_shifts_above_the_tables_get_the_gaussian() -> None:
    bounds, exact = both(LAWS["sign"], float64([0.3]), float64([[2.0], [2.5], [40.0]]), [2.0, 8.0])
    assert (bounds >= exact).all()
    gaussian = 0.5 * float64([[2.5], [40.0]]).square() * float64([2.0, 8.0])
    assert bounds[0, 1:].flatten().tolist() == pytest.approx(gaussian.flatten().tolist())


@pytest.mark.parametrize("largest", [0.5, 0.75, 0.5**0.5, 1.0, 2.0**-6])
def test_a_half_octave_ends_with_its_longest_shift(largest: float) -> None:
    """A shift of 2^(k / 2) belongs to the half octave below it, any other to its own: no jump just below."""
    law, orders = LAWS["rectified"], [2.0]
    theta = float64([7.0])
    below, at = (both(law, theta, float64([[s]]), orders)[0] for s in (largest * (1 - 1e-13), largest))
    torch.testing.assert_close(below, at, rtol=1e-11, atol=0)
    assert (at < 0.45 * largest**2 * float64(orders)).all()  # what the table says, not the Gaussian


def test_each_shift_is_charged_its_half_octave_and_rounding_on_top() -> None:
    """Largest 0.25 = 2^-2: half octaves -4 and -5 one by one, and all below them together."""
    law, orders = LAWS["sign"], float64([2.0, 64.0])
    shifts = [0.25, 0.2, 0.17, 0.12, 0.08, 0.06, 1e-3]
    numbers = [-4, -4, -5, None, None, None, None]
    theta = torch.linspace(2.0, 3.0, len(shifts)).double()
    tables = informations(orders)
    sums, _ = TabulatedSums(law, theta, orders, tables).charge(float64([shifts]))
    expected = torch.zeros(2).double()
    for shift, number, place in zip(shifts, numbers, theta, strict=True):
        information = half_octave_information if number else equivalent_information
        far = float64(2.0 ** ((-6 if number is None else number) / 2) * (1 + 1e-12))
        expected += 0.5 * orders * shift**2 * information(law, place[None], far, orders).amax(dim=(0, 2))
    above = sums[0, 0] / expected - 1
    assert bool((above > 65 * 2.0**-52).all())
    assert bool((above < 3e-3).all())  # chords between nodes 1/16 sigma apart


class Unbounded(ExampleSums):
    """Knows nothing but what holds for every theta."""

    def _bounds(self, block: Tensor, *_: Tensor) -> Tensor:
        return torch.full((4, len(block), len(self.orders)), torch.inf, dtype=torch.float64)


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("name", ["truncated", "gaussian"])
def test_the_cap_is_the_law_at_its_worst(sigma: float, name: str) -> None:
    """(alpha / 2) sum_j g_j^2 I(0), with rounding charged: 2^-52 for each of 5 products and 64 more."""
    law = rf.TruncatedGaussian(sigma, sigma) if name == "truncated" else rf.Gaussian(sigma)
    theta, block, orders = draw(5), draw(2, 5, seed=1), float64([2.0, 8.0])
    sums, zcdps = Unbounded(law, theta, orders).charge(block)
    squares = 0.5 * block.square().sum(dim=1, keepdim=True)
    worst = float(law.fisher_information(0.0))
    expected = squares * worst * orders * (1 + ROUNDING + 69 * 2.0**-52)
    torch.testing.assert_close(sums, expected.expand(4, 2, 2), rtol=1e-14, atol=0)
    torch.testing.assert_close(zcdps, squares * float64([sigma**-2, worst]), rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "kind", [EvaluatedSums, lambda *release: TabulatedSums(*release, informations(release[2]))]
)
def test_what_underflows_is_charged_for_every_coordinate(kind: type[EvaluatedSums]) -> None:
    """An example that contributes nothing loses nothing."""
    theta = torch.full((3,), 50.0).double()
    release = kind(rf.StochasticSign(1.0), theta, float64([2.0, 8.0]))
    sums, _ = release.charge(float64([[1e-3, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert (sums[:, 0] >= 3 * UNDERFLOW).all()
    assert (sums[:, 0] < 3.01 * UNDERFLOW).all()  # a table charges its own
    assert (sums[:, 1] == 0).all()


def test_steps_add_up_and_the_mechanism_may_change() -> None:
    theta, gradients = draws(3, 20, 1e-3)
    account, first, second = (ExampleAccountant(LAWS["truncated"], [2.0, 64.0]) for _ in range(3))
    account.step(theta, gradients)
    account.step(theta, gradients, mechanism=LAWS["sign"], count=4)
    first.step(theta, gradients)
    second.step(theta, gradients, mechanism=LAWS["sign"])
    assert (account.steps, account.examples) == (5, 3)
    assert torch.equal(account.sums, first.sums + 4 * second.sums)
    torch.testing.assert_close(account._zcdps, first._zcdps + 4 * second._zcdps, rtol=1e-14, atol=0)


@every_kind
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


@pytest.mark.parametrize("law", [*LAWS.values(), rf.Laplace(1.0)], ids=repr)
def test_an_example_that_never_contributed_costs_nothing(law: rf.Mechanism) -> None:
    account = ExampleAccountant(law, ORDERS)
    account.step(float64([0.5, -9.0]), float64([[0.0, 0.0], [0.0, 1e-200], [1e-3, 0.0]]))
    for kind in KINDS:
        assert account.epsilons(1e-5, kind).tolist()[0] == 0
    # one that did, however little, keeps the term that ends a tail
    assert account.epsilons(1e-5).tolist()[1] > math.log(len(ORDERS) / 1e-5) / 2047


@every_kind
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
    if law.exponential_family:
        assert float(own.epsilons(1e-5).max()) > 1  # ex-post bounds another thing, and stays


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
    with pytest.raises(ValueError, match=r"orders must be > 1, got 0\.5"):
        ExampleAccountant(LAWS["sign"], [2.0, 0.5])
    account = ExampleAccountant(LAWS["sign"], [2.0])
    with pytest.raises(ValueError, match=r"kind must be one of \['ex_post', 'per_instance'\], got 'rdp'"):
        account.epsilons(1e-5, kind="rdp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        account.step(torch.zeros(3), torch.ones(2, 3), count=0)
    with pytest.raises(TypeError, match=r"gradients must be a tensor or an iterable of tensors, got 7"):
        account.step(torch.zeros(3), 7)  # type: ignore[arg-type]
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
    exact, _ = EvaluatedSums(law, theta, float64([256.0])).charge(gradient)
    assert exact.flatten().tolist() == pytest.approx(values, rel=1.1e-11, abs=0)
    state = {name: value for name, value in account.state_dict().items() if name != "zcdps"}  # of version 0.6
    assert torch.equal(ExampleAccountant.from_state_dict({**state, "version": 1}).sums, account.sums)


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
