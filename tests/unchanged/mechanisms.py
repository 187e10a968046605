"""The laws themselves: what they say of a theta, and what they draw."""

from copy import copy

import torch

from ringfence import RectifiedGaussian, SecureRelease, TruncatedGaussian
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from tests.unchanged.cases import Values, even, laws, over, seeded, vector

# near and far, small and large, alone and mixed: what is left out where nothing needs it counts as work
_THETAS = {
    "inside": even(8, -1, 1),
    "outside": vector(5.0, -30.0),
    "everywhere": vector(-9.0, 0.0, 0.9, 300.0),
}
_SHIFTS = {"tiny": 1e-9, "small": 0.004, "middle": -0.09, "large": 0.45, "huge": -6.0}
_OTHERS = {
    "rectified at an end": RectifiedGaussian(0.1, bound=(0.0, 1.0)),
    "rectified, wide": RectifiedGaussian(0.5, bound=(-1.0, 25.0)),
    "truncated at an end": TruncatedGaussian(0.1, bound=(0.0, 1.0)),
    "truncated, open": TruncatedGaussian(2.0, bound=(-1.0, torch.inf)),
}


@over(laws())
def kernels(law: Mechanism) -> Values:
    found: Values = {}
    for where, theta in _THETAS.items():
        found[f"information {where}"] = law.fisher_information(theta)
        for size, shift in _SHIFTS.items():
            moments = law.loss_moments(theta, shift)
            name = f"{where} {size}"
            found[f"divergence {name}"] = law.renyi_curve(theta, shift, vector(1.5, 9.0, 300.0))
            found[f"hockey stick {name}"] = [
                law.hockey_stick(theta, shift, e) for e in (-0.5, 0.0, 0.01, 3.0)
            ]
            skewed = moments.third + 2 * moments.fourth**0.75  # at a centre the third alone is noise
            found[f"moments {name}"] = [moments.variance, skewed, moments.fourth, moments.extent]
    return found


@over(_OTHERS)
def other_kernels(name: str) -> Values:
    return kernels(copy(_OTHERS[name]))


@over(laws())
def single_precision(law: Mechanism) -> Values:
    """What it takes; the numbers themselves would be too few digits to compare."""
    theta = even(8, -3, 3).float()
    for shift in _SHIFTS.values():
        law.renyi_divergence(theta, shift, 3.0)
        law.hockey_stick(theta, shift, 0.1)
    return {"dtype": float(law.fisher_information(theta).dtype == torch.float32)}


@over(laws())
def samples(law: Mechanism) -> Values:
    """Of the same seed, the same draws."""
    return {
        f"{theta}": law.sample(torch.full((20,), theta).double(), generator=seeded())
        for theta in (0.0, 0.9, -3.0, 12.0)
    }


@over(laws())
def secure(law: Mechanism) -> Values:
    """Of the same bits, the same releases."""
    return {
        f"{theta}": SecureRelease(law).draw(torch.full((60,), theta).double(), Noise(7).at(f"{theta}"))
        for theta in (0.0, 0.9, -3.0, 12.0)
    }


@over(_OTHERS)
def other_draws(name: str) -> Values:
    law = copy(_OTHERS[name])
    plain, released = samples(law), secure(law)
    return {**plain, **{f"secure {theta}": values for theta, values in released.items()}}
