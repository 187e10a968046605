"""How much less the sign of a noisy number costs than the number, whatever the number is.

    python -m benchmarks.sign_anywhere

A data-independent statement about ``StochasticSign``: the worst theta instead of the one at hand. sigma is
10, a person moves each number by 1, delta = 1e-5. "At most" takes, for each Rényi order, the largest
divergence over a grid of theta (a hundredth of sigma apart, to 12 sigma) and both signs of the move, and
composes that; above order 80 the worst theta is farther away, and the Gaussian's divergence is taken. "At
least" is the tight epsilon where every number is the same theta, at the worst theta of a coarser grid: up
to the rounding of that account, no data-independent epsilon is smaller. Both are maxima over grids, not
proofs.
"""

import math

import torch

import ringfence as rf
from experiments.assembly.ballots import assembly_ballots
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp, gaussian_epsilon
from ringfence.accounting.decisions import decision_profile

SIGMA, DELTA = 10.0, 1e-5


def main() -> None:
    torch.set_num_threads(1)
    law, orders = rf.StochasticSign(SIGMA), checked_orders(DEFAULT_ORDERS)
    theta = torch.arange(0, 12 * SIGMA, SIGMA / 100, dtype=torch.float64)
    worst = torch.tensor(
        [
            max(float(law.renyi_divergence(theta, move, order).max()) for move in (1.0, -1.0))
            if order <= 8 * SIGMA
            else order / (2 * SIGMA**2)
            for order in orders.tolist()
        ],
        dtype=torch.float64,
    )
    for count in (1, 10, 99, 1000):
        most = float(epsilon_from_rdp(orders, count * worst, DELTA))
        renyi = float(epsilon_from_rdp(orders, count * orders / (2 * SIGMA**2), DELTA))
        least = max(
            decision_profile(law, [float(place)] * count, neighbours="added").epsilon(DELTA)
            for place in torch.arange(0, 3.1 * SIGMA, SIGMA / 4)
        )
        gaussian = gaussian_epsilon(math.sqrt(count) / SIGMA, DELTA)
        print(
            f"{count:,} numbers: Gaussian {gaussian:.3f} ({renyi:.3f} by Rényi); sign at the worst theta at "
            f"most {most:.3f}, at least {least:.3f}",
            flush=True,
        )
    own = decision_profile(law, assembly_ballots().sum(dim=0).double(), neighbours="added").epsilon(DELTA)
    print(f"at the 99 surpluses of the assembly: {own:.3f}")


if __name__ == "__main__":
    main()
