"""Secure releases: the exact law, the same points for every theta, and an attack that fails.

The stream of random bits is a seeded one wherever a test measures frequencies, and by chosen bits
where it checks single draws. Masses come from multi-precision or scipy, not from the package.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from statistics import NormalDist

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from scipy import stats
from torch import Tensor

import ringfence as rf
from ringfence.mechanisms import secure
from ringfence.mechanisms.secure import Conditioned, Levels, Normal, Points, SecureRelease, Steps, largest
from ringfence.noise import CipherDraws, GeneratorDraws, Noise
from ringfence.numerics import exact_normal
from tests import oracle
from tests.mechanisms.test_samplers import ACCEPT, REJECT, continuous, discrete, truncated_cdf
from tests.tensors import float64, seeded_releases

LAWS = {
    "gaussian": rf.Gaussian(1.0),
    "rectified": rf.RectifiedGaussian(1.0, (-1.5, 2.0)),
    "truncated": rf.TruncatedGaussian(1.0, (-1.5, 2.0)),
    "sign": rf.StochasticSign(1.0),
    "quantized": rf.QuantizedGaussian(1.0, (-1.5, 2.0), levels=8),
}


@pytest.fixture
def stream() -> Iterator[None]:
    """Every release from a seed of its own."""
    with seeded_releases():
        yield


def everywhere(theta: float, count: int) -> Tensor:
    return torch.full((count,), theta, dtype=torch.float64)


def below(x: float, theta: float, sigma: float, low: float = -np.inf, high: float = np.inf) -> mpf:
    """P(X <= x) by definition, in 150 digits."""
    with mp.workdps(150):

        def mass(left: mpf, right: mpf) -> mpf:
            if right <= 0:
                left, right = -right, -left
            return (mp.erfc(left / mp.sqrt(2)) - mp.erfc(right / mp.sqrt(2))) / 2

        low, x, high = ((mpf(end) - mpf(theta)) / mpf(sigma) for end in (low, x, high))
        return mass(low, x) / mass(low, high)


def masses(law: rf.Mechanism, theta: float, step: float | None) -> dict[float, mpf]:
    """Point to mass: cells of the released law, from the definition."""
    sigma = float(law.sigma)
    if law.support.interval is None:
        points = [float(atom) for atom in law.support.atoms]
        cuts = [(one + next_one) / 2 for one, next_one in pairwise(points)]
        ends = (-np.inf, np.inf)
    else:
        low, high = (float(end) for end in law.support.interval)
        reach = (low if np.isfinite(low) else theta - 12, high if np.isfinite(high) else theta + 12)
        numbers = range(round(reach[0] / step), round(reach[1] / step) + 1)
        points = [step * number for number in numbers]
        points[0], points[-1] = (
            end if np.isfinite(end) else point
            for end, point in zip((low, high), (points[0], points[-1]), strict=True)
        )
        cuts = [step * (number + 0.5) for number in numbers[:-1]]
        ends = (low, high) if law.name == "truncated" else (-np.inf, np.inf)
    shares = [mpf(0), *(below(cut, theta, sigma, *ends) for cut in cuts), mpf(1)]
    with mp.workdps(150):
        return {point: shares[i + 1] - shares[i] for i, point in enumerate(points)}


# ------------------------------------------------------------------ a single draw, bit by bit

DRAWS = [
    ("gaussian", 0.3, -np.inf, np.inf, [-9000, -3000, 0, 1, 5000, 20000]),
    ("gaussian", 1e9, -np.inf, np.inf, [1024 * 10**9 - 7, 1024 * 10**9 + 4000]),
    ("rectified", 0.3, -1.1, 2.0, [-1127, -1126, -5, 2047]),
    ("rectified", -9.0, -1.1, 2.0, [-1127, -1126]),
    ("truncated", 0.3, -1.1, 2.0, [-1126, -5, 2047]),
    ("truncated", 50.0, -1.0, 1.0, [0, 1000, 1023]),
    ("truncated", -50.0, -1.0, 1.0, [-1024, -1000, 0]),
    ("truncated", 5000.0, -1.0, 1.0, [1023, 1022]),
    ("truncated", 3.0, -np.inf, 1.0, [-3000, 1000]),
]


@pytest.mark.parametrize(("name", "theta", "low", "high", "numbers"), DRAWS)
def test_a_draw_is_the_exact_quantile_of_its_bits(
    name: str, theta: float, low: float, high: float, numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uniform numbers a hair below and above F(cut) give the points on its two sides."""
    step = 2.0**-10
    law = rf.Gaussian(1.0) if name == "gaussian" else rf.Mechanism.by_name(name, sigma=1.0, bound=(low, high))
    first, last = (
        int(rounded(end / step)) if np.isfinite(end) else None
        for end, rounded in ((low, np.floor), (high, np.ceil))
    )
    interval = (low, high) if name == "truncated" else ()

    def point(number: int) -> float:
        return low if number == first else high if number == last else step * number

    def share(number: int) -> int:
        """256 bits of F(cut)."""
        if number in (first and first - 1, last):
            return 2**256 if number == last else 0
        with mp.workdps(150):
            cut = min(max(step * (number + 0.5), low), high)
            return int(mp.floor(mp.ldexp(below(cut, theta, 1.0, *interval), 256)))

    checked = 0
    for number in numbers:
        before, border, after = (share(number + offset) for offset in (-1, 0, 1))
        for away in (2, 2**100, 2**200):
            for bits, expected in ((border - away, number), (border + away, number + 1)):
                if before + 2 < bits < after - 2:
                    _only(bits, monkeypatch)
                    assert float(law.release(float64(theta), step=step)) == point(expected), (number, away)
                    checked += 1
    assert checked >= 6


