"""Claims that hold: every law here, OpenDP's Laplace and Gaussian, diffprivlib's Laplace, at their epsilon."""

import diffprivlib.mechanisms as diffprivlib
import opendp.prelude as dp
import torch

import ringfence as rf

dp.enable_features("contrib")
DELTA, DRAWS = 1e-3, 4000
laws = {
    "Gaussian": rf.Gaussian(2.0),
    "rectified": rf.RectifiedGaussian(2.0, bound=3.0),
    "truncated": rf.TruncatedGaussian(2.0, bound=3.0),
    "sign": rf.StochasticSign(2.0),
    "quantised": rf.QuantizedGaussian(2.0, bound=3.0, levels=5),
    "Laplace": rf.Laplace(2.0),
}
space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
theirs = {
    "OpenDP's Laplace": (dp.m.make_laplace(*space, scale=1.0), (1.0, 0.0)),
    "OpenDP's Gaussian": (dp.m.make_gaussian(*space, scale=2.0), (1.5394, DELTA)),  # mu = 1/2
    "diffprivlib's Laplace": (diffprivlib.Laplace(epsilon=1.0, sensitivity=1.0).randomise, (1.0, 0.0)),
}
for name, law in laws.items():
    account = rf.PerInstanceAccountant(law, 1.0)
    account.step([0.0])
    claim = account.guarantee(DELTA).epsilon, DELTA
    theirs[f"ringfence, {name}"] = (lambda x, law=law: float(law.release(torch.tensor(x).double()))), claim
for name, (mechanism, claim) in theirs.items():
    found = rf.audit(mechanism, 0.0, 1.0, claim=claim, draws=DRAWS)
    words = "REFUTED" if found.refuted else "not refuted"
    print(f"{name}: claimed {claim[0]:.3f}, at least {found.epsilon_lower_bound:.3f}: {words}")
