"""What accounting for single examples costs, in passes over the n x d gradients.

    python -m benchmarks.examples [--device cuda] [--examples 2000] [--coordinates 10240]

The yardstick is (g * g).sum(dim=1) over the same float32 gradients. Claim: a step, all orders and
all four sums, costs a few of them; one evaluation of every entry costs thousands.
"""

import argparse

import torch

import ringfence as rf
from benchmarks.timing import peak_memory, ratio, seconds
from ringfence.accounting.conversion import ex_post_epsilon
from ringfence.accounting.examples import ExampleAccountant
from tests.accounting.evaluation import EvaluatedSums

LAWS = {
    "gaussian": rf.Gaussian(sigma=1.0),
    "truncated": rf.TruncatedGaussian(sigma=1.0, bound=2.0),
    "rectified": rf.RectifiedGaussian(sigma=1.0, bound=2.0),
    "sign": rf.StochasticSign(sigma=1.0),
    "quantised, 17": rf.QuantizedGaussian(sigma=1.0, bound=2.0, levels=17),
}
ROWS = 2  # evaluated entry by entry; the time for all examples is in proportion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--coordinates", type=int, default=10_240)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    generator = torch.Generator(device).manual_seed(0)
    shape = (arguments.examples, arguments.coordinates)
    gradients = torch.randn(shape, device=device, generator=generator).mul_(3e-4)
    theta = torch.randn(arguments.coordinates, device=device, generator=generator)

    before = peak_memory(device)
    print(f"{shape[0]} examples, {shape[1]} coordinates, float32, 60 orders: passes of (g * g).sum(dim=1)")
    print(f"  {'':14s}{'a step':>9s}{'first, s':>10s}{'every entry':>13s}{'epsilon / exact':>17s}")
    for name, law in LAWS.items():
        account = ExampleAccountant(law)
        first = seconds(lambda account=account: account.step(theta, gradients), device)
        step = ratio(
            lambda account=account: account.step(theta, gradients),
            lambda: (gradients * gradients).sum(dim=1),
            device,
            rounds=5,
        )
        exact = EvaluatedSums(law, theta.double(), account.orders)
        rows = gradients[:ROWS].double()
        entries = seconds(lambda exact=exact, rows=rows: exact.charge(rows), device)
        plain = seconds(lambda: (gradients * gradients).sum(dim=1), device)
        entries *= shape[0] / ROWS / plain
        few = ExampleAccountant(law)
        few.step(theta, gradients[:ROWS])
        above = float(
            (
                few.epsilons(1e-5) / ex_post_epsilon(account.orders, exact.charge(rows)[0].amax(dim=0), 1e-5)
            ).amax()
        )
        print(f"  {name:14s}{step:9.1f}{first:10.2f}{entries:13.0f}{above:17.5f}", flush=True)
    print(
        f"\npeak memory {peak_memory(device):.0f} MiB; {before:.0f} before the first step, gradients included"
    )


if __name__ == "__main__":
    main()