def _only(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that gives these 256 bits, a word at a time, and a half of the last bit after them."""
    words = [bits >> 192 - 64 * place & 2**64 - 1 for place in range(4)]

    class Chosen:
        def at(self, *place: object) -> Words:
            return Words(*(word - 2**64 * (word >= 2**63) for word in words), -(2**63))

    monkeypatch.setattr(secure, "Noise", Chosen)


class Words(CipherDraws):
    """Chosen words instead of random ones; an error when more are asked for."""

    def __init__(self, *words: int) -> None:
        self.left = iter(words)

    def words(self, count: int) -> Tensor:
        return torch.tensor([next(self.left) for _ in range(count)])


@pytest.mark.parametrize("name", ["sign", "quantized"])
def test_levels_are_drawn_exactly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law = LAWS[name]
    for theta in (0.0, 0.7, -5.0, 9.0):
        found = masses(law, theta, None)
        share = mpf(0)
        points = list(found)
        for one, next_one in pairwise(points):
            with mp.workdps(150):
                share += found[one]
                border = int(mp.floor(mp.ldexp(share, 256)))
            for away in (2**208, 2**225):  # cuts may be a rounding apart
                for bits, expected in ((border - away, one), (border + away, next_one)):
                    if 0 <= bits < 2**256 and found[expected] * 2**256 > away:
                        _only(bits, monkeypatch)
                        assert float(law.release(theta)) == pytest.approx(expected, abs=1e-12)


def test_the_ends_of_the_uniform_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for (name, law), theta in product(LAWS.items(), (0.0, 3.0, -1e9, 1e300)):
        for bits in (0, 2**256 - 1):
            _only(bits, monkeypatch)
            value = float(law.release(theta))
            assert np.isfinite(value), (name, theta)
            if name != "gaussian":
                points = law.support.interval or (law.support.atoms[0], law.support.atoms[-1])
                if abs(theta) < 10 and law.name in ("sign", "quantized", "rectified"):
                    assert value == float(points[bits > 0])


def test_where_float64_has_no_answer_it_says_so() -> None:
    columns = [float64([value]) for value in (2.0**700, 1.0, 0.0, 2.0**-699)]
    law, middle = Conditioned(*columns), 2.0**-700
    assert law.below(float64([middle])).isnan().all()
    assert float(law.exactly(middle, 0, 256)) == pytest.approx(1 / (1 + np.e), rel=1e-12)


# ------------------------------------------------------------------ frequencies


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("theta", [0.0, 0.4, -3.0, 12.0, -50.0, 1000.0])
@pytest.mark.usefixtures("stream")
def test_points_are_hit_with_their_mass(name: str, theta: float) -> None:
    law, step = LAWS[name], None if name in ("sign", "quantized") else 0.25
    expected = masses(law, theta, step)
    values = law.release(everywhere(theta, 50_000), step=step).numpy()
    found = dict(zip(*np.unique(values, return_counts=True), strict=True))
    counts = [int(sum(found.pop(x) for x in list(found) if abs(x - point) < 1e-9)) for point in expected]
    assert not found
    assert discrete(counts, [float(mass) for mass in expected.values()]) > ACCEPT


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.usefixtures("stream")
def test_a_slightly_wrong_sigma_is_rejected(name: str) -> None:
    law, step = LAWS[name], None if name in ("sign", "quantized") else 0.25
    values = law.release(everywhere(0.7, 300_000), step=step).numpy()
    parameters = {**law.parameters(), "sigma": float64(1.04)}
    wrong = masses(law.with_parameters(parameters), 0.7, step)
    counts = [int(np.isclose(values, point).sum()) for point in wrong]
    assert discrete(counts, [float(mass) for mass in wrong.values()]) < REJECT


@pytest.mark.parametrize(("theta", "bound"), list(product([0.4, -6.0, 50.0], [0.001, 1.0, 5.0])))
@pytest.mark.usefixtures("stream")
def test_the_default_grid_is_fine_enough_not_to_show(theta: float, bound: float) -> None:
    """Spread again over its cell, a release passes for the continuous law."""
    release = SecureRelease(rf.TruncatedGaussian(1.0, bound))
    values = release.draw(everywhere(theta, 20_000)).numpy()
    step = float(release.step)
    cdf = truncated_cdf(theta, 1.0, -bound, bound)
    low, high = (np.clip(values + side * step / 2, -bound, bound) for side in (-1, 1))
    shares = cdf(low) + np.random.default_rng(0).uniform(size=len(values)) * (cdf(high) - cdf(low))
    assert continuous(shares, stats.uniform.cdf) > ACCEPT
    other = truncated_cdf(theta * 1.05 + 0.05, 1.0, -bound, bound)
    if bound == 5.0:
        assert continuous(values, other) < REJECT


@pytest.mark.usefixtures("stream")
def test_mean_and_variance() -> None:
    theta, sigma = 3.25, 2.0
    values = rf.Gaussian(sigma).release(everywhere(theta, 400_000)).numpy()
    assert abs(values.mean() - theta) < 5 * sigma / np.sqrt(len(values))
    assert abs(values.var() / sigma**2 - 1) < 5 * np.sqrt(2 / len(values))
    assert abs(stats.skew(values)) < 5 * np.sqrt(6 / len(values))


# ------------------------------------------------------------------ what it costs


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("theta", [0.0, 0.9, -4.0, 30.0])
def test_a_release_costs_no_more_than_its_law(name: str, theta: float) -> None:
    """Divergences and hockey sticks of the points' masses, against the continuous account."""
    law, step = LAWS[name], None if name in ("sign", "quantized") else 0.125
    here = masses(law, theta, step)
    for shift in (0.05, -0.4):
        p, q = here, masses(law, theta + shift, step)
        shared = [point for point in p if point in q]
        if name == "gaussian":  # the oracle ends at 12 sigma from theta
            p, q = ({point: found[point] for point in shared} for found in (p, q))
        for alpha in (1.5, 8.0):
            with mp.workdps(60):
                powers = mp.fsum(p[x] ** alpha * q[x] ** (1 - mpf(alpha)) for x in shared if p[x] > 0)
                exact = float(mp.log(powers) / (alpha - 1))
            bound = float(law.renyi_divergence(theta, shift, alpha))
            assert exact <= bound * (1 + 1e-9) + 1e-300
            if step is not None and abs(theta) < 1:
                assert exact > 0.97 * bound  # and the grid gives nothing away for free
        stick = float(mp.fsum(max(mpf(0), p[x] - mp.exp(0.02) * q[x]) for x in shared))
        assert stick <= float(law.hockey_stick(theta, shift, 0.02)) * (1 + 1e-9) + 1e-300


@pytest.mark.usefixtures("stream")
def test_doubts_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = []
    monkeypatch.setattr(secure, "_decided", lambda *given: decided.append(given) or 0)
    theta = torch.linspace(-60, 60, 300_000, dtype=torch.float64)
    for law in (*LAWS.values(), rf.TruncatedGaussian(1.0, 1e-6), rf.RectifiedGaussian(1.0, (-0.3, 0.1))):
        law.release(theta)
    assert len(decided) < 20


# ------------------------------------------------------------------ the attack


def reachable(values: Tensor, theta: float) -> Tensor:
    """Whether some double n has theta + n == value: what a plain sampler at theta can give."""
    noise = values - theta
    result = torch.zeros_like(values, dtype=torch.bool)
    for step in (-torch.inf, 0.0, torch.inf):
        result |= theta + torch.nextafter(noise, noise + step) == values
    return result


@pytest.mark.parametrize(
    "law", [rf.Gaussian(1.0), rf.RectifiedGaussian(1.0, 2.0)], ids=["gaussian", "rectified"]
)
def test_bits_of_plain_noise_tell_theta_and_those_of_a_secure_release_do_not(
    law: rf.Mechanism, stream: None
) -> None:
    """Mironov 2012: doubles that can occur at theta = 0 cannot at theta = 1."""
    nothing = torch.zeros(20_000, dtype=torch.float64)
    plain = law.sample(nothing, generator=torch.Generator().manual_seed(1))
    assert bool(reachable(plain, 0.0).all())
    impossible = (~reachable(plain, 1.0)).view(-1, 100)
    assert float(impossible.double().mean()) > 0.4
    assert bool(impossible.any(dim=1).all())  # a hundred coordinates tell with certainty

    released = law.release(nothing)
    assert bool(reachable(released, 0.0).all())
    assert bool(reachable(released, 1.0).all())


class _Replayed(GeneratorDraws):
    """Draws that give these uniform numbers."""

    def __init__(self, uniform: Tensor) -> None:
        super().__init__(torch.Generator())
        self._uniform = uniform

    def uniforms(self, shape: Sequence[int]) -> Tensor:
        return self._uniform


def test_replaying_the_plain_truncated_sampler_tells_theta(stream: None) -> None:
    """Its outputs are images of multiples of 2^-53: few doubles, others for another theta."""
    law, thetas = rf.TruncatedGaussian(1.0, 1.0), (0.0, 1e-3)
    generator = torch.Generator().manual_seed(2)

    def replayed(values: Tensor, theta: float) -> float:
        """Share of the values that the sampler at theta gives for some uniform number."""
        cdf = torch.from_numpy(truncated_cdf(theta, 1.0, -1.0, 1.0)(values.numpy()))
        found = torch.zeros_like(values, dtype=torch.bool)
        for share, offset in product((cdf, 1 - cdf), range(-8, 9)):  # it may count from above
            uniform = ((share * 2**53).round() + offset).clamp(0, 2**53 - 1) * 2.0**-53
            found |= law.sample(everywhere(theta, len(values)), generator=_Replayed(uniform)) == values
        return float(found.double().mean())

    for theta, other in (thetas, reversed(thetas)):
        plain = law.sample(everywhere(theta, 5000), generator=generator)
        assert replayed(plain, theta) == 1.0  # the attack knows every double that can occur
        assert 0.2 < replayed(plain, other) < 0.4  # most single draws rule the other theta out

    # secure: whatever is drawn at one is drawn at the other
    points = [set(law.release(everywhere(theta, 200_000), step=2.0**-6).tolist()) for theta in thetas]
    assert points[0] == points[1] == {number / 64 for number in range(-64, 65)}


@pytest.mark.parametrize("name", ["gaussian", "rectified", "truncated"])
@pytest.mark.usefixtures("stream")
def test_a_distinguisher_trained_on_low_bits_has_no_advantage_beyond_the_claim(name: str) -> None:
    law, shift, count = LAWS[name], 1e-3, 400_000
    step = float(SecureRelease(law).step)

    def low_bits(theta: float) -> Tensor:
        values = law.release(everywhere(theta, count))
        return torch.bincount((values / step).round().long() % 16, minlength=16) / count

    more_likely = low_bits(0.0) > low_bits(shift)  # trained
    advantage = float((low_bits(0.0) - low_bits(shift))[more_likely].sum())  # tested on fresh draws
    claim = float(law.hockey_stick(0.0, shift, 0.0))
    assert advantage <= claim + 5 * np.sqrt(0.5 / count)


# ------------------------------------------------------------------ points


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.usefixtures("stream")
def test_values_depend_on_the_number_of_the_point_alone(name: str, dtype: torch.dtype) -> None:
    """Bit for bit: no negative zero, no end that is nearly the end."""
    law = LAWS[name]
    draws = [law.release(torch.full((50_000,), theta, dtype=dtype)) for theta in (-1e-12, 0.7, 1.9, -40.0)]
    values = torch.cat(draws).double()
    assert all(draw.dtype == dtype for draw in draws)
    assert not bool((torch.signbit(values) & (values == 0)).any())
    if name in ("rectified", "truncated"):
        assert (float(values.min()), float(values.max())) == (-1.5, 2.0)
    if name in ("gaussian", "rectified", "truncated"):
        assert bool((values * 1024 == (values * 1024).round()).all())
    else:
        assert len(values.unique()) <= 8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_range_is_public_too(dtype: torch.dtype) -> None:
    law = rf.Gaussian(1.0)
    top = 2.0**51 * 2.0**-10
    for theta, expected in ((1e30, top), (-1e30, -top), (1e300, top)):
        if theta < torch.finfo(dtype).max:
            assert float(law.release(torch.tensor(theta, dtype=dtype))) == expected
    huge = rf.Gaussian(1e30).release(torch.tensor(3e38, dtype=torch.float32))
    assert bool(torch.isfinite(huge))


@pytest.mark.usefixtures("stream")
def test_parameters_may_differ_by_coordinate() -> None:
    sigma = float64([1.0, 100.0]).reshape(2, 1)
    law = rf.TruncatedGaussian(sigma, (float64([[-1.0], [-300.0]]), float64([[1.0], [300.0]])))
    release = SecureRelease(law)
    assert release.step.flatten().tolist() == [2.0**-10, 2.0**-4]
    values = release.draw(torch.zeros(2, 50_000, dtype=torch.float64))
    for row, (scale, bound) in zip(values.numpy(), ((1.0, 1.0), (100.0, 300.0)), strict=True):
        expected = stats.truncnorm(-bound / scale, bound / scale, 0.0, scale).std()
        assert row.std() == pytest.approx(expected, rel=0.02)
    assert law.release(torch.zeros(1, dtype=torch.float64)).shape == (2, 1)
    assert rf.Gaussian(1.0).release(torch.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("law", "step"),
    [
        (rf.Gaussian(1.0), 2.0**-10),
        (rf.Gaussian(0.75), 2.0**-11),
        (rf.TruncatedGaussian(3.0, 1e-3), 2.0**-19),
        (rf.RectifiedGaussian(1.0, (0.0, torch.inf)), 2.0**-10),
    ],
)
def test_the_default_step_is_a_power_of_two_from_public_numbers(law: rf.Mechanism, step: float) -> None:
    assert float(SecureRelease(law).step) == step


# ------------------------------------------------------------------ randomness and refusals


def test_randomness_is_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = secrets.randbits

    def counted(bits: int) -> int:
        asked.append(bits)
        return real(bits)

    monkeypatch.setattr(secrets, "randbits", counted)
    theta = torch.zeros(100_000, dtype=torch.float64)
    states = []
    for _ in range(2):
        torch.manual_seed(1)
        before = torch.get_rng_state()
        states.append(rf.Gaussian(1.0).release(theta))
        assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(*states)
    assert asked == [256, 256]  # a fresh key for each release


def _refused(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_refusals() -> None:
    gaussian, truncated = LAWS["gaussian"], LAWS["truncated"]
    generator = torch.Generator().manual_seed(0)
    for call, error, words in [
        (lambda: gaussian.release(0.0, step=0.0), ValueError, "step must be > 0"),
        (lambda: gaussian.release(0.0, step=2.0**-30), ValueError, "step must be at least"),
        (lambda: truncated.release(0.0, step=4.0), ValueError, "step must be at most the width"),
        (lambda: rf.RectifiedGaussian(1.0, (1e9, 1e9 + 1e-6)).release(0.0), ValueError, "step must reach"),
        (lambda: gaussian.release(0.0, step=1e300), ValueError, "step is too large"),
        (lambda: rf.StochasticSign(1e300).release(0.0), ValueError, "sigma must be at most"),
        (lambda: LAWS["sign"].release(0.0, step=0.1), ValueError, "step must be None"),
        (lambda: gaussian.release(float("nan")), ValueError, "theta must not be NaN"),
        (lambda: gaussian.release(0.0, generator=generator), TypeError, "no seed"),
        (lambda: gaussian.release(0.0, secure=False), TypeError, "needs a generator"),
        (lambda: gaussian.release(0.0, secure=False, step=0.1, generator=generator), TypeError, "no step"),
    ]:
        _refused(call, error, words)


def test_a_law_that_does_not_say_how_it_is_released_is_refused() -> None:
    class Unknown(rf.Gaussian):
        def distribution(self, *arguments: Tensor) -> None:  # type: ignore[override]
            return None

    class WithoutCells(rf.StochasticSign):
        def public_points(self, *parameters: Tensor) -> None:  # type: ignore[override]
            return None

    for law in (Unknown(1.0), WithoutCells(1.0)):
        words = f"no secure release of the law '{law.name}'"
        _refused(lambda law=law: law.release(0.0), NotImplementedError, words)


def test_without_security_it_is_the_plain_sampler() -> None:
    theta = torch.zeros(10, dtype=torch.float64)
    draws = [
        call(generator=torch.Generator().manual_seed(3))
        for call in (
            lambda generator: rf.Gaussian(1.0).release(theta, secure=False, generator=generator),
            lambda generator: rf.Gaussian(1.0).sample(theta, generator=generator),
        )
    ]
    assert torch.equal(*draws)


def test_shapes_that_do_not_fit_are_listed_by_name() -> None:
    ends = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match=r"theta \[3\], sigma \[\], lower \[2\], upper \[2\], step \[2\]"):
        SecureRelease(rf.RectifiedGaussian(1.0, ends)).draw(torch.zeros(3))
    with pytest.raises(ValueError, match=r"theta \[3\], sigma \[\], lower \[2\], upper \[2\]$"):
        SecureRelease(rf.QuantizedGaussian(1.0, ends, 3)).draw(torch.zeros(3))


def test_a_release_says_what_it_is() -> None:
    assert repr(SecureRelease(rf.StochasticSign(1.0))) == "SecureRelease(StochasticSign(sigma=1.0))"
    assert repr(SecureRelease(rf.Gaussian(1.0), 0.25)) == "SecureRelease(Gaussian(sigma=1.0), step=0.25)"


# ------------------------------------------------------------------ grids


@pytest.mark.parametrize("place", [0, 2])
def test_one_coordinate_is_selected_from_numbers_and_columns(place: int) -> None:
    lower, upper, step = float64([-1.0]), float64([1.0, 2.0, 3.0]), float64([0.25, 0.5, 0.125])
    for grid, alone in (
        (Steps(lower, upper, step), Steps(lower, upper[place], step[place])),
        (Levels(lower, upper, 5), Levels(lower, upper[place], 5)),
    ):
        chosen = grid.select(place)
        assert (int(chosen.first), int(chosen.last)) == (int(alone.first), int(alone.last))
        for number in (alone.first, torch.tensor(1), alone.last):
            assert float(chosen.point(number)) == float(alone.point(number))
            assert float(chosen.cut(number)) == float(alone.cut(number))


def test_values_beyond_the_ends_belong_to_the_outermost_points() -> None:
    far = float64([-1e300, -9.0, 9.0, 1e300])
    for grid in (Levels(*float64([-1.0, 2.0]), 7), Steps(*float64([-1.0, 2.0, 0.5]))):
        first, last = int(grid.first), int(grid.last)
        assert grid.nearest(far).clamp(first, last).tolist() == [first, first, last, last]
        assert grid.point(grid.nearest(far)).tolist() == [-1.0, -1.0, 2.0, 2.0]


def test_listed_points_have_the_cuts_they_are_given() -> None:
    low, high = float64([-1.0]), float64([1.0, 2.0, torch.inf])
    points = Points((-1.0, 0.0, 7.0), (low, high))
    value = float64([1.5, 1.5, 1e300])
    assert points.nearest(value).tolist() == [2, 1, 1]
    assert points.point(points.nearest(value)).tolist() == [7.0, 0.0, 0.0]
    assert points.cut(torch.tensor([0, 1, 1])).tolist() == [-1.0, 2.0, torch.inf]
    alone = points.select(1)
    assert [float(alone.cut(torch.tensor(number))) for number in (0, 1)] == [-1.0, 2.0]
    assert (int(alone.first), int(alone.last)) == (0, 2)
    assert int(points.nearest(float64([torch.nan]))[0]) == 0  # any number: a guess is checked


# ------------------------------------------------------------------ distribution functions

SIGMA = 0.5
SHARES = [0.0, 0.01, 0.3, 0.7, 1.0]
# in units of sigma: where flat intervals begin (1 / 64), where theta enters, where the tail begins
WIDTHS = [1e-9, 1e-4, 0.015, 0.17, 0.18, 1.0, 6.0]
NEAREST = [-3.0, -0.1, 0.0, 0.05, 3.99, 4.0, 4.01, 30.0, 1e4]


def intervals() -> list[tuple[float, float]]:
    """(distance of the nearer end, negative if theta is inside; width), which may be at most half inside."""
    return [(near, width) for near, width in product(NEAREST, WIDTHS) if near >= -width / 2]


@pytest.mark.parametrize("side", [1, -1])
def test_conditioned_to_a_trillionth(side: int) -> None:
    rows = []
    for near, width in intervals():
        ends = sorted((side * SIGMA * near, side * SIGMA * (near + width)))
        law = Conditioned(*(float64([value]) for value in (0.0, SIGMA, *ends)))
        low, high = (mpf(end) / SIGMA for end in ends)
        points = [min(max(ends[0] + share * (ends[1] - ends[0]), ends[0]), ends[1]) for share in SHARES]
        with mp.workdps(150):
            whole = oracle.between(low, high)
            truth = [oracle.between(low, mpf(x) / SIGMA) / whole for x in points]
            exactly = [
                abs(law.exactly(x, 0, 256) - expected) for x, expected in zip(points, truth, strict=True)
            ]
        assert max(exactly) < mpf(2) ** -300, (near, width)
        for x, expected in zip(points, truth, strict=True):
            got = float(law.below(float64([x])))
            assert abs(got - expected) < 2.0**-41 <= secure._DOUBT / 32, (near, width, x)
        rows.append([0.0, SIGMA, *ends, points[2], float(truth[2])])
    *columns, x, expected = float64(rows).T  # flat intervals and others in one call
    assert float((Conditioned(*columns).below(x) - expected).abs().max()) < 2.0**-41


@pytest.mark.parametrize("side", [1, -1])
def test_guesses_are_quantiles(side: int) -> None:
    uniform = float64([0.001, 0.2, 0.5, 0.8, 0.999])
    for near, width in intervals():
        if width < 0.01:
            continue
        ends = sorted((side * SIGMA * near, side * SIGMA * (near + width)))
        law = Conditioned(*(float64([value]) for value in (0.0, SIGMA, *ends)))
        assert torch.allclose(law.below(law.guess(uniform)), uniform, rtol=0, atol=1e-8), (near, width)


def test_a_parameter_of_one_number_holds_for_every_coordinate() -> None:
    law = Normal(float64([7.0]), float64([5.0, 6.0]))
    assert float(law.exactly(13.0, 1, 256)) == pytest.approx(NormalDist().cdf(1.0), rel=1e-12)


# ------------------------------------------------------------------ the largest of several


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize("gumbel", [False, True])
def test_float64_decides_as_all_bits_do(gumbel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so wide a doubt that every row is decided exactly, the same bits give the same winners."""
    values = torch.randint(0, 4, (150, 3), generator=torch.Generator().manual_seed(0)).double()
    quickly = largest(values, 2.0, Noise(3).at("test"), gumbel=gumbel)
    monkeypatch.setattr(secure, "_QUANTILE_DOUBT", 1e9)
    assert torch.equal(largest(values, 2.0, Noise(3).at("test"), gumbel=gumbel), quickly)
    assert len(set(quickly.tolist())) == 3


def test_quantiles_in_float64_are_far_better_than_the_doubt() -> None:
    """At random numbers and at both ends; torch's quantile is trusted a million times less than here."""
    numbers = [*range(1, 12), *(2**53 - k for k in range(1, 12)), *(2**k for k in range(1, 53))]
    numbers += torch.randint(1, 2**53, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    uniform = torch.tensor(numbers, dtype=torch.float64) * 2.0**-53
    for gumbel, quick in ((False, torch.special.ndtri(uniform)), (True, -torch.log(-torch.log(uniform)))):
        for number, value in zip(numbers, quick.tolist(), strict=True):
            for end in exact_normal.noisy_ends(number << 203, 256, 0.0, 1.0, gumbel=gumbel):
                assert abs(value - float(end)) < 1e-6 * secure._QUANTILE_DOUBT * (1 + abs(value))


def test_float64_decides_almost_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bits are asked for only where the noisy values are closer than a billionth of them."""
    monkeypatch.setattr(secure, "_Uniform", None)
    for scale in (1e-3, 1.0, 1e3):
        values = scale * torch.randn(2000, 3, generator=torch.Generator().manual_seed(2)).double()
        largest(values, 1.0, Noise(4).at("test"))


@pytest.mark.parametrize("gumbel", [False, True])
@pytest.mark.parametrize("agreed", [1, 4, 20])
def test_bits_are_drawn_until_one_noise_is_the_largest(gumbel: bool, agreed: int) -> None:
    """As many words of two candidates agree, and the next one decides."""
    same = [word for _ in range(agreed) for word in (5 << 40, 5 << 40)]
    for last, winner in (((7, 1 << 20), 1), ((1 << 20, 7), 0)):
        assert largest(row(1.0, 1.0), 1.0, Words(*same, *last), gumbel=gumbel).tolist() == [winner]


def test_a_candidate_that_is_out_draws_no_more_bits() -> None:
    """Of three in doubt the first is behind by the second words; the others go on to a third."""
    words = Words(*[5 << 40] * 3, 1 << 62, *[3 << 61] * 2, 1 << 40, 1 << 50)
    assert largest(row(1.0, 1.0, 1.0), 1.0, words).tolist() == [2]


@pytest.mark.parametrize(("offset", "sigma"), [(0.0, 1.0), (0.0, 1e6), (0.0, 1e-6), (2.0**52, 1.0)])
def test_quantiles_that_are_off_by_less_than_the_doubt_decide_nothing(
    offset: float, sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.5 - 5e-11 and 1 - 0.5 + 5e-11, off by 1e-10 against their order. Around 2^52 only integers are left:
    rounding would make of them 1 and 0, apart by more than the doubt."""
    honest = torch.special.ndtri
    monkeypatch.setattr(torch.special, "ndtri", lambda uniform: (z := honest(uniform)) + 1e-10 * z.sign())
    near = NormalDist().cdf(0.5 - 5e-11)
    words = Words(int(near * 2**64) - 2**64, int((1 - near) * 2**64))
    assert largest(row(offset, offset + sigma), sigma, words).tolist() == [1]


def test_a_difference_of_counts_below_float64s_noise_is_seen() -> None:
    """The values differ by one unit in the last place, the noises not at all: the larger value wins."""
    near = 1 + 2.0**-52
    assert largest(row(1.0, near), 1.0, Words(9 << 50, 9 << 50)).tolist() == [1]
    assert largest(row(near, 1.0), 1.0, Words(9 << 50, 9 << 50)).tolist() == [0]


def test_the_largest_at_the_ends_of_the_uniform_numbers() -> None:
    """2^-257 and 1 - 2^-257 are noises of -18.6 and 18.6 sigma: until the last word they may be infinite."""
    every, half = -1, -(2**63)  # the 64 bits of a word are all 1, or a half
    far = [*[0, every] * 4, half, half]
    assert largest(row(36.0, 0.0), 1.0, Words(*far)).tolist() == [1]
    assert largest(row(38.0, 0.0), 1.0, Words(*far)).tolist() == [0]
    for ahead, winner in ((183.0, 1), (184.0, 0)):  # -log(257 log 2) = -5.18 and 257 log 2 = 178.14
        assert largest(row(ahead, 0.0), 1.0, Words(*far), gumbel=True).tolist() == [winner]


def test_all_that_the_first_bits_leave_open_is_seen() -> None:
    """U in [1, 2] / 2^53 is a noise from -8.21 to -8.13 sigma, and here almost the upper end."""
    every, half = 2**12 - 1, -(2**63)
    assert largest(row(0.0, -8.14), 1.0, Words(every, half, -1, -1, -1)).tolist() == [0]
    assert largest(row(0.0, -8.11), 1.0, Words(every, half, -1, -1, -1)).tolist() == [1]
    assert largest(row(0.0, 8.14), 1.0, Words(-every - 1, half)).tolist() == [1]


@pytest.mark.parametrize("bits", [64, 256, 1600])
def test_ends_of_noise_hold_every_number_that_begins_with_the_bits(bits: int) -> None:
    """And are tight: 2^-30 of the last bit beyond, or less."""
    every = 2**bits
    for number in (0, 1, every // 2**50, every // 2 - 1, every // 2, every - every // 2**60, every - 1):
        for gumbel in (False, True):
            with mp.workprec(bits + 400):
                ends = exact_normal.noisy_ends(number, bits, 3.0, 2.0, gumbel=gumbel)
                low, high = ((mpf(end) - 3) / 2 for end in ends)
                for end, share, side in ((low, number, 1), (high, number + 1, -1)):
                    if share in (0, every):
                        assert end == -side * mp.inf
                        continue
                    exact = [mpf(share) / every, 1 - mpf(share) / every]
                    if gumbel:
                        beyond = side * (-mp.log(-mp.log(exact[0])) - end)
                        assert 0 < beyond * every < mpf(2) ** -31
                        continue
                    tail, wanted = (
                        (oracle.below(-end), exact[1]) if end > 0 else (oracle.below(end), exact[0])
                    )
                    beyond = side * (tail - wanted if end > 0 else wanted - tail) * every
                    assert 0 < beyond < mpf(2) ** -31


def test_no_more_is_doubted_than_float64_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two noises of 0 and values that differ by 2.5 billionths: each interval ends a billionth from its
    middle."""
    monkeypatch.setattr(secure, "_Uniform", None)
    half = -(2**63)
    assert largest(row(0.0, 2.5e-9), 1.0, Words(half, half)).tolist() == [1]
    with pytest.raises(TypeError):
        largest(row(0.0, 1.9e-9), 1.0, Words(half, half))
    # beside values of a billion, their own rounding is all there is: a millionth each
    assert largest(row(1e9, 1e9 + 2.5e-6), 1e-9, Words(half, half)).tolist() == [1]
    with pytest.raises(TypeError):
        largest(row(1e9, 1e9 + 1.5e-6), 1e-9, Words(half, half))
