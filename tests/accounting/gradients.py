"""Examples' contributions, and what they cost by the bound and by evaluating every entry."""

import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.examples import ExampleAccountant

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
    accounts = ExampleAccountant(law, orders), ExampleAccountant(law, orders)  # type: ignore[arg-type]
    for account, exact in zip(accounts, (False, True), strict=True):
        account.step(theta, gradients, exact=exact)
    return [accounts[0].sums, accounts[1].sums / (1 + 1e-11)]
