"""What the Fisher information loss of every example of a linear probe costs, and how near it is.

    python -m benchmarks.linear_information [--device cuda] [--examples 50000] [--features 1280]

The yardstick is one step's gradient: residuals and the sum of clipped gradients. The gap is that of
eta^2 to the largest eigenvalue of the dense matrix, over a few examples.
"""

import argparse

import torch
from torch import Tensor

import ringfence as rf
from benchmarks.timing import peak_memory, seconds
from ringfence.training.linear import Step, residuals, train_linear
from ringfence.training.linear_information import linear_information


def dense(law: rf.Mechanism, step: Step, features: Tensor, labels: Tensor, clip: rf.Clamp) -> Tensor:
    information, weights = law.fisher_information(step.theta.double()), step.weights.double()
    result = []
    for x, y in zip(features.double(), labels, strict=True):
        shares = torch.softmax(weights @ x, dim=0)
        r = shares.clone()
        r[y] = 0
        r[y] = -r.sum()
        slopes = (torch.diag(shares) - torch.outer(shares, shares)) @ weights
        slopes[y] = 0
        slopes[y] = -slopes.sum(dim=0)  # without cancellation, as above
        inside = information * ((r[:, None] * x).abs() <= clip.largest)
        cross = (inside * r[:, None] * x).T @ slopes
        squares = slopes.T @ ((inside @ x.square())[:, None] * slopes)
        matrix = torch.diag(r.square() @ inside) + cross + cross.T + squares
        result.append(torch.linalg.eigvalsh(matrix)[-1])
    return torch.stack(result)


def measured(
    law: rf.Mechanism, step: Step, features: Tensor, labels: Tensor, clip: rf.Clamp, few: int
) -> str:
    values = torch.empty(len(features), dtype=torch.float64, device=features.device)

    def gradient() -> None:
        clip.outer_sum(residuals(step.weights, features, labels), features)

    def information() -> None:
        values.copy_(linear_information(law, step.theta, step.weights, features, labels, clip))

    plain, time = seconds(gradient, features.device), seconds(information, features.device)
    gaps = values[:few] / dense(law, step, features[:few], labels[:few], clip) - 1
    ends = f"{float(gaps.min()):.1e} to {float(gaps.max()):.1e}"
    return f"{time:6.2f} s, {time / plain:4.0f} gradients, gap {ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--dense", type=int, default=20, help="examples compared with the dense matrix")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    generator = torch.Generator(device).manual_seed(0)
    count, width, classes = arguments.examples, arguments.features, arguments.classes
    means = torch.randn(classes, width, device=device, generator=generator).mul_(0.1)
    labels = torch.randint(0, classes, (count,), device=device, generator=generator)
    features = torch.randn(count, width, device=device, generator=generator).add_(means[labels]).relu_()
    law = rf.TruncatedGaussian(sigma=4.0, bound=32.0)
    print(
        f"{count} examples, {width} features, {classes} classes, {device.type}, "
        f"{torch.get_num_threads()} threads"
    )
    for bound in (2e-3, 2e-2, 0.5):
        clip = rf.Clamp(bound)
        run = train_linear(
            features,
            labels,
            classes,
            mechanism=law,
            clip=clip,
            learning_rate=0.2 / bound,
            steps=5,
            public_size=count,
            seed=0,
        )
        for number in (0, 1, 4):
            line = measured(law, run.trajectory[number], features, labels, clip, arguments.dense)
            print(f"  clip {bound:5g}, step {number + 1}: {line}", flush=True)
    print(f"peak memory {peak_memory(device):.0f} MiB")


if __name__ == "__main__":
    main()
