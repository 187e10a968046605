"""Claims that hold, at their exact epsilon: every law here, and those of libraries that are installed."""

import importlib

import torch

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon

DELTA, DRAWS = 1e-3, 2000
LAWS = (
    *(rf.Gaussian(2.0), rf.RectifiedGaussian(2.0, bound=3.0), rf.TruncatedGaussian(2.0, bound=3.0)),
    *(rf.StochasticSign(2.0), rf.QuantizedGaussian(2.0, bound=3.0, levels=5), rf.Laplace(2.0)),
)


def opendp(name):
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return getattr(dp.m, f"make_{name}")(*space, scale=2.0)


def diffprivlib():
    return importlib.import_module("diffprivlib.mechanisms").Laplace(epsilon=0.5, sensitivity=1.0).randomise


def opacus():
    """Its noise on a gradient that is the sum of one or no person's, without any divisor."""
    noise = importlib.import_module("opacus.optimizers.optimizer")._generate_noise
    return lambda x: float(x + noise(std=2.0, reference=torch.zeros((), dtype=torch.float64), generator=None))


theirs = {
    "OpenDP's Laplace": (lambda: opendp("laplace"), (0.5, 0.0)),
    "OpenDP's Gaussian": (lambda: opendp("gaussian"), (gaussian_epsilon(0.5, DELTA), DELTA)),
    "diffprivlib's Laplace": (diffprivlib, (0.5, 0.0)),
    "Opacus's Gaussian": (opacus, (gaussian_epsilon(0.5, DELTA), DELTA)),
}
for law in LAWS:
    account = rf.PerInstanceAccountant(law, 1.0)
    account.step([0.0])
    release = lambda x, n, law=law: law.release(torch.full((n,), x).double()).numpy()  # noqa: E731
    theirs[repr(law)] = (lambda release=release: release), (account.guarantee(DELTA).epsilon, DELTA)
for name, (make, claim) in theirs.items():
    try:
        # the last digits of these two sums do tell (floating_point.py): here their laws alone are in question
        digits = name not in ("diffprivlib's Laplace", "Opacus's Gaussian")
        options = {"draws": DRAWS, "floating_point": digits, "batched": name in map(repr, LAWS)}
        found = rf.audit(make(), 0.0, 1.0, claim=claim, **options)
    except ImportError as error:
        print(f"{name}: not tried, {error}")
        continue
    said = "REFUTED" if found.refuted else "not refuted"
    print(f"{name}: claimed {claim[0]:.3f}, at least {found.epsilon_lower_bound:.3f}: {said}")
