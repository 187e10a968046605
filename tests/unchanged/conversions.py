"""Epsilons from sums, and the other way round."""

import math
import warnings

from ringfence import PerInstanceCalibrationWarning, RectifiedGaussian, TruncatedGaussian
from ringfence.accounting import conversion as of
from ringfence.accounting.calibration import calibrate_bound, calibrate_sigma, calibrate_steps
from ringfence.accounting.guarantee import data_independent_epsilon
from ringfence.accounting.profile.central_limit import LossSums
from ringfence.accounting.profile.dominating_pair import composed_delta
from ringfence.accounting.profile.profile import privacy_profile
from ringfence.accounting.publication import publishable_epsilon
from ringfence.accounting.steepness import steepness
from ringfence.mechanisms.base import Mechanism
from tests.tensors import seeded_releases
from tests.unchanged.cases import DELTAS, Values, even, laws, over, vector

_SIZES = [10.0**k for k in range(-8, 4)]
_CURVES = [size * vector(*of.DEFAULT_ORDERS) ** (1 + bend) for size in _SIZES for bend in (0.0, 0.3)]


@over(["gaussian", "renyi"])
def conversion(kind: str) -> Values:
    if kind == "renyi":
        orders, pairs = vector(*of.DEFAULT_ORDERS), [(curve, delta) for curve in _CURVES for delta in DELTAS]
        return {
            "ex_post_epsilon": [of.ex_post_epsilon(orders, *pair) for pair in pairs],
            "epsilon_from_rdp": [of.epsilon_from_rdp(orders, *pair) for pair in pairs],
            "best_zcdp_order": [
                of.best_zcdp_order(size, d) for size in (0.0, 1e-40, *_SIZES) for d in DELTAS
            ],
        }
    deltas, sizes = (1e-300, 1e-270, *DELTAS, 0.9), (*_SIZES, 3e-4, 9e-4, 2e-3, 9e4, 2e5)
    found: Values = {"gaussian_epsilon": [[of.gaussian_epsilon(mu, d) for d in deltas] for mu in sizes]}
    for mu in (0.0, 1e-5, 0.01, 1.0, 30.0, 2e5, 1e7):
        epsilons = [mu * (mu / 2 + x) for x in (-3.0, -1.0, 0.0, 1.0, 6.0, 40.0)]
        found[f"gaussian_delta {mu:g}"] = [of.gaussian_delta(mu, epsilon) for epsilon in epsilons]
    return found


@over([((0.1, 1.0, 10), (0.2, 1.0, 3)), ((0.5, 0.1, 10), (0.2, 1.0, 2), (0.0, 0.5, 7)), ((3.0, 0.5, 2),)])
def conversion_sampled(settings: tuple[tuple[float, float, int], ...]) -> Values:
    counted = {(mu, rate): count for mu, rate, count in settings}
    return {"epsilon": [of.sampled_gaussian_epsilon(counted, delta) for delta in (1e-5, 1e-2)]}


@over(DELTAS)
def guarantee(delta: float) -> Values:
    sizes = (0.0, 1e-9, *_SIZES[::2], 100.0)
    return {
        f"data_independent_epsilon {share}": [data_independent_epsilon(z, share * z, delta) for z in sizes]
        for share in (1.0, 0.7, 0.1)
    }


@over([*laws()[:3], laws()[4]])
def central_limit(law: Mechanism) -> Values:
    found: Values = {}
    for move, releases in ((1e-3, 1), (1e-3, 40), (1e-3, 4000), (0.02, 1), (0.02, 40), (0.3, 10)):
        theta = even(400, -2, 2)
        up, down = (law.loss_moments(theta, sign * move) for sign in (1, -1))
        sums = LossSums.worst_of(up, down, releases)
        deviation, middle = math.sqrt(sums.variance), sums.variance - sums.variance_spread / 2
        epsilons = [deviation * (deviation / 2 + x) for x in (-0.5, 0.0, 0.5, 1, 2, 3, 4, 6)]
        size = vector(0.1, 0.5, 2, 10, 40, 200).numpy()
        name = f"{move} {releases}"
        found[f"delta {name}"] = [sums.delta(epsilon) for epsilon in epsilons]
        found[f"remainder {name}"] = [sums.remainder(size, real) for real in (0.5, 3.0)]
        found[f"contours {name}"] = [sums._delta(epsilons[3], middle, real) for real in (0.1, 0.5, 2)]
    return found


