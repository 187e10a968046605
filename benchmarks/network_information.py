"""What the Fisher information loss of single examples costs under a network.

    python -m benchmarks.network_information [--device cuda] [--examples 1000] [--network wrn] [--steps 300]

Inputs are made up, of CIFAR-10's size, and weights are those that the network starts with, or has after some
steps of ordinary training on the inputs, ``--steps``. A product is J^T diag(eta^2) J v for one example and
one vector. Then both kinds of loss of all examples, spectral to 10 %, with the products per example that it
took.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

import ringfence as rf
from benchmarks.networks import tanh_cnn
from benchmarks.timing import peak_memory, seconds
from experiments.networks import wide_resnet_16_4
from ringfence.numerics.operators import BatchedOperator
from ringfence.training.information import example_information
from ringfence.training.jacobian import CastModel, jacobian_operator

CLIP, LAW = rf.Clamp(0.3), rf.RectifiedGaussian(0.9, 2.0)
NETWORKS: dict[str, Callable[[], nn.Module]] = {"wrn": wide_resnet_16_4, "cnn": tanh_cnn}


def products(model: nn.Module, x: Tensor, y: Tensor) -> str:
    cast = CastModel(model, nn.functional.cross_entropy)
    weights = torch.ones(cast.size, dtype=torch.float64, device=x.device)
    block = torch.randn(len(x), 1, x[0].numel(), dtype=torch.float64, device=x.device)
    operator = jacobian_operator(cast, CLIP, x.double(), y, weights)
    time = seconds(lambda: operator.gram(block), x.device) / len(x)
    return f"a product takes {1e3 * time:.2f} ms"


def trained(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> nn.Module:
    """The model after ordinary steps of SGD with batches of 200."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        some = torch.randint(len(x), (200,), device=x.device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[some]), y[some]).backward()
        optimizer.step()
    return model


def losses(model: nn.Module, x: Tensor, y: Tensor, kind: str) -> str:
    counted, honest = [], BatchedOperator.gram

    def product(operator: BatchedOperator, block: Tensor) -> tuple[Tensor, Tensor]:
        counted.append(block.shape[0] * block.shape[1])
        return honest(operator, block)

    BatchedOperator.gram = product
    size = sum(one.numel() for one in model.parameters())

    def work() -> None:
        example_information(
            model,
            nn.functional.cross_entropy,
            x,
            y,
            clip=CLIP,
            mechanism=LAW,
            theta=torch.zeros(size, device=x.device),
            generator=torch.Generator(x.device).manual_seed(0),
            kind=kind,
            tolerance=0.1,
        )

    time = seconds(work, x.device)
    BatchedOperator.gram = honest
    return f"{kind}: {time:.1f} s, {sum(counted) / len(x):.1f} products per example"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument("--network", choices=NETWORKS, default="wrn")
    parser.add_argument("--steps", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = NETWORKS[arguments.network]().to(arguments.device)
    coarse = torch.randn(arguments.examples, 3, 8, 8, device=arguments.device)
    x = nn.functional.interpolate(coarse, size=32, mode="bicubic")
    y = torch.arange(len(x), device=x.device) % 10
    trained(model, x, y, arguments.steps)
    print(products(model, x[:8], y[:8]), flush=True)
    for kind in ("spectral", "trace"):
        print(losses(model, x, y, kind), flush=True)
    print(f"peak memory {peak_memory(x.device):.0f} MiB")


if __name__ == "__main__":
    main()
