"""The paper's account of bounded noise as printed: one direction, one sign (docs/errata.md, A7 and A8)."""

import numpy as np
import torch

import ringfence as rf
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp

LAW, THETA, MOVE, DELTA = rf.RectifiedGaussian(1.0, bound=1.0), -2.0, 1.0, 1e-3
GENERATOR = torch.Generator().manual_seed(0)


def release(theta: float, draws: int) -> np.ndarray:
    return LAW.sample(torch.full((draws,), theta, dtype=torch.float64), generator=GENERATOR).numpy()


orders = checked_orders(DEFAULT_ORDERS)
curve = LAW.renyi_curve(torch.tensor([THETA]).double(), torch.tensor([MOVE]).double(), orders)
printed = float(epsilon_from_rdp(orders, curve.sum(dim=1), DELTA))
found = rf.audit(
    release, THETA, THETA + MOVE, claim=(printed, DELTA), draws=20_000, batched=True, floating_point=False
)
print(found.statement)
