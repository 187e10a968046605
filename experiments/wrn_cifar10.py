"""A wide residual network trained privately on CIFAR-10 from scratch, as by De et al. (arXiv 2204.13650).

    python -m experiments.wrn_cifar10 --data cifar10.npz --epsilon 8 --steps 2400 --out wrn-8
    python -m experiments.wrn_cifar10 --data cifar10.npz --epsilon 8 --steps 2400 --out wrn-8 --resume
    python -m experiments.wrn_cifar10 --draw wrn-1 wrn-8 --out charts

Weights are standardised, normalisation is by groups, each example has several augmentations whose gradients
are averaged before the clip, and weights are averaged over steps. A run stops after ``--minutes`` and goes on
with ``--resume`` and the same settings. The folder then holds the run (run.ckpt, with the averaged weights,
and its journal) and a curve of accuracies on the test images; the third line draws such curves. The settings
are the paper's, not chosen on these data.
"""

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

import ringfence as rf
from experiments.drawing import Drawn, curve
from experiments.features import read_images
from experiments.information.network import GatheredImages, accuracy, collate
from experiments.networks import standardised_wide_resnet
from ringfence.report.chart import Chart, Panel

_PADDING = 4
_SAVED_EVERY = 120.0  # seconds


def crop_and_flip(images: Tensor) -> Tensor:
    """Each image shifted by up to four pixels both ways, mirrored at the edges, and flipped or not."""
    count, _, height, width = images.shape
    device = images.device
    shift = torch.randint(-_PADDING, _PADDING + 1, (2, count, 1), device=device)
    y, x = (shift[side] + torch.arange(size, device=device) for side, size in enumerate((height, width)))
    x = torch.where(torch.rand(count, 1, device=device) < 0.5, x, x.flip(1))
    y, x = (
        torch.where(at < 0, -1 - at, torch.where(at >= size, 2 * size - 1 - at, at))
        for at, size in ((y, height), (x, width))
    )
    which = torch.arange(count, device=device)[:, None, None]
    # channels last, as convolutions on a GPU want them
    return images.permute(0, 2, 3, 1)[which, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def averaged_with(decay: float) -> Any:
    """The update of an exponential moving average that forgets its first steps sooner."""

    def update(averages: list[Tensor], weights: list[Tensor], count: Tensor | int) -> None:
        step = int(count)
        kept = min(decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(averages, weights, 1 - kept)

    return update


def settings(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--data", type=Path, help="npz with x_train, y_train, ...")
    work.add_argument("--draw", type=Path, nargs="+", help="folders of runs, whose curves are drawn")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many, and save")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--sigma", type=float, help="in place of epsilon: as many steps as are asked for")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--augmentations", type=int, default=16)
    parser.add_argument("--rows", type=int, default=8192, help="how many go through the network at once")
    parser.add_argument("--learning-rate", type=float, default=2.0)
    parser.add_argument("--decay", type=float, default=0.9999, help="of the averaged weights")
    parser.add_argument("--norm", type=float, default=1.0, help="the L2 clip")
    parser.add_argument("--clamp", type=float, help="the clip of each coordinate, in place of --norm")
    parser.add_argument("--noise", choices=("gaussian", "rectified", "truncated"), default="gaussian")
    parser.add_argument("--bound", type=float, help="of rectified and truncated noise")
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--every", type=int, default=200, help="steps between two accuracies")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(arguments)


class Training:
    """One visit to a run: from where it stands until its steps are made or its minutes are over."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, device = given, torch.device(given.device)
        self.half = device.type == "cuda"
        torch.backends.cudnn.benchmark = True
        splits = read_images(given.data).splits
        train, self.test = (
            (torch.from_numpy(splits[name][0]).to(device), torch.from_numpy(splits[name][1]).to(device))
            for name in ("train", "test")
        )
        torch.manual_seed(0 if given.seed is None else given.seed)  # of the first weights, which are public
        network = standardised_wide_resnet(given.depth, given.width).to(device)
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        sigma = 3.0 if given.sigma is None else given.sigma  # which the search begins with
        self.engine = rf.PrivacyEngine(
            rf.Mechanism.by_name(given.noise, sigma=sigma, bound=given.bound),
            rf.Norm(given.norm) if given.clamp is None else rf.Clamp(given.clamp),
            public_size=len(train[1]),
            augmentations=given.augmentations,
            transform=crop_and_flip,
            micro_batch_size=max(1, given.rows // given.augmentations),
            cuda_graphs=device.type == "cuda",
            seed=given.seed,
        )
        optimizer = torch.optim.SGD(network.parameters(), lr=given.learning_rate)
        loader: DataLoader[Any] = DataLoader(GatheredImages(*train), given.batch, collate_fn=collate)
        private = (network, optimizer, loader)
        target = {"target_epsilon": given.epsilon, "target_delta": given.delta, "steps": given.steps}
        self.model, self.optimizer, self.loader = (
            self.engine.make_private_with_epsilon(*private, **target)
            if given.sigma is None
            else self.engine.make_private(*private)
        )
        self.averaged = AveragedModel(self.model, multi_avg_fn=averaged_with(given.decay))
        given.out.mkdir(parents=True, exist_ok=True)
        self.file = given.out / "run.ckpt"
        if given.resume:
            self.engine.load(self.file, averaged=self.averaged)

    def train(self) -> None:
        """Makes steps until there are enough, or until time is up."""
        print(f"sigma {self.engine.mechanism.sigma:.4f}, from step {self.engine.steps}", flush=True)
        start = saved = time.monotonic()
        first = self.engine.steps
        while self.engine.steps < self.given.steps:
            for images, labels in self.loader:
                before = self.engine.steps
                self.optimizer.zero_grad()
                with torch.autocast(images.device.type, torch.bfloat16, enabled=self.half):
                    outputs = self.model(images)
                cross_entropy(outputs, labels).backward()
                self.optimizer.step()
                if self.engine.steps == before:
                    continue
                self.averaged.update_parameters(self.model)
                now, steps = time.monotonic(), self.engine.steps
                over = steps >= self.given.steps or now - start > 60 * self.given.minutes
                if steps == first + 3:
                    begun = now  # kernels are compiled, and passes recorded
                if over or steps % self.given.every == 0:
                    each = (now - begun) / (steps - first - 3) if steps > first + 3 else (now - start)
                    self.report(each, (now - start) / 60)
                if over or now - saved > _SAVED_EVERY:
                    self.engine.save(self.file, averaged=self.averaged)
                    saved = time.monotonic()
                if over:
                    return

    def report(self, each: float, minutes: float) -> None:
        """Prints and keeps where the run stands."""
        self.model.eval()
        self.averaged.eval()
        device = torch.device(self.given.device)
        line = {
            "steps": self.engine.steps,
            "epsilon": round(self.engine.guarantee(self.given.delta).epsilon, 4),
            "accuracy": accuracy(self.model, self.test, self.half),
            "averaged accuracy": accuracy(self.averaged, self.test, self.half),
            "ms a step": round(1000 * each, 1),
            "minutes": round(minutes, 2),
            "GiB": round(torch.cuda.max_memory_allocated() / 2**30, 1) if device.type == "cuda" else None,
        }
        self.model.train()
        print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
        curve = self.given.out / "curve.csv"
        new = not curve.exists()
        with curve.open("a", newline="") as out:
            writer = csv.DictWriter(out, line)
            if new:
                writer.writeheader()
            writer.writerow(line)


def draw(folders: Sequence[Path], out: Path) -> None:
    """Writes a chart and the rows of the curves in these folders, one for each run."""
    curves = [pandas.read_csv(folder / "curve.csv").assign(run=folder.name) for folder in folders]
    lines = [
        curve(f"{run.run[0]}, {name}", run, "epsilon", column, dashed=column == "accuracy")
        for run in curves
        for name, column in (("averaged weights", "averaged accuracy"), ("last weights", "accuracy"))
    ]
    caption = "Accuracy on the test images against the (ε, δ)-DP spent so far, for every dataset."
    panel = Panel("", "ε", "accuracy", tuple(lines))
    out.mkdir(parents=True, exist_ok=True)
    Drawn(
        Chart("wrn_cifar10", "WRN-16-4 on CIFAR-10, from scratch", caption, (panel,)), pandas.concat(curves)
    ).save(out)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, or draws, as the command line says."""
    given = settings(arguments)
    if given.draw:
        draw(given.draw, given.out)
        return
    training = Training(given)
    training.train()
    training.engine.close()
    print(training.engine.guarantee(training.given.delta).statement)


if __name__ == "__main__":
    main()