@over(laws())
def dominating_pair(law: Mechanism) -> Values:
    found: Values = {}
    for name, theta, move, steps in (
        ("one", vector(0.3), 0.5, 1),
        ("two", vector(0.3, -1.2), 0.2, 1),
        ("twice", vector(0.3), 0.4, 2),
        ("alike", vector(0.3, 0.3, -0.5), 0.05, 2),
        ("often", vector(0.9), 0.05, 80),
    ):
        delta = composed_delta(law, theta, vector(move), steps)
        # far out the charge for rounding shows, which grows with the number of points kept
        found[name] = [delta(epsilon) for epsilon in (0.0, 0.02, 0.1, 0.4)]
    return found


@over(
    [
        ("one", 1, 0.5, 1),
        ("few", 2, 0.2, 2),
        ("many", 500, 1e-3, 10),
        ("still", 1, 0.0, 1),
        ("large", 40, 2, 1),
    ]
)
def privacy_loss(setting: tuple[str, int, float, int]) -> Values:
    _, count, move, steps = setting
    profile = privacy_profile(TruncatedGaussian(0.5, bound=1.0), even(count, -1, 1), move, steps)
    return {
        "epsilon": [profile.epsilon(delta) for delta in DELTAS],
        "delta": [[proof(epsilon) for proof in profile.proofs.values()] for epsilon in (0.0, 0.01, 1.0)],
    }


@over(["ex_post", "pdp", "data_independent"])
def calibration(kind: str) -> Values:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerInstanceCalibrationWarning)
        return _calibrated(kind)


def _calibrated(kind: str) -> Values:
    law, theta = TruncatedGaussian(1.0, bound=2.0), even(100, -2, 2)
    given = {"epsilon": 0.7, "delta": 1e-5, "kind": kind}
    found: Values = {
        "sigma": calibrate_sigma(law, theta, 0.05, steps=3, **given),  # type: ignore[arg-type]
        "steps": calibrate_steps(law, theta, 0.003, **given),  # type: ignore[arg-type]
        "coordinates": calibrate_sigma(law, theta, 0.05, coordinates=1000, **given),  # type: ignore[arg-type]
    }
    rectified = RectifiedGaussian(1.0, bound=2.0)
    for epsilon in (0.62, 0.7, 50.0) if kind == "pdp" else ():
        found[f"bound {epsilon}"] = calibrate_bound(
            rectified, theta, 0.02, epsilon=epsilon, delta=1e-5, kind="pdp"
        )
    return found


@over(laws())
def publication(law: Mechanism) -> Values:
    """Of the same bits, the same numbers."""
    found: Values = {}
    for order in (None, 8.0):
        with seeded_releases():
            number = publishable_epsilon(
                law,
                [even(200, -1, 1), even(100, -4, 4)],
                1e-3,
                delta=1e-5,
                publishing_zcdp=1e-4,
                failure_probability=1e-3,
                order=order,
            )
        found[f"order {order}"] = [
            *(number.epsilon, number.epsilon_pdp, number.epsilon_data_independent, number.order)
        ]
    return found


@over(laws())
def slopes(law: Mechanism) -> Values:
    settings = ((1e-3, 8.0), (0.3, 100.0), (1e-3, 2e6))
    return {f"{move} {alpha}": steepness(law, move, alpha) for move, alpha in settings}
